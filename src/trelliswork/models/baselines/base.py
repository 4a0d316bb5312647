"""Base class of left-to-right language models: text to ids, log-probabilities, next words, samples, blanks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data.ids import Callback, Source, TextIds, no_text, read_ids
from trelliswork.data.text import Lines
from trelliswork.data.vocabulary import END, Vocabulary
from trelliswork.errors import ValueRangeError
from trelliswork.learning import whole
from trelliswork.models.base import Description
from trelliswork.models.tasks import Conditional, Incremental, Ranked, best_words

Tokens = NDArray[np.int64]
State = tuple[int, ...]
FILL_TOKENS = 1 << 20  # tokens that are scored at once to fill a blank


class LeftToRight(Conditional, Incremental):
    """A language model that predicts each word from those before it, and the end of the sentence (event 0).

    Attributes
    ----------
    vocabulary_ : tuple of str
        Id 0 is ``<s>``: as a context the start of a sentence, as an event its end.
    """

    @property
    def _reach(self) -> int:
        """Number of words before a word that its probability depends on."""
        raise AssertionError("each model defines its context")

    def log_prob(self, X: Source) -> NDArray[np.float64]:
        """Return the natural log-probability of each sentence, its end included (n_sentences,).

        Parameters
        ----------
        X : as in ``fit``
            Unlisted words are the unknown word, or an error if the vocabulary has none.
        """
        return self._evidence(X)[0]

    def token_log_probs(self, sentence: str | Sequence[str]) -> NDArray[np.float64]:
        """Return the natural log-probability of each word of a sentence and of its end, given the words before it."""
        edged = self._ids(Lines([sentence]) if isinstance(sentence, str) else [sentence]).with_edges()
        return self._log_p(edged.ids, edged.offsets)[1:]

    def unknown_words(self, X: Source) -> tuple[int, float]:
        """Return the number of unknown words, and their part of the log evidence; (0, 0.0) without an unknown word."""
        text, name = self._ids(X), self._words.unknown_word
        if name is None or not len(text):
            return 0, 0.0
        edged = text.with_edges()
        unknown = edged.ids == self._words.id(name)
        return int(unknown.sum()), float(self._log_p(edged.ids, edged.offsets)[unknown].sum())

    def predict_next(self, words: Sequence[str], n: int = 10, *, unknown: bool = False) -> Ranked:
        """Return the n most probable words after the start of a sentence; ``</s>`` stands for its end.

        ``<unk>`` is one of them if ``unknown``; probabilities are those of the model in either case (see ``fill``).
        """
        check_count("n", n)
        return best_words([END, *self._words.items[1:]], self.next_distribution(words), n, self._left_out(unknown))

    def next_distribution(self, words: Sequence[str]) -> NDArray[np.float64]:
        """Return p(word | start of a sentence) for all words of the vocabulary (C,); entry 0 is the end."""
        return self._next(np.concatenate([[0], self._ids([list(words)]).ids]))

    def start(self) -> State:
        """Return the state before the first word of a sentence; a state is the ids of the last words."""
        self._check_fitted()
        return (0,)

    def extend_many(self, states: Sequence[State], words: Sequence[str]) -> tuple[NDArray[np.float64], list[State]]:
        """Return log p(word | state) of one word for each of n states (n,), and the states after the words.

        ``</s>`` is the end of the sentence, after which the state is that of ``start``. Scores are natural logarithms:
        those of the words of a sentence and of its end sum to its log evidence. States with equal values have the same
        future, so that a beam may keep the better one alone.
        """
        ids = self._extensions(states, words, 0)
        if not ids:
            return np.empty(0), []
        rows = [(*state, word) for state, word in zip(states, ids, strict=True)]
        offsets = np.cumsum([0, *map(len, rows)])
        flat = np.array([word for row in rows for word in row])
        if flat.dtype.kind != "i" or flat.min() < 0 or flat.max() >= len(self._words):
            raise ValueRangeError("states must be results of start, extend or extend_many of this model.")
        last = max(self._reach, 1)
        return self._log_p(flat, offsets)[offsets[1:] - 1], [row[-last:] if row[-1] else (0,) for row in rows]

    def sample(self, n: int = 1, *, seed: int | None = None, max_length: int = 200) -> list[list[str]]:
        """Return n random sentences; longer ones than ``max_length`` are cut."""
        self._check_fitted()
        check_count("n", n)
        check_count("max_length", max_length)
        rng, sentences = np.random.default_rng(seed), []
        for _ in range(n):
            ids = [0]
            while len(ids) <= max_length:
                p = np.cumsum(self._next(np.array(ids, np.int64)))
                word = int(np.searchsorted(p, rng.random() * p[-1], side="right"))
                if word == 0:
                    break
                ids.append(min(word, len(p) - 1))
            sentences.append(self._words.strings(ids[1:]))
        return sentences

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return the shape of the model."""
        self._check_fitted()
        if label is not None:
            raise ValueRangeError("a language model has no labels: leave label out.")
        return self._description()

    def _blank(self, ids: Tokens, t: int) -> NDArray[np.float64]:
        """Return p(word at t | other words) (C,): the sentences with each word are scored and normalized."""
        C = len(self._words)
        first, last = max(0, t - self._reach), min(len(ids), t + self._reach + 1)
        window = ids[first:last]
        log_p = np.empty(C)
        size = max(1, FILL_TOKENS // (len(window) + 2))
        for a in range(0, C, size):
            rows = np.tile(window, (min(size, C - a), 1))
            rows[:, t - first] = np.arange(a, a + len(rows))
            offsets = np.arange(len(rows) + 1) * len(window)
            log_p[a : a + size] = self._log_evidence(TextIds(self._words, rows.reshape(-1), offsets))
        log_p[0] = -np.inf  # the sentence edge is not a word
        p = np.exp(log_p - log_p.max())
        return p / p.sum()

    def _evidence(self, X: Source) -> tuple[NDArray[np.float64], int]:
        text = self._ids(X)
        return self._log_evidence(text), len(text.ids) + len(text)

    def _log_evidence(self, text: TextIds) -> NDArray[np.float64]:
        if not len(text):
            return np.empty(0)
        edged = text.with_edges()
        log_p = self._log_p(edged.ids, edged.offsets)
        inside = np.ones(len(log_p), bool)
        inside[edged.offsets[:-1]] = False  # the start of a sentence is given
        starts = edged.offsets[:-1] - np.arange(len(text))  # each sentence has at least one event: its end
        return np.add.reduceat(log_p[inside], starts)

    def _log_p(self, flat: Tokens, offsets: Tokens) -> NDArray[np.float64]:
        """Return log p of each token given those before it in its sentence; values at sentence starts are ignored."""
        raise AssertionError("each model defines its probabilities")

    def _next(self, context: Tokens) -> NDArray[np.float64]:
        """Return p(word | context) of all words (C,)."""
        raise AssertionError("each model defines its probabilities")

    def _description(self) -> Description:
        raise AssertionError("each model describes itself")


def read_training(
    source: Source, *, vocabulary: Vocabulary | None = None, callback: Callback | None = None, **options: Any
) -> TextIds:
    """Return a text with sentence edges for training; one without sentences, on all ranks, is an error."""
    text = read_ids(source, vocabulary=vocabulary, callback=callback, **options)
    if not whole.anywhere(len(text) > 0):
        raise no_text(source)
    return text.with_edges()
