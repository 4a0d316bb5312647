"""Preparation of a graph for message passing: exponentials of tables, and the order of its nodes."""

import math

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import exponential, lanes, load, store
from trelliswork.inference.graph.kernels.messages import whole_vectors, width_of
from trelliswork.inference.graph.kernels.records import NARROW


@kernel
def exponentiate(start, stop, log_tables, n_rows, n_columns, transposed, weights, first, tops, lowest):
    """weights = exp(table - its largest entry) of tables ``start:stop``, rows padded with zeros to whole vectors.

    ``log_tables`` (B, U * n_rows * n_columns), ``weights`` (B, first + U * size); with ``transposed`` rows are padded
    to the width of a message, and each table is followed by its transpose, padded as well. ``tops`` (B, U) gets the
    largest entries, 0 for tables of -inf; ``lowest`` (B, U) the smallest weight of a possible entry.
    """
    W = lanes(weights)
    width = width_of(n_columns) if transposed else whole_vectors(n_columns)
    height = width_of(n_rows)
    size = n_rows * width + (n_columns * height if transposed else 0)
    for b in range(len(log_tables)):
        source, out = log_tables[b], weights[b]
        for u in range(start, stop):
            at, to = u * n_rows * n_columns, first + u * size
            top, low = -np.inf, 1.0
            for i in range(n_rows * n_columns):
                top = max(top, source[at + i])
            top = top if top > -np.inf else 0.0
            tops[b, u] = top
            for i in range(n_rows):
                row, line = at + i * n_columns, to + i * width
                for j in range(n_columns):
                    out[line + j] = source[row + j] - top
                for j in range(n_columns, width):
                    out[line + j] = -np.inf
                if width == NARROW:
                    out[line], out[line + 1] = math.exp(out[line]), math.exp(out[line + 1])
                else:
                    for j in range(0, width, W):
                        store(out, line + j, exponential(load(out, line + j)))
                for j in range(n_columns):
                    low = min(low, out[line + j] if source[row + j] > -np.inf else 1.0)
            lowest[b, u] = low
            if transposed:
                behind = to + n_rows * width
                for j in range(n_columns):
                    for i in range(n_rows):
                        out[behind + j * height + i] = out[to + i * width + j]
                    for i in range(n_rows, height):
                        out[behind + j * height + i] = 0.0


@kernel(allocates=True)
def breadth_first(var_start, edge_factor, fac_start, fac_edge, edge_variable, order):
    """Fill ``order`` with variables v and factors V + f, breadth first; return the number of components."""
    V = len(var_start) - 1
    n = len(order)
    seen = np.zeros(n, np.bool_)
    filled = n_components = 0
    for root in range(n):
        if seen[root]:
            continue
        n_components += 1
        seen[root] = True
        order[filled] = root
        at = filled
        filled += 1
        while at < filled:
            node = order[at]
            at += 1
            if node < V:
                for e in range(var_start[node], var_start[node + 1]):
                    other = V + edge_factor[e]
                    if not seen[other]:
                        seen[other] = True
                        order[filled] = other
                        filled += 1
            else:
                for slot in range(fac_start[node - V], fac_start[node - V + 1]):
                    other = edge_variable[fac_edge[slot]]
                    if not seen[other]:
                        seen[other] = True
                        order[filled] = other
                        filled += 1
    return n_components
