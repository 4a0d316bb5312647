"""Checks of log-potentials."""

import numpy as np

from trelliswork.compute.addresses import array_at
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


@kernel
def are_scores_at(like, one, n_one, other, n_other):
    """Do the same for two arrays of as many numbers, of the dtype of ``like``, given by their addresses."""
    return _are_scores(array_at(like, one, (n_one,))) & _are_scores(array_at(like, other, (n_other,)))
