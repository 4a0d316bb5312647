"""Compiled reader and writer of column files: bytes of text to ids of strings, and lines with more columns.

White space is that of ASCII, as `trelliswork.data.files.fields_of` has it. The bytes of other characters in UTF-8 are
128 and above, so that none of them is mistaken for it.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.data.kernels.bytes import BASIS, PRIME, are_equal, finished, is_white

DONE, FULL, IRREGULAR = 0, 1, 2  # status of `read`
_WHITE = -1  # separator: runs of white space
_NEWLINE = 10


class Strings(NamedTuple):
    """Distinct strings of columns: hash tables, and for each string its hash and its place in the text."""

    table: Any  # (C, a power of two) filled with -1
    hashes: Any  # (C, n)
    starts: Any  # (C, n)
    stops: Any  # (C, n)
    counts: Any  # (C,) number of strings so far


class TokenPlaces(NamedTuple):
    """Tokens of a text, sentence after sentence."""

    ids: Any  # (C, n) the string of each column
    lines: Any  # (n,) number of the line
    ends: Any  # (n + 1,) number of tokens up to the end of each sentence; the first is 0


class Words(NamedTuple):
    """Strings, one after another, and the one that each of K columns has for each token."""

    text: Any
    ptr: Any  # (n + 1,)
    ids: Any  # (K, n_tokens)


@helper
def _is_stripped(byte):
    """Return whether a byte is dropped at the end of a line: a space, a tab, or the bytes 11 to 13."""
    return byte == 32 or byte == 9 or 11 <= byte <= 13


@helper
def _equal(text, start, stop, other):
    return stop - start == len(other) and are_equal(text, start, other, 0, stop - start)


@helper
def _number(text, start, stop, mixed, c, strings):
    """Return the number of the string of column c at ``start`` to ``stop``; -1 if there is no room for a new one."""
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


@kernel
def read(text, separator, slots, edges, strings, tokens):
    """Read a column file in which each line that is not blank has ``len(slots)`` columns.

    ``slots`` has the row in ``strings`` and ``tokens`` of each column, -1 for those that are not wanted. A line whose
    first columns are ``edges`` (``-DOCSTART-``, ``#begin``, ``#end``, ``document``), another number of columns or a NUL
    byte is irregular. Returns ``(number of tokens, number of sentences, status)``.
    """
    docstart, begin, end, document = edges
    n, width, t, line = len(text), len(slots), 0, 0
    n_tokens = n_sentences = 0
    while t < n:
        column, second = 0, False  # whether the first field is that of a line between documents
        blank = True
        if separator != _WHITE:  # a line of white space is blank
            at = t
            while at < n and text[at] != _NEWLINE and _is_stripped(text[at]):
                at += 1
            if at == n or text[at] == _NEWLINE:
                t = at
        while t < n and text[t] != _NEWLINE:
            if separator == _WHITE:
                while t < n and text[t] != _NEWLINE and is_white(text[t]):
                    t += 1
                if t == n or text[t] == _NEWLINE:
                    break
            blank = False
            start, mixed = t, BASIS
            while t < n:
                byte = text[t]
                if byte == _NEWLINE or (is_white(byte) if separator == _WHITE else byte == separator):
                    break
                if byte == 0:
                    return n_tokens, n_sentences, IRREGULAR
                mixed = (mixed ^ np.uint64(byte)) * PRIME
                t += 1
            if column == 0:
                if _equal(text, start, t, docstart):
                    return n_tokens, n_sentences, IRREGULAR
                second = _equal(text, start, t, begin) or _equal(text, start, t, end)
            elif column == 1 and second and _equal(text, start, t, document):
                return n_tokens, n_sentences, IRREGULAR
            if column == width:
                return n_tokens, n_sentences, IRREGULAR
            if slots[column] >= 0:
                number = _number(text, start, t, mixed, slots[column], strings)
                if number < 0:
                    return n_tokens, n_sentences, FULL
                tokens.ids[slots[column], n_tokens] = number
            column += 1
            if separator != _WHITE and t < n and text[t] == separator:
                t += 1
                if t == n or text[t] == _NEWLINE:  # an empty last column, left to the general reader
                    return n_tokens, n_sentences, IRREGULAR
        if blank:
            if n_tokens > tokens.ends[n_sentences]:
                n_sentences += 1
                tokens.ends[n_sentences] = n_tokens
        else:
            if column != width:
                return n_tokens, n_sentences, IRREGULAR
            tokens.lines[n_tokens] = line
            n_tokens += 1
        t += 1
        line += 1
    if n_tokens > tokens.ends[n_sentences]:
        n_sentences += 1
        tokens.ends[n_sentences] = n_tokens
    return n_tokens, n_sentences, DONE


@kernel
def spell(text, starts, stops, out):
    """Copy strings of a text to ``out``, each with a line end after it; return the number of bytes."""
    to = 0
    for k in range(len(starts)):
        for t in range(starts[k], stops[k]):
            out[to] = text[t]
            to += 1
        out[to] = _NEWLINE
        to += 1
    return to


@kernel
def write(text, token_lines, strip, between, words, out):
    """Copy the lines of a text to ``out``, with further columns at those of tokens; return the number of bytes.

    With ``strip``, white space at the end of the line of a token is dropped. Each line gets a line end.
    """
    n, n_tokens = len(text), len(token_lines)
    t = line = token = to = 0
    while t < n:
        stop = t
        while stop < n and text[stop] != _NEWLINE:
            stop += 1
        end, of_token = stop, token < n_tokens and token_lines[token] == line
        if of_token and strip:
            while end > t and _is_stripped(text[end - 1]):
                end -= 1
        for k in range(t, end):
            out[to] = text[k]
            to += 1
        if of_token:
            for c in range(len(words.ids)):
                for k in range(len(between)):
                    out[to] = between[k]
                    to += 1
                word = words.ids[c, token]
                for k in range(words.ptr[word], words.ptr[word + 1]):
                    out[to] = words.text[k]
                    to += 1
            token += 1
        out[to] = _NEWLINE
        to += 1
        t = stop + 1
        line += 1
    return to


@kernel
def cut(text, start, n_lines, size):
    """Return the end of the first blank line from ``start`` on with ``size`` lines up to it, and the number of lines.

    ``n_lines`` are before ``start``. The end is -1 if there is none. Blank: spaces and tabs only.
    """
    blank = True
    for t in range(start, len(text)):
        byte = text[t]
        if byte == _NEWLINE:
            n_lines += 1
            if blank and n_lines >= size:
                return t + 1, n_lines
            blank = True
        elif byte != 32 and byte != 9:
            blank = False
    return -1, n_lines
