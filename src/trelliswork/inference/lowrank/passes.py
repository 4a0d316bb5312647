"""Passes over sentences: log evidence, expected counts, posterior and best states, samples, next states.

Words are rows of ``log_emission`` (W, S). A row may also represent other evidence: for a set of words, the logarithm of
the sum of their emissions; for an unknown word, zeros.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute import threads, torch_threads
from trelliswork.errors import ImpossibleError
from trelliswork.inference.lowrank import memory
from trelliswork.inference.lowrank.fused import Fused
from trelliswork.inference.lowrank.kernels.rows import best_before
from trelliswork.inference.lowrank.packing import Ints, Packed, groups, merge, pack
from trelliswork.inference.lowrank.potentials import LowRank, Transition, check, scaled, word_shifts
from trelliswork.inference.lowrank.sweep import Counts, Sweep

Floats = NDArray[np.floating]


def run_groups(parts: Sequence[object], work: Callable[[int], None]) -> None:
    """Call ``work(k)`` for each group, on the threads of the pool."""

    def span(first: int, last: int) -> None:
        with torch.no_grad():  # a setting of each thread
            for k in range(first, last):
                work(k)

    torch_threads.run(span, [(k, k + 1) for k in range(len(parts))])


def fusible(transition: Transition) -> TypeGuard[LowRank]:
    """Return whether ``Fused`` supports the transition."""
    return isinstance(transition, LowRank) and transition.band is None


class ForwardBackward:
    """Both passes over groups of sentences: by ``Fused`` where possible, otherwise and for lost ones by ``Sweep``.

    ``emission`` (W, S) are probabilities up to a factor per word, which the caller adds to the log evidences; with
    ``shift`` (W,) their logarithms, from which the shift of each word is subtracted.
    """

    def __init__(
        self,
        parts: list[Packed],
        start: Tensor,
        transition: Transition,
        emission: Tensor,
        shift: Tensor | None = None,
        *,
        every: int | None = None,
    ) -> None:
        self._parts, self._every = parts, every
        self._start, self._transition, self._emission, self._shift = start, transition, emission, shift
        self._fused: Fused | None = None
        self._sweeps: list[Sweep] = []

    def forward(self) -> NDArray[np.float64]:
        """Return the log evidence of each sentence (B,), in the caller's order."""
        log_z = np.empty(sum(part.n_sentences for part in self._parts))
        start, transition, emission, parts = self._start, self._transition, self._emission, self._parts
        if self._every is None and fusible(transition):
            packed = merge(parts)
            self._fused = Fused(packed, start, transition, emission, self._shift)
            log_z[packed.order] = self._fused.forward()
            parts = lost_sentences(packed, log_z)
        if parts and self._shift is not None:
            emission = torch.exp(emission - self._shift[:, None])
        self._sweeps = [Sweep(part, start, transition, emission, every=self._every) for part in parts]
        forward_groups(self._sweeps, log_z)
        return log_z

    def backward(self, weights: Floats) -> Counts:
        """Return the expected counts of all sentences, times their weights (B,)."""
        total, sweeps = zero_counts(self._start, self._transition, self._emission), self._sweeps
        if self._fused is not None:
            self._fused.backward(weights[self._fused.packed.order], total)
        parts = [zero_counts(s.start, s.transition, s.emission) for s in sweeps]
        run_groups(sweeps, lambda k: sweeps[k].backward(weights[sweeps[k].packed.order], parts[k]))
        for part in parts:  # in the order of groups
            total.start += part.start
            total.emission += part.emission
            for mine, theirs in zip(total.transition, part.transition, strict=True):
                mine += theirs
        return total


def expectations(
    parts: list[Packed],
    start: Tensor,
    transition: Transition,
    emission: Tensor,
    weight: float,
    *,
    every: int | None = None,
) -> tuple[NDArray[np.float64], Counts]:
    """Return log evidences in the caller's order, and weighted expected counts; see `ForwardBackward`."""
    both = ForwardBackward(parts, start, transition, emission, every=every)
    log_z = both.forward()
    return log_z, both.backward(np.full(len(log_z), weight))


