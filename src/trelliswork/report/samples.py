"""Sentences that a page shows and judges a model by."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trelliswork.data import AttributeCorpus, Corpus

JUDGED = 1000  # sentences that answers are compared with gold on
SEARCHED = 200  # among these an example is looked for
READABLE = (6, 16)  # words of an example, if there is such a sentence


@dataclass(frozen=True)
class Sample:
    """Sentences of one part of the data.

    Attributes
    ----------
    part : str
        What it is called: "development", "training", "test".
    X : Corpus, AttributeCorpus or list of sentences
        As the model's ``predict`` takes it.
    gold : optional
        What is right: labels of tokens (a dict by layer for several), heads, or trees.
    labels : list of lists of str, optional
        Of arcs, beside heads.
    """

    part: str
    X: Any
    gold: Any = None
    labels: Any = None

    def __len__(self) -> int:
        return len(self.X)

    def first(self, n: int) -> "Sample":
        """The first n sentences."""
        return self if len(self) <= n else self.take(range(n))

    def take(self, places: Sequence[int]) -> "Sample":
        """Some of the sentences."""
        return Sample(self.part, take(self.X, places), _pick(self.gold, places), _pick(self.labels, places))

    def full(self) -> "Sample":
        """Without sentences that have no token: there is nothing to show of them."""
        return self.take([n for n, size in enumerate(self.lengths()) if size])

    def lengths(self) -> list[int]:
        """Tokens of each sentence."""
        if isinstance(self.X, Corpus | AttributeCorpus):
            return np.diff(self.X.offsets).tolist()
        return [len(sentence) for sentence in self.X]

    def words(self) -> list[list[str]]:
        """The words of each sentence; of tokens with ready attributes the first one's name."""
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
    """Some sentences of a corpus, as the same kind of corpus."""
    if not isinstance(X, Corpus | AttributeCorpus):
        return [X[n] for n in places]
    tokens = _ranges(X.offsets, np.asarray(places, np.int64))
    sizes = np.diff(X.offsets)[np.asarray(places, np.int64)]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if isinstance(X, Corpus):
        return Corpus([[column[i] for i in tokens] for column in X.columns], offsets, source=X.source)
    at = _ranges(X.token_ptr, tokens)
    return AttributeCorpus(
        [X.labels[i] for i in tokens],
        offsets,
        np.concatenate([[0], np.cumsum(np.diff(X.token_ptr)[tokens])]).astype(np.int64),
        X.attributes[at],
        None if X.values is None else X.values[at],
        X.names,
    )


def _ranges(offsets: Any, places: Any) -> Any:
    """All numbers from ``offsets[n]`` to ``offsets[n + 1]``, for each n of ``places``."""
    parts = [np.arange(offsets[n], offsets[n + 1]) for n in places]
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)


def example(sureness: Sequence[Iterable[float]]) -> int:
    """The sentence to show: of readable length, and of those the one of which the model is least sure.

    Parameters
    ----------
    sureness : lists of float
        For each sentence the probability of each answer.
    """
    rows = [list(row) for row in sureness]
    low, high = READABLE
    readable = [n for n, row in enumerate(rows) if low <= len(row) <= high]
    if readable:
        return min(readable, key=lambda n: sum(rows[n]) / len(rows[n]))
    return min(range(len(rows)), key=lambda n: abs(len(rows[n]) - (low + high) / 2))
