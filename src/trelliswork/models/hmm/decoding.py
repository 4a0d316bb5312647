"""State sequences of HMMs: chains of the first order and above, given scores of states at tokens.

All functions take concatenated sentences: ``rows`` (n_tokens, S), log p(word | state), and ``offsets``
(n_sentences + 1,).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

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


@dataclass(frozen=True)
class StateChain:
    """Chain of order k: ``log_table[a, b, c]`` is log p(c | a, b), shape (S+1,) * (k+1).

    Index S is the start of a sentence, and in the last axis its end; if the end is no event, its scores are 0. Above
    order 1, sequences of k states are the states of a sparse chain: only those that can emit their words are visited.
    With a beam, states and probabilities are those within it, and the evidence is a lower bound.
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

    def scaled(self, factor: float) -> "StateChain":
        """Return the chain with all scores multiplied by a factor; they are no probabilities."""
        return StateChain(self.log_table * factor, self.beam, self.has_end)

    def now(self, rows: Doubles) -> Doubles | None:
        """Return p(n-gram of states) (K,) after some words, ``None`` before the first."""
        if len(rows) == 0:
            return None
        if self.order == 1:
            table = self.log_table.copy()
            table[:, -1] = 0
            return StateChain(table, None).marginals(rows, np.array([0, len(rows)]))[1][-1]
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
        """Return p(next state | state) (S, S), without the end; above order 1 the mean over random sentences."""
        if self.order == 1:
            return np.exp(self.log_table[:-1, :-1])
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

    def batches(self, rows: Doubles, offsets: Integers) -> Iterator[tuple[slice, Any]]:
        """Yield the range of tokens and the scores of batches of sentences, padded."""
        table, S = self.log_table, self.n_states
        if self.order > 1:
            for at, lengths in _batches(offsets, BATCH_TOKENS):
                yield at, self._sparse(pad(rows[at], lengths), lengths)
            return
        transition = table[:S, :S].astype(rows.dtype)
        for at, lengths in _batches(offsets, BATCH_SCORES // S):
            log_unary = pad(rows[at], lengths)
            log_unary[:, 0] += table[S, :S]
            log_unary[np.arange(len(lengths)), lengths - 1] += table[:S, S]
            yield at, chain.chain_potentials(log_unary, transition, lengths, check_values=False)

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


def state_chain(log_table: Doubles, beam: Beam | None, *, end: bool) -> StateChain:
    """Return a chain from smoothed log p(c | a, b), an array as in `StateChain`; no sentence is empty."""
    table = log_table.copy()
    start = (-1,) * (table.ndim - 1)
    if not end:
        possible = (table[..., :-1] > -np.inf).any(axis=-1)
        table[possible, :-1] = _without_end(table[possible])
        table[..., -1] = 0
    else:
        table[start][:-1] = _without_end(table[start][None])[0]
    table[(*start, -1)] = -np.inf
    return StateChain(table, beam, end)


def chain_from_table(table: NDArray[Any], order: int, beam: Beam | str | None, *, end: bool) -> StateChain:
    """Build a chain from its saved table; an array of a damaged file is an error."""
    S = len(table) - 1
    if table.dtype != np.float64 or table.shape != (S + 1,) * (order + 1) or not (table <= 1e-9).all():
        raise DataError("damaged weights: the transitions are not a table of log-probabilities: train again.")
    before = (slice(None),) * (order - 1)  # all but the last state of a context
    totals = np.exp(table[(*before, slice(S), slice(S + end))]).sum(axis=-1)
    totals = totals[(table[(*before, slice(S), slice(S))] > -np.inf).any(axis=-1)]
    if not np.allclose(totals, 1, atol=1e-6):
        raise DataError("damaged weights: the probabilities of transitions do not sum to 1: train again.")
    return StateChain(table, state_beam(beam, S, order), end)


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
