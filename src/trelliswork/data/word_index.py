"""Ids of the words of a text by a compiled hash table over UTF-8 bytes, without a Python object per word."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.kernels.ids import DONE, look_up, tokenize
from trelliswork.data.vocabulary import Vocabulary


class WordIndex(NamedTuple):
    """The words of a vocabulary as one text, and a hash table of them (`data.kernels.ids.tokenize`)."""

    text: NDArray[np.uint8]
    table: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def ids(self, text: bytes, first: int) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """Return the stream of ids of a text, and the first and last position of words that are not listed.

        The k-th of these has the id ``-2 - k`` in the stream; so have words with an id below ``first``.
        """
        array = np.frombuffer(text, np.uint8)
        out = np.empty(len(text) // 2 + 2 + text.count(b"\n"), np.int32)
        room = 1024
        while True:
            starts, stops = np.empty(room, np.int64), np.empty(room, np.int64)
            n, n_new = look_up(array, self, first, starts, stops, out)
            if n_new <= room:
                return out[:n], starts[:n_new], stops[:n_new]
            room = n_new


_indexes: WeakKeyDictionary[Vocabulary, WordIndex | None] = WeakKeyDictionary()


def word_index(vocabulary: Vocabulary) -> WordIndex | None:
    """Return the index of a vocabulary, built when it is first needed; ``None`` if a word has white space or NUL."""
    if vocabulary not in _indexes:
        _indexes[vocabulary] = _built(vocabulary)
    return _indexes[vocabulary]


def _built(vocabulary: Vocabulary) -> WordIndex | None:
    try:
        text = np.frombuffer("\n".join(vocabulary.items).encode(), np.uint8)
    except UnicodeEncodeError:
        return None
    n = len(vocabulary)
    table = np.full(2 << (2 * n).bit_length(), -1, np.int32)
    hashes, starts, stops = np.empty(n + 1, np.uint64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    length, n_words, status = tokenize(text, table, hashes, starts, stops, np.empty(len(text) + 2, np.int32))
    if status != DONE or n_words != n or length != 2 * n:
        return None
    return WordIndex(text, table, hashes, starts, stops)
