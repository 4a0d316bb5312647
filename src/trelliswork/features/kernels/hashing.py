"""Compiled hash tables from 64-bit keys to consecutive ids.

A table is two arrays whose size is a power of two, ``keys`` and ``ids`` (-1: free). Slots are probed linearly from a
mixed hash, so that consecutive keys do not cluster.
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio
_SHIFT = np.uint64(32)


@helper
def _slot(key, keys, ids):
    """Return the slot of ``key``, or the free slot where it belongs."""
    mixed = np.uint64(key) * _MULTIPLIER
    mixed ^= mixed >> _SHIFT
    at = np.int64(mixed & np.uint64(len(keys) - 1))
    while ids[at] >= 0 and keys[at] != key:
        at = (at + 1) & (len(keys) - 1)
    return at


@kernel
def number(values, keys, ids, n, out, listed):
    """Set out[i] = id of values[i], with new ids from n on in order of appearance; negative values get -1.

    ``listed`` receives the new keys by id. Returns the new n. The table must have room for all.
    """
    for i in range(len(values)):
        if values[i] < 0:
            out[i] = -1
            continue
        at = _slot(values[i], keys, ids)
        if ids[at] < 0:
            keys[at], ids[at] = values[i], n
            listed[n] = values[i]
            n += 1
        out[i] = ids[at]
    return n


@kernel
def look_up(values, keys, ids, out):
    """Set out[i] = id of values[i], -1 where it is negative or not in the table."""
    for i in range(len(values)):
        out[i] = -1 if values[i] < 0 else ids[_slot(values[i], keys, ids)]
