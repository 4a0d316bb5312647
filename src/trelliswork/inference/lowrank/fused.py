"""Forward and backward over all sentences at once, for transitions of low rank: faster than ``sweep.py``.

Threads share the states of each position instead of the sentences: each matrix is read once per position, and there is
one set of counts. A group of states goes through both products, emissions and counts while it is in the cache
(``kernels/fused.py``); the products stay in registers (``kernels/products.py``).
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute import threads
from trelliswork.inference.lowrank.kernels import fused
from trelliswork.inference.lowrank.kernels.products import ROWS, lay_rows, width
from trelliswork.inference.lowrank.kernels.tickets import COUNTERS
from trelliswork.inference.lowrank.memory import zeros
from trelliswork.inference.lowrank.packing import Packed
from trelliswork.inference.lowrank.potentials import LowRank
from trelliswork.inference.lowrank.sweep import Counts

CHUNK_ROWS = 256  # rows whose messages are kept until the transition counts are added: a deep enough product
MOST_BLOCKS = 8  # blocks of states for threads: the compressed states of each must be summed
LEAST_GROUPS = 4  # groups per block
LEAST_WORK = 500_000  # multiplications per block
Array = NDArray[np.floating]


class Fused:
    """Forward and backward passes over packed sentences, for a transition without a band.

    ``start`` (S,) are probabilities, ``emission[w, z]`` is p(word w | z), up to a factor for each word; the largest
    should be near one. With ``shift`` (W,), ``emission`` holds logarithms, from which the shift of each word is
    subtracted. With ``keep``, the states are kept for a backward pass. ``norms`` (N,) are the sums of the states at
    each word before they are normalized.

    Time O(N S R); memory O(N (S + R)), without ``keep`` O(B R). States are normalized after the product. A word whose
    probability given the words before is below the square root of the smallest number is too improbable for that: its
    sentence is *lost*, that is, it has log evidence -inf and no counts, and is left to ``Sweep``.
    """

    def __init__(
        self,
        packed: Packed,
        start: Tensor,
        transition: LowRank,
        emission: Tensor,
        shift: Tensor | None = None,
        *,
        keep: bool = True,
    ) -> None:
        self.packed, self.keep = packed, keep
        self._left, self._right = (x.detach().contiguous() for x in (transition.left, transition.right))
        self.start, emission = start.detach().contiguous(), emission.detach().contiguous()
        S, R = transition.left.shape
        N, n = len(packed.words), int(packed.sizes[0])
        w = int(width(self.start.numpy()))
        self._width, self._wide = w, w * fused.GROUP_PANELS
        n_groups, n_tiles, n_panels = -(-S // self._wide), -(-n // ROWS), -(-R // w)
        n_blocks = max(1, min(MOST_BLOCKS, n_groups // LEAST_GROUPS, n * S * R // LEAST_WORK))
        dtype = self.start.numpy().dtype
        self._blocks = fused.Blocks(
            edges=np.arange(n_blocks + 1) * n_groups // n_blocks,
            tiles=self._empty(n_tiles, R, ROWS),
            partial=self._empty(n_blocks, n_tiles, n_panels, ROWS, w),
            sums=self._empty(n_blocks, packed.n_sentences, w // 3),
        )
        self.norms: NDArray[np.float64] = np.empty(N)
        self._filtered = fused.Filtered(
            states=None,
            compressed=np.zeros((n_panels, N if keep else n, w), dtype),
            norms=self.norms,
            inverse=np.empty(N, dtype),
            least=float(np.finfo(dtype).tiny) ** 0.5,
            keep=keep,
        )
        self._states: list[Array] = []
        shifts = np.zeros(len(emission), dtype) if shift is None else shift.numpy()
        self._emission = emission.numpy(), shifts, shift is not None
        self._sentences = fused.Sentences(packed.sizes, packed.offsets, packed.words)

    def _empty(self, *shape: int) -> Array:
        array: Array = zeros(*shape, dtype=self.start.dtype).numpy()
        return array

    def _chunks(self) -> list[tuple[int, int]]:
        """Return ranges of positions (first, last) whose messages are kept together."""
        offsets, edges = self.packed.offsets, [0]
        if not self.keep:
            return [(0, len(offsets) - 1)]
        while edges[-1] < len(offsets) - 1:
            end = int(np.searchsorted(offsets, offsets[edges[-1]] + CHUNK_ROWS, side="right")) - 1
            edges.append(max(edges[-1] + 1, end))
        return list(pairwise(edges))

    def _together(self, calls: list[Callable[[Any], None]]) -> None:
        """Run ``calls[k](thread)`` on thread k."""
        counters = np.zeros(COUNTERS, np.int64)
        n, room = len(calls), self._blocks.partial.shape[2] * self._wide * self._width
        own = [fused.Thread(self._empty(room), counters) for _ in range(n)]
        threads.run(lambda k, _: calls[k](own[k]), [(k, k + 1) for k in range(n)])

    def _n_threads(self) -> int:
        return min(threads.get_num_threads(), len(self._blocks.edges) - 1)

    def _model(self, across: Tensor, along: Tensor) -> Any:
        """Return the parameters of one direction: ``along`` compresses states, ``across`` maps them back to states."""
        matrix, (S, R) = across.numpy(), across.shape
        panels = self._empty(-(-S // self._width), R, self._width)
        ranges = threads.cut(np.full(len(panels), R * self._width), least=threads.LEAST_WORK)
        threads.run(lay_rows, ranges, matrix, panels)
        return fused.Model(self.start.numpy(), *self._emission, panels, along.numpy())

    def forward(self) -> NDArray[np.float64]:
        """Return the log evidence of each sentence (B,), in the packed order; -inf for lost sentences."""
        packed, blocks = self.packed, self._blocks
        model = self._model(self._right, self._left)
        n_threads, n_groups = self._n_threads(), int(blocks.edges[-1])
        self._states = []
        for first, last in self._chunks():
            if self.keep:
                rows = int(packed.offsets[last] - packed.offsets[first])
                states = [self._empty(n_groups, rows + ROWS - 1, self._wide)] * n_threads
                self._states.append(states[0])
            else:
                shape = 1, packed.n_sentences + ROWS - 1, self._wide
                states = [self._empty(*shape) for _ in range(n_threads)]
            kernel = partial(fused.forward, first, last, self._sentences, model, blocks)
            self._together([partial(kernel, self._filtered._replace(states=own)) for own in states])
        log_z = np.zeros(packed.n_sentences)
        with np.errstate(divide="ignore"):
            logs = np.where(self._filtered.inverse > 0, np.log(self.norms), -np.inf)
        for t, n in enumerate(packed.sizes.tolist()):
            log_z[:n] += logs[packed.offsets[t] : packed.offsets[t + 1]]
        return log_z

    def backward(self, weights: NDArray[np.floating], counts: Counts) -> None:
        """Add the counts of each sentence times its weight (B,), in the packed order, to ``counts``.

        States are freed as they are used; another backward pass recomputes them.
        """
        if not self._states:
            self.forward()
        dtype = self._filtered.inverse.dtype
        model = self._model(self._left, self._right)
        sums = fused.Sums(*(x.numpy() for x in (counts.start, counts.emission, *counts.transition)))
        values = self._empty(max(states.size for states in self._states))
        messages = fused.Messages(
            values, np.zeros_like(self._filtered.compressed), weights.astype(dtype), np.ones(len(weights), dtype)
        )
        for first, last in reversed(self._chunks()):
            states = self._states.pop()
            filtered = self._filtered._replace(states=states)
            own = messages._replace(values=values[: states.size].reshape(states.shape))
            kernel = partial(fused.backward, first, last, self._sentences, model, self._blocks, filtered, own, sums)
            self._together([kernel] * self._n_threads())
