"""Products of the exponential of a table with vectors, which are given and returned as logarithms."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.compute.sharing import ALONE, Group
from trelliswork.inference.lifted import tiles
from trelliswork.inference.lifted.potentials import Table

SMALL = 2048  # largest vocabulary whose tables are kept in float64
MEMORY = 2 << 30  # maximum size of all kept tables in bytes; beyond it tiles are recomputed
LEAST = 1e-290  # sums that underflow are replaced by this, so that bounds hold and logarithms are finite
LARGEST_LOG = 700.0  # of a number that does not overflow
Array = NDArray[np.float64]


class ExpTable:
    """The matrix exp(scale * theta), each row shifted so that its largest entry is 1.

    A matrix of more than ``memory`` bytes is not kept but recomputed, tile by tile, at each product. Building takes
    O(C^2 D), a product O(C^2). float64 up to 2,048 words, else float32 with sums over tiles in float64. In a ``group``
    each rank has some of the rows, and all ranks together compute the products, which all get.
    """

    def __init__(self, table: Table, scale: float = 1.0, *, memory: int = MEMORY, group: Group = ALONE) -> None:
        self.table, self.scale, self.group = table, scale, group
        C = self.n_words = table.n_words
        self.dtype = torch.float64 if C <= SMALL else torch.float32
        size = 8 if C <= SMALL else 4
        self.height = tiles.tile_rows(C, size)
        self.ranges = tiles.row_ranges(C, C, group)
        self.shift = np.zeros(C)
        self.first = self.ranges[0][0] if self.ranges else 0
        n_rows = self.ranges[-1][1] - self.first if self.ranges else 0
        self.kept = torch.empty(n_rows, C, dtype=self.dtype) if size * n_rows * C <= memory else None

        def fill(start: int, stop: int) -> None:
            for a, b in self._tiles(start, stop):
                scores = self._scores(a, b)
                top = scores.amax(1, keepdim=True)
                top = torch.where(torch.isfinite(top), top, torch.zeros_like(top))
                self.shift[a:b] = top[:, 0].numpy()
                if self.kept is not None:
                    torch.exp(scores.sub_(top), out=self._tile(a, b))

        tiles.run(fill, self.ranges)
        self.shift = group.sum(self.shift)

    def times(self, log_vector: Array) -> Array:
        """Return log sum_y exp(scale theta(x, y) + v(y)), shape (C,)."""
        top = float(log_vector.max())
        vector = torch.from_numpy(np.exp(log_vector - top)).to(self.dtype)
        sums = np.zeros(self.n_words)

        def work(start: int, stop: int) -> None:
            for a, b in self._tiles(start, stop):
                sums[a:b] = torch.mv(self._tile(a, b), vector).double().numpy()

        tiles.run(work, self.ranges)
        sums = self.group.sum(sums)
        return np.log(np.maximum(sums, LEAST)) + self.shift + top

    def transposed(self, log_vector: Array) -> Array:
        """Return log sum_x exp(u(x) + scale theta(x, y)), shape (C,)."""
        shifted = log_vector + self.shift
        top = float(shifted.max())
        vector = torch.from_numpy(np.exp(shifted - top)).to(self.dtype)
        sums = np.zeros((len(self.ranges), self.n_words))
        number = {start: n for n, (start, _) in enumerate(self.ranges)}

        def work(start: int, stop: int) -> None:
            for a, b in self._tiles(start, stop):
                sums[number[start]] += torch.mv(self._tile(a, b).T, vector[a:b]).double().numpy()

        tiles.run(work, self.ranges)
        return np.log(np.maximum(self.group.sum(sums.sum(0)), LEAST)) + top

    def mean_score(self, log_left: Array, log_right: Array) -> float:
        """Return sum_xy mu(x, y) scale theta(x, y) with mu = exp(u(x) + scale theta(x, y) + v(y))."""
        left, right = log_left + self.shift, float(log_right.max())
        column = torch.from_numpy(np.exp(log_right - right)).to(self.dtype)
        sums = np.zeros(self.n_words)

        def work(start: int, stop: int) -> None:
            for a, b in self._tiles(start, stop):
                tile = self._tile(a, b)
                rows = torch.mv(torch.xlogy(tile, tile), column).double().numpy()
                sums[a:b] = rows + self.shift[a:b] * torch.mv(tile, column).double().numpy()

        tiles.run(work, self.ranges)
        top = float(left.max())
        mean = float(np.exp(left - top) @ self.group.sum(sums))
        return math.copysign(math.exp(min(math.log(abs(mean)) + top + right, LARGEST_LOG)), mean) if mean else 0.0

    def _tiles(self, start: int, stop: int) -> list[tuple[int, int]]:
        return [(a, min(a + self.height, stop)) for a in range(start, stop, self.height)]

    def _scores(self, a: int, b: int) -> torch.Tensor:
        return self.table.rows(slice(a, b)).to(self.dtype) * self.scale

    def _tile(self, a: int, b: int) -> torch.Tensor:
        if self.kept is not None:
            return self.kept[a - self.first : b - self.first]
        shift = torch.from_numpy(self.shift[a:b, None]).to(self.dtype)
        return self._scores(a, b).sub_(shift).exp_()
