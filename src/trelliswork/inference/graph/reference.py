r"""Inference on small factor graphs to be read: NumPy, generic in the semiring.

A graph has unary scores :math:`u_v` and factors: tuples of variables :math:`f` with a log-table :math:`\theta_f` that
has one axis per variable. Variable elimination is exact:

.. math::
    \psi_v &= u_v + \textstyle\sum_{f \ni v} \theta_f & (1)\\
    m_v &= \textstyle\bigoplus_{x_v} \psi_v & (2)

where the factors of v are replaced by the new factor :math:`m_v` over its neighbors, one v after the other; at the end
:math:`\log Z` is the sum of what remains (3). Belief propagation passes messages between variables and factors:

.. math::
    q_{v \to f}(x_v) &= u_v(x_v) + \textstyle\sum_{g \ni v, g \ne f} r_{g \to v}(x_v) & (4)\\
    r_{f \to v}(x_v) &= \textstyle\bigoplus_{x_f \setminus x_v}
        \theta_f(x_f) + \sum_{w \in f, w \ne v} q_{w \to f}(x_w) & (5)\\
    \log b_v(x_v) &= u_v(x_v) + \textstyle\sum_{f \ni v} r_{f \to v}(x_v) - \log Z_v & (6)\\
    \log b_f(x_f) &= \theta_f(x_f) + \textstyle\sum_{v \in f} q_{v \to f}(x_v) - \log Z_f & (7)\\
    \log Z &\approx \textstyle\sum_v (1 - d_v) \log Z_v + \sum_f \log Z_f & (8)

where :math:`Z_v` and :math:`Z_f` normalize the beliefs and :math:`d_v` is the number of factors of v. The Bethe value
(8) is exact on forests. Koller and Friedman (2009), chapters 9 to 11. The kernels are tested against this.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]
Factor = tuple[tuple[int, ...], Array]
Sum = Callable[..., Any]


class Graph(NamedTuple):
    """Unary scores (s_v,) of each variable, and factors (variables, log-table)."""

    unary: list[Array]
    factors: list[Factor]


class Beliefs(NamedTuple):
    """The Bethe value, and log-beliefs of each variable and each factor."""

    log_z: float
    variables: list[Array]
    factors: list[Array]


def add_tables(factors: Iterable[Factor]) -> Factor:
    """Return the sum of log-tables, over all their variables."""

    def add(one: Factor, two: Factor) -> Factor:
        variables = (*one[0], *(v for v in two[0] if v not in one[0]))
        return variables, _expand(one, variables) + _expand(two, variables)

    empty: Factor = ((), np.zeros(()))
    return reduce(add, factors, empty)


def _expand(factor: Factor, variables: tuple[int, ...]) -> Array:
    """Return the table with one axis for each of ``variables``, of length 1 for those that the factor lacks."""
    scope, table = factor
    table = table.transpose([scope.index(v) for v in variables if v in scope])
    return np.expand_dims(table, tuple(axis for axis, v in enumerate(variables) if v not in scope))


def sum_out(factor: Factor, variables: Sequence[int], add: Sum = logsumexp) -> Factor:
    """Return the factor over the other variables."""
    scope, table = factor
    axes = tuple(scope.index(v) for v in variables)
    return tuple(v for v in scope if v not in variables), add(table, axis=axes) if axes else table


def eliminate(graph: Graph, keep: tuple[int, ...] = (), add: Sum = logsumexp) -> Array:
    """Return the log-table over the variables ``keep``; log Z if there are none, the best score with ``add=np.max``."""
    terms = [((v,), scores) for v, scores in enumerate(graph.unary)] + graph.factors
    for v in range(len(graph.unary)):
        if v not in keep:
            psi = add_tables(term for term in terms if v in term[0])  # (1)
            terms = [term for term in terms if v not in term[0]] + [sum_out(psi, [v], add)]  # (2)
    return _expand(add_tables(terms), keep)  # (3)


def belief_propagation(graph: Graph, n_iter: int, add: Sum = logsumexp) -> Beliefs:
    """Return beliefs after flooding iterations that start from uniform messages."""
    unary, factors = graph
    edges = [(f, v) for f, (scope, _) in enumerate(factors) for v in scope]
    r = {(f, v): np.zeros_like(unary[v]) for f, v in edges}

    def q(v: int, skip: int = -1) -> Factor:
        return (v,), unary[v] + sum(r[f, w] for f, w in edges if w == v and f != skip)  # (4)

    for _ in range(n_iter):
        new = {}
        for f, v in edges:
            others = [w for w in factors[f][0] if w != v]
            message = sum_out(add_tables([factors[f], *(q(w, f) for w in others)]), others, add)[1]  # (5)
            new[f, v] = message - message.max() if message.max() > -np.inf else message
        r.update(new)
    log_b = [q(v)[1] for v in range(len(unary))]
    log_b_f = [add_tables([factor, *(q(v, f) for v in factor[0])])[1] for f, factor in enumerate(factors)]
    log_z, log_z_f = [add(scores) for scores in log_b], [add(scores) for scores in log_b_f]
    if -np.inf in (*log_z, *log_z_f):
        return Beliefs(-np.inf, log_b, log_b_f)
    degrees = [sum(w == v for _, w in edges) for v in range(len(unary))]
    return Beliefs(
        sum((1 - d) * z for d, z in zip(degrees, log_z, strict=True)) + sum(log_z_f),  # (8)
        [scores - z for scores, z in zip(log_b, log_z, strict=True)],  # (6)
        [scores - z for scores, z in zip(log_b_f, log_z_f, strict=True)],  # (7)
    )
