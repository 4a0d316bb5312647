"""Operations on one row of scores, shared by the kernels of several structures."""

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import exponential, lanes, largest, load, maximum, spread, store, subtract


@helper
def exp_row(source, at, n, out, to, width):
    """out[to : to + width] = exp(source[at : at + n] - shift), flat indices, with zeros beyond n; return the shift.

    The shift is the largest score; if it is -inf, the row is zero. ``width`` is a multiple of the vector length.
    """
    W = lanes(out)
    whole = n - n % W
    for j in range(whole, n):
        out.flat[to + j] = source.flat[at + j]
    for j in range(n, width):
        out.flat[to + j] = -np.inf
    top = spread(out, -np.inf)
    for k in range(0, whole, W):
        top = maximum(load(source, at + k), top)
    for k in range(whole, width, W):
        top = maximum(load(out, to + k), top)
    shift = largest(top)
    by = spread(out, shift if shift > -np.inf else out.dtype.type(0))  # -inf - (-inf) would be nan
    for k in range(0, whole, W):
        store(out, to + k, exponential(subtract(load(source, at + k), by)))
    for k in range(whole, width, W):
        store(out, to + k, exponential(subtract(load(out, to + k), by)))
    return shift
