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
_FIRST = np.zeros(1, np.int64)
_END = np.empty(1, np.int64)  # of one sentence; nobody reads it


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
        self._add_up: Any = None
        self._call: Any = None  # compiled code; False if a word of the vocabulary has white space

    def _address(self, array: NDArray[Any]) -> int:
        self._arrays.append(np.ascontiguousarray(array))
        return self._arrays[-1].ctypes.data

    def _compiled(self) -> Any:
        """Return the compiled function for text. It is called without Numba's search for the types of arguments."""
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
            kernels.score_text(b"", 0, self._table, _END, np.empty(1))
            kernels.add_up(np.ones(1))
            self._add_up, self._call = _entry_point(kernels.add_up), _entry_point(kernels.score_text)
        return self._call

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
        call = self._call or self._compiled()
        try:
            if isinstance(sentence, str):
                text = sentence.encode()
                p = np.empty(text.count(b" ") + 2)  # mostly one space between two words
                n = call(text, 0, self._table, _END, p)
                if n < 0:
                    p = np.empty((len(text) >> 1) + 2)
                    n = call(text, 0, self._table, _END, p)
                if n != len(p):
                    p = p[: max(n, 0)]
                return np.log(p, p) if n > 0 else None
            p = np.empty(len(sentence) + 1)
            n = call(_SEPARATOR.join(sentence).encode(), 1, self._table, _END, p)
            return np.log(p, p) if n == len(p) else None
        except (TypeError, UnicodeEncodeError):  # not words, or no compiled function
            return None

    def log_prob(self, sentence: Sentence) -> float | None:
        """Return the log-probability of a sentence; None if it is left to others."""
        log_p = self.tokens(sentence)
        if log_p is None:
            return None
        if len(log_p) <= kernels.SHORT:
            value: float = self._add_up(log_p)
            return value
        return np.add.reduceat(log_p, _FIRST).item()

    def log_evidence(self, sentences: Sequence[Sentence], *, split: bool) -> Floats | None:
        """Return the log-probability of each sentence; None if they are left to others.

        ``split`` tells lists of words from strings.
        """
        if len(sentences) == 1:
            own = self.log_prob(sentences[0])
            return None if own is None else np.array([own])
        call = self._call or self._compiled()
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        log_p, failed = np.empty(len(sentences)), list[int]()

        def work(start: int, stop: int) -> None:
            for a in range(start, stop, _AT_ONCE):
                b = min(a + _AT_ONCE, stop)
                if failed or not self._fill(call, sentences[a:b], lengths[a:b], split, log_p[a:b]):
                    failed.append(a)
                    return

        cost = _COST * (lengths + 1) if split else _COST // 5 * (lengths + 5)
        threads.run(work, threads.cut(cost, least=threads.LEAST_WORK))
        return None if failed else log_p

    def _fill(self, call: Any, sentences: Sequence[Any], lengths: Ints, split: bool, log_p: Floats) -> bool:
        """Fill the log-probabilities of some sentences; return whether this was possible."""
        try:
            text = "\n".join(map(_SEPARATOR.join, sentences) if split else sentences).encode()
            size = int(lengths.sum()) + len(lengths) if split else (len(text) + len(lengths)) // 2 + 1
            ends, p = np.empty(len(lengths), np.int64), np.empty(size)
            n = call(text, int(split), self._table, ends, p)
        except (TypeError, UnicodeEncodeError):
            return False
        if n < 0 or (split and (np.diff(ends, prepend=0) != lengths + 1).any()):
            return False
        np.add.reduceat(np.log(p[:n]), np.concatenate([[0], ends[:-1]]), out=log_p)
        return True


def _entry_point(kernel: Any) -> Any:
    """Return the compiled function of a kernel that has been called with arguments of one list of types."""
    (version,) = kernel.overloads.values()
    return version.entry_point
