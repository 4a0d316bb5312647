"""What left-to-right language models share: text to ids, perplexity, the next word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Corpus, Vocabulary
from trelliswork.data.kernels.moments import END
from trelliswork.data.moments.files import Source, files_of, paths_listed
from trelliswork.data.moments.text import Callback, number_text
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.models.base import Estimator

Tokens = NDArray[np.int64]


class LeftToRight(Estimator):
    """A language model that predicts each word from those before it, and the end of the sentence (event 0, ``<S>``).

    Attributes
    ----------
    vocabulary_ : Vocabulary
        Id 0 is ``<S>``: as a context the begin of a sentence, as an event its end.
    """

    learned = "vocabulary_"
    vocabulary_: Vocabulary
    input_: dict[str, Any]

    def score(self, X: Source, y: object = None) -> NDArray[np.float64]:
        """log p of each sentence, its end counted (n_sentences,), natural logarithm; ``y`` is not looked at.

        Parameters
        ----------
        X : as in ``fit``
            Unlisted words are the unknown word, or an error if the vocabulary has none.
        """
        flat, offsets = with_boundaries(self._ids(X))
        if not len(flat):
            return np.empty(0)
        log_p = self._log_p(flat, offsets)
        inside = np.ones(len(flat), bool)
        inside[offsets[:-1]] = False  # the begin of a sentence is given
        begins = offsets[:-1] - np.arange(len(offsets) - 1)  # each sentence has one event or more: its end
        return np.add.reduceat(log_p[inside], begins)

    def log_evidence(self, X: Source) -> NDArray[np.float64]:
        """The same as ``score``."""
        return self.score(X)

    def perplexity(self, X: Source) -> float:
        """exp of minus the mean log p of a token, ends of sentences counted."""
        ids = self._ids(X)
        n_events = len(ids)  # words, and an end for each sentence
        if not n_events:
            raise DataError("perplexity is a mean over tokens: one sentence at least is wanted, got none.")
        flat, offsets = with_boundaries(ids)
        inside = np.ones(len(flat), bool)
        inside[offsets[:-1]] = False
        return float(np.exp(-self._log_p(flat, offsets)[inside].sum() / n_events))

    def predict_next(self, context: list[str], n: int = 10) -> list[tuple[str, float]]:
        """The n most probable words after the begin of a sentence, with p(word | context); ``<S>`` is the end."""
        check_count("n", n)
        p = self.next_distribution(context)
        return [(self.vocabulary_[i], float(p[i])) for i in np.argsort(-p, kind="stable")[:n].tolist()]

    def next_distribution(self, context: list[str]) -> NDArray[np.float64]:
        """p(word | begin of a sentence) for all words of the vocabulary (C,); entry 0 is the end."""
        ids = self._ids([list(context)])[:-1]
        return self._next(np.concatenate([[0], ids]))

    def _log_p(self, flat: Tokens, offsets: Tokens) -> NDArray[np.float64]:
        """log p of each token given those before it in its sentence; what it is at begins does not matter."""
        raise AssertionError("each model says how")

    def _next(self, context: Tokens) -> NDArray[np.float64]:
        raise AssertionError("each model says how")

    def _ids(self, X: Source) -> Tokens:
        """A stream of ids, -1 after each sentence; of sentences at hand empty ones too."""
        self._check_fitted()
        X = paths_listed(X)
        if files_of(X) is not None:
            return read_stream(X, vocabulary=self.vocabulary_)[1]
        sentences: Any = X.sentences(0) if isinstance(X, Corpus) else X
        source = f"{X.source}, " if isinstance(X, Corpus) and X.source else ""
        flat: list[int] = []
        for n, sentence in enumerate(sentences):
            if isinstance(sentence, str):
                raise ValueRangeError(
                    f"sentence {n} must be a list of words, got the string {sentence[:40]!r}: split it."
                )
            begin = len(flat)
            try:
                flat += self.vocabulary_.ids(sentence)
            except KeyError as error:
                raise DataError(
                    f"{source}sentence {n}: {error.args[0]} The model has no unknown word: train it with min_count=2."
                ) from None
            if 0 in flat[begin:]:
                raise DataError(
                    f"{source}sentence {n}: {self.vocabulary_[0]} marks the begin and the end, and cannot be a word: "
                    "rename it."
                )
            flat.append(END)
        return np.array(flat, np.int64)


def read_stream(
    source: Source,
    *,
    vocabulary: Vocabulary | None = None,
    min_count: int = 1,
    max_words: int | None = None,
    callback: Callback | None = None,
) -> tuple[Vocabulary, Tokens]:
    """A text as a vocabulary and one stream of ids in memory, -1 after each sentence."""
    text = number_text(source, vocabulary=vocabulary, min_count=min_count, max_words=max_words, callback=callback)
    blocks = list(text.blocks)
    if not blocks:
        raise DataError("at least one sentence wanted, but the text has none. Is it the right file?")
    return text.vocabulary, np.concatenate(blocks).astype(np.int64)


def with_boundaries(ids: Tokens) -> tuple[Tokens, Tokens]:
    """A stream with ``<S>`` (0) before and after each sentence, and where sentences begin (n_sentences + 1,)."""
    ends = np.flatnonzero(ids < 0)
    flat = np.zeros(len(ids) + len(ends), np.int64)
    sentence = np.cumsum(np.concatenate([[0], (ids < 0).astype(np.int64)]))[:-1]
    flat[np.arange(len(ids)) + sentence + 1] = np.maximum(ids, 0)
    offsets = np.concatenate([[0], ends + 2 + np.arange(len(ends))])
    return flat, offsets
