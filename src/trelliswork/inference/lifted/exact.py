"""Exact log partition functions by transfer matrices on C^K states: for tiny vocabularies, and to test the bounds."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from trelliswork.errors import ValueRangeError
from trelliswork.inference.lifted.potentials import Table, check_tables, dense

MOST_STATES = 4096  # maximum of C^K
Array = NDArray[np.float64]


def fits(n_words: int, K: int) -> bool:
    """Return whether there are few enough states."""
    return n_words**K <= MOST_STATES


def cyclic_log_z(log_unary: Array, tables: "list[Table]", n_positions: int) -> float:
    """Return log Z of N words in a circle: A in ``reference`` (1).

    Time O(C^(3K) log N), memory O(C^(2K)).
    """
    K, C = check_tables(log_unary, tables)
    _check(C, K)
    check_positions(n_positions, K)
    S = C**K
    # A state is the last K words, the oldest first; a step drops it and adds a word.
    log_step = np.full((S, S), -np.inf)
    steps = _steps(log_unary, tables).reshape(S, C)
    states = np.arange(S)
    for y in range(C):
        log_step[states, (states * C + y) % S] = steps[:, y]
    power, log_scale = log_power(log_step, n_positions)
    return float(logsumexp(np.diag(power)) + log_scale)


def log_power(log_step: Array, n: int) -> tuple[Array, float]:
    """Return the logarithm of exp(log_step)^n, n >= 1, as a matrix and a number to be added to all of it.

    Repeated squaring, each power shifted so that its largest entry is 1: O(S^3 log n).
    """
    power, result = log_step, None
    log_scale = scale_of_power = 0.0
    while n:
        if n & 1:
            result, extra = (power, 0.0) if result is None else _product(result, power)
            log_scale += scale_of_power + extra
        n >>= 1
        if n:
            power, extra = _product(power, power)
            scale_of_power = 2 * scale_of_power + extra
    assert result is not None
    return result, log_scale


def sentence_log_z(log_unary: Array, tables: "list[Table]", max_length: int, *, pad: int = 0) -> Array:
    """Return log Z of sentences of 0, 1, ..., ``max_length`` words between K pads, shape (max_length + 1,).

    Words are not pads; scores of pads and of pairs of pads are excluded, as in ``sentences``. Time O(M C^(K+1)).
    """
    K, C = check_tables(log_unary, tables)
    _check(C, K)
    steps = _steps(log_unary, tables)
    at_end = np.zeros((C,) * K)
    for k in range(K):  # axis k is the word K - 1 - k positions before the last one
        axis = [1] * K
        axis[k] = C
        reach = sum((dense(t)[:, pad] for t in tables[K - 1 - k :]), np.zeros(C))
        reach[pad] = 0.0  # pairs of pads have no score
        at_end = at_end + reach.reshape(axis)
    log_alpha = np.full((C,) * K, -np.inf)
    log_alpha[(pad,) * K] = 0.0
    log_z = [0.0]
    for _ in range(max_length):
        moved = log_alpha[..., None] + steps
        moved[..., pad] = -np.inf
        log_alpha = logsumexp(moved, axis=0)
        log_z.append(float(logsumexp(log_alpha + at_end)))
    return np.array(log_z)


def _steps(log_unary: Array, tables: "list[Table]") -> Array:
    """Return the scores (C, ..., C, C) of K words, the oldest first, and the next word."""
    K, C = len(tables), len(log_unary)
    scores = np.zeros((C,) * (K + 1)) + log_unary
    for distance, table in enumerate(tables, start=1):
        axes = [1] * (K + 1)
        axes[K - distance] = axes[K] = C
        scores = scores + dense(table).reshape(axes)
    return scores


def _product(a: Array, b: Array) -> tuple[Array, float]:
    """Return log (exp a @ exp b) minus its maximum, and the maximum."""
    tops = a.max(), b.max()
    with np.errstate(divide="ignore"):
        product = np.log(np.exp(a - tops[0]) @ np.exp(b - tops[1]))
    top = product.max()
    return product - top, float(tops[0] + tops[1] + top)


def check_positions(n_positions: int, K: int) -> None:
    """Raise if edges of a circle would coincide."""
    if n_positions < 2 * K + 1:
        raise ValueRangeError(
            f"a circle needs at least 2K + 1 = {2 * K + 1} positions, got {n_positions}: edges would coincide."
        )


def _check(C: int, K: int) -> None:
    if not fits(C, K):
        raise ValueRangeError(
            f"C^K = {C}^{K} states are too many for transfer matrices, at most {MOST_STATES:,} are supported: "
            "use a bound or an estimate."
        )
