"""Strings as bytes of a text, numbered by compiled code: white space, hashes, and hash tables of distinct strings."""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper

BASIS = np.uint64(0xCBF29CE484222325)  # FNV-1a
PRIME = np.uint64(0x100000001B3)
_SHIFT = np.uint64(29)


class Strings(NamedTuple):
    """Distinct strings of C columns: hash tables, and for each string its hash and its place in the text."""

    table: Any  # (C, a power of two) filled with -1
    hashes: Any  # (C, n)
    starts: Any  # (C, n)
    stops: Any  # (C, n)
    counts: Any  # (C,) number of strings so far


def no_strings(n_columns: int, room: int) -> Strings:
    """Return tables for at most ``room`` strings of each column."""
    table = np.full((n_columns, 1 << max(1, 2 * room - 1).bit_length()), -1, np.int32)  # at most half full
    places = np.empty((2, n_columns, room), np.int64)
    return Strings(table, np.empty((n_columns, room), np.uint64), *places, np.zeros(n_columns, np.int64))


@helper
def is_white(byte):
    """Return whether a byte is ASCII white space, as `trelliswork.data.files.fields_of` has it."""
    return byte <= 32 and (byte >= 28 or 9 <= byte <= 13)


@helper
def finished(mixed):
    """Return the hash of a string from its FNV-1a sum: the low bits, which choose a slot, depend on the high ones."""
    return mixed ^ (mixed >> _SHIFT)


@helper
def are_equal(text, start, other, first, size):
    """Return whether ``size`` bytes of two texts are the same."""
    k = 0
    while k < size and text[start + k] == other[first + k]:
        k += 1
    return k == size


@helper
def number(text, start, stop, mixed, c, strings):
    """Return the number of the string of column c at ``start`` to ``stop``; -1 if there is no room for a new one.

    ``mixed`` is the FNV-1a sum of its bytes.
    """
    table, hashes, starts, stops, counts = strings
    mask, size = table.shape[1] - 1, stop - start
    mixed = finished(mixed)
    at = np.int64(mixed) & mask
    while True:
        word = np.int64(table[c, at])
        if word < 0:
            word = counts[c]
            if word == hashes.shape[1]:
                return -1
            table[c, at] = word
            hashes[c, word], starts[c, word], stops[c, word] = mixed, start, stop
            counts[c] += 1
            return word
        begin = starts[c, word]
        if hashes[c, word] == mixed and stops[c, word] - begin == size and are_equal(text, start, text, begin, size):
            return word
        at = (at + 1) & mask
