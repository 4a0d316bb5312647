"""Residuals of tokens (probability minus what was observed) added to gradients, where few states have any.

Numba's disk cache does not notice edits here in the kernels that call it: ``make clean-kernels`` after a change.
"""

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import add, get, lanes, load, put, spread, store
from trelliswork.compute.simd import multiply_add as fma


@helper
def add_row(
    i, residual, labels, first, n,
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values, narrow_labels,
    wide_gradient, narrow_gradient,
):  # fmt: skip
    """Add the residual (Sw,) of token i to the gradients; only labels[first : first + n] of it are not zero."""
    Sw, W = wide_gradient.shape[1], lanes(wide_gradient)
    few = 2 * n < Sw // W  # then single numbers cost less than whole rows
    for at in range(wide_ptr[i], wide_ptr[i + 1]):
        row = np.int64(wide_ids[at]) * Sw
        value = wide_values[at] if wide_values.size else wide_gradient.dtype.type(1)
        if few:
            for k in range(n):
                j = get(labels, first + k)
                put(wide_gradient, row + j, get(wide_gradient, row + j) + value * get(residual, j))
        elif wide_values.size:
            by = spread(wide_gradient, value)
            for k in range(0, Sw, W):
                store(wide_gradient, row + k, fma(load(residual, k), by, load(wide_gradient, row + k)))
        else:
            for k in range(0, Sw, W):
                store(wide_gradient, row + k, add(load(residual, k), load(wide_gradient, row + k)))
    for at in range(narrow_ptr[i], narrow_ptr[i + 1]):
        f = narrow_ids[at]
        value = narrow_values[at] if narrow_values.size else narrow_gradient.dtype.type(1)
        narrow_gradient[f] += residual[narrow_labels[f]] * value


@helper
def add_pairs(i, S, states, earlier, here, end, pairs, at, width, gold, weight, square, edges, edge_gradient, counts):
    """Add the expected pairs of states into token i, less the observed one ``gold``, to the gradients.

    They stand in ``pairs`` from ``at`` on, a row of ``width`` numbers for each state of earlier : here, the states of
    here : end in it. ``square`` (S S) is zero and is left so.
    """
    first, last = edges.token_ptr[i], edges.token_ptr[i + 1]
    complete = True
    for e in range(first, last):
        complete &= edges.ptr[edges.ids[e] + 1] - edges.ptr[edges.ids[e]] == S * S
    if complete:  # a weight for every pair: they lie in order
        for a in range(earlier, here):
            row, from_ = np.int64(get(states, a)) * S, at + (a - earlier) * width - here
            for k in range(here, end):
                j, p = row + get(states, k), get(pairs, from_ + k)
                put(counts, j, get(counts, j) + p)
                for e in range(first, last):
                    f = edges.ptr[edges.ids[e]] + j
                    put(edge_gradient, f, get(edge_gradient, f) + p)
        put(counts, gold, get(counts, gold) - weight)
        for e in range(first, last):
            edge_gradient[edges.ptr[edges.ids[e]] + gold] -= weight
        return
    for a in range(earlier, here):
        for k in range(here, end):
            square[states[a] * S + states[k]] = pairs[at + (a - earlier) * width + k - here]
    square[gold] -= weight
    for e in range(first, last):
        for f in range(edges.ptr[edges.ids[e]], edges.ptr[edges.ids[e] + 1]):
            edge_gradient[f] += square[edges.pairs[f]]
    for a in range(earlier, here):
        for k in range(here, end):
            j = states[a] * S + states[k]
            counts[states[a], states[k]] += square[j]
            square[j] = 0
