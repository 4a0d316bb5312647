"""Compiled sorting and merging of records.

A *run* is an array (n, W) of int64 in rising order of its first columns, the key; a last column may have a count.
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel

_DIGIT = 11  # bits of a digit of radix sort


@kernel(allocates=True)
def sort_records(records, scratch, n_bits):
    """Sort records whose words are not negative and have ``n_bits`` bits, by all columns; both arrays are changed.

    Radix sort from the last digit on; digits that all records share are skipped. Returns whether the result is in
    ``scratch``.
    """
    moved = False
    ends = np.empty(1 << _DIGIT, np.int64)
    for column in range(records.shape[1] - 1, -1, -1):
        for shift in range(0, n_bits, _DIGIT):
            source, target = (scratch, records) if moved else (records, scratch)
            ends[:] = 0
            for i in range(len(source)):
                ends[(source[i, column] >> shift) & ((1 << _DIGIT) - 1)] += 1
            if len(source) == 0 or ends[(source[0, column] >> shift) & ((1 << _DIGIT) - 1)] == len(source):
                continue
            total = 0
            for digit in range(1 << _DIGIT):
                total, ends[digit] = total + ends[digit], total
            for i in range(len(source)):
                digit = (source[i, column] >> shift) & ((1 << _DIGIT) - 1)
                _copy(source, i, target, ends[digit])
                ends[digit] += 1
            moved = not moved
    return moved


@helper(inline="always")
def _copy(source, i, target, j):
    for k in range(source.shape[1]):
        target[j, k] = source[i, k]


@helper(inline="always")
def _compare(a, i, b, j, n_keys):
    """Return -1, 0 or 1 if the key of a record is smaller than, equal to or larger than that of another."""
    for k in range(n_keys):
        if a[i, k] != b[j, k]:
            return -1 if a[i, k] < b[j, k] else 1
    return 0


@kernel
def merge_records(a, b, n_keys, out):
    """Merge two runs whose keys are the first ``n_keys`` columns into ``out``, which has room for both.

    If there is a count, equal keys become one record; otherwise all records are kept. Returns their number.
    """
    counted = out.shape[1] > n_keys
    i = j = n = 0
    while i < len(a) and j < len(b):
        order = _compare(a, i, b, j, n_keys)
        if order <= 0:
            _copy(a, i, out, n)
            i += 1
            if order == 0 and counted:
                out[n, n_keys] += b[j, n_keys]
                j += 1
        else:
            _copy(b, j, out, n)
            j += 1
        n += 1
    for rest in range(i, len(a)):
        _copy(a, rest, out, n)
        n += 1
    for rest in range(j, len(b)):
        _copy(b, rest, out, n)
        n += 1
    return n
