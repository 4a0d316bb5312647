"""Compiled log sums over labels, for segments of chains: log space, float64."""

from trelliswork.compute.jit import kernel
from trelliswork.compute.kernels.logspace import log_dot


@kernel
def products(start, stop, left, matrices, which, out):
    """Fill rows start..stop of out[n, j] = log sum_i exp(left[n, i] + matrices[which[n], i, j])."""
    S = left.shape[1]
    for n in range(start, stop):
        for j in range(S):
            out[n, j] = log_dot(left[n], matrices[which[n], :, j], S)
