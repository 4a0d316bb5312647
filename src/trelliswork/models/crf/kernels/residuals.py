"""Residuals of tokens (expected minus observed) added to gradients, where few states have any."""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import add, get, lanes, load, put, spread, store
from trelliswork.compute.simd import multiply_add as fma


class PairBlock(NamedTuple):
    """Expected pairs of the states of two neighboring tokens.

    ``states[before:here]`` are those of the earlier token, ``states[here:end]`` those of the later one; their pairs
    start at ``pairs[at]``, one row of ``width`` numbers per earlier state.
    """

    states: Any
    before: Any
    here: Any
    end: Any
    pairs: Any
    at: Any
    width: Any


@helper
def add_row(i, residual, labels, first, n, tokens, gradient):
    """Add the residual (Sw,) of token i to the gradient; only labels[first : first + n] of it are not zero."""
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values = tokens
    wide, narrow, narrow_labels = gradient
    Sw, W = wide.shape[1], lanes(wide)
    few = 2 * n < Sw // W  # then single numbers cost less than whole rows
    for at in range(wide_ptr[i], wide_ptr[i + 1]):
        row = np.int64(wide_ids[at]) * Sw
        value = wide_values[at] if wide_values.size else wide.dtype.type(1)
        if few:
            for k in range(n):
                j = get(labels, first + k)
                put(wide, row + j, get(wide, row + j) + value * get(residual, j))
        elif wide_values.size:
            by = spread(wide, value)
            for k in range(0, Sw, W):
                store(wide, row + k, fma(load(residual, k), by, load(wide, row + k)))
        else:
            for k in range(0, Sw, W):
                store(wide, row + k, add(load(residual, k), load(wide, row + k)))
    for at in range(narrow_ptr[i], narrow_ptr[i + 1]):
        f = narrow_ids[at]
        value = narrow_values[at] if narrow_values.size else narrow.dtype.type(1)
        narrow[f] += residual[narrow_labels[f]] * value


@helper
def add_pairs(i, S, block, gold, weight, square, edges, edge_gradient, counts):
    """Add the expected pairs of states into token i, less the observed one ``gold``, to the gradients.

    ``square`` (S S) must be zero and is zero again on return.
    """
    states, before, here, end, pairs, at, width = block
    first, last = edges.token_ptr[i], edges.token_ptr[i + 1]
    complete = True
    for e in range(first, last):
        complete &= edges.ptr[edges.ids[e] + 1] - edges.ptr[edges.ids[e]] == S * S
    if complete:  # a weight for every pair, stored in order
        for a in range(before, here):
            row, from_ = np.int64(get(states, a)) * S, at + (a - before) * width - here
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
    for a in range(before, here):
        for k in range(here, end):
            square[states[a] * S + states[k]] = pairs[at + (a - before) * width + k - here]
    square[gold] -= weight
    for e in range(first, last):
        for f in range(edges.ptr[edges.ids[e]], edges.ptr[edges.ids[e] + 1]):
            edge_gradient[f] += square[edges.pairs[f]]
    for a in range(before, here):
        for k in range(here, end):
            j = states[a] * S + states[k]
            counts[states[a], states[k]] += square[j]
            square[j] = 0
