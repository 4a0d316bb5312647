"""The state sequences of an HMM: chains of the first and of the second order, given scores of states at tokens.

Both take the sentences of a text one behind the other: ``rows`` (n_tokens, S), log p(word | state), and ``offsets``
(n_sentences + 1,).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import DataError
from trelliswork.inference import chain
from trelliswork.inference.chain import pairs

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_POSITIONS = 1000  # of a sentence, when its transitions are averaged
BATCH_SCORES = 1 << 22  # scores of states that are worked on together


class StateChain(Protocol):
    """What an HMM asks of its states."""

    @property
    def n_states(self) -> int:
        """S."""

    @property
    def has_end(self) -> bool:
        """Whether the end is an event."""

    def viterbi(self, rows: Doubles, offsets: Integers) -> Integers:
        """The most probable states (n_tokens,)."""

    def marginals(self, rows: Doubles, offsets: Integers) -> tuple[Doubles, Doubles]:
        """Log evidence (n_sentences,) and p(state | sentence) (n_tokens, S)."""

    def log_evidence(self, rows: Doubles, offsets: Integers) -> Doubles:
        """Log evidence alone."""

    def potentials(self, rows: Doubles) -> tuple[Doubles, Doubles]:
        """One sentence as a chain: log_unary (T, states) and log_pairwise (states, states)."""

    def following(self, rows: Doubles) -> tuple[Doubles, float]:
        """After some words: p(next state) (S,), and p(end)."""

    def draw(self, rng: np.random.Generator, max_length: int) -> list[int]:
        """States of a random sentence."""

    def transitions(self) -> Doubles:
        """p(next state | state) (S, S), the end left out."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For saving."""


