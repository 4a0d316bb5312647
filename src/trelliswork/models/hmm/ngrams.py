"""The state sequences of an HMM of the second order and above: a state depends on the k before it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference import chain
from trelliswork.inference.chain import pairs
from trelliswork.inference.chain.beam import EXACT, Beam
from trelliswork.inference.chain.beam import passes as beam_passes
from trelliswork.inference.chain.beam.sparse import SparseChain, SparseTransitions

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_POSITIONS = 1000  # of a sentence, when its transitions are averaged
BATCH_TOKENS = 20_000  # positions that are worked on together


@dataclass(frozen=True)
class HigherOrder:
    """``log_table[a, b, c]``, log p(c | a, b) (S+1,) * (k+1): index S is the begin, last the end.

    If the end is no event, its scores are 0. Without a beam the second order is exact over pairs of possible states;
    otherwise sequences of k states are the states of a sparse chain, of which the beam keeps few.
    """

    log_table: Doubles
    beam: Beam | None
    has_end: bool = True

    @property
    def order(self) -> int:
        """k."""
        return self.log_table.ndim - 1

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.log_table) - 1

    def viterbi(self, rows: Doubles, offsets: Integers) -> Integers:
        """The most probable states (n_tokens,)."""
        if self._by_pairs:
            return pairs.viterbi(rows, offsets, self.log_table)[0]
        found = np.empty(len(rows), np.int64)
        for at, p in self._batches(rows, offsets):
            states = beam_passes.viterbi(p, self.beam or EXACT).labels
            found[at] = p.transitions.emits[states[_inside(p)]]
        return found

    def marginals(self, rows: Doubles, offsets: Integers) -> tuple[Doubles, Doubles]:
        """Log evidence (n_sentences,) and p(state | sentence) (n_tokens, S)."""
        if self._by_pairs:
            return pairs.forward_backward(rows, offsets, self.log_table)
        evidence, parts = [np.empty(0)], [np.empty((0, self.n_states))]
        for _, p in self._batches(rows, offsets):
            found = beam_passes.expectations(p, self.beam or EXACT)
            evidence.append(found.log_z)
            parts.append(found.by_label(p.transitions.emits, self.n_states))
        return np.concatenate(evidence), np.concatenate(parts)

    def log_evidence(self, rows: Doubles, offsets: Integers) -> Doubles:
        """Log evidence alone."""
        return pairs.log_evidence(rows, offsets, self.log_table) if self._by_pairs else self.marginals(rows, offsets)[0]

    def potentials(self, rows: Doubles, *, end: bool = True) -> tuple[Doubles, Doubles]:
        """One sentence as a chain of n-grams of states: the S states at the begin, then S + a S + b: b after a."""
        p = self._sparse(rows[None], np.array([len(rows)]), end=end).dense()
        return p.log_unary[0], p.log_pairwise[0]

    def following(self, rows: Doubles) -> tuple[Doubles, float]:
        """After some words: p(next state) (S,), and p(end)."""
        S = self.n_states
        if len(rows) == 0:
            ahead = np.exp(self.log_table[(S,) * self.order])
        else:
            p = self._sparse(rows[None], np.array([len(rows)]), end=False)
            found = beam_passes.expectations(p, self.beam or EXACT)
            last = slice(int(found.sets.ptr[-2]), int(found.sets.ptr[-1]))
            contexts = self._contexts[:, found.sets.states[last]]
            ahead = found.marginals[last] @ np.exp(self.log_table[tuple(contexts)])
        return ahead[:S], float(ahead[S]) if self.has_end else 0.0

    def draw(self, rng: np.random.Generator, max_length: int) -> list[int]:
        """States of a random sentence."""
        S = self.n_states
        states = [S] * self.order
        while len(states) < max_length + self.order:
            weights = np.cumsum(np.exp(self.log_table[tuple(states[-self.order :])][: S + self.has_end]))
            drawn = int(min(np.searchsorted(weights, rng.random() * weights[-1], side="right"), len(weights) - 1))
            if drawn == S:
                break
            states.append(drawn)
        return states[self.order :]

    def transitions(self) -> Doubles:
        """p(next state | state) (S, S), the end left out: the mean over what random sentences show."""
        S, p = self.n_states, np.exp(self.log_table)
        if not self.has_end:
            p[..., S] = 0
        context = np.zeros((S + 1,) * self.order)  # how often each context stands, here at one position, there at all
        context[(S,) * self.order] = 1
        visits = np.zeros_like(context)
        for t in range(MOST_POSITIONS):
            if t > 0:
                visits += context
            context = (context[..., None] * p).sum(axis=0)
            context[..., S] = 0  # it has ended
            if context.sum() < 1e-9:
                break
        visits += context
        pairs = (visits[..., None] * p)[..., :S].sum(axis=tuple(range(self.order - 1)))[:S]
        return np.asarray(pairs / np.maximum(visits.sum(axis=tuple(range(self.order - 1)))[:S, None], 1e-300))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For saving."""
        return {"ngrams": self.log_table}

    @property
    def _by_pairs(self) -> bool:
        return self.order == 2 and self.beam is None

    @cached_property
    def _transitions(self) -> SparseTransitions:
        return SparseTransitions.ngrams(self.n_states, self.order)

    @cached_property
    def _contexts(self) -> Integers:
        """(k, states): the last k labels of each state, begins before the first."""
        S, k = self.n_states, self.order
        found = np.full((k, self._transitions.n_states), S)
        first = 0
        for seen in range(1, k + 1):
            codes = np.arange(S**seen)
            for back in range(seen):
                found[k - 1 - back, first : first + S**seen] = codes // S**back % S
            first += S**seen
        return found

    @cached_property
    def _scores(self) -> tuple[Doubles, Doubles, Doubles]:
        """Of transitions (entries,), first states and ends (states,)."""
        s, S = self._transitions, self.n_states
        weights = self.log_table[(*self._contexts[:, s.sources], s.emits[s.targets])]
        begin = np.full(s.n_states, -np.inf)
        begin[:S] = self.log_table[(S,) * self.order][:S]
        return weights, begin, self.log_table[(*self._contexts, S)]

    def _sparse(self, log_unary: Doubles, lengths: Integers, *, end: bool = True) -> SparseChain:
        weights, begin, ends = self._scores
        return SparseChain(log_unary, self._transitions, weights, begin, ends if end else np.zeros_like(ends), lengths)

    def _batches(self, rows: Doubles, offsets: Integers) -> Iterator[tuple[slice, SparseChain]]:
        """Padded sentences, and the tokens they are."""
        for at, log_unary, lengths in padded(rows, offsets, BATCH_TOKENS):
            yield at, self._sparse(log_unary, lengths)


def padded(rows: Doubles, offsets: Integers, most_tokens: int) -> Iterator[tuple[slice, Doubles, Integers]]:
    """Sentences of scores (n_tokens, S) in batches (B, T, S) of about so many tokens: which they are, and lengths."""
    lengths = np.diff(offsets)
    first = 0
    while first < len(lengths):
        ahead = lengths[first : first + most_tokens + 1]
        widest = np.maximum.accumulate(ahead) * np.arange(1, len(ahead) + 1)
        last = first + max(1, int(np.searchsorted(widest, most_tokens, side="right")))
        size, at = lengths[first:last], slice(int(offsets[first]), int(offsets[last]))
        batch = np.zeros((len(size), size.max(), rows.shape[1]), rows.dtype)
        batch[np.arange(size.max()) < size[:, None]] = rows[at]
        yield at, batch, size
        first = last


def _inside(p: SparseChain | chain.Potentials) -> NDArray[np.bool_]:
    """(B, T): which positions are not padding."""
    return np.arange(p.log_unary.shape[1]) < p.lengths[:, None]
