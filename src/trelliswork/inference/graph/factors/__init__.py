"""Structured factors: many variables at once, with a dynamic program in place of a table.

Each is a `Propagator`: messages in; value, beliefs and messages out, in time far below the size of its table. All sums
are of positive terms, in log space, so that zeros (-inf) in messages and parameters do no harm.
"""

from itertools import product
from typing import Any

import numpy as np

from trelliswork.compute.checks import check_scores
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph.kernels import factors as structured_kernels
from trelliswork.inference.graph.layout import LANES
from trelliswork.inference.graph.wiring import BestPropagation, Doubles, Integers, Propagation


class ChainFactor:
    r"""A whole linear chain as one factor: :math:`\log f(x) = \sum_t w_t(x_t, x_{t+1})`.

    Parameters
    ----------
    variables : array of int (T,)
        In the order of the chain, T >= 2; all with S states.
    log_pairwise : array (S, S), (T-1, S, S) or (B, T-1, S, S)
        ``log_pairwise[i, j]``: i comes before j; -inf forbids the pair.

    Notes
    -----
    A propagation takes time O(T S^2) and memory O(T S) a graph.
    """

    def __init__(self, variables: Any, log_pairwise: Any) -> None:
        self.variables = _variables(variables, 2)
        T = len(self.variables)
        tables = np.asarray(log_pairwise, np.float64)
        if tables.ndim not in (2, 3, 4) or tables.shape[-1] != tables.shape[-2]:
            raise ShapeError(f"log_pairwise must have shape (S, S), (T-1, S, S) or (B, T-1, S, S), got {tables.shape}.")
        tables = tables.reshape((1,) * (4 - tables.ndim) + tables.shape)
        if tables.shape[1] not in (1, T - 1):
            raise ShapeError(f"log_pairwise has {tables.shape[1]} steps, but {T} variables have T-1={T - 1}.")
        check_scores("log_pairwise", tables)
        self.log_pairwise = np.array(tables, order="C")
        self.n_graphs, S = len(tables), tables.shape[2]
        self.n_states = np.full(T, S)
        # The largest entry of each table is taken off for the exponentials and comes back with the value.
        self._width = -(-S // LANES) * LANES
        top = tables.max(axis=(2, 3), keepdims=True)
        top[top == -np.inf] = 0
        self._shift = np.broadcast_to(top[:, :, 0, 0], (self.n_graphs, T - 1)).sum(axis=1)
        self._forward = self._prepared(tables - top)
        self._backward = self._prepared((tables - top).swapaxes(2, 3))

    def _prepared(self, log_tables: Doubles) -> tuple[Doubles, Doubles]:
        """exp with padded rows (G, steps, S * width), and the logarithms (G, steps, S, S)."""
        G, steps, S, _ = log_tables.shape
        weights = np.zeros((G, steps, S, self._width))
        weights[..., :S] = np.exp(log_tables)
        return weights.reshape(G, steps, -1), np.ascontiguousarray(log_tables)

    def propagate(self, log_messages: Doubles) -> Propagation:
        """Forward-backward; see `Propagator`."""
        scores = _rows(log_messages, len(self.variables))
        before, after = np.empty_like(scores), np.empty_like(scores)
        rows = np.zeros((3, self._width))
        structured_kernels.chain_sums(*self._forward, *self._backward, scores, before, after, rows)
        return _propagation(log_messages, (before + after).reshape(len(scores), -1), self.n_states[0], self._shift)

    def best(self, log_messages: Doubles) -> BestPropagation:
        """Viterbi in both directions; see `Propagator`."""
        scores = _rows(log_messages, len(self.variables))
        before, after = np.empty_like(scores), np.empty_like(scores)
        best = np.empty(scores.shape[:2], np.int64)
        structured_kernels.chain_maxima(self.log_pairwise, scores, before, after, best)
        value = (scores[:, 0] + after[:, 0]).max(axis=1)
        return BestPropagation(value, (before + after).reshape(len(scores), -1), best)

    def score(self, assignment: Integers) -> Doubles:
        """Return log f (B,) of states (B, T)."""
        rows = np.arange(len(assignment))[:, None] if self.n_graphs > 1 else np.zeros((1, 1), np.int64)
        steps = np.arange(len(self.variables) - 1) if self.log_pairwise.shape[1] > 1 else np.zeros(1, np.int64)
        return self.log_pairwise[rows, steps, assignment[:, :-1], assignment[:, 1:]].sum(axis=1)

    def table(self, max_size: int = 1_000_000) -> Doubles:
        """The dense log-table (n_graphs, S, .., S)."""
        return _dense(self, max_size)


class Cardinality:
    r"""A score for how many variables are on: :math:`\log f(x) = s(|\{i : x_i = \text{state}_i\}|)`.

    Parameters
    ----------
    variables : array of int (k,)
    log_counts : array (k + 1,) or (B, k + 1)
        ``log_counts[c]`` scores c variables on; -inf forbids the count.
    n_states : int or array of int (k,)
        States of the variables, 2 by default.
    state : int or array of int (k,)
        The state that counts as on, 1 by default.

    Notes
    -----
    A propagation takes time and memory O(k K) a graph, where K is the largest count that is possible.
    """

    def __init__(self, variables: Any, log_counts: Any, *, n_states: Any = 2, state: Any = 1) -> None:
        self.variables = _variables(variables, 1)
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
                "the variables need two or more states, and state must be one of them: "
                f"got n_states {self.n_states.tolist()} and state {self.state.tolist()}."
            )
        possible = np.flatnonzero((counts > -np.inf).any(axis=0))
        self._largest = int(possible[-1]) if possible.size else 0
        starts = np.cumsum(self.n_states) - self.n_states
        self._starts, self._on = starts, starts + self.state
        self._off = np.setdiff1d(np.arange(self.n_states.sum()), self._on)
        self._off_starts = np.cumsum(self.n_states - 1) - (self.n_states - 1)

    def _run(self, log_messages: Doubles, maximise: bool) -> tuple[Doubles, Doubles, Doubles]:
        """Messages of two states (B, k, 2) in, ``after`` and messages (B, N) out."""
        off = log_messages[:, self._off]
        top = np.maximum.reduceat(off, self._off_starts, axis=1)
        scores = np.empty((len(off), len(self.variables), 2))
        scores[:, :, 0], scores[:, :, 1] = top, log_messages[:, self._on]
        if not maximise:
            safe = np.where(top > -np.inf, top, 0)
            weights = np.exp(off - np.repeat(safe, self.n_states - 1, axis=1))
            with np.errstate(divide="ignore"):
                scores[:, :, 0] = safe + np.log(np.add.reduceat(weights, self._off_starts, axis=1))
        B, k, _ = scores.shape
        before, after = (np.empty((B, k + 1, self._largest + 2)) for _ in range(2))
        binary = np.empty_like(scores)
        structured_kernels.counts(self.log_counts, scores, before, after, binary, maximise)
        messages = np.repeat(binary[:, :, 0], self.n_states, axis=1)
        messages[:, self._on] = binary[:, :, 1]
        return scores, after, messages

    def propagate(self, log_messages: Doubles) -> Propagation:
        """Sums over counts from both sides; see `Propagator`."""
        messages = self._run(log_messages, False)[2]
        return _propagation(log_messages, messages, self.n_states[0], np.zeros(1))

    def best(self, log_messages: Doubles) -> BestPropagation:
        """Maxima over counts from both sides; see `Propagator`."""
        scores, after, messages = self._run(log_messages, True)
        on = np.empty(scores.shape[:2], np.int64)
        structured_kernels.best_counts(scores, after, on)
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

    def table(self, max_size: int = 1_000_000) -> Doubles:
        """The dense log-table (n_graphs, s1, .., sk)."""
        return _dense(self, max_size)


