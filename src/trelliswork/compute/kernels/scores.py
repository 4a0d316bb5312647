"""Checks of log-potentials."""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import get


@helper
def _are_scores(array):
    good = True
    for k in range(array.size):
        good &= get(array, k) < np.inf
    return good


@kernel
def are_scores(one, other):
    """Return whether two contiguous arrays of log-potentials contain neither nan nor +inf."""
    return _are_scores(one) & _are_scores(other)
