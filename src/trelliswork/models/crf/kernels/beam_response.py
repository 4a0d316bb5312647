"""Compiled sums of ``beams.response``: one pass over the features for the factors, one for the gradient."""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import exponential, lanes, load, store

STEEPEST = 30.0  # largest exponent: the line search rejects longer steps anyway


@kernel
def grow(expected, weights, anchor, grown):
    """Set grown = expected * exp(weights - anchor); ``grown`` has whole vectors."""
    n, W = len(expected), lanes(grown)
    for k in range(n):
        grown[k] = min(weights[k] - anchor[k], STEEPEST)
    grown[n:] = 0
    for k in range(0, len(grown), W):
        store(grown, k, exponential(load(grown, k)))
    for k in range(n):
        grown[k] *= expected[k]


@kernel
def state_factors(ptr, wide_rows, expected, grown, mass, log_factor):
    """Fill log D of the attributes with dense rows; attribute a has features ptr[a] to ptr[a + 1]."""
    for a in range(len(ptr) - 1):
        row = wide_rows[a]
        if row < 0 or not mass[row] > 0:
            continue
        before, now = 0.0, 0.0
        for k in range(ptr[a], ptr[a + 1]):
            before += expected[k]
            now += grown[k]
        log_factor[row] = math.log1p((now - before) / max(mass[row], before))


@kernel
def pair_sums(expected, grown, sums):
    """Add up the rows and columns of ``expected``, then of ``grown``, to ``sums`` (4, S)."""
    S = sums.shape[1]
    for i in range(S):
        before, now = 0.0, 0.0
        for j in range(S):
            x, y = expected[i * S + j], grown[i * S + j]
            before += x
            now += y
            sums[1, j] += x
            sums[3, j] += y
        sums[0, i], sums[2, i] = before, now


@kernel
def add_states(ptr, wide_rows, expected, grown, mass, mass_now, log_factor, gradient):
    """Add the gradient of state features; return the value of the part that no factor covers.

    These are the features of attributes without a dense row, and the excess of real-valued attributes.
    """
    value = 0.0
    for a in range(len(ptr) - 1):
        row, before = wide_rows[a], 0.0
        by, alone = 0.0, 1.0
        if row >= 0 and mass[row] > 0:
            for k in range(ptr[a], ptr[a + 1]):
                before += expected[k]
            whole = max(mass[row], before)
            by, alone = mass_now[row] / (whole * math.exp(log_factor[row])), 1 - mass[row] / whole
        for k in range(ptr[a], ptr[a + 1]):
            gradient[k] += (by + alone) * grown[k]
            value += alone * (np.float64(grown[k]) - expected[k])
    return value


@kernel
def add_alone(expected, grown, gradient):
    """Add the gradient of features that no factor covers; return their value."""
    value = 0.0
    for k in range(len(expected)):
        value += np.float64(grown[k]) - expected[k]
        gradient[k] += grown[k]
    return value


@helper
def _share(part, whole):
    return part / whole if whole > 0 else 0.0


@kernel(allocates=True)
def add_pairs(expected, grown, weights, anchor, sums, masses, masses_now, gradient):
    """Add the gradient of all pairs of labels; return the value of the part that the factors do not cover.

    ``masses`` and ``masses_now`` are ``Masses`` at the weights ``anchor`` and ``weights``.
    """
    _, row, column, both = masses
    _, row_now, column_now, both_now = masses_now
    S = sums.shape[1]
    value = 0.0
    by_both, held = _share(both_now[0], sums[2].sum()), _share(both[0], sums[0].sum())
    by_column, held_column = np.empty(S), np.empty(S)
    for j in range(S):
        by_column[j], held_column[j] = _share(column_now[j], sums[3, j]), _share(column[j], sums[1, j])
    for i in range(S):
        by_row, held_row = _share(row_now[i], sums[2, i]) + by_both, _share(row[i], sums[0, i]) + held
        for j in range(S):
            k = i * S + j
            x = np.float64(expected[k])
            if x == 0:
                continue
            e = np.float64(grown[k])
            slope = e * (by_row + by_column[j])
            lack = 1 - held_row - held_column[j]
            if lack > 0:
                value += lack * (e - x)
                slope += lack * e
            else:
                value += lack * x * (weights[k] - anchor[k])
                slope += lack * x
            gradient[k] += slope
    return value


@kernel
def add_linear(slope, weights, anchor, gradient):
    """Add a constant gradient; return its value."""
    value = 0.0
    for k in range(len(slope)):
        value += slope[k] * (weights[k] - anchor[k])
        gradient[k] += slope[k]
    return value