class ExactlyOne(Cardinality):
    """Exactly one of the variables is on; see `Cardinality`. A propagation takes time O(k)."""

    def __init__(self, variables: Any, *, n_states: Any = 2, state: Any = 1) -> None:
        counts = np.full(len(variables) + 1, -np.inf)
        counts[1:2] = 0
        super().__init__(variables, counts, n_states=n_states, state=state)


class AtMostOne(Cardinality):
    """None or one of the variables is on; see `Cardinality`. A propagation takes time O(k)."""

    def __init__(self, variables: Any, *, n_states: Any = 2, state: Any = 1) -> None:
        counts = np.full(len(variables) + 1, -np.inf)
        counts[:2] = 0
        super().__init__(variables, counts, n_states=n_states, state=state)


def _variables(variables: Any, least: int) -> Integers:
    array = np.asarray(variables)
    if array.ndim != 1 or len(array) < least or array.dtype.kind not in "iu":
        raise ShapeError(f"variables must be a list of {least} or more whole numbers, got {variables!r}.")
    return array.astype(np.int64)


def _rows(log_messages: Doubles, T: int) -> Doubles:
    return np.ascontiguousarray(log_messages, np.float64).reshape(len(log_messages), T, -1)


def _propagation(log_messages: Doubles, out: Doubles, first: int, shift: Doubles) -> Propagation:
    """Value and beliefs from messages to the variables that have the same scale as the value."""
    scores = log_messages + out
    top = scores[:, :first].max(axis=1)
    safe = np.where(top > -np.inf, top, 0)
    with np.errstate(divide="ignore"):
        value = safe + np.log(np.exp(scores[:, :first] - safe[:, None]).sum(axis=1))
    possible = value > -np.inf
    beliefs = np.where(possible[:, None], scores - np.where(possible, value, 0)[:, None], -np.inf)
    return Propagation(value + shift, beliefs, out)


def _dense(factor: Any, max_size: int) -> Doubles:
    size = float(np.prod(factor.n_states.astype(float)))
    if size * factor.n_graphs > max_size:
        raise ValueRangeError(
            f"{type(factor).__name__} over {len(factor.variables)} variables has a table of {size:.3g} entries, "
            f"more than max_size={max_size}: use an engine that asks for its messages, such as 'bp'."
        )
    states = np.array(list(product(*(range(s) for s in factor.n_states))), dtype=np.int64)
    tables = [factor.score(np.broadcast_to(row, (factor.n_graphs, len(row)))) for row in states]
    return np.stack(tables, axis=1).reshape(factor.n_graphs, *factor.n_states)
