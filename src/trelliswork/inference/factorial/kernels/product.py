"""Compiled step of Viterbi on the product chain of factorial chains, along the axis of one layer."""

import numpy as np

from trelliswork.compute.jit import kernel


@kernel
def max_along(x, matrix, out):
    """Compute out[b, j, r] = max_i x[b, i, r] + matrix[i, j], (n, S, k) each."""
    n, S, k = x.shape
    out[:] = -np.inf
    for b in range(n):
        for i in range(S):
            for j in range(S if k > 1 else 0):
                for r in range(k):
                    value = x[b, i, r] + matrix[i, j]
                    out[b, j, r] = value if value > out[b, j, r] else out[b, j, r]
            if k == 1:  # the last layer, whose labels are contiguous
                for j in range(S):
                    value = x[b, i, 0] + matrix[i, j]
                    out[b, j, 0] = value if value > out[b, j, 0] else out[b, j, 0]
