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


def propagation(log_messages: Doubles, out: Doubles, first: int, shift: Doubles) -> Propagation:
    """Return value and beliefs from messages to the variables that have the same scale as the value.

    ``first`` is the number of states of the first variable; ``shift`` is added to the value.
    """
    scores = log_messages + out
    top = scores[:, :first].max(axis=1)
    safe = np.where(top > -np.inf, top, 0)
    with np.errstate(divide="ignore"):
        value = safe + np.log(np.exp(scores[:, :first] - safe[:, None]).sum(axis=1))
    possible = value > -np.inf
    beliefs = np.where(possible[:, None], scores - np.where(possible, value, 0)[:, None], -np.inf)
    return Propagation(value + shift, beliefs, out)


def dense(factor: Any, max_size: int) -> Doubles:
    """Return the log-table (n_graphs, s1, .., sk) of a factor by scoring every assignment of its variables."""
    size = float(np.prod(factor.n_states.astype(float)))
    if size * factor.n_graphs > max_size:
        raise ValueRangeError(
            f"{type(factor).__name__} over {len(factor.variables)} variables has a table of {size:.3g} entries, "
            f"more than max_size={max_size}: use an engine that works with messages, such as 'bp'."
        )
    states = np.array(list(product(*(range(s) for s in factor.n_states))), dtype=np.int64)
    tables = [factor.score(np.broadcast_to(row, (factor.n_graphs, len(row)))) for row in states]
    return np.stack(tables, axis=1).reshape(factor.n_graphs, *factor.n_states)
