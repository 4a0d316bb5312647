"""Data of hidden Markov models: sentences and states to arrays; parameters, sequences and expected counts as arrays."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Corpus, Vocabulary
from trelliswork.data.corpus import chosen_tokens
from trelliswork.data.files import shorten
from trelliswork.data.vocabulary import UNKNOWN
from trelliswork.errors import DataError, ShapeError, ValueRangeError
from trelliswork.inference.chain.beam import BeamStatistics
from trelliswork.learning import whole

Doubles = NDArray[np.float64]
Floats = NDArray[np.floating]
Token = str | int
Sentences = Sequence[Sequence[Token]]
States = Sequence[Sequence[str | None] | None]


def read_sentences(X: Sentences | Corpus, *, training: bool = False) -> Sentences:
    """Return lists of tokens; empty sentences are an error, and for training a text that is empty on all ranks."""
    sentences: Sentences = X.sentences(0) if isinstance(X, Corpus) else X
    if training and not whole.anywhere(len(sentences) > 0):
        raise DataError("X has no sentences: training needs at least one.")
    for n, sentence in enumerate(sentences):
        if len(sentence) == 0:
            raise ShapeError(f"sentence {n} is empty: leave it out.")
    return sentences


def fill_states(X: Sentences, y: States) -> list[Sequence[str | None]]:
    """Return one state per token, ``None`` where it is unknown, also for sentences without states."""
    if len(y) != len(X):
        raise ShapeError(f"X and y must have the same number of sentences, got {len(X)} and {len(y)}.")
    for n, (x, states) in enumerate(zip(X, y, strict=True)):
        if states is not None and len(states) != len(x):
            raise ShapeError(f"sentence {n} has {len(x)} tokens but {len(states)} states.")
    return [[None] * len(x) if states is None else states for x, states in zip(X, y, strict=True)]


def read_states(X: Sentences, y: States | None) -> tuple[Vocabulary, NDArray[np.int32]]:
    """Return the states that occur on any rank, and the id of each token's state, -1 where it is unknown."""
    filled = [] if y is None else fill_states(X, y)
    names = Vocabulary.from_sequences([name for name in states if name is not None] for states in filled)
    if y is None:
        return names, np.full(sum(map(len, X)), -1, np.int32)
    ids = [-1 if name is None else names.id(name) for states in filled for name in states]
    return names, np.array(ids, np.int32)


def unnamed_states(names: Iterable[str], n_states: int) -> list[str]:
    """Return names such as #4 for the states from the last known one up to ``n_states``; a taken name gets a star."""
    taken = set(names)
    fresh = []
    for k in range(len(taken), n_states):
        name = f"#{k}"
        while name in taken:
            name += "*"
        fresh.append(name)
    return fresh


def flatten(X: Sentences) -> tuple[list[Token], NDArray[np.int64]]:
    """Return all tokens, and the offsets of the sentences."""
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in X])]).astype(np.int64)
    return list(chain.from_iterable(X)), offsets


def list_symbols(counts: Counter[Token], min_count: int, *, unknown: bool) -> list[Token]:
    """Return the symbols by id: 0, 1, ... for integers; for strings the words that occur ``min_count`` times.

    ``<unk>`` is the last one if a word is rarer, or in any case with ``unknown``. ``counts`` are those of this rank;
    the symbols are those of all ranks.
    """
    numbers = [int(token) for token in counts if isinstance(token, int | np.integer)]
    if not whole.anywhere(len(numbers) < len(counts)):
        if min(numbers, default=0) < 0:
            raise ValueRangeError(f"symbols must be strings, or integers from 0, got {min(numbers)}.")
        return list(range(int(whole.largest(np.array([max(numbers, default=-1)]))[0]) + 1))
    words = {word: n for word, n in counts.items() if isinstance(word, str)}
    if len(words) < len(counts):
        odd = next(token for token in counts if not isinstance(token, str))
        raise ValueRangeError(f"symbols must all be strings or all be integers, got {shorten(odd)} among others.")
    kept = whole.counted(words, min_count)
    kept.pop(UNKNOWN, None)
    n_others = whole.total(sum(words.values())) - sum(kept.values())
    return [*kept, UNKNOWN] if unknown or n_others else list(kept)


