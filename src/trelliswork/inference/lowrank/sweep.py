"""Forward and backward over packed groups of sentences, one product with the matrix of its move per word.

A group is the work of one thread: its products run on that thread alone, so that results do not depend on the number of
threads. Expected counts are sums over all rows, after both passes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute import torch_threads
from trelliswork.inference.lowrank.kernels.rows import absorb, observe
from trelliswork.inference.lowrank.packing import Ints, Moves, Packed, groups
from trelliswork.inference.lowrank.potentials import Transition


@dataclass
class Counts:
    """Weighted expected counts: the gradient of the weighted sum of log evidences."""

    start: Tensor  # (C, k) first states: the gradient with respect to ``log start``
    emission: Tensor  # (W, k) states at words: the gradient with respect to ``log emission``
    transition: list[Tensor]  # the gradient with respect to the matrices of the transition (not their logarithms)
    scale: Tensor | None  # (M, k) the gradient with respect to its ``log_scale``


class ForwardBackward:
    """Messages of sentences: ``start`` (C, k), ``emission[w, z]`` is p(word w | z) up to a factor for each word.

    Time O(N k^2) for dense moves, O(N k R) for low rank; memory O(N (k + R)).
    """

    def __init__(
        self, start: Tensor, transition: Transition, emission: Tensor, words: Ints, offsets: Ints, moves: Moves
    ) -> None:
        self.start, self.transition, self.emission = start, transition, emission
        self.words, self.moves, self.parts = words, moves, groups(offsets)
        self.norms: NDArray[np.float64] = np.empty(len(words))
        self._sizes = [len(part.at) for part in self.parts]
        self._alpha = self._rows(len(words), start.shape[-1])
        self._forward = self._rows(len(words), transition.width)

    def _rows(self, n: int, width: int) -> list[Tensor]:
        """Return an array of rows, as one view for each group."""
        return list(torch.empty(n, width, dtype=self.start.dtype).split(self._sizes))

    def forward(self) -> NDArray[np.float64]:
        """Return the log evidence of each sentence (B,), in the caller's order."""
        log_z = np.empty(sum(part.n_sentences for part in self.parts))
        norms = np.split(self.norms, np.cumsum(self._sizes)[:-1])

        def work(g: int) -> None:
            part, alpha, compressed = self.parts[g], self._alpha[g], self._forward[g]
            own = np.zeros(part.n_sentences)
            for t, n in enumerate(part.sizes.tolist()):
                a, b = part.offsets[t], part.offsets[t + 1]
                words, which = self.words[part.at[a:b]], self.moves.into[part.at[a:b]]
                if t == 0:
                    alpha[a:b] = self.start.reshape(-1, alpha.shape[1])[torch.from_numpy(self.moves.blocks[words])]
                else:
                    before = alpha[part.offsets[t - 1] :][:n]
                    self.transition.push(before, which, self.moves.pairs, compressed[a:b], alpha[a:b])
                observe(alpha[a:b].numpy(), self.emission.numpy(), words, norms[g][a:b])
                with np.errstate(divide="ignore"):
                    own[:n] += np.log(norms[g][a:b])
            log_z[part.order] = own

        run_groups(self.parts, work)
        return log_z

    def backward(self, weights: NDArray[np.floating]) -> Tensor:
        """Pass messages back, times the weight of each sentence (B,); return p(z_t | x) times it (N, k)."""
        N, k = len(self.words), self.start.shape[-1]
        self._message, self._backward = self._rows(N, k), self._rows(N, self.transition.width)
        self._posterior = self._rows(N, k)
        norms = np.split(self.norms, np.cumsum(self._sizes)[:-1])
        ordered = torch.empty(N, k, dtype=self.start.dtype)

        def work(g: int) -> None:
            part, message, posterior = self.parts[g], self._message[g], self._posterior[g]
            weight = torch.as_tensor(weights[part.order], dtype=self.start.dtype)
            beta = torch.empty(int(part.sizes[0]), k, dtype=self.start.dtype)
            sizes = [*part.sizes.tolist(), 0]
            for t in range(len(part.sizes) - 1, -1, -1):
                n, a, b = sizes[t], part.offsets[t], part.offsets[t + 1]
                beta[sizes[t + 1] : n] = weight[sizes[t + 1] : n, None]  # sentences that end here
                arrays = beta[:n], self._alpha[g][a:b], self.emission
                words, which = self.words[part.at[a:b]], self.moves.into[part.at[a:b]]
                results = posterior[a:b].numpy(), message[a:b].numpy()
                absorb(*(x.numpy() for x in arrays), words, norms[g][a:b], *results)
                if t > 0:
                    self.transition.pull(message[a:b], which, self.moves.pairs, self._backward[g][a:b], beta[:n])
            ordered[torch.from_numpy(part.at)] = posterior

        run_groups(self.parts, work)
        return ordered

    def counts(self, posterior: Tensor) -> Counts:
        """Return the expected counts after ``backward``, which returned ``posterior``."""
        firsts = np.concatenate([part.at[: part.n_sentences] for part in self.parts])
        later = [torch.arange(part.n_sentences, len(part.at)) for part in self.parts]  # rows with a word before
        befores = [torch.from_numpy(before(part)) for part in self.parts]
        which = self.moves.into[np.concatenate([part.at[part.n_sentences :] for part in self.parts])]

        def gathered(rows: list[Tensor], at: list[Tensor]) -> Tensor:
            return torch.cat([x[i] for x, i in zip(rows, at, strict=True)])

        sources = gathered(self._alpha, befores), gathered(self._message, later)
        thin = gathered(self._forward, later), gathered(self._backward, later)
        scale = self.transition.log_scale
        if scale is not None:
            leaving = gathered(self._posterior, befores)
            scale = torch.zeros_like(scale).index_add_(0, torch.from_numpy(which), leaving)
        blocks = torch.from_numpy(self.moves.blocks[self.words[firsts]])
        start = torch.zeros_like(self.start).reshape(-1, posterior.shape[1])
        start.index_add_(0, blocks, posterior[torch.from_numpy(firsts)])
        emission = torch.zeros_like(self.emission).index_add_(0, torch.from_numpy(self.words), posterior)
        moved = self.transition.gradients(*sources, *thin, self.moves, which)
        return Counts(start.reshape(self.start.shape), emission, moved, scale)


def before(part: Packed) -> Ints:
    """Return the rows that precede those of the second and later positions."""
    sizes = part.sizes[1:]
    return np.repeat(part.offsets[:-2] - part.offsets[1:-1], sizes) + np.arange(part.n_sentences, len(part.at))


def run_groups(parts: Sequence[object], work: Callable[[int], None]) -> None:
    """Call ``work(k)`` for each group, on the threads of the pool."""

    def span(first: int, last: int) -> None:
        with torch.no_grad():  # a setting of each thread
            for k in range(first, last):
                work(k)

    torch_threads.run(span, [(k, k + 1) for k in range(len(parts))])
