"""Compiled reader and writer of column files: bytes of text to ids of strings, and lines with more columns.

White space is that of ASCII, as `trelliswork.data.files.fields_of` has it. The bytes of other characters in UTF-8 are
128 and above, so that none of them is mistaken for it.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.data.kernels.bytes import BASIS, PRIME, Strings, are_equal, is_white, no_strings, number

DONE, FULL, UNUSUAL = 0, 1, 2  # status of `read`
ACCEPTED, SKIPPED = 1, 2  # what becomes of an unusual line
_NEWLINE = 10


class TokenPlaces(NamedTuple):
    """Tokens of a text, sentence after sentence."""

    ids: Any  # (C, n) the string of each column
    lines: Any  # (n,) number of the line
    ends: Any  # (n + 1,) number of tokens up to the end of each sentence; the first is 0


class Layout(NamedTuple):
    """Columns of a file."""

    separator: Any  # bytes; none for runs of white space
    slots: Any  # (width,) the row in `Strings` and `TokenPlaces` of each column, -1 for those that are not wanted
    edges: Any  # bytes of the first columns of unusual lines, one after another
    ends: Any  # (n + 1,) where each of them starts and the last one ends


class Words(NamedTuple):
    """Strings, one after another, and the one that each of K columns has for each token."""

    text: Any
    ptr: Any  # (n + 1,)
    ids: Any  # (K, n_tokens)


def empty(n: int, room: int, n_lines: int) -> tuple[Strings, TokenPlaces]:
    """Return the arrays that `read` fills, for n columns of at most ``room`` strings."""
    tokens = np.empty((n, n_lines), np.int32), np.empty(n_lines, np.int64), np.zeros(n_lines + 1, np.int64)
    return no_strings(n, room), TokenPlaces(*tokens)


@helper
def _is_stripped(byte):
    """Return whether a byte is dropped at the end of a line: a space, a tab, or the bytes 11 to 13."""
    return byte == 32 or byte == 9 or 11 <= byte <= 13


@helper
def _follows(text, t, other):
    """Return whether a text has the bytes of another from t on."""
    return t + len(other) <= len(text) and are_equal(text, t, other, 0, len(other))


@helper
def _ends_field(text, t, separator):
    """Return whether a field ends before byte t."""
    if text[t] == _NEWLINE:
        return True
    return _follows(text, t, separator) if len(separator) else is_white(text[t])


@helper
def _is_edge(text, start, stop, layout):
    """Return whether a field is one of the ``edges`` of a layout."""
    for k in range(len(layout.ends) - 1):
        size = layout.ends[k + 1] - layout.ends[k]
        if size == stop - start and are_equal(text, start, layout.edges, layout.ends[k], size):
            return True
    return False


@kernel
def read(text, layout, strings, tokens, at):
    """Read a column file from a line on, up to its end or to a line that is unusual.

    ``at`` has the position and the number of the line, the numbers of tokens and sentences before it, and whether the
    line is ``ACCEPTED`` or ``SKIPPED`` although it is unusual: its first column is one of the edges, or it has another
    number of columns than the layout. A blank line, and one that is skipped, ends a sentence. Returns the status.
    """
    separator, slots = layout.separator, layout.slots
    n, width = len(text), len(slots)
    while at[0] < n:
        t, column, judged = at[0], 0, at[4]
        while t < n and text[t] != _NEWLINE and (is_white(text[t]) if len(separator) == 0 else _is_stripped(text[t])):
            t += 1
        if t < n and text[t] != _NEWLINE and judged != SKIPPED:
            t = t if len(separator) == 0 else at[0]
            while True:
                start, mixed = t, BASIS
                while t < n and not _ends_field(text, t, separator):
                    mixed = (mixed ^ np.uint64(text[t])) * PRIME
                    t += 1
                if column == width or (column == 0 and judged != ACCEPTED and _is_edge(text, start, t, layout)):
                    return UNUSUAL
                if slots[column] >= 0:
                    word = number(text, start, t, mixed, slots[column], strings)
                    if word < 0:
                        return FULL
                    tokens.ids[slots[column], at[2]] = word
                column += 1
                if len(separator) == 0:
                    while t < n and text[t] != _NEWLINE and is_white(text[t]):
                        t += 1
                if t == n or text[t] == _NEWLINE:
                    break
                t += len(separator)
            if column != width:
                return UNUSUAL
            tokens.lines[at[2]] = at[1]
            at[2] += 1
        elif at[2] > tokens.ends[at[3]]:
            at[3] += 1
            tokens.ends[at[3]] = at[2]
        while t < n and text[t] != _NEWLINE:
            t += 1
        at[0], at[1], at[4] = t + 1, at[1] + 1, 0
    if at[2] > tokens.ends[at[3]]:
        at[3] += 1
        tokens.ends[at[3]] = at[2]
    return DONE


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
