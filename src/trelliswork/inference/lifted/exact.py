"""Exact log partition functions by transfer matrices on C^K states: for tiny vocabularies, and to test the bounds."""

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference.lifted.reference import logsumexp
from trelliswork.inference.lifted.tables import Table, check_tables, dense

MOST_STATES = 4096  # C^K words in a row
Array = NDArray[np.float64]


def fits(n_words: int, K: int) -> bool:
    """Whether the states are few enough."""
    return n_words**K <= MOST_STATES


def cyclic_log_z(log_unary: Array, tables: "list[Table]", n_positions: int) -> float:
    """log Z of N words in a circle, A in ``reference`` (1).

    Time O(C^(3K) log N), memory O(C^(2K)).
    """
    K, C = check_tables(log_unary, tables)
    _check(C, K)
    if n_positions < 2 * K + 1:
        raise ValueRangeError(
            f"a circle needs at least 2K + 1 = {2 * K + 1} positions, got {n_positions}: edges would coincide."
        )
    S = C**K
    # A state is the last K words, the oldest first; a step drops it and adds a word.
    log_step = np.full((S, S), -np.inf)
    steps = _steps(log_unary, tables).reshape(S, C)
    states = np.arange(S)
    for y in range(C):
        log_step[states, (states * C + y) % S] = steps[:, y]
    found, log_scale = log_power(log_step, n_positions)
    return float(logsumexp(np.diag(found)) + log_scale)


def log_power(log_step: Array, n: int) -> tuple[Array, float]:
    """The logarithm of exp(log_step)^n, n >= 1, as a matrix and what is to be added to all of it.

    Repeated squaring, each power shifted so that its largest entry is 1: O(S^3 log n).
    """
    power, found = log_step, None
    log_scale = scale_of_power = 0.0
    while n:
        if n & 1:
            found, extra = (power, 0.0) if found is None else _product(found, power)
            log_scale += scale_of_power + extra
        n >>= 1
        if n:
            power, extra = _product(power, power)
            scale_of_power = 2 * scale_of_power + extra
    assert found is not None
    return found, log_scale


def sentence_log_z(log_unary: Array, tables: "list[Table]", max_length: int, *, pad: int = 0) -> Array:
    """log Z of sentences of 0, 1, ..., ``max_length`` words between K pads on either side, shape (max_length + 1,).

    Words are not pads; scores of pads and of pairs of pads are left out, as in ``sentences.scores``. Time O(M C^(K+1)).
    """
    K, C = check_tables(log_unary, tables)
    _check(C, K)
    steps = _steps(log_unary, tables, pad)
    at_end = np.zeros((C,) * K)
    for k in range(K):  # axis k holds the word K - 1 - k places before the last one
        axis = [1] * K
        axis[k] = C
        reach = sum((dense(t)[:, pad] for t in tables[K - 1 - k :]), np.zeros(C))
        reach[pad] = 0.0  # pads and pads do not score
        at_end = at_end + reach.reshape(axis)
    log_alpha = np.full((C,) * K, -np.inf)
    log_alpha[(pad,) * K] = 0.0
    found = [0.0]
    for _ in range(max_length):
        moved = log_alpha[..., None] + steps
        moved[..., pad] = -np.inf
        log_alpha = logsumexp(np.moveaxis(moved, 0, -1))
        found.append(float(logsumexp((log_alpha + at_end).ravel())))
    return np.array(found)


def _steps(log_unary: Array, tables: "list[Table]", pad: int | None = None) -> Array:
    """Scores (C, ..., C, C) of K words, the oldest first, and the word that follows them."""
    K, C = len(tables), len(log_unary)
    scores = np.zeros((C,) * (K + 1)) + log_unary
    for distance, table in enumerate(tables, start=1):
        axes = [1] * (K + 1)
        axes[K - distance] = axes[K] = C
        scores = scores + dense(table).reshape(axes)
    return scores


def _product(a: Array, b: Array) -> tuple[Array, float]:
    """log (exp a @ exp b), and what was taken off it."""
    tops = a.max(), b.max()
    with np.errstate(divide="ignore"):
        found = np.log(np.exp(a - tops[0]) @ np.exp(b - tops[1]))
    top = found.max()
    return found - top, float(tops[0] + tops[1] + top)


def _check(C: int, K: int) -> None:
    if not fits(C, K):
        raise ValueRangeError(
            f"C^K = {C}^{K} states are too many for transfer matrices, at most {MOST_STATES:,} are possible: "
            "use a bound or an estimate."
        )
