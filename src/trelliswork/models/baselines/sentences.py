"""Sentences to their log-probabilities, by compiled code that is called once for one sentence or for many.

Sentences become one text: strings as they are, lists of words with a separator between the words. The compiled code
finds the words and their n-grams. Texts that need more (errors, words that have the separator) are left to `data.ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import typeof
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


class SentenceScorer:
    """The tables of a model and the index of its words, as compiled code takes them."""

    def __init__(self, tables: CompactTables, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        store = kernels.Store(*(_fixed(array) for array in tables.store))
        self._model = kernels.Model(store, _fixed(tables.numbers), tables.C, tables.interpolated)
        self._index: Any = None  # of the words, and the stand-in for others; False if a word has white space
        self._call: Any = None  # compiled code for texts, without Numba's search for types: a third of a short call

    def _words(self) -> Any:
        """Return the index of the words and the id of the stand-in for others, or False if there is no index."""
        if self._index is None:
            index, name = word_index(self._vocabulary), self._vocabulary.unknown_word
            unknown = -1 if name is None else self._vocabulary.items.index(name)  # not by all ids
            words = index is not None and (type(index)(*(_fixed(array) for array in index)), unknown)
            if words:
                arguments = b"", 0, self._model, *words, _END, np.empty(1)
                kernels.score_text(*arguments)
                self._call = kernels.score_text.overloads[tuple(map(typeof, arguments))].entry_point
            self._index = words  # last: other threads look for it
        return self._index

    def ids(self, ids: Ints, offsets: Ints) -> Floats:
        """Return p of each token of sentences that begin and end with 0; values at the starts have no meaning."""
        p = np.empty(len(ids))

        def work(start: int, stop: int) -> None:
            a, b = int(offsets[start]), int(offsets[stop])
            kernels.score_ids(ids[a:b], self._model, p[a:b])

        threads.run(work, threads.cut(_COST * np.diff(offsets), least=threads.LEAST_WORK))
        return p

    def _score(self, sentence: Sentence, log_p: Floats) -> bool:
        """Fill the log-probability of a sentence; return whether this was possible."""
        words = self._index or self._words()
        if not words:
            return False
        is_list = not isinstance(sentence, str)
        try:
            text = (_SEPARATOR.join(sentence) if is_list else sentence).encode()  # type: ignore[attr-defined]
        except (TypeError, UnicodeEncodeError):  # not words
            return False
        n: int = self._call(text, int(is_list), self._model, *words, _END, log_p)
        return n == len(sentence) + 1 if is_list else n != kernels.OTHER

    def log_evidence(self, sentences: Sequence[Sentence], *, split: bool) -> Floats | None:
        """Return the log-probability of each sentence; None if they are left to others.

        ``split`` tells lists of words from strings.
        """
        if len(sentences) == 1:
            one = np.empty(1)
            return one if self._score(sentences[0], one) else None
        if not self._words():
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
        if self._call(text, int(split), self._model, *self._index, ends, log_p) == kernels.OTHER:
            return False
        return not split or bool((np.diff(ends, prepend=0) == lengths + 1).all())


def _fixed(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be changed: compiled code has one version for arrays in memory and in mapped files."""
    view = np.ascontiguousarray(array).view(np.ndarray)
    view.flags.writeable = False
    return view
