"""Compiled counting of word pairs by sorting; `data.kernels.runs` says what a run is."""

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
def squeeze(keys, run):
    """Count the distinct ones of sorted keys: fill a run (n, 2) of keys and counts, and return its length."""
    n = 0
    for i in range(len(keys)):
        if n > 0 and run[n - 1, 0] == keys[i]:
            run[n - 1, 1] += 1
        else:
            run[n, 0], run[n, 1] = keys[i], 1
            n += 1
    return n
