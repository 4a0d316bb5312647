"""Inside-outside of grammars in log space, one sentence at a time, in NumPy: for sentences whose numbers underflow.

Equations and charts are those of ``reference``; derivatives are logarithms too, so that nothing is lost.
"""

import numpy as np

from trelliswork.inference.span import reference
from trelliswork.inference.span.potentials import Doubles, finite


def log_sum(scores: Doubles, axis: int | tuple[int, ...] = -1) -> Doubles:
    """Return the log of the sum of exp(scores) over some axes; -inf where nothing is possible."""
    top = finite(scores.max(axis=axis, keepdims=True, initial=-np.inf))
    with np.errstate(divide="ignore"):
        sums: Doubles = np.log(np.exp(scores - top).sum(axis=axis))
    return sums + top.reshape(sums.shape)


def spans(n: int) -> list[tuple[int, int]]:
    """Return the first and last positions of all spans of two positions or more, long ones first."""
    return [(i, i + width) for width in range(n - 1, 0, -1) for i in range(n - width)]


def grammar(
    log_root: Doubles, log_rules: Doubles, log_terminals: Doubles, log_symbols: Doubles
) -> tuple[float, Doubles, Doubles, Doubles]:
    """Return log Z, the inside chart (n, n, S), and expected rules (N, S, S) and symbols (n, n, S) of one sentence."""
    log_z, inside = reference.grammar(log_root, log_rules, log_terminals, log_symbols, log_sum)
    n, N, rules = len(inside), len(log_root), np.zeros(log_rules.shape)
    if log_z == -np.inf:
        return log_z, inside, rules, np.zeros(inside.shape)
    outside = np.full(inside.shape, -np.inf)
    outside[0, n - 1, :N] = log_root - log_z
    for i, j in spans(n):
        left, right = inside[i, i:j], inside[i + 1 : j + 1, j]  # (splits, S)
        above = (outside[i, j, :N] + log_symbols[i, j, :N])[:, None, None] + log_rules
        rules += np.exp(above + log_sum(left[:, :, None] + right[:, None], 0))
        by_pair = log_sum(above, 0)
        outside[i, i:j] = np.logaddexp(outside[i, i:j], log_sum(by_pair + right[:, None]))
        outside[i + 1 : j + 1, j] = np.logaddexp(outside[i + 1 : j + 1, j], log_sum(by_pair.T + left[:, None]))
    return log_z, inside, rules, np.exp(outside + inside)


def lowrank(
    log_root: Doubles, log_up: Doubles, log_left: Doubles, log_right: Doubles, log_terminals: Doubles
) -> tuple[float, Doubles, Doubles, Doubles, Doubles]:
    """Return log Z, expected symbols over spans (n, n, S) and uses of the factors (N, R), (R, S), (R, S)."""
    n, (N, R), S = len(log_terminals), log_up.shape, log_left.shape[1]
    inside, mixed = np.full((n, n, S), -np.inf), np.full((n, n, R), -np.inf)
    left, right = np.full((n, n, R), -np.inf), np.full((n, n, R), -np.inf)
    inside[range(n), range(n), N:] = log_terminals
    for i, j in [(i, i) for i in range(n)] + spans(n)[::-1]:
        if i < j:
            mixed[i, j] = log_sum(left[i, i:j] + right[i + 1 : j + 1, j], 0)
            inside[i, j, :N] = log_sum(log_up + mixed[i, j])
        left[i, j], right[i, j] = log_sum(log_left + inside[i, j]), log_sum(log_right + inside[i, j])
    log_z = float(log_sum(log_root + inside[0, n - 1, :N]))
    ups, lefts, rights = (np.zeros(factor.shape) for factor in (log_up, log_left, log_right))
    if log_z == -np.inf:
        return log_z, np.zeros(inside.shape), ups, lefts, rights
    outside, by_left, by_right = (np.full(chart.shape, -np.inf) for chart in (inside, left, right))
    outside[0, n - 1, :N] = log_root - log_z
    for i, j in spans(n) + [(i, i) for i in range(n)]:
        below_left, below_right = by_left[i, j][:, None] + log_left, by_right[i, j][:, None] + log_right
        outside[i, j] = np.logaddexp(outside[i, j], np.logaddexp(log_sum(below_left, 0), log_sum(below_right, 0)))
        lefts += np.exp(below_left + inside[i, j])
        rights += np.exp(below_right + inside[i, j])
        if i < j:
            below = outside[i, j, :N, None] + log_up
            ups += np.exp(below + mixed[i, j])
            by_mixed = log_sum(below, 0)
            by_left[i, i:j] = np.logaddexp(by_left[i, i:j], by_mixed + right[i + 1 : j + 1, j])
            by_right[i + 1 : j + 1, j] = np.logaddexp(by_right[i + 1 : j + 1, j], by_mixed + left[i, i:j])
    return log_z, np.exp(outside + inside), ups, lefts, rights
