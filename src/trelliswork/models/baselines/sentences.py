"""Sentences to the probabilities of their words, by compiled code that is called once for one sentence or for many.

Sentences become one text: strings as they are, lists of words with a separator between the words. The compiled code
finds the words and their n-grams. Texts that need more (errors, words that have the separator) are left to `data.ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.data.ids import word_index
from trelliswork.data.vocabulary import Vocabulary
from trelliswork.models.baselines.compact import CompactTables
from trelliswork.models.baselines.kernels import sentences as kernels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Sentence = str | Sequence[str]
_SEPARATOR = chr(kernels.SEPARATOR)
_COST = 100  # of a token, in multiplications
_AT_ONCE = 1 << 10  # sentences whose text and numbers stay in the cache
_END = np.empty(1, np.int64)  # of one sentence; nobody reads it
_NOTHING = np.empty(0)


class SentenceScorer:
    """The tables of a model and the index of its words, as compiled code takes them."""

    def __init__(self, tables: CompactTables, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._arrays = list[NDArray[Any]]()  # whose addresses are in the table
        self._table = np.zeros(kernels.ORDERS + kernels.PER_ORDER * len(tables.levels), np.int64)
        self._table[: kernels.TEXT] = tables.C, tables.interpolated, -1, self._address(tables.numbers)
        for m, level in enumerate(tables.levels):
            words, nodes = self._address(level.words), self._address(level.nodes)
            row = [words, level.words.itemsize == 2, nodes, level.nodes.itemsize]
            row += [self._address(level.share), self._address(level.rest), level.share_bits, level.rest_bits]
            self._table[kernels.ORDERS + kernels.PER_ORDER * m :][: kernels.PER_ORDER] = row
        # Compiled code, called without Numba's search for types; False if a word of the vocabulary has white space.
        self._call: Any = None
        self._log_prob: Any = None

    def _address(self, array: NDArray[Any]) -> int:
        self._arrays.append(np.ascontiguousarray(array))
        return self._arrays[-1].ctypes.data

    def _compiled(self) -> bool:
        """Prepare the functions for text, and return whether there are any."""
        if self._call is None:
            index = word_index(self._vocabulary)
            if index is None:
                self._call = False
                return False
            name = self._vocabulary.unknown_word
            unknown = -1 if name is None else self._vocabulary.items.index(name)  # not by all ids
            place = [self._address(index.text), self._address(index.table), len(index.table) - 1]
            place += [self._address(array) for array in (index.hashes, index.starts, index.stops)]
            self._table[kernels.UNKNOWN], self._table[kernels.TEXT : kernels.ORDERS] = unknown, place
            kernels.score_text(b"", 0, self._table, _END, np.empty(1), _NOTHING)
            kernels.log_prob(b"", 0, self._table, -1)
            self._log_prob, self._call = _entry_point(kernels.log_prob), _entry_point(kernels.score_text)
        return self._call is not False

    def ids(self, ids: Ints, offsets: Ints) -> Floats:
        """Return p of each token of sentences that begin and end with 0; values at the starts have no meaning."""
        p = np.empty(len(ids))

        def work(start: int, stop: int) -> None:
            a, b = int(offsets[start]), int(offsets[stop])
            kernels.score_ids(ids[a:b], self._table, p[a:b])

        threads.run(work, threads.cut(_COST * np.diff(offsets), least=threads.LEAST_WORK))
        return p

    def tokens(self, sentence: Sentence) -> Floats | None:
        """Return log p of each word of a sentence and of its end; None if it is left to others."""
        if not self._compiled():
            return None
        try:
            if isinstance(sentence, str):
                text, n_most = sentence.encode(), len(sentence) // 2 + 2
            else:
                text, n_most = _SEPARATOR.join(sentence).encode(), len(sentence) + 1
        except (TypeError, UnicodeEncodeError):  # not words
            return None
        p = np.empty(n_most)
        n = self._call(text, int(not isinstance(sentence, str)), self._table, _END, p, _NOTHING)
        if n < 0 or not (isinstance(sentence, str) or n == n_most):
            return None
        return np.log(p[:n])

    def log_prob(self, sentence: Sentence) -> float | None:
        """Return the log-probability of a sentence; None if it is left to others."""
        if self._log_prob is None and not self._compiled():
            return None
        try:
            if isinstance(sentence, str):
                value: float = self._log_prob(sentence.encode(), 0, self._table, -1)
            else:
                value = self._log_prob(_SEPARATOR.join(sentence).encode(), 1, self._table, len(sentence))
        except (TypeError, UnicodeEncodeError):  # not words
            return None
        return value if value == value else None  # nan is not

    def log_evidence(self, sentences: Sequence[Sentence], *, split: bool) -> Floats | None:
        """Return the log-probability of each sentence; None if they are left to others.

        ``split`` tells lists of words from strings.
        """
        if len(sentences) == 1:
            own = self.log_prob(sentences[0])
            return None if own is None else np.array([own])
        if not self._compiled():
            return None
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        log_p, failed = np.empty(len(sentences)), list[int]()

        def work(start: int, stop: int) -> None:
            for a in range(start, stop, _AT_ONCE):
                b = min(a + _AT_ONCE, stop)
                if failed or not self._fill(sentences[a:b], lengths[a:b], split, log_p[a:b]):
                    failed.append(a)
                    return

        cost = _COST * (lengths + 1) if split else _COST // 5 * (lengths + 5)
        threads.run(work, threads.cut(cost, least=threads.LEAST_WORK))
        return None if failed else log_p

    def _fill(self, sentences: Sequence[Any], lengths: Ints, split: bool, log_p: Floats) -> bool:
        """Fill the log-probabilities of some sentences; return whether this was possible."""
        try:
            text = "\n".join(map(_SEPARATOR.join, sentences) if split else sentences).encode()
        except (TypeError, UnicodeEncodeError):
            return False
        ends = np.empty(len(lengths), np.int64)
        if self._call(text, int(split), self._table, ends, _NOTHING, log_p) < 0:
            return False
        return not split or bool((np.diff(ends, prepend=0) == lengths + 1).all())


def _entry_point(kernel: Any) -> Any:
    """Return the compiled function of a kernel that has been called with arguments of one list of types."""
    (version,) = kernel.overloads.values()
    return version.entry_point
