"""Words as bytes, for the kernels that number them: white space, hashes and comparisons."""

import numpy as np

from trelliswork.compute.jit import helper

BASIS = np.uint64(0xCBF29CE484222325)  # FNV-1a
PRIME = np.uint64(0x100000001B3)
_SHIFT = np.uint64(29)


@helper
def is_white(byte):
    """Return whether a byte is ASCII white space, as `trelliswork.data.files.fields_of` has it."""
    return byte <= 32 and (byte >= 28 or 9 <= byte <= 13)


@helper
def finished(mixed):
    """Return the hash of a word from its FNV-1a sum: the low bits, which choose a slot, depend on the high ones."""
    return mixed ^ (mixed >> _SHIFT)


@helper
def word_at(text, t):
    """Return the end of the word that starts at t, before white space or a NUL byte, and its hash."""
    n, mixed = len(text), BASIS
    while t < n and not (text[t] == 0 or is_white(text[t])):
        mixed = (mixed ^ np.uint64(text[t])) * PRIME
        t += 1
    return t, finished(mixed)


@helper
def are_equal(text, start, other, first, size):
    """Return whether ``size`` bytes of two texts are the same."""
    k = 0
    while k < size and text[start + k] == other[first + k]:
        k += 1
    return k == size
