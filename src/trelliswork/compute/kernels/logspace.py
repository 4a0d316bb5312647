"""Arithmetic on logarithms that kernels of several structures share. The logarithm of zero is -inf."""

import math

import numpy as np

from trelliswork.compute.jit import helper


@helper
def log_add(a, b):
    """Return log(exp(a) + exp(b))."""
    top, low = (a, b) if a > b else (b, a)
    return top if low == -np.inf else top + math.log1p(math.exp(low - top))
