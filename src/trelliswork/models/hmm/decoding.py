"""The state sequences of an HMM: chains of the first order and above, given scores of states at tokens.

All take the sentences of a text one behind the other: ``rows`` (n_tokens, S), log p(word | state), and ``offsets``
(n_sentences + 1,).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import DataError
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam, chosen_beam
from trelliswork.inference.chain.beam import passes as beam_passes
from trelliswork.models.hmm.ngrams import HigherOrder, padded

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
BATCH_SCORES = 1 << 22  # scores of states that are worked on together


class StateChain(Protocol):
    """What an HMM asks of its states."""

    @property
    def n_states(self) -> int:
        """S."""

    @property
    def has_end(self) -> bool:
        """Whether the end is an event."""

    @property
    def order(self) -> int:
        """How many states before it a state depends on."""

    @property
    def beam(self) -> Beam | None:
        """The beam that inference keeps within."""

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
    """log p of the first state (S,), the next state (S, S), and the end (S,), which may be no event (``None``).

    With a beam the states of a sentence and their probabilities are those within it, and its evidence a lower bound.
    """

    log_start: Doubles
    log_transition: Doubles
    log_end: Doubles | None
    beam: Beam | None = None
    order: ClassVar[int] = 1

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
            labels = chain.viterbi(p)[0] if self.beam is None else beam_passes.viterbi(p, self.beam).labels
            found[at] = labels[_inside(p)]
        return found

    def marginals(self, rows: Doubles, offsets: Integers) -> tuple[Doubles, Doubles]:
        """Log evidence (n_sentences,) and p(state | sentence) (n_tokens, S)."""
        evidence, found = [], np.empty(rows.shape)
        for at, p in self._batches(rows, offsets):
            if self.beam is not None:
                within = beam_passes.expectations(p, self.beam)
                found[at] = within.by_label(None, self.n_states)
                evidence.append(within.log_z)
                continue
            log_z, expected = chain.expectations(p)
            assert expected.marginals is not None
            found[at] = expected.marginals[_inside(p)]
            evidence.append(log_z)
        return np.concatenate(evidence), found

    def log_evidence(self, rows: Doubles, offsets: Integers) -> Doubles:
        """Log evidence alone."""
        if self.beam is not None:
            return self.marginals(rows, offsets)[0]
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
        transition = self.log_transition.astype(rows.dtype)
        for at, log_unary, size in padded(rows, offsets, BATCH_SCORES // rows.shape[1]):
            log_unary[:, 0] += self.log_start
            if self.log_end is not None:
                log_unary[np.arange(len(size)), size - 1] += self.log_end
            yield at, chain.chain_potentials(log_unary, transition, size, check_values=False)


def first_order(log_bigram: Doubles, *, end: bool) -> FirstOrder:
    """From log p(c | b) (S+1, S+1), row S the begin and column S the end; no sentence is empty."""
    log_start = _without_end(log_bigram[-1:])[0]
    if end:
        return FirstOrder(log_start, log_bigram[:-1, :-1].copy(), log_bigram[:-1, -1].copy())
    return FirstOrder(log_start, _without_end(log_bigram[:-1]), None)


def higher_order(log_table: Doubles, beam: Beam | None, *, end: bool) -> HigherOrder:
    """From log p(c | a, b) (S+1, S+1, S+1), or of more states before c, likewise."""
    table = log_table.copy()
    begin = (-1,) * (table.ndim - 1)
    if not end:
        possible = (table[..., :-1] > -np.inf).any(axis=-1)
        table[possible, :-1] = _without_end(table[possible])
        table[..., -1] = 0
    else:
        table[begin][:-1] = _without_end(table[begin][None])[0]
    table[(*begin, -1)] = -np.inf
    return HigherOrder(table, beam, end)


def chain_from_arrays(arrays: dict[str, NDArray[Any]], order: int, beam: Beam | str | None, *, end: bool) -> StateChain:
    """The chain whose ``arrays`` these are; arrays that cannot be are refused, as a damaged file may hold."""
    for name, array in arrays.items():
        if array.dtype != np.float64 or not (array <= 1e-9).all():
            raise DataError(f"weights.safetensors: {name} holds what are not log-probabilities: the file is damaged.")
    S = arrays["ngrams"].shape[0] - 1 if order > 1 else len(arrays["start"])
    shapes: dict[str, tuple[int, ...]] = (
        {"ngrams": (S + 1,) * (order + 1)} if order > 1 else {"start": (S,), "transition": (S, S)}
    )
    if order == 1 and end:
        shapes["end"] = (S,)
    if {name: array.shape for name, array in arrays.items()} != shapes:
        raise DataError(f"weights.safetensors: {', '.join(shapes)} do not fit each other: the file is damaged.")
    found: StateChain
    if order > 1:
        found = HigherOrder(arrays["ngrams"], state_beam(beam, S, order), end)
        before = (slice(None),) * (order - 1)  # what stands before the last state of a context
        totals = np.exp(arrays["ngrams"][(*before, slice(S), slice(S + end))]).sum(axis=-1)
        totals = totals[(arrays["ngrams"][(*before, slice(S), slice(S))] > -np.inf).any(axis=-1)]
    else:
        beam = state_beam(beam, S, 1)
        found = FirstOrder(arrays["start"], arrays["transition"], arrays["end"] if end else None, beam)
        totals = np.exp(arrays["transition"]).sum(axis=-1) + (np.exp(arrays["end"]) if end else 0)
    if not np.allclose(totals, 1, atol=1e-6):
        raise DataError("weights.safetensors: transitions do not sum to 1: the file is damaged, train again.")
    return found


def state_beam(beam: Beam | str | None, n_states: int, order: int) -> Beam | None:
    """The beam for the states of an HMM; "auto" leaves the second order exact, whose words have few states anyhow."""
    if beam == "auto" and order == 2:
        return None
    return chosen_beam(beam, n_states**order, shared=order == 1)


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
