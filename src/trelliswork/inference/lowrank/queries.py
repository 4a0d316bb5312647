"""Queries about one sentence with evidence: posterior and best states, samples, next states.

Evidence about a position opens some blocks: one block for a word, several for a set of words, all but that of the
sentence end for any word. A position carries k numbers for each open block.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.errors import ImpossibleError
from trelliswork.inference.lowrank.packing import Ints
from trelliswork.inference.lowrank.potentials import Blocks, Transition

AT_ONCE = 1 << 25  # numbers in matrices of moves that are computed together


class Open(NamedTuple):
    """Evidence about a position."""

    blocks: Ints  # (n,) open blocks, ascending
    log_emission: Tensor  # (n, k) log p(evidence | state)


class Messages:
    """Forward and, on demand, backward messages of one sentence: ``log_start`` (C, k), a sequence of `Open`."""

    def __init__(self, log_start: Tensor, transition: Blocks | Transition, evidence: Sequence[Open]) -> None:
        self.transition, self.evidence = transition, evidence
        self.log_z, self.predicted, self.alpha = 0.0, list[Tensor](), list[Tensor]()
        start = log_start.reshape(-1, log_start.shape[-1]).exp()
        self._likely, self._norms = [], []
        for t, (blocks, log_emission) in enumerate(evidence):
            if t == 0:
                predicted = start[torch.from_numpy(blocks)]
            else:
                predicted = moved(transition, self.alpha[-1], evidence[t - 1].blocks, blocks)
            shift = log_emission.max()
            shift = shift if torch.isfinite(shift) else torch.zeros_like(shift)
            likely = torch.exp(log_emission - shift)
            joint = predicted * likely
            total = joint.sum()
            self.predicted.append(predicted)
            self.alpha.append(joint / total.clamp_min(torch.finfo(total.dtype).tiny))
            self._likely.append(likely)
            self._norms.append(total)
            with np.errstate(divide="ignore"):
                self.log_z += float(np.log(float(total))) + float(shift)

    def possible(self, message: str) -> "Messages":
        """Raise an error if the evidence has probability zero."""
        if self.log_z == -np.inf:
            raise ImpossibleError(message)
        return self

    def backward(self) -> list[Tensor]:
        """Return p(later evidence | state) up to a factor, for each position; alpha times it is the posterior."""
        beta = [torch.ones_like(self.alpha[-1])] if self.alpha else []
        for t in range(len(self.evidence) - 1, 0, -1):
            message = self._likely[t] * beta[0] / self._norms[t]
            blocks = self.evidence[t - 1].blocks, self.evidence[t].blocks
            beta.insert(0, moved(self.transition, message, *blocks, back=True))
        return beta

    def following(self, n_blocks: int) -> Tensor:
        """Return p(next state | evidence) (C, k)."""
        return moved(self.transition, self.alpha[-1], self.evidence[-1].blocks, np.arange(n_blocks))


def moved(transition: Blocks | Transition, rows: Tensor, before: Ints, after: Ints, *, back: bool = False) -> Tensor:
    """Return the states (n', k) of blocks ``after`` from those of ``before``, rows (n, k); with ``back`` messages.

    Rows may also be several for each block, (n, r, k).
    """
    k = rows.shape[-1]
    out = rows.new_zeros(len(before) if back else len(after), *rows.shape[1:])
    for i, j, some, pairs in _some(transition, before, after, k):
        given = rows[j if back else i]
        which = np.repeat(np.arange(len(pairs)), given[0].numel() // k)
        results, compressed = torch.empty_like(given), rows.new_empty(len(which), some.width)
        move = some.pull if back else some.push
        move(given.reshape(-1, k), which, pairs, compressed, results.view(-1, k))
        out.index_add_(0, i if back else j, results)
    return out


def step(transition: Blocks | Transition, rows: Tensor, before: Ints, after: Ints) -> Tensor:
    """Return the states (n, k) of blocks ``after`` (n,), each from a row of states (n, k) of block ``before``."""
    C = int(max(before.max(), after.max())) + 1
    codes, which = np.unique(before * C + after, return_inverse=True)
    pairs = np.stack(np.divmod(codes, C), axis=1)
    given = transition.between(pairs) if isinstance(transition, Blocks) else transition
    out = torch.empty_like(rows)
    given.push(rows, which, pairs, rows.new_empty(len(rows), given.width), out)
    return out


def _some(
    transition: Blocks | Transition, before: Ints, after: Ints, k: int
) -> Iterator[tuple[Tensor, Tensor, Transition, Ints]]:
    """Yield indices of blocks before and after, and the transition between them, for all pairs of blocks."""
    n = len(before) * len(after)
    step = max(1, AT_ONCE // k**2)
    for first in range(0, n, step):
        i, j = np.divmod(np.arange(first, min(n, first + step)), len(after))
        pairs = np.stack([before[i], after[j]], axis=1)
        given = transition.between(pairs) if isinstance(transition, Blocks) else transition
        yield torch.from_numpy(i), torch.from_numpy(j), given, pairs


def viterbi(log_start: Tensor, transition: Blocks | Transition, evidence: Sequence[Open]) -> tuple[list[int], float]:
    """Return the most probable states of a sentence, block times k plus state, and log p(words, states).

    Maximization does not factor through a rank: time O(T k^2).
    """
    k = log_start.shape[-1]
    score, backs = torch.empty(0), list[tuple[Tensor, Tensor]]()
    for t, (blocks, log_emission) in enumerate(evidence):
        if t == 0:
            score = log_start.reshape(-1, k)[torch.from_numpy(blocks)].double()
        else:
            before = evidence[t - 1].blocks
            best = torch.full((len(blocks), k), -torch.inf, dtype=torch.float64)
            source, state = torch.zeros(2, len(blocks), k, dtype=torch.int64)
            for i, j, some, pairs in _some(transition, before, blocks, k):
                for matrix, a, b in zip(some.dense(pairs).log(), i.tolist(), j.tolist(), strict=True):
                    value, at = (score[a][:, None] + matrix).max(dim=0)
                    better = value > best[b]
                    best[b] = torch.where(better, value, best[b])
                    source[b], state[b] = torch.where(better, a, source[b]), torch.where(better, at, state[b])
            backs.append((source, state))
            score = best
        score = score + log_emission
    value = float(score.max())
    if value == -np.inf:
        raise ImpossibleError("a sentence has probability zero, so it has no best states.")
    b, z = divmod(int(score.argmax()), k)
    path = [int(evidence[-1].blocks[b]) * k + z]
    for t in range(len(evidence) - 2, -1, -1):
        b, z = int(backs[t][0][b, z]), int(backs[t][1][b, z])
        path.insert(0, int(evidence[t].blocks[b]) * k + z)
    return path, value


def draw(odds: NDArray[np.floating], rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to ``odds``."""
    sums = np.cumsum(odds, dtype=np.float64)
    at = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    while at >= len(odds) or odds[at] == 0:  # rounding at the upper end
        at -= 1
    return at
