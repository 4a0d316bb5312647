"""Compiled tokenizer: bytes of text to streams of ids.

A *stream* of ids has the sentences one after another, with a ``BREAK`` after each.
"""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.data.kernels.bytes import are_equal, is_white, word_at

BREAK = -1  # ends a sentence in a stream of ids
DONE, FULL = -1, -2  # status of `tokenize`; otherwise the position of a NUL byte


@kernel
def tokenize(text, table, hashes, starts, stops, out):
    """Number the words of a text (n,) of bytes by first appearance; each line that is not blank is a sentence.

    ``table`` (its size a power of two) must be filled with -1; ``hashes, starts, stops`` (half as long) receive the
    words, ``out`` (n + 2,) the stream of ids. Returns ``(length of the stream, number of words, status)``.
    """
    n, n_words, n_out, t = len(text), 0, 0, 0
    mask = len(table) - 1
    filled = False  # whether this line has words
    while t <= n:
        byte = text[t] if t < n else np.uint8(10)
        if byte == 0:
            return n_out, n_words, t
        if is_white(byte):
            if byte == 10 and filled:
                out[n_out] = BREAK
                n_out += 1
                filled = False
            t += 1
            continue
        start = t
        t, mixed = word_at(text, start)
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
            size = stops[word] - starts[word]
            if hashes[word] == mixed and size == t - start and are_equal(text, start, text, starts[word], size):
                break
            at = (at + 1) & mask
        out[n_out] = word
        n_out += 1
        filled = True
    return n_out, n_words, DONE


@kernel
def look_up(text, index, first, starts, stops, out):
    """Write the stream of ids of a text (n,) of bytes without NUL, by the index of a vocabulary (`data.ids.WordIndex`).

    Word k that is not listed, or has an id below ``first``, is ``-2 - k`` and has its place in ``starts, stops``, if
    they have room. Returns ``(length of the stream, number of these words)``.
    """
    n, n_new, n_out, t = len(text), 0, 0, 0
    mask = len(index.table) - 1
    filled = False
    while t <= n:
        byte = text[t] if t < n else np.uint8(10)
        if is_white(byte):
            if byte == 10 and filled:
                out[n_out] = BREAK
                n_out += 1
                filled = False
            t += 1
            continue
        start = t
        t, mixed = word_at(text, start)
        at = np.int64(mixed) & mask
        word = index.table[at]
        while word >= 0:
            begin = index.starts[word]
            size = index.stops[word] - begin
            if index.hashes[word] == mixed and size == t - start and are_equal(text, start, index.text, begin, size):
                break
            at = (at + 1) & mask
            word = index.table[at]
        if word < first:
            if n_new < len(starts):
                starts[n_new], stops[n_new] = start, t
            word = -2 - n_new
            n_new += 1
        out[n_out] = word
        n_out += 1
        filled = True
    return n_out, n_new


@kernel
def renumber(ids, new):
    """Replace the ids of a stream by ``new[id]``."""
    for i in range(len(ids)):
        if ids[i] >= 0:
            ids[i] = new[ids[i]]


@kernel
def count_ids(ids, counts):
    """Add the ids of a stream to ``counts``, which is long enough."""
    for i in range(len(ids)):
        if ids[i] >= 0:
            counts[ids[i]] += 1
