r"""Counts of n-grams of all orders in sorted arrays, of texts of any size.

The windows of all positions (the words from there on, and the one before) are sorted, in memory or on disk
(`data.moments.runs`). Then all n-grams that start with the same words follow each other: one pass numbers the n-grams
of all orders and counts them. To count the different words before an n-gram, each word remembers the last n-gram of
each order that it was before.

In a group of processes each rank sorts and counts the windows that begin with certain words; then all get the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.ids import BATCH, Ids, in_parallel
from trelliswork.data.kernels.runs import sort_records
from trelliswork.data.moments.runs import Run, Runs, finish
from trelliswork.data.spooled import Column
from trelliswork.learning import whole
from trelliswork.models.baselines.kernels.ngrams import Entries, Open, Packing, tabulate, windows

Ints = NDArray[np.int64]
_ROOM = 1 << 17  # records that are counted at a time


def positions_in_sentence(length: int, offsets: Ints) -> Ints:
    """Return the distance of each token from the start of its sentence (n,)."""
    return np.arange(length) - np.repeat(offsets[:-1], np.diff(offsets))


@dataclass
class NgramTable:
    """The n-grams of one order m, and the context of each.

    ``counts`` (n,) are numbers of occurrences; for lower orders of different words before the n-gram (Kneser and Ney),
    unless it starts with ``<s>``. The prefix in ``keys`` is the index of the first m - 1 words in the table of order
    m - 1; the table of order 1 lists all C words.
    """

    keys: Ints  # (n,) ``prefix * C + word``, ascending
    counts: Ints


def find_ngrams(table: Ints, prefix: Ints, words: Ints, C: int) -> Ints:
    """Return the index of each n-gram in the keys of its order, -1 if it is not listed or its prefix is -1."""
    if not len(table):  # no sentence is long enough
        return np.full(len(words), -1)
    keys = prefix * C + words
    at = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return np.where((prefix >= 0) & (table[at] == keys), at, -1)


def count_ngrams(blocks: Iterator[Ids], order: int, C: int, memory_limit: int) -> list[NgramTable]:
    """Return the tables of orders 1 to ``order`` of a stream of ids (`data.ids.IdStream`), whose sentences get edges.

    N-grams do not extend beyond the start of a sentence: the first word has a context of one token. Of the windows and
    of the tables ``memory_limit`` bytes are in memory, the rest is in temporary files. Time O(n order), and merging.
    """
    n_bits = int(C).bit_length()  # codes are 0 to C
    packing = Packing(n_bits, 63 // n_bits, order, C)
    width = -(-(order + 1) // packing.per_word)
    runs = Runs(width, width, memory_limit)
    while batch := list(islice(blocks, BATCH)):
        runs.add(in_parallel(lambda block: _sorted_windows(block, packing, width), batch))
    finish([runs], unit=1 << packing.n_bits * (packing.per_word - 1))
    with ExitStack() as stack:
        return _tables(runs, packing, memory_limit, stack)


def _sorted_windows(ids: Ids, packing: Packing, width: int) -> Run:
    records = np.empty((len(ids) + int((ids < 0).sum()), width), np.int64)
    windows(ids, packing, records)
    scratch = np.empty_like(records)
    return scratch if sort_records(records, scratch, packing.n_bits * packing.per_word) else records


def _tables(runs: Runs, packing: Packing, memory_limit: int, stack: ExitStack) -> list[NgramTable]:
    order, C = packing.order, packing.n_words
    codes, places, keys, counts, different, sizes = np.zeros((6, order), np.int64)
    stamps = np.zeros((order - 1, C + 1), np.int64)
    is_open = Open(codes, places, keys, counts, different, sizes, stamps)
    room = min(_ROOM, len(runs.run))
    found = np.empty((2, order, room + 1), np.int64)
    entries = Entries(found[0], found[1], np.zeros(order, np.int64), np.zeros(C, np.int64))
    limit = memory_limit // (4 * order)
    columns = [(stack.enter_context(Column(limit)), stack.enter_context(Column(limit))) for _ in range(order)]

    def count(records: Run, last: bool = False) -> None:
        tabulate(records, packing, is_open, entries, last)
        for m in range(1, order):
            for column, values in zip(columns[m], (entries.keys[m], entries.counts[m]), strict=True):
                column.append(values[: entries.n[m]])
        entries.n[:] = 0

    for run in runs.slices():
        for k in range(0, len(run), _ROOM):
            count(run[k : k + _ROOM])
    count(runs.empty, last=True)
    tables = [NgramTable(np.arange(C), whole.summed(entries.words)[0])]
    for m in range(1, order):
        # The prefix counts from the first n-gram of this rank; words are numbered for all ranks.
        before = whole.place(int(sizes[m - 1]))[0] if m > 1 else 0
        tables.append(
            NgramTable(*(whole.column(c, before * C if k == 0 else 0, limit) for k, c in enumerate(columns[m])))
        )
        for column in columns[m]:
            column.close()  # its memory is not needed twice
    return tables
