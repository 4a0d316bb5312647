"""State sequences of HMMs: chains of the first order and above, given scores of states at tokens.

All functions take concatenated sentences: ``rows`` (n_tokens, S), log p(word | state), and ``offsets``
(n_sentences + 1,).
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from trelliswork.compute.padding import batches, pad, unpad
from trelliswork.errors import DataError
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import EXACT, Beam, chosen_beam
from trelliswork.inference.chain.beam import passes as beam_passes
from trelliswork.inference.chain.beam.sparse import SparseChain, SparseTransitions
from trelliswork.inference.chain.queries import best_labels, label_marginals, log_partition

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
BATCH_SCORES = 1 << 22  # scores of states in one batch of the first order
BATCH_TOKENS = 20_000  # positions in one batch of higher orders
MOST_POSITIONS = 1000  # length of the sentences over which transitions of higher orders are averaged


class Contexts(NamedTuple):
    """What the next state depends on: a state, or for higher orders the last states."""

    start: Doubles  # (K,) probability of the first one
    follow: Any  # (K, K), sparse: that of the next one
    end: Doubles  # (K,) that of the end; 0 if it is no event
    label: Integers  # (K,) the state, the last one for higher orders

    def after(self, now: int) -> tuple[Integers, Doubles, float]:
        """Return what may follow one of them, -1 before the first: contexts, their probabilities, and p(end)."""
        if now < 0:
            return np.arange(len(self.start)), self.start, 0.0
        row = slice(*self.follow.indptr[now : now + 2].tolist())
        return self.follow.indices[row], self.follow.data[row], float(self.end[now])


class LabelChains:
    """Queries of chains that make scores of sentences."""

    beam: Beam | None

    @property
    @abstractmethod
    def contexts(self) -> "Contexts":
        """What the next state depends on."""

    @abstractmethod
    def now(self, rows: Doubles) -> Doubles | None:
        """Return p(context) (K,) after some words, ``None`` before the first."""

    def following(self, rows: Doubles) -> tuple[Doubles, float]:
        """Return p(next state) (S,) and p(end) after some words."""
        contexts, now = self.contexts, self.now(rows)
        ahead = contexts.start if now is None else contexts.follow.T @ now
        end = 0.0 if now is None else float(now @ contexts.end)
        states: Doubles = np.bincount(contexts.label, ahead, contexts.label.max() + 1).astype(np.float64)
        return states, end

    def draw(self, rng: np.random.Generator, max_length: int) -> list[int]:
        """Return the states of a random sentence."""
        contexts, states, now = self.contexts, list[int](), -1
        while len(states) < max_length:
            ahead, p, end = contexts.after(now)
            chosen = choose(rng, np.cumsum(np.append(p, end)))
            if chosen == len(p):
                break
            now = int(ahead[chosen])
            states.append(int(contexts.label[now]))
        return states

    @abstractmethod
    def batches(self, rows: Doubles, offsets: Integers) -> Iterator[tuple[slice, Any]]:
        """Yield the range of tokens and the scores of batches of sentences."""

    def viterbi(self, rows: Doubles, offsets: Integers) -> Integers:
        """Return the most probable states (n_tokens,)."""
        found = (unpad(best_labels(p, self.beam), p.lengths) for _, p in self.batches(rows, offsets))
        return np.concatenate([np.empty(0, np.int64), *found])

    def marginals(self, rows: Doubles, offsets: Integers) -> tuple[Doubles, Doubles]:
        """Return the log evidence (n_sentences,) and p(state | sentence) (n_tokens, S)."""
        evidence, marginals = np.empty(len(offsets) - 1), np.empty(rows.shape)
        done = 0
        for at, p in self.batches(rows, offsets):
            evidence[done : done + len(p.lengths)], found = label_marginals(p, self.beam)
            marginals[at] = unpad(found, p.lengths)
            done += len(p.lengths)
        return evidence, marginals

    def log_evidence(self, rows: Doubles, offsets: Integers) -> Doubles:
        """Return the log evidence alone."""
        return np.concatenate([np.empty(0), *(log_partition(p, self.beam) for _, p in self.batches(rows, offsets))])


@dataclass(frozen=True)
class FirstOrder(LabelChains):
    """Log-probabilities of the first state (S,), the next state (S, S), and the end (S,), ``None`` if it is no event.

    With a beam, states and probabilities are those within it, and the evidence is a lower bound.
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

    def scaled(self, factor: float) -> "FirstOrder":
        """Return the chain with all scores multiplied by a factor; they are no probabilities."""
        end = None if self.log_end is None else self.log_end * factor
        return FirstOrder(self.log_start * factor, self.log_transition * factor, end, self.beam)

    def now(self, rows: Doubles) -> Doubles | None:
        """Return p(state) (S,) after some words, ``None`` before the first."""
        if len(rows) == 0:
            return None
        last: Doubles = replace(self, log_end=None, beam=None).marginals(rows, np.array([0, len(rows)]))[1][-1]
        return last

    @cached_property
    def contexts(self) -> "Contexts":
        """The states with their probabilities."""
        end = np.zeros(self.n_states) if self.log_end is None else np.exp(self.log_end)
        follow = sparse.csr_matrix(np.exp(self.log_transition))
        return Contexts(np.exp(self.log_start), follow, end, np.arange(self.n_states))

    def transitions(self) -> Doubles:
        """Return p(next state | state) (S, S), without the end."""
        return np.exp(self.log_transition)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save."""
        arrays = {"start": self.log_start, "transition": self.log_transition}
        return arrays if self.log_end is None else arrays | {"end": self.log_end}

    def batches(self, rows: Doubles, offsets: Integers) -> Iterator[tuple[slice, chain.Potentials]]:
        """Yield padded sentences, and the range of their tokens."""
        transition = self.log_transition.astype(rows.dtype)
        for at, lengths in _batches(offsets, BATCH_SCORES // rows.shape[1]):
            log_unary = pad(rows[at], lengths)
            log_unary[:, 0] += self.log_start
            if self.log_end is not None:
                log_unary[np.arange(len(lengths)), lengths - 1] += self.log_end
            yield at, chain.chain_potentials(log_unary, transition, lengths, check_values=False)


@dataclass(frozen=True)
class HigherOrder(LabelChains):
    """Chain of order k: ``log_table[a, b, c]`` is log p(c | a, b), shape (S+1,) * (k+1).

    Index S is the start of a sentence, and in the last axis its end; if the end is no event, its scores are 0.
    Sequences of k states are the states of a sparse chain. Only those that can emit their words are visited, and a beam
    keeps few of them.
    """

    log_table: Doubles
    beam: Beam | None
    has_end: bool = True

    @property
    def order(self) -> int:
        """The order k."""
        return self.log_table.ndim - 1

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.log_table) - 1

    def scaled(self, factor: float) -> "HigherOrder":
        """Return the chain with all scores multiplied by a factor; they are no probabilities."""
        return HigherOrder(self.log_table * factor, self.beam, self.has_end)

    def now(self, rows: Doubles) -> Doubles | None:
        """Return p(n-gram of states) (K,) after some words, ``None`` before the first."""
        if len(rows) == 0:
            return None
        p = self._sparse(rows[None], np.array([len(rows)]), end=False)
        within = beam_passes.expectations(p, self.beam or EXACT)
        last = slice(int(within.sets.ptr[-2]), int(within.sets.ptr[-1]))
        now = np.zeros(self._transitions.n_states)
        now[within.sets.states[last]] = within.marginals[last]
        return now

    @cached_property
    def contexts(self) -> "Contexts":
        """The n-grams of states with their probabilities."""
        s, K = self._transitions, self._transitions.n_states
        weights, start, end = (np.exp(scores) for scores in self._scores)
        follow = sparse.csr_matrix((weights, s.targets, s.indptr), (K, K))
        return Contexts(start, follow, end * self.has_end, s.emits.astype(np.int64))

    def transitions(self) -> Doubles:
        """Return p(next state | state) (S, S), without the end: the mean over random sentences."""
        contexts, S = self.contexts, self.n_states
        now, visits = contexts.start, np.zeros(len(contexts.start))  # expected at one position, and at all
        for _ in range(MOST_POSITIONS):
            visits += now
            if now.sum() < 1e-9:
                break
            now = contexts.follow.T @ now
        pairs = sparse.coo_matrix(sparse.diags(visits) @ contexts.follow)
        label = contexts.label
        follow = np.bincount(label[pairs.row] * S + label[pairs.col], pairs.data, S * S).reshape(S, S)
        return np.asarray(follow / np.maximum(np.bincount(label, visits, S)[:, None], 1e-300))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save."""
        return {"ngrams": self.log_table}

    @cached_property
    def _transitions(self) -> SparseTransitions:
        return SparseTransitions.ngrams(self.n_states, self.order)

    @cached_property
    def _scores(self) -> tuple[Doubles, Doubles, Doubles]:
        """Scores of transitions (entries,), first states and ends (states,)."""
        S, k = self.n_states, self.order
        start = np.full(self._transitions.n_states, -np.inf)
        start[:S] = self.log_table[(S,) * k][:S]
        # After 1, 2, ... k labels; the start symbol is before them.
        rows = [self.log_table[(S,) * (k - n) + (slice(S),) * n].reshape(-1, S + 1) for n in range(1, k + 1)]
        ahead = np.concatenate(rows)
        return ahead[:, :S].reshape(-1), start, ahead[:, S].copy()

    def _sparse(self, log_unary: Doubles, lengths: Integers, *, end: bool = True) -> SparseChain:
        weights, start, ends = self._scores
        return SparseChain(log_unary, self._transitions, weights, start, ends if end else np.zeros_like(ends), lengths)

    def batches(self, rows: Doubles, offsets: Integers) -> Iterator[tuple[slice, SparseChain]]:
        """Yield padded sentences, and the range of their tokens."""
        for at, lengths in _batches(offsets, BATCH_TOKENS):
            yield at, self._sparse(pad(rows[at], lengths), lengths)


