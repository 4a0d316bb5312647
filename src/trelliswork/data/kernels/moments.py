"""Compiled counting of word pairs by sorting.

A *run* is two arrays: distinct keys in rising order, and the count of each.
"""

import numpy as np

from trelliswork.compute.jit import kernel


@kernel
def pair_keys(ids, n_words, keys):
    """Set keys[l - 1, i] = left * n_words + right for the i-th pair at distance l; ``keys`` is (K, positions).

    ``ids`` is a stream as in ``kernels.ids``. Each sentence has K pads (id 0) before it and the K pads of the next one
    after it: so no pair reaches into another sentence, and each of its M + K positions is the left of one pair at each
    distance.
    """
    K = keys.shape[0]
    begin = at = 0
    for end in range(len(ids)):
        if ids[end] >= 0:
            continue
        M = end - begin
        for distance in range(1, K + 1):
            for i in range(-K, M):
                left = ids[begin + i] if i >= 0 else 0
                right = ids[begin + i + distance] if 0 <= i + distance < M else 0
                keys[distance - 1, at + i + K] = np.int64(left) * n_words + right
        at += M + K
        begin = end + 1


@kernel
def squeeze(keys, counts):
    """Move the distinct ones of sorted keys to the front, with their counts; return their number."""
    n = 0
    for i in range(len(keys)):
        if n > 0 and keys[n - 1] == keys[i]:
            counts[n - 1] += 1
        else:
            keys[n], counts[n] = keys[i], 1
            n += 1
    return n


@kernel
def merge_runs(keys_a, counts_a, keys_b, counts_b, keys, counts):
    """Merge two runs into ``keys, counts``, which have room for both; return the length."""
    i = j = n = 0
    while i < len(keys_a) and j < len(keys_b):
        a, b = keys_a[i], keys_b[j]
        keys[n], counts[n] = min(a, b), 0
        if a <= b:
            counts[n] += counts_a[i]
            i += 1
        if b <= a:
            counts[n] += counts_b[j]
            j += 1
        n += 1
    while i < len(keys_a):
        keys[n], counts[n] = keys_a[i], counts_a[i]
        i += 1
        n += 1
    while j < len(keys_b):
        keys[n], counts[n] = keys_b[j], counts_b[j]
        j += 1
        n += 1
    return n
