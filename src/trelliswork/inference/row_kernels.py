"""Steps on one row of scores that kernels of several structures share.

Numba's disk cache does not notice edits here in the kernels that call it: ``make clean-kernels`` after a change.
"""

import math

import numpy as np
from numba import njit

from trelliswork.inference.simd import exponential, lanes, largest, load, maximum, spread, store, subtract


@njit(nogil=True)
def exp_row(source, at, n, shift, row):
    """row (Sp,) = exp(source[at : at + n] - shift), flat indices, padded with zeros to whole vectors.

    Returns the shift, which is the maximum of the scores if nan came.
    """
    Sp, W = row.size, lanes(row)
    whole = n - n % W
    for j in range(n - whole):
        row[whole + j] = source.flat[at + whole + j]
    for j in range(n, Sp):
        row[j] = -np.inf
    if math.isnan(shift):
        top = load(row, whole) if whole < Sp else spread(row, -np.inf)
        for k in range(0, whole, W):
            top = maximum(top, load(source, at + k))
        shift = largest(top)
    # With nothing possible all scores are -inf, and -inf - (-inf) would be nan.
    by = spread(row, shift if shift > -np.inf else row.dtype.type(0))
    for k in range(0, whole, W):
        store(row, k, exponential(subtract(load(source, at + k), by)))
    for k in range(whole, Sp, W):
        store(row, k, exponential(subtract(load(row, k), by)))
    return shift
