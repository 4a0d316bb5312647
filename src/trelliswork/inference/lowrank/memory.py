"""Large arrays whose memory goes back to the system as soon as they are gone.

What a heap takes back it keeps, in pieces that the next large array may not fit in; here that would double the peak.
Large pages save a sixth of the time of a pass over 16,384 states: fewer are to be fetched, and their addresses found.
"""

import math
import mmap
from contextlib import suppress

import torch
from torch import Tensor

SMALL = 1 << 20  # bytes that are no matter
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
    """Zeros; the array begins with a cache line."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < SMALL:
        return torch.zeros(shape, dtype=dtype)
    found = mmap.mmap(-1, n_bytes, **_PRIVATE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without them
            found.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(found, dtype=dtype).reshape(shape)
