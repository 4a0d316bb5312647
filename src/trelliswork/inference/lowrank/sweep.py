"""Forward and backward over one packed group of sentences, with two thin matrix products per position.

A group is the work of one thread: its products run on that thread alone, so that results do not depend on the number of
threads.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.inference.lowrank.kernels.rows import absorb, observe
from trelliswork.inference.lowrank.packing import Packed
from trelliswork.inference.lowrank.potentials import Transition

BLOCK_ROWS = 256  # rows whose messages are kept until the transition counts are added: a deep enough product


@dataclass
class Counts:
    """Weighted expected counts: the gradient of the weighted sum of log evidences."""

    start: Tensor  # (S,) first states: the gradient with respect to ``log start``
    emission: Tensor  # (W, S) states at words: the gradient with respect to ``log emission``
    transition: list[Tensor]  # the gradient with respect to the tensors of the transition (not their logarithms)


class Sweep:
    """Messages of one group: ``start`` (S,), ``emission[w, z]`` is p(word w | z) up to a factor for each word.

    With ``every``, the states of every ``every``-th position only are kept; the backward pass recomputes the others and
    takes a sixth longer. Time O(N S R); memory O(N (S + R)), with ``every`` O(N (S / every + R) + every B S).
    """

    def __init__(
        self, packed: Packed, start: Tensor, transition: Transition, emission: Tensor, *, every: int | None = None
    ) -> None:
        self.packed, self.start, self.transition, self.emission = packed, start, transition, emission
        self.every = every
        N, S = len(packed.words), len(start)
        self.norms: NDArray[np.float64] = np.empty(N)
        self._compressed = torch.empty(N, transition.width, dtype=start.dtype)
        kept = np.ones(len(packed.sizes), bool) if every is None else np.arange(len(packed.sizes)) % every == every - 1
        starts = np.cumsum(np.where(kept, packed.sizes, 0)) - packed.sizes
        self._kept, self._at = kept, starts  # positions whose states are kept, and their first rows
        self._alpha = torch.empty(int(packed.sizes[kept].sum()), S, dtype=start.dtype)

    def forward(self) -> NDArray[np.float64]:
        """Return the log evidence of each sentence (B,), in the packed order."""
        packed = self.packed
        spare = None
        if self.every is not None:
            shape = 2, int(packed.sizes[0]), len(self.start)
            spare = torch.empty(shape, dtype=self.start.dtype)
        log_z = np.zeros(packed.n_sentences)
        before = torch.empty(0)
        for t, n in enumerate(packed.sizes.tolist()):
            if self._kept[t]:
                alpha = self._alpha[self._at[t] : self._at[t] + n]
            else:
                assert spare is not None
                alpha = spare[t % 2, :n]
            self._step(t, before[:n], alpha, push=True)
            with np.errstate(divide="ignore"):
                log_z[:n] += np.log(self.norms[packed.offsets[t] : packed.offsets[t + 1]])
            before = alpha
        return log_z

    def states(self) -> Tensor:
        """Return p(z_t | words up to t) (N, S), packed; requires ``every=None``."""
        return self._alpha

    def _step(self, t: int, before: Tensor, alpha: Tensor, *, push: bool) -> None:
        """Compute the states at position t from those of the position before."""
        a, b = self.packed.offsets[t], self.packed.offsets[t + 1]
        words, emission = self.packed.words[a:b], self.emission.numpy()
        if t == 0:
            alpha[:] = self.start
        else:
            step = self.transition.push if push else self.transition.push_again
            step(before, self._compressed[a:b], alpha)
        observe(alpha.numpy(), emission, words, self.norms[a:b])

    def backward(self, weights: NDArray[np.floating], counts: Counts, marginals: Tensor | None = None) -> None:
        """Add the counts of each sentence times its weight (B,), in the packed order, to ``counts``.

        ``marginals`` (N, S), if given, receives p(z_t | x) times the weight, packed.
        """
        packed, S = self.packed, len(self.start)
        beta = torch.empty(int(packed.sizes[0]), S, dtype=self.start.dtype)
        weight = torch.as_tensor(weights, dtype=self.start.dtype)
        last = len(packed.sizes)
        while last > 0:
            first = self._block(last)
            self._through(first, last, self._states(first, last), beta, weight, counts, marginals)
            last = first

    def _block(self, last: int) -> int:
        """Return the first position of the block that ends before ``last``."""
        if self.every is not None:
            return (last - 1) // self.every * self.every
        return max(0, min(last - 1, int(np.searchsorted(self.packed.offsets, self.packed.offsets[last] - BLOCK_ROWS))))

    def _states(self, first: int, last: int) -> list[Tensor]:
        """Return the states of positions ``first - 1`` (empty for 0) to ``last``, recomputed if they were not kept."""
        sizes = self.packed.sizes
        states = [torch.empty(0)]
        if first > 0:
            states = [self._alpha[self._at[first - 1] : self._at[first - 1] + sizes[first - 1]]]
        for t in range(first, last):
            if self._kept[t]:
                alpha = self._alpha[self._at[t] : self._at[t] + sizes[t]]
            else:
                alpha = torch.empty(int(sizes[t]), len(self.start), dtype=self.start.dtype)
                self._step(t, states[-1][: sizes[t]], alpha, push=False)
            states.append(alpha)
        return states

    def _through(
        self,
        first: int,
        last: int,
        states: list[Tensor],
        beta: Tensor,
        weight: Tensor,
        counts: Counts,
        marginals: Tensor | None,
    ) -> None:
        """Pass messages from position ``last - 1`` down to ``first``; ``beta`` ends as that of ``first - 1``."""
        packed, R, S = self.packed, self.transition.width, len(self.start)
        offsets, sizes = packed.offsets, packed.sizes
        a, b = int(offsets[first]), int(offsets[last])
        message = torch.empty(b - a, S, dtype=self.start.dtype)
        compressed = torch.empty(b - a, R, dtype=self.start.dtype)
        emission, sums = self.emission.numpy(), counts.emission.numpy()
        for t in range(last - 1, first - 1, -1):
            n, after = int(sizes[t]), int(sizes[t + 1]) if t + 1 < len(sizes) else 0
            beta[after:n] = weight[after:n, None]  # sentences that end here
            rows = slice(int(offsets[t]) - a, int(offsets[t + 1]) - a)
            words, norms = packed.words[offsets[t] : offsets[t + 1]], self.norms[offsets[t] : offsets[t + 1]]
            alpha = states[t - first + 1]
            absorb(beta[:n].numpy(), alpha.numpy(), emission, words, norms, sums, message[rows].numpy())
            if marginals is not None:
                torch.mul(alpha, beta[:n], out=marginals[offsets[t] : offsets[t + 1]])
            if t > 0:
                self.transition.pull(message[rows], compressed[rows], beta[:n])
            else:
                counts.start += (alpha * beta[:n]).sum(dim=0)
        start = max(first, 1)
        if start < last:
            rows = slice(int(offsets[start]) - a, b - a)
            where = slice(int(offsets[start]), b)
            # The rows at each position that have a next word.
            before = torch.cat([states[t - first][: sizes[t]] for t in range(start, last)])
            self.transition.accumulate(
                counts.transition, before, self._compressed[where], message[rows], compressed[rows]
            )
