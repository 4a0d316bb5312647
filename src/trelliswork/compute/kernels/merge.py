"""The k best sums of two sorted lists, for the k best structures of any dynamic program.

Numba's disk cache does not notice edits here in the kernels that call it: ``make clean-kernels`` after a change.
"""

import numpy as np

from trelliswork.compute.jit import helper


@helper(inline="always")
def merge(left, right, where, values, pointers):
    """Put the sums of two sorted lists (K,) into the sorted list ``values`` (K,), with (where, rank, rank) to each.

    The pair of ranks (a, b) is at best number (a + 1)(b + 1), so that only O(K log K) pairs are looked at.
    """
    K = values.size
    for a in range(left.size):
        if left[a] == -np.inf:
            break
        for b in range(min(right.size, K // (a + 1))):
            value = left[a] + right[b]
            if not value > values[K - 1]:
                break
            at = K - 1
            while at > 0 and value > values[at - 1]:
                values[at] = values[at - 1]
                pointers[at] = pointers[at - 1]
                at -= 1
            values[at] = value
            pointers[at, 0], pointers[at, 1], pointers[at, 2] = where, a, b
