"""Compiled text to ids, and ids to sorted pairs: bytes and numbers only, strings never appear here.

A stream of ids has all sentences one behind the other, a ``-1`` after each. A *run* is two arrays: keys in rising
order, each once, and how often each occurs.
"""

import numpy as np

from trelliswork.compute.jit import kernel

END = -1  # of a sentence, in a stream of ids
FINE, FULL = -1, -2  # how `tokenize` ended; else where a NUL byte is
_PRIME = np.uint64(0x100000001B3)  # FNV-1a
_BASIS = np.uint64(0xCBF29CE484222325)
_SHIFT = np.uint64(29)


@kernel
def tokenize(text, table, hashes, starts, stops, out):
    """Number the words of a text (n,) of bytes by first appearance; lines that are not blank are sentences.

    ``table`` (a power of two) is all -1; ``hashes, starts, stops`` (half of it) receive the words, ``out`` (n + 2,) the
    stream of ids. Returns ``(length of the stream, words, how it ended)``.
    """
    n, n_words, n_out, t = len(text), 0, 0, 0
    mask = len(table) - 1
    filled = False  # whether this line has words
    while t <= n:
        byte = text[t] if t < n else np.uint8(10)
        if byte == 0:
            return n_out, n_words, t
        if byte <= 32 and (byte >= 28 or 9 <= byte <= 13):  # ASCII white space
            if byte == 10 and filled:
                out[n_out] = END
                n_out += 1
                filled = False
            t += 1
            continue
        start, mixed = t, _BASIS
        while t < n and not (text[t] <= 32 and (text[t] >= 28 or 9 <= text[t] <= 13 or text[t] == 0)):
            mixed = (mixed ^ np.uint64(text[t])) * _PRIME
            t += 1
        mixed ^= mixed >> _SHIFT
        at = np.int64(mixed) & mask
        while True:
            word = table[at]
            if word < 0:
                if n_words == len(starts):
                    return n_out, n_words, FULL
                table[at] = word = n_words
                hashes[word], starts[word], stops[word] = mixed, start, t
                n_words += 1
                break
            if hashes[word] == mixed and stops[word] - starts[word] == t - start:
                k = 0
                while k < t - start and text[start + k] == text[starts[word] + k]:
                    k += 1
                if k == t - start:
                    break
            at = (at + 1) & mask
        out[n_out] = word
        n_out += 1
        filled = True
    return n_out, n_words, FINE


@kernel
def renumber(ids, new):
    """Replace the ids of a stream by ``new[id]``; ends of sentences stay."""
    for i in range(len(ids)):
        if ids[i] >= 0:
            ids[i] = new[ids[i]]


@kernel
def count_ids(ids, counts, lengths):
    """Add the ids of a stream to ``counts`` and its sentences' lengths to ``lengths``; both are long enough."""
    length = 0
    for i in range(len(ids)):
        if ids[i] >= 0:
            counts[ids[i]] += 1
            length += 1
        else:
            lengths[length] += 1
            length = 0


@kernel
def longest(ids):
    """Length of the longest sentence of a stream."""
    best = length = 0
    for i in range(len(ids)):
        length = length + 1 if ids[i] >= 0 else 0
        best = max(best, length)
    return best


@kernel
def pair_keys(ids, n_words, keys):
    """keys[l - 1, i] = left * n_words + right of the i-th pair at distance l; ``keys`` is (K, positions).

    Each sentence has K pads (id 0) before it, and the next one's K pads behind: so no pair reaches another sentence,
    and each of its M + K positions is the left of one pair at each distance.
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
    """Write each of the sorted keys once, to the front, with how often it occurs; return how many there are."""
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
        if a < b:
            keys[n], counts[n] = a, counts_a[i]
            i += 1
        elif b < a:
            keys[n], counts[n] = b, counts_b[j]
            j += 1
        else:
            keys[n], counts[n] = a, counts_a[i] + counts_b[j]
            i += 1
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