@dataclass(frozen=True)
class FirstOrder:
    """log p of the first state (S,), the next state (S, S), and the end (S,), which may be no event (``None``)."""

    log_start: Doubles
    log_transition: Doubles
    log_end: Doubles | None

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.log_start)

    @property
    def has_end(self) -> bool:
        """Whether the end is an event."""
        return self.log_end is not None

    def viterbi(self, rows: Doubles, offsets: Integers) -> Integers:
        """The most probable states (n_tokens,)."""
        found = np.empty(len(rows), np.int64)
        for at, p in self._batches(rows, offsets):
            labels, _ = chain.viterbi(p)
            found[at] = labels[_inside(p)]
        return found

    def marginals(self, rows: Doubles, offsets: Integers) -> tuple[Doubles, Doubles]:
        """Log evidence (n_sentences,) and p(state | sentence) (n_tokens, S)."""
        evidence, found = [], np.empty(rows.shape)
        for at, p in self._batches(rows, offsets):
            log_z, expected = chain.expectations(p)
            assert expected.marginals is not None
            found[at] = expected.marginals[_inside(p)]
            evidence.append(log_z)
        return np.concatenate(evidence), found

    def log_evidence(self, rows: Doubles, offsets: Integers) -> Doubles:
        """Log evidence alone."""
        return np.concatenate([chain.log_partition(p) for _, p in self._batches(rows, offsets)])

    def potentials(self, rows: Doubles) -> tuple[Doubles, Doubles]:
        """One sentence as a chain: log_unary (T, S) and log_pairwise (S, S)."""
        log_unary = rows.copy()
        log_unary[0] += self.log_start
        if self.log_end is not None:
            log_unary[-1] += self.log_end
        return log_unary, self.log_transition

    def following(self, rows: Doubles) -> tuple[Doubles, float]:
        """After some words: p(next state) (S,), and p(end)."""
        if len(rows) == 0:
            return np.exp(self.log_start), 0.0
        end = np.zeros(len(self.log_start)) if self.log_end is None else np.exp(self.log_end)
        now = _filtered(*FirstOrder(self.log_start, self.log_transition, None).potentials(rows))
        return now @ np.exp(self.log_transition), float(now @ end)

    def draw(self, rng: np.random.Generator, max_length: int) -> list[int]:
        """States of a random sentence."""
        states: list[int] = []
        end = 0.0
        step = np.exp(self.log_start)
        while len(states) < max_length:
            drawn = _choose(rng, np.append(step, end))
            if drawn == len(step):
                break
            states.append(drawn)
            step = np.exp(self.log_transition[drawn])
            end = 0.0 if self.log_end is None else float(np.exp(self.log_end[drawn]))
        return states

    def transitions(self) -> Doubles:
        """p(next state | state) (S, S), the end left out."""
        return np.exp(self.log_transition)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For saving."""
        found = {"start": self.log_start, "transition": self.log_transition}
        return found if self.log_end is None else found | {"end": self.log_end}

    def _batches(self, rows: Doubles, offsets: Integers) -> Iterator[tuple[slice, chain.Potentials]]:
        """Padded sentences, and the tokens they are."""
        lengths, S = np.diff(offsets), rows.shape[1]
        first = 0
        while first < len(lengths):
            ahead = lengths[first : first + BATCH_SCORES // S + 1]
            widest = np.maximum.accumulate(ahead) * np.arange(1, len(ahead) + 1) * S
            last = first + max(1, int(np.searchsorted(widest, BATCH_SCORES, side="right")))
            size, at = lengths[first:last], slice(int(offsets[first]), int(offsets[last]))
            log_unary = np.zeros((len(size), size.max(), S), rows.dtype)
            log_unary[np.arange(size.max()) < size[:, None]] = rows[at]
            log_unary[:, 0] += self.log_start
            if self.log_end is not None:
                log_unary[np.arange(len(size)), size - 1] += self.log_end
            transition = self.log_transition.astype(rows.dtype)
            yield at, chain.chain_potentials(log_unary, transition, size, check_values=False)
            first = last


@dataclass(frozen=True)
class SecondOrder:
    """``log_trigram[a, b, c]``, log p(c | a, b) (S+1, S+1, S+1): index S is the begin, last the end; a beam in nats.

    If the end is no event, its scores are 0.
    """

    log_trigram: Doubles
    beam: float | None
    has_end: bool = True

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.log_trigram) - 1

    def viterbi(self, rows: Doubles, offsets: Integers) -> Integers:
        """The most probable states (n_tokens,)."""
        return pairs.viterbi(rows, offsets, self.log_trigram, beam=self.beam)[0]

    def marginals(self, rows: Doubles, offsets: Integers) -> tuple[Doubles, Doubles]:
        """Log evidence (n_sentences,) and p(state | sentence) (n_tokens, S)."""
        return pairs.forward_backward(rows, offsets, self.log_trigram, beam=self.beam)

    def log_evidence(self, rows: Doubles, offsets: Integers) -> Doubles:
        """Log evidence alone."""
        return pairs.log_evidence(rows, offsets, self.log_trigram, beam=self.beam)

    def potentials(self, rows: Doubles, *, end: bool = True) -> tuple[Doubles, Doubles]:
        """One sentence as a chain of pairs: state a S + b is label b after label a; a = S is the begin."""
        T, S = rows.shape
        log_unary = np.repeat(rows[:, None], S + 1, axis=1)
        log_unary[0, :S] = -np.inf
        log_unary[0, S] += self.log_trigram[S, S, :S]
        log_unary[1:, S] = -np.inf
        if end:
            log_unary[-1] += self.log_trigram[:, :S, S]
        log_pairwise = np.full((S + 1, S, S + 1, S), -np.inf)
        for b in range(S):
            log_pairwise[:, b, b] = self.log_trigram[:, b, :S]
        size = (S + 1) * S
        return log_unary.reshape(T, size), log_pairwise.reshape(size, size)

    def following(self, rows: Doubles) -> tuple[Doubles, float]:
        """After some words: p(next state) (S,), and p(end)."""
        S = rows.shape[1]
        if len(rows) == 0:
            ahead = np.exp(self.log_trigram[S, S])
        else:
            now = _filtered(*self.potentials(rows, end=False)).reshape(S + 1, S)
            ahead = np.einsum("ab,abc->c", now, np.exp(self.log_trigram[:, :S]))
        return ahead[:S], float(ahead[S]) if self.has_end else 0.0

    def draw(self, rng: np.random.Generator, max_length: int) -> list[int]:
        """States of a random sentence."""
        S = len(self.log_trigram) - 1
        a, b, states = S, S, list[int]()
        while len(states) < max_length:
            c = _choose(rng, np.exp(self.log_trigram[a, b, : S + self.has_end]))
            if c == S:
                break
            states.append(c)
            a, b = b, c
        return states

    def transitions(self) -> Doubles:
        """p(next state | state) (S, S), the end left out: the mean over what random sentences show."""
        S = len(self.log_trigram) - 1
        p = np.exp(self.log_trigram)
        if not self.has_end:
            p[..., S] = 0
        pairs = np.zeros((S + 1, S + 1))  # how often b stands after a, here at one position, there at all
        pairs[S] = p[S, S]
        visits = np.zeros((S + 1, S))
        for _ in range(MOST_POSITIONS):
            visits += pairs[:, :S]
            pairs = np.einsum("ab,abc->bc", pairs[:, :S], p[:, :S])
            pairs = np.vstack([pairs, np.zeros((1, S + 1))])
            if pairs[:, :S].sum() < 1e-9:
                break
        share = visits / np.maximum(visits.sum(axis=0), 1e-300)
        return np.einsum("ab,abc->bc", share, p[:, :S, :S])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For saving."""
        return {"trigram": self.log_trigram}


