r"""Trees of spans to be read: one sentence, NumPy, generic in the semiring.

Positions are 0..n-1 and a span i..j includes both ends. Binary bracketings with :math:`s_{ij}` = ``log_span[i, j]``:

.. math::
    I_{ii} &= s_{ii} & (1)\\
    I_{ij} &= s_{ij} + \textstyle\bigoplus_{i \le r < j} I_{ir} + I_{r+1,j} & (2)\\
    \log Z &= I_{0,n-1} & (3)

A grammar has N nonterminals (over spans of two positions or more), then P preterminals (over single positions). With
:math:`\rho` the log rules, :math:`e` the scores of symbols over spans and :math:`t` those of preterminals:

.. math::
    \beta_{ii}(x) &= e_{ii}(x) + t_i(x) & (4)\\
    \beta_{ij}(A) &= e_{ij}(A) + \textstyle\bigoplus_{x, y} \rho(A, x, y)
    + \textstyle\bigoplus_{i \le r < j} \beta_{ir}(x) + \beta_{r+1,j}(y) & (5)\\
    \log Z &= \textstyle\bigoplus_A \mathrm{root}(A) + \beta_{0,n-1}(A) & (6)

The rules of a low-rank grammar are

.. math:: \rho(A, x, y) = \textstyle\bigoplus_r U(A, r) + V(r, x) + W(r, y) \qquad (7)

The kernels are tested against this.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]
Sum = Callable[..., Any]


def brackets(log_span: Array, add: Sum = logsumexp) -> tuple[float, Array]:
    """Return log Z and the inside chart (n, n) of bracketings. ``add=np.max`` gives the best score."""
    n = len(log_span)
    inside = np.full((n, n), -np.inf)
    np.fill_diagonal(inside, log_span.diagonal())  # (1)
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            inside[i, j] = log_span[i, j] + add(inside[i, i:j] + inside[i + 1 : j + 1, j])  # (2)
    return float(inside[0, n - 1]), inside  # (3)


def grammar(
    log_root: Array, log_rules: Array, log_terminals: Array, log_symbols: Array | None = None, add: Sum = logsumexp
) -> tuple[float, Array]:
    """Return log Z and the inside chart (n, n, S) of a dense grammar: (N,), (N, S, S), (n, P), (n, n, S)."""
    n, N, S = len(log_terminals), len(log_root), log_rules.shape[1]
    scores = np.zeros((n, n, S)) if log_symbols is None else log_symbols
    inside = np.full((n, n, S), -np.inf)
    for i in range(n):
        inside[i, i, N:] = scores[i, i, N:] + log_terminals[i]  # (4)
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            pairs = add(inside[i, i:j, :, None] + inside[i + 1 : j + 1, j, None, :], axis=0)  # (5), over splits
            inside[i, j, :N] = scores[i, j, :N] + add(log_rules + pairs, axis=(1, 2))  # (5), over symbols
    return float(add(log_root + inside[0, n - 1, :N])), inside  # (6)


def rules(log_up: Array, log_left: Array, log_right: Array, add: Sum = logsumexp) -> Array:
    """Return the rules (N, S, S) of a low-rank grammar: (N, R), (R, S), (R, S)."""
    return add(log_up[:, :, None, None] + log_left[:, :, None] + log_right[:, None, :], axis=1)  # (7)
