"""Operations on one row of scores, shared by the kernels of several structures."""

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import exponential, lanes, largest, load_part, maximum, spread, store, subtract


@helper
def exp_row(source, at, n, out, to, width):
    """out[to : to + width] = exp(source[at : at + n] - shift), flat indices, with zeros beyond n; return the shift.

    The shift is the largest score; if it is -inf, the row is zero. ``width`` is a multiple of the vector length.
    """
    W = lanes(out)
    top = spread(out, -np.inf)
    for k in range(0, width, W):
        top = maximum(load_part(source, at + k, n - k, -np.inf), top)
    shift = largest(top)
    by = spread(out, shift if shift > -np.inf else out.dtype.type(0))  # -inf - (-inf) would be nan
    for k in range(0, width, W):
        store(out, to + k, exponential(subtract(load_part(source, at + k, n - k, -np.inf), by)))
    return shift
