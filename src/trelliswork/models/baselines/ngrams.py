"""Counts of n-grams of all orders in sorted arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


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

    def find(self, prefix: Ints, words: Ints, C: int) -> Ints:
        """Return the index of each n-gram, -1 if it is not listed or its prefix is -1."""
        if not len(self.keys):  # no sentence is long enough
            return np.full(len(words), -1)
        keys = prefix * C + words
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where((prefix >= 0) & (self.keys[at] == keys), at, -1)


def count_ngrams(flat: Ints, offsets: Ints, order: int, C: int) -> list[NgramTable]:
    """Return the tables of orders 1 to ``order`` of sentences that start and end with id 0.

    N-grams do not extend beyond the start of a sentence: the first word has a context of one token.
    Time O(n order log n), memory O(n).
    """
    depth = positions_in_sentence(len(flat), offsets)
    raw = np.bincount(flat[depth > 0], minlength=C)
    tables = [NgramTable(np.arange(C), raw)]
    starts = np.zeros(C, bool)  # which n-grams of the last table start a sentence; <s> itself is not an event
    ids = flat.copy()  # of the n-gram that ends at each token
    for m in range(2, order + 1):
        where = np.flatnonzero(depth >= m - 1)
        keys, first, inverse, counts = np.unique(
            ids[where - 1] * C + flat[where], return_index=True, return_inverse=True, return_counts=True
        )
        first = where[first]
        suffix = ids[first]  # the last m - 1 words of each n-gram
        lower = tables[-1]
        different = np.bincount(suffix, minlength=len(lower.keys))
        # Nothing precedes <s>: n-grams that start with it keep their counts.
        lower.counts = np.where(starts, lower.counts, different)
        tables.append(NgramTable(keys, counts))
        starts = depth[first] == m - 1
        ids = np.full(len(flat), -1)
        ids[where] = inverse
    return tables
