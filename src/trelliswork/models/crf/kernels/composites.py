"""Compiled search for rows that often stand side by side, and sums of their rows. See ``models.crf.composites``.

Token i has the rows ``ids[ptr[i] : ptr[i + 1]]``.
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import add, get, lanes, load, put, store


@helper
def _hash(left, right):
    """Return a 64-bit hash of a pair (the last steps of SplitMix64)."""
    x = np.uint64(left) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(right)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def count_neighbors(ptr, ids, table):
    """Add the neighbors of all tokens to ``table``, which counts by hash; a few pairs share a counter."""
    mask, most = np.uint64(len(table) - 1), np.iinfo(table.dtype).max
    for i in range(len(ptr) - 1):
        for at in range(ptr[i], ptr[i + 1] - 1):
            k = np.int64(_hash(get(ids, at), get(ids, at + 1)) & mask)
            count = get(table, k)
            if count < most:
                put(table, k, count + 1)


@kernel
def choose_neighbors(ptr, ids, table, least, chosen):
    """Mark the first of two neighbors that occur ``least`` times, and more often than those beside them."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(ptr) - 1):
        before = np.int64(0)
        first, last = ptr[i], ptr[i + 1] - 1
        here = np.int64(get(table, np.int64(_hash(get(ids, first), get(ids, first + 1)) & mask))) if first < last else 0
        for at in range(first, last):
            after = np.int64(0)
            if at + 1 < last:
                after = np.int64(get(table, np.int64(_hash(get(ids, at + 1), get(ids, at + 2)) & mask)))
            chosen[at] = here >= least and here >= before and here > after
            before, here = here, after
        if first <= last:
            chosen[last] = False


@kernel
def replace_pairs(ptr, ids, values, new):
    """Replace each pair whose first row has a number ``new[at]``, not -1, by this number, in place.

    ``values`` are empty, or those of the rows; both rows of a pair have the same.
    """
    to, at = 0, ptr[0]
    for i in range(len(ptr) - 1):
        while at < ptr[i + 1]:
            ids[to] = ids[at] if new[at] < 0 else new[at]
            if values.size:
                values[to] = values[at]
            at += 1 if new[at] < 0 else 2
            to += 1
        ptr[i + 1] = to


@kernel
def compose(rows, n_rows, parts):
    """Fill the rows from ``n_rows`` on: each is the sum of its two parts."""
    width, to = rows.shape[1], n_rows * rows.shape[1]
    for c in range(len(parts)):
        left, right = np.int64(parts[c, 0]) * width, np.int64(parts[c, 1]) * width
        for k in range(0, width, lanes(rows)):
            store(rows, to + k, add(load(rows, left + k), load(rows, right + k)))
        to += width


@kernel
def distribute(rows, n_rows, parts):
    """Add the gradient of each composite row to those of its two parts, the last one first."""
    width = rows.shape[1]
    for c in range(len(parts) - 1, -1, -1):
        left, right, to = np.int64(parts[c, 0]) * width, np.int64(parts[c, 1]) * width, (n_rows + c) * width
        for k in range(0, width, lanes(rows)):
            value = load(rows, to + k)
            store(rows, left + k, add(load(rows, left + k), value))
            store(rows, right + k, add(load(rows, right + k), value))
