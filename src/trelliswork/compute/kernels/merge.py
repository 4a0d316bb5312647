"""The k best sums of two sorted lists, for the k best structures of any dynamic program."""

import numpy as np

from trelliswork.compute.jit import helper


@helper(inline="always")
def insert(value, values, pointers):
    """Insert a value into the sorted list ``values`` (K,), whose last entry is dropped; return its place.

    The rows of ``pointers`` (K, ..) move along; the caller fills that of the new value.
    """
    at = values.size - 1
    while at > 0 and value > values[at - 1]:
        values[at] = values[at - 1]
        pointers[at] = pointers[at - 1]
        at -= 1
    values[at] = value
    return at


@helper(inline="always")
def merge(left, right, where, values, pointers):
    """Insert the sums of two sorted lists (K,) into the sorted list ``values`` (K,), each with (where, rank, rank).

    The sum of ranks (a, b) is at best number (a + 1)(b + 1) in order, so O(K log K) pairs suffice.
    """
    K = values.size
    for a in range(left.size):
        if left[a] == -np.inf:
            break
        for b in range(min(right.size, K // (a + 1))):
            value = left[a] + right[b]
            if not value > values[K - 1]:
                break
            at = insert(value, values, pointers)
            pointers[at, 0], pointers[at, 1], pointers[at, 2] = where, a, b
