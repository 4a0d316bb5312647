"""A whole linear chain as one factor."""

from typing import Any

import numpy as np

from trelliswork.compute.checks import check_scores
from trelliswork.errors import ShapeError
from trelliswork.inference.graph.factors.common import StructuredFactor, integers, propagation
from trelliswork.inference.graph.kernels import factors as kernels
from trelliswork.inference.graph.kernels.records import padded
from trelliswork.inference.graph.potentials import BestPropagation, Doubles, Integers, Propagation


class ChainFactor(StructuredFactor):
    r"""A whole linear chain as one factor: :math:`\log f(x) = \sum_t w_t(x_t, x_{t+1})`.

    Parameters
    ----------
    variables : array of int (T,)
        In the order of the chain, T >= 2; all with S states.
    log_pairwise : array (S, S), (T-1, S, S) or (B, T-1, S, S)
        ``log_pairwise[i, j]``: i comes before j; -inf forbids the pair.

    Notes
    -----
    A propagation takes time O(T S^2) and memory O(T S) per graph.
    """

    def __init__(self, variables: Any, log_pairwise: Any) -> None:
        self.variables = integers("variables", variables, 2)
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
        # The largest entry of each table is subtracted before the exponentials and added to the value.
        self._width = padded(S)
        top = tables.max(axis=(2, 3), keepdims=True)
        top[top == -np.inf] = 0
        self._shift = np.broadcast_to(top[:, :, 0, 0], (self.n_graphs, T - 1)).sum(axis=1)
        self._forward = self._prepare(tables - top)
        self._backward = self._prepare((tables - top).swapaxes(2, 3))

    def _prepare(self, log_tables: Doubles) -> tuple[Doubles, Doubles]:
        """Return exp with padded rows (G, steps, S * width), and the logarithms (G, steps, S, S)."""
        G, steps, S, _ = log_tables.shape
        weights = np.zeros((G, steps, S, self._width))
        weights[..., :S] = np.exp(log_tables)
        return weights.reshape(G, steps, -1), np.ascontiguousarray(log_tables)

    def _scores(self, log_messages: Doubles) -> Doubles:
        """Return messages (B, T, S)."""
        return np.ascontiguousarray(log_messages, np.float64).reshape(len(log_messages), len(self.variables), -1)

    def propagate(self, log_messages: Doubles) -> Propagation:
        """Run forward-backward; see `Propagator`."""
        scores = self._scores(log_messages)
        before, after = np.empty_like(scores), np.empty_like(scores)
        rows = np.zeros((3, self._width))
        kernels.chain_sums(*self._forward, *self._backward, scores, before, after, rows)
        return propagation(log_messages, (before + after).reshape(len(scores), -1), self.n_states[0], self._shift)

    def best(self, log_messages: Doubles) -> BestPropagation:
        """Run Viterbi in both directions; see `Propagator`."""
        scores = self._scores(log_messages)
        before, after = np.empty_like(scores), np.empty_like(scores)
        best = np.empty(scores.shape[:2], np.int64)
        kernels.chain_maxima(self.log_pairwise, scores, before, after, best)
        value = (scores[:, 0] + after[:, 0]).max(axis=1)
        return BestPropagation(value, (before + after).reshape(len(scores), -1), best)

    def score(self, assignment: Integers) -> Doubles:
        """Return log f (B,) of states (B, T)."""
        rows = np.arange(len(assignment))[:, None] if self.n_graphs > 1 else np.zeros((1, 1), np.int64)
        steps = np.arange(len(self.variables) - 1) if self.log_pairwise.shape[1] > 1 else np.zeros(1, np.int64)
        return self.log_pairwise[rows, steps, assignment[:, :-1], assignment[:, 1:]].sum(axis=1)