StateChain = FirstOrder | HigherOrder


def first_order(log_bigram: Doubles, *, end: bool) -> FirstOrder:
    """Return a chain from log p(c | b) (S+1, S+1): row S is the start, column S the end; no sentence is empty."""
    log_start = _without_end(log_bigram[-1:])[0]
    if end:
        return FirstOrder(log_start, log_bigram[:-1, :-1].copy(), log_bigram[:-1, -1].copy())
    return FirstOrder(log_start, _without_end(log_bigram[:-1]), None)


def higher_order(log_table: Doubles, beam: Beam | None, *, end: bool) -> HigherOrder:
    """Return a chain from log p(c | a, b) (S+1, S+1, S+1), or with more states before c."""
    table = log_table.copy()
    start = (-1,) * (table.ndim - 1)
    if not end:
        possible = (table[..., :-1] > -np.inf).any(axis=-1)
        table[possible, :-1] = _without_end(table[possible])
        table[..., -1] = 0
    else:
        table[start][:-1] = _without_end(table[start][None])[0]
    table[(*start, -1)] = -np.inf
    return HigherOrder(table, beam, end)


def chain_from_arrays(arrays: dict[str, NDArray[Any]], order: int, beam: Beam | str | None, *, end: bool) -> StateChain:
    """Build a chain from its saved ``arrays``; arrays of a damaged file are an error."""
    for name, array in arrays.items():
        if array.dtype != np.float64 or not (array <= 1e-9).all():
            raise DataError(f"damaged weights: {name} has values that are not log-probabilities: train again.")
    S = len(arrays["ngrams"]) - 1 if order > 1 else len(arrays["start"])
    shapes: dict[str, tuple[int, ...]]
    shapes = {"ngrams": (S + 1,) * (order + 1)} if order > 1 else {"start": (S,), "transition": (S, S)}
    if order == 1 and end:
        shapes["end"] = (S,)
    if {name: array.shape for name, array in arrays.items()} != shapes:
        raise DataError(f"damaged weights: the shapes of {', '.join(shapes)} do not match: train again.")
    beam = state_beam(beam, S, order)
    states: StateChain
    if order > 1:
        states = HigherOrder(arrays["ngrams"], beam, end)
        before = (slice(None),) * (order - 1)  # all but the last state of a context
        totals = np.exp(arrays["ngrams"][(*before, slice(S), slice(S + end))]).sum(axis=-1)
        totals = totals[(arrays["ngrams"][(*before, slice(S), slice(S))] > -np.inf).any(axis=-1)]
    else:
        states = FirstOrder(arrays["start"], arrays["transition"], arrays["end"] if end else None, beam)
        totals = np.exp(arrays["transition"]).sum(axis=-1) + (np.exp(arrays["end"]) if end else 0)
    if not np.allclose(totals, 1, atol=1e-6):
        raise DataError("damaged weights: the probabilities of transitions do not sum to 1: train again.")
    return states


def state_beam(beam: Beam | str | None, n_states: int, order: int) -> Beam | None:
    """Return the beam for the states of an HMM; "auto" is exact for order 2, where words have few possible states."""
    if beam == "auto" and order == 2:
        return None
    return chosen_beam(beam, n_states**order, shared=order == 1)


def _without_end(log_next: Doubles) -> Doubles:
    """Return rows (n, S) of log-probabilities (n, S+1), conditioned on not being the end."""
    rows = log_next[:, :-1]
    return rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)


def _batches(offsets: Integers, most_tokens: int) -> Iterator[tuple[slice, Integers]]:
    """Yield ranges of tokens of whole sentences, about ``most_tokens`` when padded, and the sentences' lengths."""
    lengths = np.diff(offsets)
    for first, last in batches(lengths, most_tokens):
        yield slice(int(offsets[first]), int(offsets[last])), lengths[first:last]


def choose(rng: np.random.Generator, cumulated: Doubles) -> int:
    """Return a random index, given the sums of the weights up to each one."""
    at = np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right")
    return min(int(at), len(cumulated) - 1)
