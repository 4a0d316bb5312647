"""Functions that structured factors share."""

from itertools import product
from typing import Any

import numpy as np

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph.potentials import Doubles, Integers, Propagation


def integers(name: str, values: Any, least: int) -> Integers:
    """Return a list of at least ``least`` integers as an array."""
    array = np.asarray(values)
    if array.ndim != 1 or len(array) < least or array.dtype.kind not in "iu":
        raise ShapeError(f"{name} must be a list of {least} or more integers, got {values!r}.")
    return array.astype(np.int64)


def safe_log(values: Doubles) -> Doubles:
    """Return logarithms; -inf for 0."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def log_sum(values: Doubles) -> Doubles:
    """Return log sum exp over the last axis; -inf if nothing is possible."""
    top = values.max(axis=-1)
    safe = np.where(top > -np.inf, top, 0)
    return safe_log(np.exp(values - safe[..., None]).sum(axis=-1)) + safe


def propagation(log_messages: Doubles, out: Doubles, first: int) -> Propagation:
    """Return value and beliefs from messages to the variables that have the same scale as the value.

    ``first`` is the number of states of the first variable.
    """
    scores = log_messages + out
    value = log_sum(scores[:, :first])
    possible = value > -np.inf
    beliefs = np.where(possible[:, None], scores - np.where(possible, value, 0)[:, None], -np.inf)
    return Propagation(value, beliefs, out)


class StructuredFactor:
    """Base class of factors that follow the protocol `Propagator`."""

    variables: Integers
    n_states: Integers
    n_graphs: int

    def score(self, assignment: Integers) -> Doubles:
        """Return log f (B,) of states (B, k)."""
        raise AssertionError("each factor has its own score")

    def table(self, max_size: int = 1_000_000) -> Doubles:
        """Return the dense log-table (n_graphs, s1, .., sk): the score of every assignment of the variables."""
        size = float(np.prod(self.n_states.astype(float)))
        if size * self.n_graphs > max_size:
            raise ValueRangeError(
                f"{type(self).__name__} over {len(self.variables)} variables has a table of {size:.3g} entries, "
                f"more than max_size={max_size}: use an engine that works with messages, such as 'bp'."
            )
        states = np.array(list(product(*(range(s) for s in self.n_states))), dtype=np.int64)
        tables = [self.score(np.broadcast_to(row, (self.n_graphs, len(row)))) for row in states]
        return np.stack(tables, axis=1).reshape(self.n_graphs, *self.n_states)
