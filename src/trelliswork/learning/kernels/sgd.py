"""Compiled steps of AdaGrad on sparse features; see ``learning.sgd``.

Weights are touched at random, and there are more of them than a cache holds. So a step first sorts its entries, pairs
of id and value, by blocks of weights; a block and its memory stay in the cache until all of its entries are added up.
"""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import prefetch

BLOCK_BITS = 15
BLOCK = 1 << BLOCK_BITS  # weights


@kernel(allocates=True, error_model="numpy")
def step(first, last, ids, counts, values, weights, memory, rate, number):
    """Update the weights of the blocks ``first`` to ``last``; memory (n, 2): squares, changes.

    Entries of a block keep their order, so that sums do not depend on the division into ranges.
    """
    n_blocks = last - first
    ends = np.zeros(n_blocks + 1, np.int64)
    for p in range(len(values)):
        for k in range(counts[p]):
            block = np.int64(ids[p, k] >> np.uint32(BLOCK_BITS)) - first
            if 0 <= block < n_blocks:
                ends[block + 1] += 1
    for block in range(n_blocks):
        ends[block + 1] += ends[block]
    at, places, parts = ends[:-1].copy(), np.empty(ends[-1], np.uint32), np.empty(ends[-1], np.float32)
    for p in range(len(values)):
        value = values[p]
        for k in range(counts[p]):
            i = ids[p, k]
            block = np.int64(i >> np.uint32(BLOCK_BITS)) - first
            if 0 <= block < n_blocks:
                e = at[block]
                places[e], parts[e] = i, value
                at[block] = e + 1
    gradient, local = np.zeros(BLOCK, np.float32), np.uint32(BLOCK - 1)
    for block in range(n_blocks):
        for e in range(ends[block], ends[block + 1]):
            gradient[places[e] & local] += parts[e]
        n = ends[block]  # each id once, with its sum: then no branch interrupts the loads of the weights
        for e in range(ends[block], ends[block + 1]):
            i = places[e]
            places[n], parts[n] = i, gradient[i & local]
            gradient[i & local] = 0
            n += parts[n] != 0
            prefetch(weights, np.int64(i))
            prefetch(memory, 2 * np.int64(i))
        for e in range(ends[block], n):
            i = places[e]
            g = parts[e]
            memory[i, 0] += g * g
            change = rate * g / (np.float32(1e-6) + np.sqrt(memory[i, 0]))
            weights[i] += change
            memory[i, 1] += number * change
