"""Compiled messages between the layers of factorial chains, token by token.

Rows of labels are padded to whole vectors: with -inf if they are scores, 0 if they are probabilities. ``chosen`` (n,)
lists the sequences to process. Tables (S_source, Sp_target) are padded with zeros.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.products import Factor, add_product
from trelliswork.compute.simd import add, lanes, largest, load, maximum, multiply, spread, store, total
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.compute.tiles import store_tile, tile

ROWS = 4  # tokens whose rows are multiplied together


@helper
def _product(rows, table, out):
    """Compute out (4, Sp_target) = rows (4, Sp_source) @ table."""
    S, Sp, width, W = table.shape[0], table.shape[1], rows.shape[1], lanes(rows)
    for k in range(0, Sp, W):
        store_tile(out, k, Sp, add_product(tile(rows, 0.0, ROWS, 1), Factor(rows, 0, width, 1), table, k, Sp, S))


@helper
def _cavity(belief, back, at, Sp, rows, to):
    """Compute rows[to:to+Sp] = belief / back at flat index ``at``, divided by its maximum; return the log maximum.

    Where a message is zero so is the belief, and the cavity is set to zero: such a label is impossible.
    """
    W = lanes(rows)
    # Messages have a floor, so smaller ones are zero.
    least = rows.dtype.type(1e-37 if rows.itemsize == 4 else 1e-300)
    flat, source, message = rows.reshape(-1), belief.reshape(-1), back.reshape(-1)
    for j in range(Sp):
        flat[to + j] = source[at + j] / max(message[at + j], least)
    top = spread(rows, 0.0)
    for k in range(0, Sp, W):
        top = maximum(load(rows, to + k), top)
    best = largest(top)
    if not best > 0:
        return -np.inf
    by = spread(rows, 1 / best)
    for k in range(0, Sp, W):
        store(rows, to + k, multiply(load(rows, to + k), by))
    return math.log(best)


@kernel(allocates=True)
def mean_messages(chosen, lengths, marginals, table, log_message):
    """Add marginals (B, T, Sp_source) @ table, the expected pair score, to log_message (B, T, Sp_target)."""
    T, Sp, width, W = marginals.shape[1], table.shape[1], marginals.shape[2], lanes(marginals)
    rows = np.zeros((ROWS, width), marginals.dtype)
    out = np.empty((ROWS, Sp), marginals.dtype)
    for b in chosen:
        for t in range(0, lengths[b], ROWS):
            n = min(ROWS, lengths[b] - t)
            rows[:n] = marginals[b, t : t + n]
            _product(rows, table, out)
            for r in range(n):
                to = (b * T + t + r) * Sp
                for k in range(0, Sp, W):
                    store(log_message, to + k, add(load(log_message, to + k), load(out, r * Sp + k)))


@kernel(allocates=True)
def belief_messages(chosen, lengths, marginals, back, table, floor, damping, message):
    """Fill message (B, T, Sp_target), scaled to a maximum of 1: the sum over the source of cavity times exp(score).

    ``back`` (B, T, Sp_source) is the message from the target to the source, which is divided out. ``floor`` is the
    minimum value (0 if pairs may be impossible), ``damping`` the weight of the old message.
    """
    T, Sp, width, W = marginals.shape[1], table.shape[1], marginals.shape[2], lanes(marginals)
    rows = np.zeros((ROWS, width), marginals.dtype)
    out = np.empty((ROWS, Sp), marginals.dtype)
    keep = spread(rows, damping)
    low = spread(rows, floor)
    for b in chosen:
        for t in range(0, lengths[b], ROWS):
            n = min(ROWS, lengths[b] - t)
            for r in range(n):
                _cavity(marginals, back, (b * T + t + r) * width, width, rows, r * width)
            _product(rows, table, out)
            for r in range(n):
                top = spread(rows, 0.0)
                for k in range(0, Sp, W):
                    top = maximum(load(out, r * Sp + k), top)
                best = largest(top)
                by = spread(rows, (1 - damping) / best if best > 0 else best)
                to = (b * T + t + r) * Sp
                for k in range(0, Sp, W):
                    fresh = multiply(load(out, r * Sp + k), by)
                    if damping > 0:
                        fresh = fma(keep, load(message, to + k), fresh)
                    store(message, to + k, maximum(fresh, low))


@kernel
def add_logarithms(chosen, lengths, message, n_labels, log_message):
    """Add log(message) to log_message (B, T, Sp); -inf for 0."""
    for b in chosen:
        for t in range(lengths[b]):
            source, to = message[b, t], log_message[b, t]
            for j in range(n_labels):
                to[j] += math.log(source[j]) if source[j] > 0 else -np.inf


@kernel
def add_scores(chosen, lengths, log_unary, log_message, out):
    """Compute out = log_unary + log_message, (B, T, Sp) each."""
    T, Sp, W = out.shape[1], out.shape[2], lanes(out)
    for b in chosen:
        at = b * T * Sp
        for k in range(at, at + lengths[b] * Sp, W):
            store(out, k, add(load(log_unary, k), load(log_message, k)))


@kernel
def settle(chosen, lengths, fresh, marginals, residual):
    """Copy fresh to marginals, (B, T, Sp), and raise residual (B,) to the largest change."""
    for b in chosen:
        most = residual[b]
        for t in range(lengths[b]):
            new, old = fresh[b, t], marginals[b, t]
            for j in range(new.size):
                change = abs(new[j] - old[j])
                most = change if change > most else most
                old[j] = new[j]
        residual[b] = most


@kernel
def add_inner(chosen, lengths, left, right, sign, value):
    """Add sign * sum of left * right, (B, T, Sp) each, to value (B,); 0 times anything is 0."""
    for b in chosen:
        mass = 0.0
        for t in range(lengths[b]):
            a, c = left[b, t], right[b, t]
            for j in range(a.size):
                if a[j] != 0:
                    mass += a[j] * c[j]
        value[b] += sign * mass


@helper
def _add_outer(left, at, right, to, weight, out):
    """Add weight * outer(left[at : at + S], right[to : to + Sp_right]) to out (S, Sp_right)."""
    S, Sp, W = out.shape[0], out.shape[1], lanes(out)
    flat = left.reshape(-1)
    for i in range(S):
        x = flat[at + i]
        if x > 0:
            by = spread(out, weight * x)
            for k in range(0, Sp, W):
                store(out, i * Sp + k, fma(by, load(right, to + k), load(out, i * Sp + k)))


@kernel(allocates=True)
def mean_pairs(chosen, lengths, weight, left, right, counts):
    """Add weight * sum over tokens of outer(left, right) to counts (S_left, Sp_right), float64."""
    T, width, Sp = left.shape[1], left.shape[2], right.shape[2]
    sums = np.empty(counts.shape, left.dtype)
    for b in chosen:
        sums[:] = 0
        for t in range(lengths[b]):
            _add_outer(left, (b * T + t) * width, right, (b * T + t) * Sp, weight[b], sums)
        counts += sums


@kernel(allocates=True)
def belief_pairs(chosen, lengths, weight, left, to_left, right, to_right, table, value, counts):
    """Add log Z of each token's pair factor to value (B,), and weight * pair beliefs / table to counts.

    ``left`` and ``right`` are the beliefs of the layers, ``to_left`` and ``to_right`` the messages between them.
    ``counts`` (S_left, Sp_right) is skipped if its axis 0 is empty.
    """
    T, width, Sp, W = left.shape[1], left.shape[2], right.shape[2], lanes(right)
    one, other = np.zeros((ROWS, width), left.dtype), np.zeros((1, Sp), left.dtype)
    out, sums = np.empty((ROWS, Sp), left.dtype), np.empty(table.shape, left.dtype)
    for b in chosen:
        sums[:] = 0
        for t in range(0, lengths[b], ROWS):
            n = min(ROWS, lengths[b] - t)
            for r in range(n):
                value[b] += _cavity(left, to_left, (b * T + t + r) * width, width, one, r * width)
            _product(one, table, out)
            for r in range(n):
                value[b] += _cavity(right, to_right, (b * T + t + r) * Sp, Sp, other, 0)
                mass = spread(out, 0.0)
                for k in range(0, Sp, W):
                    mass = fma(load(out, r * Sp + k), load(other, k), mass)
                z = total(mass)
                value[b] += math.log(z) if z > 0 else -np.inf
                if counts.shape[0] and z > 0:
                    _add_outer(one, r * width, other, 0, weight[b] / z, sums)
        if counts.shape[0]:
            counts += sums
