"""Compiled counting of n-grams: windows of words as records that are sorted, and tables of all orders from them.

A window has the words from a position on, one for each order, and then the word before the position. In a record they
are codes: the id plus 1, or 0 where the sentence has no word.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.jit import helper, kernel


class Packing(NamedTuple):
    """How the codes of a window are packed into a record: ``per_word`` codes of ``n_bits`` bits in each int64."""

    n_bits: int
    per_word: int
    order: int
    n_words: int  # C


class Open(NamedTuple):
    """The n-gram of each order that is being counted, m - 1 for order m."""

    codes: NDArray[np.int64]  # its last word, 0 if there is none
    places: NDArray[np.int64]  # its index in its table
    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    different: NDArray[np.int64]  # number of different words before it
    sizes: NDArray[np.int64]  # number of n-grams so far
    stamps: NDArray[np.int64]  # (order - 1, C + 1) the last n-gram, counted from 1, that each word was before


class Entries(NamedTuple):
    """N-grams whose counts are known: those of the orders from 2 on since the last call, and all words."""

    keys: NDArray[np.int64]  # (order, room)
    counts: NDArray[np.int64]
    n: NDArray[np.int64]  # (order,)
    words: NDArray[np.int64]  # (C,) counts of order 1


@kernel
def windows(ids, packing, records):
    """Pack the windows of a stream of ids, as in ``data.kernels.ids``, into records; sentences get edges (id 0)."""
    begin = at = 0
    for end in range(len(ids)):
        if ids[end] >= 0:
            continue
        M = end - begin
        for i in range(-1, M + 1):
            for j in range(packing.order + 1):
                t = i + j if j < packing.order else i - 1
                code = 0
                if t == -1 or t == M:
                    code = 1
                elif 0 <= t < M:
                    code = ids[begin + t] + 1
                word = j // packing.per_word
                if j % packing.per_word == 0:
                    records[at, word] = 0
                records[at, word] |= np.int64(code) << (packing.n_bits * (packing.per_word - 1 - j % packing.per_word))
            at += 1
        begin = end + 1


@helper(inline="always")
def _code(record, j, packing):
    shift = packing.n_bits * (packing.per_word - 1 - j % packing.per_word)
    return (record[j // packing.per_word] >> shift) & ((1 << packing.n_bits) - 1)


@helper(inline="always")
def _close(j, is_open, entries):
    """Add the open n-gram of order j + 1 to the entries."""
    if is_open.codes[j] == 0:
        return
    # Nothing precedes <s>, so n-grams that start with it keep their counts; and so does the highest order.
    keeps = j == len(is_open.codes) - 1 or (j > 0 and is_open.codes[0] == 1)
    count = is_open.counts[j] if keeps else is_open.different[j]
    if j == 0:
        entries.words[is_open.codes[0] - 1] = count
    else:
        entries.keys[j, entries.n[j]] = is_open.keys[j]
        entries.counts[j, entries.n[j]] = count
        entries.n[j] += 1


@kernel
def tabulate(records, packing, is_open, entries, last):
    """Count the n-grams of sorted records, continuing with those that are open; ``last`` closes all of them.

    The entries must have room for one n-gram more than there are records.
    """
    order, C = packing.order, packing.n_words
    for r in range(len(records)):
        record = records[r]
        common = 0
        while common < order and _code(record, common, packing) == is_open.codes[common]:
            common += 1
        for j in range(order - 1, common - 1, -1):
            _close(j, is_open, entries)
        for j in range(common, order):
            code = _code(record, j, packing)
            is_open.codes[j] = code
            if code == 0:
                continue
            if j == 0:
                is_open.places[0] = code - 1
            else:
                is_open.keys[j] = is_open.places[j - 1] * C + code - 1
                is_open.places[j] = is_open.sizes[j]
                is_open.sizes[j] += 1
            is_open.counts[j] = is_open.different[j] = 0
        before = _code(record, order, packing)
        for j in range(1 if before == 0 else 0, order):  # <s> itself is no event
            if is_open.codes[j] == 0:
                break
            is_open.counts[j] += 1
            if j < order - 1 and is_open.stamps[j, before] != is_open.places[j] + 1:
                is_open.stamps[j, before] = is_open.places[j] + 1
                is_open.different[j] += 1
    if last:
        for j in range(order - 1, -1, -1):
            _close(j, is_open, entries)
            is_open.codes[j] = 0