def symbol_ids(listed: Iterable[Token]) -> Callable[[Iterable[Token]], NDArray[np.int32]]:
    """Return a function from tokens to their ids; unlisted ones are ``<unk>`` if that is listed, else -1."""
    ids = {token: i for i, token in enumerate(listed)}
    unknown = ids.get(UNKNOWN, -1)
    return lambda tokens: np.array([ids.get(token, unknown) for token in tokens], np.int32)


def chunks(offsets: NDArray[np.int64], most_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of sequences with at most ``most_tokens`` tokens each, or one sequence."""
    start = 0
    while start < len(offsets) - 1:
        stop = max(start + 1, int(np.searchsorted(offsets, offsets[start] + most_tokens, "right")) - 1)
        yield start, stop
        start = stop


@dataclass(frozen=True)
class HMMParameters:
    """Log-probabilities of a categorical HMM, float64.

    With an end event, exp(log_transition).sum(1) + exp(log_end) = 1: a distribution over sequences of any length.
    Without one the length is given.
    """

    log_start: Doubles  # (S,)
    log_transition: Doubles  # (S, S), from row to column
    log_end: Doubles | None  # (S,)
    log_emission: Doubles  # (S, V)

    def __post_init__(self) -> None:
        for name, array in self.arrays().items():
            object.__setattr__(self, name, np.ascontiguousarray(array, np.float64))

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.log_start)

    @property
    def n_symbols(self) -> int:
        """V."""
        return self.log_emission.shape[1]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name, without ``log_end`` if it is None."""
        return {name: array for name, array in vars(self).items() if array is not None}


@dataclass(frozen=True)
class Sequences:
    """Concatenated symbol sequences, and their known states; in a group of processes those of this rank."""

    offsets: NDArray[np.int64]  # (N+1,); no sequence is empty
    symbols: NDArray[np.int32]  # (n_tokens,): 0 to V-1
    labels: NDArray[np.int32] | None = None  # (n_tokens,): the state of a token if it is known, else -1

    @property
    def n_sequences(self) -> int:
        """N."""
        return len(self.offsets) - 1

    @cached_property
    def labeled(self) -> NDArray[np.bool_]:
        """(N,): True if every state of the sequence is known."""
        if self.labels is None:
            return np.zeros(self.n_sequences, bool)
        return np.asarray(np.minimum.reduceat(self.labels, self.offsets[:-1]) >= 0)

    @cached_property
    def hidden(self) -> "tuple[NDArray[np.int64], Sequences]":
        """The other sequences, longest first also in memory, so that those processed together are neighbors.

        Their indices, and themselves.
        """
        which = np.flatnonzero(~self.labeled)
        which = which[np.argsort(-np.diff(self.offsets)[which], kind="stable")]
        return which, self.select(which)

    def select(self, which: NDArray[np.int64]) -> "Sequences":
        """Return the sequences ``which`` in that order, without labels if none is known."""
        tokens, offsets = chosen_tokens(self.offsets, which)
        labels = None if self.labels is None else self.labels[tokens]
        return Sequences(offsets, self.symbols[tokens], labels if labels is not None and (labels >= 0).any() else None)


@dataclass
class Counts:
    """Expected counts, float64."""

    start: Doubles  # (S,)
    transition: Doubles  # (S, S)
    end: Doubles  # (S,): sequences that end in each state, also without an end event
    by_symbol: Doubles  # (V, S): emissions, in the layout in which they are summed
    log_evidence: Doubles  # (N,): log p of symbols and known states of each sequence
    total: float = 0.0  # the sum of the log evidence
    beam: BeamStatistics | None = None  # if there were beams; the log evidence is then a lower bound

    @classmethod
    def zeros(cls, n_states: int, n_symbols: int, n_sequences: int) -> "Counts":
        """Return counts of nothing."""
        S = n_states
        return cls(np.zeros(S), np.zeros((S, S)), np.zeros(S), np.zeros((n_symbols, S)), np.zeros(n_sequences))

    @property
    def emission(self) -> Doubles:
        """(S, V)."""
        return self.by_symbol.T

    def events(self) -> dict[str, Doubles]:
        """Return the counts of all events by name: start, transition, end, by_symbol."""
        return {name: getattr(self, name) for name in ("start", "transition", "end", "by_symbol")}
