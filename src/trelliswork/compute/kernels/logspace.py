"""Arithmetic on logarithms that kernels of several structures share. The logarithm of zero is -inf."""

import math

import numpy as np

from trelliswork.compute.jit import helper


@helper
def log_add(a, b):
    """Return log(exp(a) + exp(b))."""
    top, low = (a, b) if a > b else (b, a)
    return top if low == -np.inf else top + math.log1p(math.exp(low - top))


@helper
def log_dot(a, b, n):
    """Return the log sum over k < n of exp(a[k] + b[k])."""
    top = -np.inf
    for k in range(n):
        top = max(top, a[k] + b[k])
    if top == -np.inf:
        return top
    mass = 0.0
    for k in range(n):
        mass += math.exp(a[k] + b[k] - top)
    return top + math.log(mass)
