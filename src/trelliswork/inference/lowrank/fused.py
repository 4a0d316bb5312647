"""Forward and backward over all sentences at once, for transitions of low rank: the fast way of ``sweep.py``.

Threads share each position's states instead of the sentences: each matrix is read once a position, and there is one
set of counts. A group of states goes through both products, emissions and counts while it is in the cache
(``fused_kernels.py``); the products keep to registers (``product_kernels.py``).
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute import threads
from trelliswork.inference.lowrank.kernels import fused as fused_kernels
from trelliswork.inference.lowrank.kernels import products as product_kernels
from trelliswork.inference.lowrank.kernels.tickets import COUNTERS
from trelliswork.inference.lowrank.memory import zeros
from trelliswork.inference.lowrank.operators import LowRank
from trelliswork.inference.lowrank.packing import Packed
from trelliswork.inference.lowrank.sweep import Counts

compiled: Any = fused_kernels
products: Any = product_kernels
ROWS = product_kernels.ROWS
CHUNK_ROWS = 256  # rows whose messages are kept until the transition counts are added: a deep enough product
MOST_BLOCKS = 8  # of states, for threads: each has features to add up
LEAST_GROUPS = 4  # of a block
LEAST_WORK = 500_000  # multiplications of a block
Array = NDArray[np.floating]
Counters = NDArray[np.int64]


class Fused:
    """Messages of packed sentences.

    Parameters
    ----------
    packed : Packed
    start : Tensor (S,)
        Probabilities.
    transition : LowRank
        Without a band.
    emission : Tensor (W, S)
        ``emission[w, z]`` is p(word w | z), up to a factor for each word; the largest should be near one.
    shift : Tensor (W,), optional
        If given, ``emission`` has logarithms, which are that much larger.
    keep : bool
        Keep the states for a backward pass.

    Attributes
    ----------
    norms : ndarray (N,)
        Sum of the states at each word before they are normalised.

    Notes
    -----
    Time O(N S R); memory O(N (S + R)), without ``keep`` O(B R). States are normalised after the product. A word whose
    probability, given those before, is below the square root of the smallest number is too improbable for that: its
    sentence is *lost*, has log evidence -inf and no counts, and is a task for ``Sweep``.
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
        w = int(products.width(self.start.numpy()))
        self._width, self._wide = w, w * fused_kernels.GROUP_PANELS
        n_groups, n_tiles, n_panels = -(-S // self._wide), -(-n // ROWS), -(-R // w)
        n_blocks = max(1, min(MOST_BLOCKS, n_groups // LEAST_GROUPS, n * S * R // LEAST_WORK))
        self._edges = np.arange(n_blocks + 1) * n_groups // n_blocks
        self._partial = self._empty(n_blocks, n_tiles, n_panels, ROWS, w)
        self._tiles = self._empty(n_tiles, R, ROWS)
        dtype = self._partial.dtype
        self._features = np.zeros((n_panels, N if keep else n, w), dtype)
        self._inverse = np.empty(N, dtype)
        self.norms: NDArray[np.float64] = np.empty(N)
        self._states: list[Array] = []
        shifts = np.zeros(len(emission), dtype) if shift is None else shift.numpy()
        self._given = (packed.sizes, packed.offsets, packed.words), (emission.numpy(), shifts, shift is not None)

    def _empty(self, *shape: int) -> Array:
        found: Array = zeros(*shape, dtype=self.start.dtype).numpy()
        return found

    def _chunks(self) -> list[tuple[int, int]]:
        """Positions (first, last) whose messages are kept together."""
        offsets, found = self.packed.offsets, [0]
        if not self.keep:
            return [(0, len(offsets) - 1)]
        while found[-1] < len(offsets) - 1:
            end = int(np.searchsorted(offsets, offsets[found[-1]] + CHUNK_ROWS, side="right")) - 1
            found.append(max(found[-1] + 1, end))
        return list(pairwise(found))

    def _together(self, work: Callable[[int, Array, Counters], None]) -> None:
        """Call ``work(k, room, counters)`` on each thread k."""
        counters = np.zeros(COUNTERS, np.int64)
        n = self._n_threads()
        rooms = [self._empty(self._partial.shape[2], self._wide, self._width).reshape(-1) for _ in range(n)]
        threads.run(lambda k, _: work(k, rooms[k], counters), [(k, k + 1) for k in range(n)])

    def _n_threads(self) -> int:
        return min(threads.get_num_threads(), len(self._edges) - 1)

    def _laid(self, matrix: Tensor) -> Array:
        """Panels of rows of a matrix (S, R), to multiply features with."""
        given, (S, R) = matrix.numpy(), matrix.shape
        panels = self._empty(-(-S // self._width), R, self._width)
        ranges = threads.cut(np.full(len(panels), R * self._width), least=threads.LEAST_WORK)
        threads.run(lambda first, last: products.lay_rows(first, last, given, panels), ranges)
        return panels

    def forward(self) -> NDArray[np.float64]:
        """Log evidence of each sentence (B,), in the packed order; -inf of those that are lost."""
        packed, least = self.packed, float(np.finfo(self._partial.dtype).tiny) ** 0.5
        matrices = self._laid(self._right), self._left.numpy(), self._edges
        n_blocks, n_groups = len(self._edges) - 1, int(self._edges[-1])
        sums = self._empty(n_blocks, packed.n_sentences, self._width // 3)
        messages = self._features, self._tiles, self._partial, sums
        norms = self.norms, self._inverse, least
        self._states = []
        for chunk in self._chunks():
            if self.keep:
                rows = int(packed.offsets[chunk[1]] - packed.offsets[chunk[0]])
                states = [self._empty(n_groups, rows + ROWS - 1, self._wide)] * n_blocks
                self._states.append(states[0])
            else:
                shape = 1, packed.n_sentences + ROWS - 1, self._wide
                states = [self._empty(*shape) for _ in range(self._n_threads())]

            def work(k: int, room: Array, counters: Counters, at: Any = chunk, own: Any = states) -> None:
                sentences, emission = self._given
                compiled.forward(
                    *at, *sentences, self.start.numpy(), *emission, *matrices, *messages, own[k], self.keep, *norms,
                    room, counters,
                )  # fmt: skip

            self._together(work)
        log_z = np.zeros(packed.n_sentences)
        with np.errstate(divide="ignore"):
            logs = np.where(self._inverse > 0, np.log(self.norms), -np.inf)
        for t, n in enumerate(packed.sizes.tolist()):
            log_z[:n] += logs[packed.offsets[t] : packed.offsets[t + 1]]
        return log_z

    def backward(self, weights: NDArray[np.floating], counts: Counts) -> None:
        """Add the counts of each sentence times its weight (B,), in the packed order, to ``counts``.

        States are given back as they are used; another backward pass finds them again.
        """
        if not self._states:
            self.forward()
        dtype = self._partial.dtype
        matrices = self._laid(self._left), self._right.numpy(), self._edges
        weights, ones = weights.astype(dtype), np.ones(self.packed.n_sentences, dtype)
        after = np.zeros_like(self._features)
        into = [x.numpy() for x in (counts.start, counts.emission, *counts.transition)]
        buffer = self._empty(max(states.size for states in self._states))
        for chunk in reversed(self._chunks()):
            states = self._states.pop()
            messages = states, buffer[: states.size].reshape(states.shape)

            def work(k: int, room: Array, counters: Counters, at: Any = chunk, both: Any = messages) -> None:
                sentences, emission = self._given
                compiled.backward(
                    *at, *sentences, weights, *emission, *matrices, self._tiles, self._partial, *both, self._inverse,
                    ones, after, self._features, *into, room, counters,
                )  # fmt: skip

            self._together(work)
