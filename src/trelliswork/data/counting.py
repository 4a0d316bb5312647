"""Sentences, strings and pairs of numbers, counted over all processes of a group; of one process alone without it.

Each process (rank) holds a part of the sentences; the parts in order of rank are the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike, NDArray

from trelliswork.compute.sharing import current
from trelliswork.errors import DataError

if TYPE_CHECKING:  # importing it takes longer than tagging a sentence
    from scipy import sparse

Keys = NDArray[np.int64]


def first_sentence(n: int) -> int:
    """Return the number of the first of this rank's n sentences, among those of all ranks."""
    return current().place(n)[0]


def columns_to_learn(columns: Sequence[Sequence[str]], n_sentences: int) -> Sequence[Sequence[str]]:
    """Return the columns of this rank, or as many empty ones as the other ranks have if it has no sentence.

    DataError if no rank has a sentence, or if they differ in the number of columns.
    """
    numbers = set(current().gather(len(columns) if n_sentences else -1)) - {-1}
    if not numbers:
        raise DataError("X must have at least one sentence, got none.")
    if len(numbers) > 1:
        raise DataError(
            f"the sentences of all processes must have the same number of columns, got {sorted(numbers)}: "
            "choose the same columns of every file."
        )
    return columns if n_sentences else [[]] * numbers.pop()


def frequent(counts: Mapping[str, int], least: int = 1) -> dict[str, int]:
    """Return the strings that occur at least ``least`` times, in order of appearance, from this rank's counts."""
    return current().count_names(counts, least)


def frequent_keys(keys: Keys, counts: Keys, least: int = 1) -> Keys:
    """Return the keys that occur at least ``least`` times, in order of appearance, from this rank's distinct ones."""
    return current().count(keys, counts, least)[0]


def word_counts(words: NDArray[np.integer], n_words: int) -> Keys:
    """Count ids (n_words,)."""
    return current().sum(np.bincount(words, minlength=n_words))


def pair_counts(rows: Keys, columns: Keys, shape: tuple[int, int], dtype: DTypeLike = np.float64) -> sparse.csr_matrix:
    """Count pairs of numbers."""
    from scipy import sparse

    own = sparse.coo_matrix((np.ones(len(rows), np.int64), (rows, columns)), shape=shape)
    own.sum_duplicates()
    keys, totals = current().count(own.row * np.int64(shape[1]) + own.col, own.data)
    return sparse.coo_matrix((totals.astype(dtype), np.divmod(keys, shape[1])), shape=shape).tocsr()
