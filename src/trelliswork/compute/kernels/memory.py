"""Scratch arrays of kernels."""

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.memory import LINE


@helper(allocates=True)
def aligned(n, like):
    """Return a flat array of n numbers like those of an array; it starts at a cache line and is not initialized."""
    raw = np.empty(n + LINE // like.itemsize, like.dtype)
    skip = -np.int64(raw.ctypes.data) % LINE // like.itemsize
    return raw[skip : skip + n]
