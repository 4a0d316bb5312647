"""Work on C x C tables in tiles of rows: matrix products and exponentials by torch, one thread a tile.

How the rows are cut depends on the sizes alone, so results do not depend on the number of threads.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.compute import threads

TILE_BYTES = 3 << 20  # of a tile: some of it stays in the cache
WIDE = 8  # matrix products are fastest when the number of columns is a multiple of this


def tile_rows(n_columns: int, itemsize: int) -> int:
    """Rows of a tile."""
    return max(16, TILE_BYTES // (n_columns * itemsize) // 16 * 16)


def row_ranges(n_rows: int, n_columns: int) -> list[tuple[int, int]]:
    """Ranges of rows to hand out."""
    return threads.cut(np.full(n_rows, n_columns), multiple=16, least=100_000)


def run(work: Callable[[int, int], object], ranges: list[tuple[int, int]]) -> None:
    """``threads.run`` for work that calls torch: each thread computes its own tiles alone."""

    def alone(start: int, stop: int) -> None:
        torch.set_num_threads(1)
        work(start, stop)

    before = torch.get_num_threads()
    try:
        threads.run(alone, ranges)
    finally:
        torch.set_num_threads(before)


def wide(*parts: NDArray[Any]) -> torch.Tensor:
    """Columns side by side as float32, filled with zeros to a width that is fast."""
    width = sum(part.shape[1] for part in parts)
    found = np.zeros((len(parts[0]), -(-width // WIDE) * WIDE), np.float32)
    at = 0
    for part in parts:
        found[:, at : at + part.shape[1]] = part
        at += part.shape[1]
    return torch.from_numpy(found)
