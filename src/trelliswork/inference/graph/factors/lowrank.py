"""A factor over two variables whose table is a product of thin matrices: kernelized belief propagation (paper 4)."""

from typing import Any

import numpy as np

from trelliswork.compute.checks import check_scores
from trelliswork.compute.limits import check_cost
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph.factors.common import StructuredFactor, integers, log_sum, propagation, safe_log
from trelliswork.inference.graph.potentials import BestPropagation, Doubles, Integers, Propagation

SAFE_RANGE = 600.0  # of logarithms: exp(-600) is a normal number


class LowRankFactor(StructuredFactor):
    r"""Two variables with :math:`f(x, y) = \sum_r L(x, r) R(y, r)`.

    Parameters
    ----------
    variables : (int, int)
    left : array (S_i, R) or (B, S_i, R)
        Nonnegative factors of the states of the first variable; their logarithms if ``log``.
    right : array (S_j, R) or (B, S_j, R)
        Nonnegative factors of the states of the second variable, or their logarithms.
    log : bool
        Whether ``left`` and ``right`` are logarithms; -inf is impossible.

    Notes
    -----
    A propagation takes time and memory O((S_i + S_j) R) per graph, where a table takes O(S_i S_j): in a chain or tree
    of such factors belief propagation is exact, and each message costs O(S R). Max-product is not cheaper than with the
    table, since a maximum does not distribute over the sum over r: ``best`` takes time O(S_i S_j R) and memory
    O(S_i S_j). Logarithms may be torch tensors: log Z is differentiable in them.

    Examples
    --------
    >>> factor = LowRankFactor((0, 1), [[1.0], [3.0]], [[2.0], [1.0]])
    >>> np.exp(factor.table()[0]).round(6).tolist()
    [[2.0, 1.0], [6.0, 3.0]]
    """

    def __init__(self, variables: Any, left: Any, right: Any, *, log: bool = False) -> None:
        self.variables = integers("variables", variables, 2)
        if len(self.variables) != 2:
            raise ShapeError(f"a low-rank factor has two variables, got {len(self.variables)}.")
        self.parameters = tuple(given for given in (left, right) if getattr(given, "requires_grad", False))
        if self.parameters and not log:
            raise ValueRangeError(
                "tensors with a gradient must be logarithms: pass left.log(), right.log() and log=True."
            )
        self._given = left, right
        left, right = (given.detach() if hasattr(given, "detach") else given for given in (left, right))
        self.log_left, self.log_right = _logarithms("left", left, log), _logarithms("right", right, log)
        if self.log_left.shape[2] != self.log_right.shape[2]:
            raise ShapeError(
                f"left and right must have the same number of columns, the rank, got {self.log_left.shape[2]} and "
                f"{self.log_right.shape[2]}."
            )
        batches = {len(self.log_left), len(self.log_right)}
        self.n_graphs = max(batches)
        if not batches <= {1, self.n_graphs}:
            raise ShapeError(f"left and right are for {sorted(batches)} graphs: each must be for 1 or for all of them.")
        self.n_states = np.array([self.log_left.shape[1], self.log_right.shape[1]])
        self._left, self._right = _Projection(self.log_left), _Projection(self.log_right)

    def propagate(self, log_messages: Doubles) -> Propagation:
        """Propagate messages through the rank; see `Propagator`."""
        first, second = self._split(log_messages)
        out = np.concatenate([self._left.up(self._right.down(second)), self._right.up(self._left.down(first))], axis=1)
        return propagation(log_messages, out, int(self.n_states[0]))

    def log_value(self, log_messages: Any) -> Any:
        """Return the value of ``propagate`` (B,) as a function of tensors."""
        import torch

        from trelliswork.inference.tensors import log_sum

        left, right = (torch.as_tensor(given, dtype=torch.float64) for given in self._given)
        first, second = log_messages[:, : self.n_states[0], None], log_messages[:, self.n_states[0] :, None]
        return log_sum(log_sum(left + first, (-2,)) + log_sum(right + second, (-2,)), (-1,))

    def best(self, log_messages: Doubles) -> BestPropagation:
        """Maximize over rows and columns of the table; see `Propagator`."""
        first, second = self._split(log_messages)
        check_cost("max-product with a low-rank factor", n_bytes=32.0 * len(first) * self.n_states.prod(dtype=float))
        table = np.full((1, 1, 1), -np.inf)
        for r in range(self.log_left.shape[2]):  # one rank at a time, to avoid underflow
            table = np.logaddexp(table, self.log_left[:, :, None, r] + self.log_right[:, None, :, r])
        scores = table + second[:, None]
        partner, to_first = scores.argmax(axis=2), scores.max(axis=2)
        total = first + to_first
        value, at = total.max(axis=1), total.argmax(axis=1)
        assignment = np.stack([at, partner[np.arange(len(at)), at]], axis=1)
        assignment[np.isneginf(value)] = -1
        to_second = (table + first[:, :, None]).max(axis=1)
        return BestPropagation(value, np.concatenate([to_first, to_second], axis=1), assignment)

    def score(self, assignment: Integers) -> Doubles:
        """Return log f (B,) of states (B, 2)."""
        rows = np.arange(len(assignment))
        left = self.log_left[rows if len(self.log_left) > 1 else 0, assignment[:, 0]]
        right = self.log_right[rows if len(self.log_right) > 1 else 0, assignment[:, 1]]
        return log_sum(left + right)

    def _split(self, log_messages: Doubles) -> tuple[Doubles, Doubles]:
        return log_messages[:, : self.n_states[0]], log_messages[:, self.n_states[0] :]


