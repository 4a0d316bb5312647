"""Random numbers inside kernels, each stream with its own state: results do not depend on threads."""

import math

import numpy as np

from trelliswork.compute.jit import helper


@helper(inline="always")
def uniform(state):
    """Return a number in [0, 1): splitmix64 on ``state`` (1,) of uint64 (Steele, Lea and Flood, 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@helper(inline="always")
def draw(a, b, n, log_total, state):
    """Return k < n with probability exp(a[k] + b[k] - log_total)."""
    left = uniform(state)
    chosen = -1
    for k in range(n):
        p = math.exp(a[k] + b[k] - log_total)
        if p > 0:
            chosen = k  # the last possible one absorbs rounding errors
            left -= p
            if left < 0:
                break
    return chosen
