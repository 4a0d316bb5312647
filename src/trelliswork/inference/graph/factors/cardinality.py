"""Factors that score the number of variables that are on."""

from typing import Any

import numpy as np

from trelliswork.compute.checks import check_scores
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph.factors.common import StructuredFactor, integers, propagation, safe_log
from trelliswork.inference.graph.kernels import factors as kernels
from trelliswork.inference.graph.potentials import BestPropagation, Doubles, Integers, Propagation


class Cardinality(StructuredFactor):
    r"""A score for the number of variables that are on: :math:`\log f(x) = s(|\{i : x_i = \text{state}_i\}|)`.

    Parameters
    ----------
    variables : array of int (k,)
    log_counts : array (k + 1,) or (B, k + 1)
        ``log_counts[c]`` is the score of c variables on; -inf forbids the count.
    n_states : int or array of int (k,)
        States of the variables, 2 by default.
    state : int or array of int (k,)
        State that counts as on, 1 by default.

    Notes
    -----
    A propagation takes time and memory O(k K) per graph, where K is the largest possible count.
    """

    def __init__(self, variables: Any, log_counts: Any, *, n_states: Any = 2, state: Any = 1) -> None:
        self.variables = integers("variables", variables, 1)
        k = len(self.variables)
        counts = np.asarray(log_counts, np.float64)
        counts = counts[None] if counts.ndim == 1 else counts
        if counts.ndim != 2 or counts.shape[1] != k + 1:
            raise ShapeError(
                f"log_counts must have shape (k+1,) or (B, k+1) with k={k} variables, got {np.shape(log_counts)}."
            )
        check_scores("log_counts", counts)
        self.log_counts = np.array(counts, order="C")
        self.n_graphs = len(counts)
        self.n_states = np.broadcast_to(np.asarray(n_states, np.int64), (k,)).copy()
        self.state = np.broadcast_to(np.asarray(state, np.int64), (k,)).copy()
        if (self.n_states < 2).any() or (self.state < 0).any() or (self.state >= self.n_states).any():
            raise ValueRangeError(
                "variables need two or more states, and state must be one of them: "
                f"got n_states {self.n_states.tolist()} and state {self.state.tolist()}."
            )
        possible = np.flatnonzero((counts > -np.inf).any(axis=0))
        self._largest = int(possible[-1]) if possible.size else 0
        starts = np.cumsum(self.n_states) - self.n_states
        self._starts, self._on = starts, starts + self.state
        self._off = np.setdiff1d(np.arange(self.n_states.sum()), self._on)
        self._off_starts = np.cumsum(self.n_states - 1) - (self.n_states - 1)

    def _run(self, log_messages: Doubles, maximize: bool) -> tuple[Doubles, Doubles, Doubles]:
        """Return messages of two states (B, k, 2), ``after`` of the kernel, and messages (B, N) to the variables."""
        off = log_messages[:, self._off]
        top = np.maximum.reduceat(off, self._off_starts, axis=1)
        scores = np.empty((len(off), len(self.variables), 2))
        scores[:, :, 0], scores[:, :, 1] = top, log_messages[:, self._on]
        if not maximize:
            safe = np.where(top > -np.inf, top, 0)
            weights = np.exp(off - np.repeat(safe, self.n_states - 1, axis=1))
            scores[:, :, 0] = safe + safe_log(np.add.reduceat(weights, self._off_starts, axis=1))
        B, k, _ = scores.shape
        before, after = (np.empty((B, k + 1, self._largest + 2)) for _ in range(2))
        binary = np.empty_like(scores)
        kernels.counts(self.log_counts, scores, before, after, binary, maximize)
        messages = np.repeat(binary[:, :, 0], self.n_states, axis=1)
        messages[:, self._on] = binary[:, :, 1]
        return scores, after, messages

    def propagate(self, log_messages: Doubles) -> Propagation:
        """Sum over counts from both sides; see `Propagator`."""
        messages = self._run(log_messages, False)[2]
        return propagation(log_messages, messages, self.n_states[0])

    def best(self, log_messages: Doubles) -> BestPropagation:
        """Maximize over counts from both sides; see `Propagator`."""
        scores, after, messages = self._run(log_messages, True)
        on = np.empty(scores.shape[:2], np.int64)
        kernels.best_counts(scores, after, on)
        assignment = on.copy()
        off = log_messages[:, self._off]
        for i, (start, size) in enumerate(zip(self._off_starts, self.n_states - 1, strict=True)):
            states = self._off[start : start + size] - self._starts[i]
            likeliest = states[off[:, start : start + size].argmax(axis=1)]
            assignment[:, i] = np.where(on[:, i] < 0, -1, np.where(on[:, i] == 1, self.state[i], likeliest))
        return BestPropagation(after[:, 0, 0], messages, assignment)

    def score(self, assignment: Integers) -> Doubles:
        """Return log f (B,) of states (B, k)."""
        count = (assignment == self.state).sum(axis=1)
        return self.log_counts[np.arange(len(assignment)) if self.n_graphs > 1 else 0, count]


class ExactlyOne(Cardinality):
    """Exactly one of the variables is on; see `Cardinality`. Propagation takes time O(k)."""

    def __init__(self, variables: Any, *, n_states: Any = 2, state: Any = 1) -> None:
        counts = np.full(len(variables) + 1, -np.inf)
        counts[1:2] = 0
        super().__init__(variables, counts, n_states=n_states, state=state)


class AtMostOne(Cardinality):
    """At most one of the variables is on; see `Cardinality`. Propagation takes time O(k)."""

    def __init__(self, variables: Any, *, n_states: Any = 2, state: Any = 1) -> None:
        counts = np.full(len(variables) + 1, -np.inf)
        counts[:2] = 0
        super().__init__(variables, counts, n_states=n_states, state=state)