def forward_groups(sweeps: list[Sweep], log_z: NDArray[np.float64]) -> None:
    """Set the log evidences of the sentences of each group."""

    def work(k: int) -> None:
        log_z[sweeps[k].packed.order] = sweeps[k].forward()

    run_groups(sweeps, work)


def lost_sentences(packed: Packed, log_z: NDArray[np.float64]) -> list[Packed]:
    """Return a group of the sentences that ``Fused`` has lost (log_z, in the caller's order, is -inf); [] if none."""
    lost = np.flatnonzero(np.isneginf(log_z[packed.order]))
    if lost.size == 0:
        return []
    rows = [packed.rows(b) for b in lost.tolist()]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    part = pack(packed.words[np.concatenate(rows)], offsets)
    return [replace(part, order=packed.order[lost][part.order])]


def zero_counts(start: Tensor, transition: Transition, emission: Tensor) -> Counts:
    """Return counts of zero."""
    first, words = (memory.zeros(*x.shape, dtype=x.dtype) for x in (start, emission))
    return Counts(first, words, transition.zeros())


def score(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints
) -> NDArray[np.float64]:
    """Return log p(words) of each sentence (B,); sentences that underflow in float32 are recomputed in float64."""
    check(log_start, transition, log_emission, words, offsets)
    emission, shift = scaled(log_emission)
    log_z = np.empty(len(offsets) - 1)
    if fusible(transition):
        packed = pack(words, offsets)
        log_z[packed.order] = Fused(packed, log_start.exp(), transition, emission, keep=False).forward()
    else:
        parts = groups(words, offsets)
        forward_groups([Sweep(p, log_start.exp(), transition, emission, every=len(p.sizes) + 1) for p in parts], log_z)
    lost = np.flatnonzero(np.isneginf(log_z))
    if lost.size:
        double = type(transition)(*(part.double() for part in transition.tensors()))
        exact = torch.exp(log_emission.double() - torch.from_numpy(shift)[:, None])
        forward_groups([Sweep(pack(words, offsets, lost), log_start.double().exp(), double, exact)], log_z)
    return log_z + word_shifts(shift, words, offsets)


def marginals(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints
) -> tuple[NDArray[np.float64], Floats]:
    """Return the log evidence (B,) and p(state | sentence) of each word (N, S), in the order of the words."""
    check(log_start, transition, log_emission, words, offsets)
    emission, shift = scaled(log_emission)
    start, S = log_start.exp(), transition.n_states
    log_z, posterior = np.empty(len(offsets) - 1), torch.empty(len(words), S, dtype=start.dtype)
    parts = groups(words, offsets)
    sweeps = [Sweep(p, start, transition, emission) for p in parts]

    def work(k: int) -> None:
        p = parts[k]
        own = torch.empty(len(p.words), S, dtype=start.dtype)
        counts = zero_counts(start, transition, emission)
        log_z[p.order] = sweeps[k].forward()
        sweeps[k].backward(np.ones(p.n_sentences), counts, own)
        for b, n in enumerate(p.order.tolist()):
            posterior[int(offsets[n]) : int(offsets[n + 1])] = own[torch.from_numpy(p.rows(b))]

    run_groups(sweeps, work)
    return log_z + word_shifts(shift, words, offsets), posterior.numpy()


def following(log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints) -> Tensor:
    """Return p(next state | words so far) (S,); p(first state) if there are no words."""
    if len(words) == 0:
        return log_start.exp()
    impossible = "these words have probability zero, so no state can follow them."
    alpha = _filtered(log_start, transition, log_emission, words, impossible)[-1:]
    out = torch.empty_like(alpha)
    transition.push(alpha, torch.empty(1, transition.width, dtype=alpha.dtype), out)
    return out[0]


