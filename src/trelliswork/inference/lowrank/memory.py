"""Large arrays whose memory goes back to the system as soon as they are gone.

What a heap takes back it keeps, in pieces that the next large array may not fit in; here that would double the peak.
"""

import math
import mmap

import torch
from torch import Tensor

SMALL = 1 << 20  # bytes that are no matter
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
    """Zeros; the array begins with a cache line."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < SMALL:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(mmap.mmap(-1, n_bytes, **_PRIVATE), dtype=dtype).reshape(shape)
