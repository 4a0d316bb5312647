"""Compiled conversion of emissions, from logarithms state by state to probabilities symbol by symbol."""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import exponential, get, lanes, load, maximum, put, spread, store, subtract


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