class _Projection:
    """Products of a matrix exp(log_matrix) (1 or B, S, R) with vectors of logarithms (B, S) or (B, R).

    Matrix products where no number can underflow, log-sum-exp of all terms elsewhere.
    """

    def __init__(self, log_matrix: Doubles) -> None:
        self.log_matrix = log_matrix
        self.top = log_matrix.max(axis=1)  # by rank
        self.top[np.isneginf(self.top)] = 0
        shifted = log_matrix - self.top[:, None]
        self.matrix = np.exp(shifted)
        self.range = _range(shifted) + _range(self.top)

    def down(self, vectors: Doubles) -> Doubles:
        """Return log sum_x exp(matrix[x, r] + vector[x])."""
        if self.range + _range(vectors) > SAFE_RANGE:
            return log_sum(self.log_matrix.swapaxes(1, 2) + vectors[:, None])
        scale = _finite_max(vectors)
        return safe_log(_times(np.exp(vectors - scale), self.matrix)) + scale + self.top

    def up(self, vectors: Doubles) -> Doubles:
        """Return log sum_r exp(matrix[x, r] + vector[r])."""
        if self.range + _range(vectors) > SAFE_RANGE:
            return log_sum(self.log_matrix + vectors[:, None])
        shifted = vectors + self.top
        scale = _finite_max(shifted)
        return safe_log(_times(np.exp(shifted - scale), self.matrix.swapaxes(1, 2))) + scale


def _times(vectors: Doubles, matrices: Doubles) -> Doubles:
    """Multiply each row by its matrix, or all rows by the only one."""
    return vectors @ matrices[0] if len(matrices) == 1 else (vectors[:, None] @ matrices)[:, 0]


def _logarithms(name: str, values: Any, log: bool) -> Doubles:
    """Return checked logarithms (1 or B, S, R)."""
    array = np.asarray(values, np.float64)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise ShapeError(f"{name} must have shape (S, R) or (B, S, R), got {array.shape}.")
    array = array.reshape((1,) * (3 - array.ndim) + array.shape)
    if log:
        check_scores(name, array)
        return np.array(array, order="C")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueRangeError(f"{name} must be finite and nonnegative; pass logarithms with log=True.")
    return safe_log(array)


def _finite_max(values: Doubles) -> Doubles:
    top = values.max(axis=1, keepdims=True)
    return np.where(top > -np.inf, top, 0)


def _range(values: Doubles) -> float:
    """Return the largest minus the smallest of the finite entries."""
    finite = values[values > -np.inf]
    return float(finite.max() - finite.min()) if finite.size else 0.0
