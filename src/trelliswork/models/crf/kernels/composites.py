"""Compiled search for rows that often stand side by side, and sums of their rows. See ``models.crf.composites``.

Token i has the rows ``ids[ptr[i] : ptr[i + 1]]``.
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import add, get, lanes, load, put, store

FREE = -1  # a place of a hash table without a key


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
    """Mark the first of two neighbors that occur ``least`` times, and more often than those beside them; count them."""
    mask = np.uint64(len(table) - 1)
    n = 0
    for i in range(len(ptr) - 1):
        before = np.int64(0)
        first, last = ptr[i], ptr[i + 1] - 1
        here = np.int64(get(table, np.int64(_hash(get(ids, first), get(ids, first + 1)) & mask))) if first < last else 0
        for at in range(first, last):
            after = np.int64(0)
            if at + 1 < last:
                after = np.int64(get(table, np.int64(_hash(get(ids, at + 1), get(ids, at + 2)) & mask)))
            chosen[at] = here >= least and here >= before and here > after
            n += chosen[at]
            before, here = here, after
        if first <= last:
            chosen[last] = False
    return n


@helper
def _find(keys, code):
    """Return the place of a code in a hash table, or the free place for it."""
    mask = np.uint64(len(keys) - 1)
    k = np.int64(_hash(code, code) & mask)
    while keys[k] != code and keys[k] != FREE:
        k = (k + 1) & np.int64(mask)
    return k


@kernel
def count_chosen(ids, chosen, n_ids, keys, counts):
    """Count each chosen pair in a hash table: its code is in ``keys``, where FREE is a free place."""
    for at in range(len(ids) - 1):
        if chosen[at]:
            code = np.int64(ids[at]) * n_ids + ids[at + 1]
            k = _find(keys, code)
            keys[k] = code
            counts[k] += 1


@kernel
def replace_chosen(ptr, ids, chosen, n_ids, keys, counts, least, parts):
    """Replace chosen pairs that occur ``least`` times by numbers from ``n_ids`` on, in place; return how many numbers.

    ``parts`` (n, 2) receives the two rows of each, and ``counts`` is overwritten.
    """
    n = to = 0
    first = ptr[0]
    for i in range(len(ptr) - 1):
        at, last = first, ptr[i + 1]
        while at < last:
            new = ids[at]
            if chosen[at]:
                k = _find(keys, np.int64(new) * n_ids + ids[at + 1])
                if counts[k] >= least:
                    parts[n, 0], parts[n, 1] = new, ids[at + 1]
                    counts[k] = -1 - n
                    n += 1
                if counts[k] < 0:
                    new = n_ids - 1 - counts[k]
                    at += 1
            ids[to] = new
            to += 1
            at += 1
        first = last
        ptr[i + 1] = to
    return n


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