def step(states: Tensor, transition: Transition, log_emission: Tensor) -> tuple[NDArray[np.float64], Tensor]:
    """Return log p(word | words before it) (n,), and p(next state | words) (n, S), of one more word per row.

    ``states`` (n, S) are p(state | words before it), ``log_emission`` (n, S) rows of the words.
    """
    top = log_emission.max(dim=1, keepdim=True).values.clamp(min=torch.finfo(log_emission.dtype).min)
    joint = states * torch.exp(log_emission - top)
    total = joint.sum(dim=1, keepdim=True)
    alpha = joint / total.clamp(min=torch.finfo(total.dtype).tiny)
    out = torch.empty_like(alpha)
    transition.push(alpha, torch.empty(len(alpha), transition.width, dtype=alpha.dtype), out)
    return (total.double().log() + top)[:, 0].numpy(), out


def _filtered(log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, impossible: str) -> Tensor:
    """Return p(state | words up to it) (T, S) of one sentence; ``impossible`` is the message if it has none."""
    offsets = np.array([0, len(words)])
    check(log_start, transition, log_emission, words, offsets)
    emission, _ = scaled(log_emission)
    sweep = Sweep(pack(words, offsets), log_start.exp(), transition, emission)
    if np.isneginf(sweep.forward()[0]):
        raise ImpossibleError(impossible)
    return sweep.states()


def viterbi(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints
) -> tuple[Ints, NDArray[np.float64]]:
    """Return the most probable states of each sentence (N,), and log p(words, states) (B,).

    Maximization does not factor through the rank: time O(N S^2 + S^2 R), memory O(S^2).
    """
    check(log_start, transition, log_emission, words, offsets)
    log_transition = transition.dense().log().numpy()
    scores, first = log_emission.numpy(), log_start.numpy()
    states, values = np.empty(len(words), np.int64), np.empty(len(offsets) - 1)

    def work(start: int, stop: int) -> None:
        for n in range(start, stop):
            a, b = int(offsets[n]), int(offsets[n + 1])
            states[a:b], values[n] = _best_states(first, log_transition, scores, words[a:b])

    threads.run(work, threads.cut(np.diff(offsets) * len(first) ** 2, least=threads.LEAST_WORK))
    return states, values


def _best_states(first: Floats, log_transition: Floats, scores: Floats, words: Ints) -> tuple[Ints, float]:
    S, T = len(first), len(words)
    back = np.empty((T, S), np.int32)
    score, best = (first + scores[words[0]]).astype(np.float64), np.empty(S)
    for t in range(1, T):
        best_before(score, log_transition, best, back[t])
        score = best + scores[words[t]]
    path = np.empty(T, np.int64)
    path[-1] = score.argmax()
    for t in range(T - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    if np.isneginf(score.max()):
        raise ImpossibleError("a sentence has probability zero, so it has no best states.")
    return path, float(score.max())


def sample_states(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, n: int, rng: np.random.Generator
) -> Ints:
    """Draw n samples (n, T) from p(states | one sentence) by forward filtering, backward sampling. Time O(n T S R)."""
    impossible = "this sentence has probability zero, so it has no states to sample."
    with torch_threads.one_thread(), torch.no_grad():
        alpha = _filtered(log_start, transition, log_emission, words, impossible)
        states = np.empty((n, len(words)), np.int64)
        for k in range(n):
            odds = alpha[-1].numpy()
            for t in range(len(words) - 1, -1, -1):
                states[k, t] = draw(odds, rng)
                if t > 0:
                    odds = (alpha[t - 1] * transition.column(int(states[k, t]))).numpy()
    return states


def draw(odds: Floats, rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to ``odds``."""
    sums = np.cumsum(odds, dtype=np.float64)
    at = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    while at >= len(odds) or odds[at] == 0:  # rounding at the upper end
        at -= 1
    return at
