"""Tiles of rows of C x C tables: each is computed by torch on one thread.

The cut into tiles depends on the sizes alone, so results do not depend on the number of threads. In a group of
processes each rank computes some of the ranges of rows.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.sharing import ALONE, Group
from trelliswork.compute.torch_threads import run

__all__ = ["TILE_BYTES", "WIDE", "row_ranges", "run", "tile_rows", "wide"]
TILE_BYTES = 3 << 20  # size of a tile: part of it stays in the cache
WIDE = 8  # matrix products are fastest when the number of columns is a multiple of this


def tile_rows(n_columns: int, itemsize: int) -> int:
    """Return the number of rows of a tile."""
    return max(16, TILE_BYTES // (n_columns * itemsize) // 16 * 16)


def row_ranges(n_rows: int, n_columns: int, group: Group = ALONE) -> threads.Ranges:
    """Return ranges of rows for threads; in a group those of this rank, which follow each other."""
    most = max(threads.MAX_RANGES, 4 * group.size)
    ranges = threads.cut(np.full(n_rows, n_columns), multiple=16, least=100_000, most=most)
    low, high = group.share(len(ranges))
    ranges[:] = ranges[low:high]
    ranges.cost //= group.size
    return ranges


def wide(*parts: NDArray[Any]) -> torch.Tensor:
    """Concatenate columns as float32, padded with zeros to a multiple of ``WIDE`` columns."""
    width = sum(part.shape[1] for part in parts)
    columns = np.zeros((len(parts[0]), -(-width // WIDE) * WIDE), np.float32)
    columns[:, :width] = np.concatenate(parts, axis=1)
    return torch.from_numpy(columns)