def first_order(log_bigram: Doubles, *, end: bool) -> FirstOrder:
    """From log p(c | b) (S+1, S+1), row S the begin and column S the end; no sentence is empty."""
    log_start = _without_end(log_bigram[-1:])[0]
    if end:
        return FirstOrder(log_start, log_bigram[:-1, :-1].copy(), log_bigram[:-1, -1].copy())
    return FirstOrder(log_start, _without_end(log_bigram[:-1]), None)


def second_order(log_trigram: Doubles, beam: float | None, *, end: bool) -> SecondOrder:
    """From log p(c | a, b) (S+1, S+1, S+1), likewise."""
    table = log_trigram.copy()
    if not end:
        possible = (table[..., :-1] > -np.inf).any(axis=-1)
        table[possible, :-1] = _without_end(table[possible])
        table[..., -1] = 0
    else:
        table[-1, -1, :-1] = _without_end(table[-1, -1:])[0]
    table[-1, -1, -1] = -np.inf
    return SecondOrder(table, beam, end)


def chain_from_arrays(
    arrays: dict[str, NDArray[Any]], order: int, beam: float | None, *, end: bool
) -> FirstOrder | SecondOrder:
    """The chain whose ``arrays`` these are; arrays that cannot be are refused, as a damaged file may hold."""
    for name, array in arrays.items():
        if array.dtype != np.float64 or not (array <= 1e-9).all():
            raise DataError(f"weights.safetensors: {name} holds what are not log-probabilities: the file is damaged.")
    S = arrays["trigram"].shape[0] - 1 if order == 2 else len(arrays["start"])
    shapes: dict[str, tuple[int, ...]] = (
        {"trigram": (S + 1, S + 1, S + 1)} if order == 2 else {"start": (S,), "transition": (S, S)}
    )
    if order != 2 and end:
        shapes["end"] = (S,)
    if {name: array.shape for name, array in arrays.items()} != shapes:
        raise DataError(f"weights.safetensors: {', '.join(shapes)} do not fit each other: the file is damaged.")
    found: FirstOrder | SecondOrder
    if order == 2:
        found = SecondOrder(arrays["trigram"], beam, end)
        totals = np.exp(arrays["trigram"][:, :S, : S + end]).sum(axis=-1)
    else:
        found = FirstOrder(arrays["start"], arrays["transition"], arrays["end"] if end else None)
        totals = np.exp(arrays["transition"]).sum(axis=-1) + (np.exp(arrays["end"]) if end else 0)
    if not np.allclose(totals, 1, atol=1e-6):
        raise DataError("weights.safetensors: transitions do not sum to 1: the file is damaged, train again.")
    return found


def _without_end(log_next: Doubles) -> Doubles:
    """Rows (n, S) of log-probabilities (n, S+1) given that it is not the end."""
    rows = log_next[:, :-1]
    return rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)


def _inside(p: chain.Potentials) -> NDArray[np.bool_]:
    """(B, T): which positions are not padding."""
    return np.arange(p.log_unary.shape[1]) < p.lengths[:, None]


def _filtered(log_unary: Doubles, log_pairwise: Doubles) -> Doubles:
    """p(last state | all words) (states,)."""
    _, expected = chain.expectations(chain.chain_potentials(log_unary[None], log_pairwise))
    assert expected.marginals is not None
    return np.asarray(expected.marginals[0, -1])


def _choose(rng: np.random.Generator, weights: Doubles) -> int:
    """An index drawn by its weight."""
    total = np.cumsum(weights)
    return int(min(np.searchsorted(total, rng.random() * total[-1], side="right"), len(weights) - 1))
