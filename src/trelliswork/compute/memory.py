"""Arrays that start at a cache line: a row as wide as a vector then lies in one line instead of two."""

import math

import numpy as np
from numpy.typing import DTypeLike, NDArray

LINE = 64  # bytes


def aligned_empty(*shape: int, dtype: DTypeLike = np.float32) -> NDArray[np.floating]:
    """Return an array that starts at a cache line, not initialized."""
    n_bytes = np.dtype(dtype).itemsize * math.prod(shape)
    raw = np.empty(n_bytes + LINE, np.uint8)
    skip = -raw.ctypes.data % LINE
    return raw[skip : skip + n_bytes].view(dtype).reshape(shape)


def aligned_zeros(*shape: int) -> NDArray[np.float32]:
    """Return zeros that start at a cache line."""
    array = aligned_empty(*shape)
    array.fill(0)
    return array
