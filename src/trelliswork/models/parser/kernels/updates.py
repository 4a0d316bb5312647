"""Compiled steps of AdaGrad on sparse features; see ``parser.updates``."""

import numpy as np

from trelliswork.compute.jit import kernel


@kernel
def collect(ids, counts, values, memory, touched, sums):
    """Fill the ids whose gradient is not 0, and the gradient; return their number. See ``step`` for the memory."""
    for p in range(len(values)):
        for k in range(counts[p]):
            memory[ids[p, k], 0] += values[p]
    n = 0
    for p in range(len(values)):
        for k in range(counts[p]):
            i = ids[p, k]
            if memory[i, 0] != 0:
                touched[n], sums[n] = i, memory[i, 0]
                memory[i, 0] = 0
                n += 1
    return n


@kernel
def step(low, high, ids, counts, values, weights, memory, rate, l2, number):
    """Update the weights ``low`` to ``high``; memory (n, 3): gradient (0 between steps), squares, changes."""
    for p in range(len(values)):
        for k in range(counts[p]):
            i = ids[p, k]
            if low <= i < high:
                memory[i, 0] += values[p]
    for p in range(len(values)):
        for k in range(counts[p]):
            i = ids[p, k]
            if low <= i < high and memory[i, 0] != 0:
                g = memory[i, 0] - l2 * weights[i]
                memory[i, 0] = 0
                memory[i, 1] += g * g
                change = rate * g / (np.float32(1e-6) + np.sqrt(memory[i, 1]))
                weights[i] += change
                memory[i, 2] += number * change
