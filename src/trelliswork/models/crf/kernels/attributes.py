"""Compiled scores of labels from attributes, for tagging: each token is scored once, so nothing is laid out before.

The sums have the order of ``kernels.objective.scores``, dense rows first: the results are the same to the last bit.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import add, get, lanes, load, put, spread, store
from trelliswork.compute.simd import multiply_add as fma

FEW = 3  # single weights of an attribute are fewer than this


class AttributeRows(NamedTuple):
    """Attributes of tokens in compressed rows, and where the weights of each attribute are.

    ``places[a]`` is the dense row of attribute a or, if it has single weights, -1 - (FEW f + n): n weights from f on.
    """

    token_ptr: Any
    ids: Any
    values: Any  # empty: all 1
    places: Any  # (n_attributes,)


@kernel(allocates=True)
def attribute_scores(start, stop, tokens, weights, n_labels, out):
    """Store the label scores of tokens ``start`` to ``stop``, Sw numbers each, in ``out`` (n_tokens, Sw)."""
    token_ptr, ids, values, places = tokens
    wide, narrow, narrow_labels = weights
    Sw, W = wide.shape[1], lanes(wide)
    most = 0
    for i in range(start, stop):
        most = max(most, token_ptr[i + 1] - token_ptr[i])
    rows, singles = np.empty(most, np.int64), np.empty(most, np.int64)
    row_values, single_values = np.empty(most, np.float32), np.empty(most, np.float32)
    flat = out.reshape(-1)
    for i in range(start, stop):
        to = i * Sw
        for j in range(n_labels):
            flat[to + j] = 0
        for j in range(n_labels, Sw):
            flat[to + j] = -np.inf
        n_rows = n_singles = 0
        for at in range(token_ptr[i], token_ptr[i + 1]):
            place = np.int64(get(places, get(ids, at)))
            if place >= 0:
                rows[n_rows] = place * Sw
                if values.size:
                    row_values[n_rows] = values[at]
                n_rows += 1
            else:
                singles[n_singles] = -1 - place
                if values.size:
                    single_values[n_singles] = values[at]
                n_singles += 1
        for k in range(0, Sw - W, 2 * W):  # two vectors at a time stay in registers
            left, right = load(flat, to + k), load(flat, to + k + W)
            for m in range(n_rows):
                row = get(rows, m) + k
                if values.size:
                    by = spread(wide, row_values[m])
                    left, right = fma(load(wide, row), by, left), fma(load(wide, row + W), by, right)
                else:
                    left, right = add(load(wide, row), left), add(load(wide, row + W), right)
            store(flat, to + k, left)
            store(flat, to + k + W, right)
        if (Sw // W) % 2:
            left = load(flat, to + Sw - W)
            for m in range(n_rows):
                row = load(wide, get(rows, m) + Sw - W)
                left = fma(row, spread(wide, row_values[m]), left) if values.size else add(row, left)
            store(flat, to + Sw - W, left)
        for m in range(n_singles):
            first, n = get(singles, m) // FEW, get(singles, m) % FEW
            value = single_values[m] if values.size else narrow.dtype.type(1)
            for f in range(first, first + n):
                k = to + get(narrow_labels, f)
                put(flat, k, get(flat, k) + get(narrow, f) * value)
