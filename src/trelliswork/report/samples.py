"""Sentences that a page shows, and compares with gold answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trelliswork.data import AttributeCorpus, Corpus
from trelliswork.data.corpus import chosen_tokens

JUDGED = 1000  # sentences whose probabilities and errors are shown
SEARCHED = 200  # sentences among which an example is chosen
READABLE = (6, 16)  # words of an example, if there is such a sentence


@dataclass(frozen=True)
class Sample:
    """Sentences of one part of the data, with or without gold answers.

    Attributes
    ----------
    part : str
        Name: "development", "training" or "test".
    X : Corpus, AttributeCorpus or list of sentences
        Input of the model's ``predict``.
    gold : optional
        Gold answers, as ``evaluate`` takes them.
    """

    part: str
    X: Any
    gold: Any = None

    def __len__(self) -> int:
        return len(self.X)

    def first(self, n: int) -> "Sample":
        """Return the first n sentences."""
        return self if len(self) <= n else self.take(range(n))

    def take(self, places: Sequence[int]) -> "Sample":
        """Return the sentences at some positions."""
        return Sample(self.part, take(self.X, places), _pick(self.gold, places))

    def full(self) -> "Sample":
        """Return the sentences that have tokens."""
        return self.take([n for n, size in enumerate(self.lengths()) if size])

    def lengths(self) -> list[int]:
        """Return the number of tokens of each sentence."""
        if isinstance(self.X, Corpus | AttributeCorpus):
            return np.diff(self.X.offsets).tolist()
        return [len(sentence) for sentence in self.X]

    def words(self) -> list[list[str]]:
        """Return the words of each sentence; for tokens with ready attributes, the name of the first attribute."""
        X = self.X
        if isinstance(X, Corpus):
            return X.sentences(0)
        if isinstance(X, AttributeCorpus):
            ptr = X.token_ptr.tolist()
            names = [X.names[X.attributes[a]] if a < b else "·" for a, b in pairwise(ptr)]
            return [names[a:b] for a, b in pairwise(X.offsets.tolist())]
        return [[_word(token) for token in sentence] for sentence in X]


def _word(token: Any) -> str:
    if isinstance(token, str | int) or not len(token):
        return str(token)
    return str(next(iter(token)))


def _pick(given: Any, places: Sequence[int]) -> Any:
    if given is None:
        return None
    if isinstance(given, dict):
        return {name: _pick(rows, places) for name, rows in given.items()}
    return [given[n] for n in places]


def take(X: Any, places: Sequence[int]) -> Any:
    """Return the sentences of a corpus at some positions, as a corpus of the same type."""
    if not isinstance(X, Corpus | AttributeCorpus):
        return [X[n] for n in places]
    tokens, offsets = chosen_tokens(X.offsets, np.asarray(places, np.int64))
    if isinstance(X, Corpus):
        return Corpus([[column[i] for i in tokens] for column in X.columns], offsets, source=X.source)
    at, token_ptr = chosen_tokens(X.token_ptr, tokens)
    values = None if X.values is None else X.values[at]
    return AttributeCorpus([X.labels[i] for i in tokens], offsets, token_ptr, X.attributes[at], values, X.names)


def example(confidence: Sequence[Iterable[float]]) -> int:
    """Return the number of the sentence to show: by the probabilities of answers, the least certain readable one."""
    rows = [list(row) for row in confidence]
    low, high = READABLE
    readable = [n for n, row in enumerate(rows) if low <= len(row) <= high]
    if readable:
        return min(readable, key=lambda n: sum(rows[n]) / len(rows[n]))
    return min(range(len(rows)), key=lambda n: abs(len(rows[n]) - (low + high) / 2))
