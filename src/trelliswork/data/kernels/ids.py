"""Compiled tokenizer: bytes of text to streams of ids.

A *stream* of ids has the sentences one after another, with a ``BREAK`` after each.
"""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.data.kernels.bytes import BASIS, PRIME, is_white, number

BREAK = -1  # ends a sentence in a stream of ids


@kernel
def tokenize(text, keep_empty, strings, out):
    """Number the words of a text (n,) of bytes by first appearance; each line is a sentence.

    Blank lines are sentences only if ``keep_empty``. ``strings`` of one column receive the words, ``out`` (n + 2,) the
    stream of ids. Returns its length, or -1 if there are more words than room.
    """
    n, n_out, t = len(text), 0, 0
    filled = keep_empty  # whether this line is a sentence
    while t <= n:
        byte = text[t] if t < n else np.uint8(10)
        if is_white(byte):
            if byte == 10 and filled:
                out[n_out] = BREAK
                n_out += 1
                filled = keep_empty
            t += 1
            continue
        start, mixed = t, BASIS
        while t < n and not is_white(text[t]):
            mixed = (mixed ^ np.uint64(text[t])) * PRIME
            t += 1
        word = number(text, start, t, mixed, 0, strings)
        if word < 0:
            return -1
        out[n_out] = word
        n_out += 1
        filled = True
    return n_out
