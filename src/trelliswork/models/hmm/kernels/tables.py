"""Compiled conversion of emissions: logarithms (S, V) to rows of probabilities, counts (V, S) to log-frequencies.

The E-step reads and counts emissions symbol by symbol, parameters are stored state by state, so both transpose.
"""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.parts import store_part
from trelliswork.compute.simd import (
    exponential,
    get,
    lanes,
    load,
    logarithm,
    maximum,
    multiply,
    put,
    spread,
    spread_at,
    store,
    subtract,
)


@kernel(allocates=True)
def scale_symbols(start, stop, log_emission, table, log_scale):
    """Fill rows ``start`` to ``stop`` of ``table`` with exp(log_emission[:, v] - its maximum), and write the maxima.

    ``stop - start`` is a multiple of the lanes of a vector. Numbers that are subnormal in the table's precision become
    zero; the maximum of an impossible symbol is the lowest finite number. Columns beyond S are zero.
    """
    S, V = log_emission.shape
    W, n_columns = lanes(log_emission), table.shape[1]
    smallest, lowest = np.finfo(table.dtype).tiny, np.finfo(np.float64).min
    block = np.empty((S, W))
    for v in range(start, stop, W):
        top = spread(log_emission, lowest)
        for s in range(S):
            top = maximum(load(log_emission, s * V + v), top)
        store(log_scale, v, top)
        for s in range(S):
            store(block, s * W, exponential(subtract(load(log_emission, s * V + v), top)))
        for k in range(W):
            row = (v + k) * n_columns
            for s in range(S):
                x = get(block, s * W + k)
                put(table, row + s, x if x >= smallest else 0.0)
            for s in range(S, n_columns):
                put(table, row + s, 0.0)


@kernel(allocates=True)
def log_frequencies(by_symbol, out):
    """Fill ``out`` (S, V) with the logarithms of counts (V, S) divided by the totals of the states, and return these.

    A share that is subnormal becomes zero. Of a state whose total (S, 1) is 0, ``out`` has no meaning.
    """
    (V, S), W = by_symbol.shape, lanes(by_symbol)
    total, block = np.zeros(S), np.empty((S, W))
    for v in range(V):
        for s in range(S):
            put(total, s, get(total, s) + get(by_symbol, v * S + s))
    inverse = np.divide(1.0, total)  # a division takes as long as all the rest
    for v in range(0, V, W):
        n = min(W, V - v)
        for k in range(n):
            for s in range(S):
                put(block, s * W + k, get(by_symbol, (v + k) * S + s))
        for s in range(S):
            share = logarithm(multiply(load(block, s * W), spread_at(inverse, s)))
            if n == W:
                store(out, s * V + v, share)
            else:
                store_part(out, s * V + v, n, share)
    return total.reshape(S, 1)
