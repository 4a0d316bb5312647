"""Compiled reader of attributes that the user computed: JSON text of tokens to the numbers of names, with values."""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.data.kernels.bytes import BASIS, PRIME, are_equal, finished

DONE, FULL, ODD = 0, 1, 2  # status of `read`
DEEPEST = 64  # levels of nested attributes
_QUOTE, _BACKSLASH, _COLON, _COMMA = 34, 92, 58, 44
_LIST, _LIST_END, _DICT, _DICT_END = 91, 93, 123, 125
_LARGEST = float(np.finfo(np.float32).max)
_POWERS = 10.0 ** np.arange(23)  # exact


class Names(NamedTuple):
    """Distinct names: a hash table, and for each name its hash and where it ends in the text of all."""

    table: Any  # (a power of two,) int32, filled with -1
    hashes: Any  # (room,) uint64
    ends: Any  # (room + 1,) int64; the first is 0
    text: Any  # (n,) uint8


class Found(NamedTuple):
    """Attributes of tokens, one after another."""

    ids: Any  # (n,) int32 number of the name; -1 if it is unknown
    values: Any  # (n,) float32
    token_ptr: Any  # (n_tokens + 1,) int64


@helper
def _put(byte, name, at, mixed):
    """Append a byte to a name; return its new length and hash."""
    name[at] = byte
    return at + 1, (mixed ^ np.uint64(byte)) * PRIME


@helper
def _string(text, t, name, at, mixed):
    """Append the JSON string at t to a name; return the position behind it, the length of the name and its hash.

    A character that JSON escapes has one byte. A string between bytes of 0 instead of quotes has no escapes.
    """
    quote, t = text[t], t + 1
    while text[t] != quote:
        byte = text[t]
        if byte == _BACKSLASH and quote == _QUOTE:
            t += 1
            byte = text[t]
            if byte == 117:  # \u00XX, of a control character
                byte = np.uint8(0)
                for k in range(t + 3, t + 5):
                    digit = text[k] - 48 if text[k] < 58 else text[k] - 87
                    byte = np.uint8(16 * byte + digit)
                t += 4
            elif byte == 110:
                byte = np.uint8(10)
            elif byte == 116:
                byte = np.uint8(9)
            elif byte == 114:
                byte = np.uint8(13)
            elif byte == 98:
                byte = np.uint8(8)
            elif byte == 102:
                byte = np.uint8(12)
        at, mixed = _put(byte, name, at, mixed)
        t += 1
    return t + 1, at, mixed


@helper
def _is_digit(byte):
    return 48 <= byte <= 57


@helper
def _number(text, t):
    """Return the number at t and the position behind it; nan and infinities are nan."""
    negative = text[t] == 45
    if negative:
        t += 1
    if not _is_digit(text[t]):
        return np.nan, t
    mantissa, power, behind = 0.0, 0, False
    while _is_digit(text[t]) or text[t] == 46:
        if text[t] == 46:
            behind = True
        else:
            mantissa = 10.0 * mantissa + (text[t] - 48)
            power -= behind
        t += 1
    if text[t] == 101 or text[t] == 69:
        t += 1
        sign, exponent = 1, 0
        if text[t] == 45 or text[t] == 43:
            sign = -1 if text[t] == 45 else 1
            t += 1
        while _is_digit(text[t]):
            exponent = min(10 * exponent + (text[t] - 48), 100_000)
            t += 1
        power += sign * exponent
    if -23 < power < 0:
        mantissa /= _POWERS[-power]
    elif 0 < power < 23:
        mantissa *= _POWERS[power]
    elif power:
        mantissa *= 10.0 ** np.float64(power)
    return (-mantissa if negative else mantissa), t


@helper
def _slot(hashed, name, size, names):
    """Return the slot of a name of ``size`` bytes, or the free slot where it belongs."""
    table, hashes, ends, text = names
    at = np.int64(hashed) & (len(table) - 1)
    while table[at] >= 0:
        word = table[at]
        first = ends[word]
        if hashes[word] == hashed and ends[word + 1] - first == size and are_equal(name, 0, text, first, size):
            break
        at = (at + 1) & (len(table) - 1)
    return at


@kernel
def rehash(n, names):
    """Insert the first n names into an empty table."""
    table, hashes, _, _ = names
    for word in range(n):
        at = np.int64(hashes[word]) & (len(table) - 1)
        while table[at] >= 0:
            at = (at + 1) & (len(table) - 1)
        table[at] = word


@kernel
def read(text, learn, zeros, names, name, stack, found, at):
    """Read a JSON list of tokens, from a token on, up to its end or to what needs more room or is odd.

    ``at`` has the position in the text, and the numbers of tokens, attributes and names before it. With ``learn`` new
    names are added; without ``zeros`` attributes that are false are left out. ``name`` (at least as long as the text)
    and ``stack`` (DEEPEST, 3) are room for names under construction. Returns the status.
    """
    room = len(names.hashes)
    t, stop = at[0], len(text) - 1
    while t < stop:
        if text[t] == _COMMA:
            t += 1
        depth, n, known = 0, at[2], at[3]
        length, mixed = np.int64(0), BASIS  # of the prefix of names on this level
        kind = text[t]
        if kind != _LIST and kind != _DICT:
            return ODD
        t += 1
        while depth >= 0:
            if text[t] == _COMMA:
                t += 1
            if text[t] == _LIST_END or text[t] == _DICT_END:
                depth -= 1
                if depth >= 0:
                    kind, length, mixed = np.uint8(stack[depth, 0]), stack[depth, 1], np.uint64(stack[depth, 2])
                t += 1
                continue
            if text[t] != _QUOTE and text[t] != 0:
                return ODD
            t, size, hashed = _string(text, t, name, length, mixed)
            value = 1.0
            if kind == _DICT:
                t += 1  # the colon
                first = text[t]
                if first in (_QUOTE, _LIST, _DICT):
                    size, hashed = _put(np.uint8(_COLON), name, size, hashed)
                if first == _QUOTE:
                    t, size, hashed = _string(text, t, name, size, hashed)
                elif first in (_LIST, _DICT):
                    if depth == DEEPEST:
                        return ODD
                    stack[depth, 0], stack[depth, 1], stack[depth, 2] = kind, length, np.int64(mixed)
                    kind, length, mixed = first, size, hashed
                    depth, t = depth + 1, t + 1
                    continue
                elif first == 116:  # true
                    t += 4
                elif first == 102:  # false
                    t += 5
                    if not zeros:
                        continue
                    value = 0.0
                else:
                    value, t = _number(text, t)
                    if not abs(value) <= _LARGEST:
                        return ODD
            hashed = finished(hashed)
            slot = _slot(hashed, name, size, names)
            word = names.table[slot]
            if word < 0 and learn:
                start = names.ends[known]
                if known == room or start + size > len(names.text):
                    at[3] = known  # the token is read again, and its first names are known then
                    return FULL
                word = np.int32(known)
                names.table[slot], names.hashes[word], names.ends[word + 1] = word, hashed, start + size
                for k in range(size):
                    names.text[start + k] = name[k]
                known += 1
            found.ids[n], found.values[n] = word, value
            n += 1
        at[0], at[1], at[2], at[3] = t, at[1] + 1, n, known
        found.token_ptr[at[1]] = n
    return DONE
