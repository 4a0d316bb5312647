"""Compiled forward-backward of linear chains that share one transition matrix, in probability space.

Four sequences advance together, so that one step is a small matrix product (4, S) x (S, S). With
e_t = exp(log_unary_t - max), P = exp(log_pairwise - max):

    prior_t = alpha_{t-1} P        c_t = sum prior_t e_t      alpha_t = prior_t e_t / c_t       (1)
    w_t = e_t beta_t / c_t         beta_{t-1} = P w_t                                           (2)
    marginal_t = alpha_t beta_t    counts = sum_t alpha_{t-1} w_t^T * P                         (3)

and log Z = sum_t log c_t + the subtracted maxima. Equations (1) are Rabiner's (1989) eqs. 91-93 (scaling).

A number too small for the type is lost as zero. A product prior_t(j) e_t(j) below ``tiny`` is the mass of paths whose
posterior probability is below ``tiny * beta_t(j) / c_t``, and likewise for the other products here; hence a sequence
whose beta / c stays below a limit is *safe*: it lost nothing visible. The others (deep underflow, impossible
sentences) are marked, and the caller recomputes them with ``log_space``.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import add, lanes, largest, load, maximum, multiply, spread, spread_at, store, total
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.inference.chain.kernels.records import make_lattice

ROWS = 4  # sequences that advance together; the products below are written for four
BLOCK = 64  # positions whose w is kept for one pass over the transition counts
# Numbers below the smallest normal one are lost; times the limit that is still far below the type's precision.
LIMIT_32, LIMIT_64 = 1e25, 1e280


@helper
def largest_safe(like):
    """Return the limit of beta / c for a safe sequence, in the precision of the array ``like``."""
    return like.dtype.type(LIMIT_32 if like.itemsize == 4 else LIMIT_64)


@helper
def _product(rows, panels, out):
    """Compute out = rows @ P, (4, Sp) each; ``panels`` (Sp/2W, S, 2W) is P cut into strips two vectors wide.

    If Sp is an odd number of vectors, only the left half of the last strip is used.
    """
    _, S, wide = panels.shape
    Sp, W = rows.shape[1], lanes(rows)
    for p in range(Sp // wide):
        at = p * S * wide
        zero = spread(rows, 0.0)
        a0, a1, b0, b1, c0, c1, d0, d1 = zero, zero, zero, zero, zero, zero, zero, zero
        for i in range(S):
            left, right = load(panels, at), load(panels, at + W)
            at += wide
            x = spread(rows, rows[0, i])
            a0, a1 = fma(x, left, a0), fma(x, right, a1)
            x = spread(rows, rows[1, i])
            b0, b1 = fma(x, left, b0), fma(x, right, b1)
            x = spread(rows, rows[2, i])
            c0, c1 = fma(x, left, c0), fma(x, right, c1)
            x = spread(rows, rows[3, i])
            d0, d1 = fma(x, left, d0), fma(x, right, d1)
        k = p * wide
        store(out, k, a0)
        store(out, k + W, a1)
        store(out, k + Sp, b0)
        store(out, k + Sp + W, b1)
        store(out, k + 2 * Sp, c0)
        store(out, k + 2 * Sp + W, c1)
        store(out, k + 3 * Sp, d0)
        store(out, k + 3 * Sp + W, d1)
    if Sp % wide:
        at = (Sp // wide) * S * wide
        zero = spread(rows, 0.0)
        a0, a1, b0, b1, c0, c1, d0, d1 = zero, zero, zero, zero, zero, zero, zero, zero
        for i in range(0, S - 1, 2):  # two rows of P at a time: sums that do not wait for each other
            left, right = load(panels, at), load(panels, at + wide)
            at += 2 * wide
            a0, a1 = fma(spread(rows, rows[0, i]), left, a0), fma(spread(rows, rows[0, i + 1]), right, a1)
            b0, b1 = fma(spread(rows, rows[1, i]), left, b0), fma(spread(rows, rows[1, i + 1]), right, b1)
            c0, c1 = fma(spread(rows, rows[2, i]), left, c0), fma(spread(rows, rows[2, i + 1]), right, c1)
            d0, d1 = fma(spread(rows, rows[3, i]), left, d0), fma(spread(rows, rows[3, i + 1]), right, d1)
        if S % 2:
            left = load(panels, at)
            a0, b0 = fma(spread(rows, rows[0, S - 1]), left, a0), fma(spread(rows, rows[1, S - 1]), left, b0)
            c0, d0 = fma(spread(rows, rows[2, S - 1]), left, c0), fma(spread(rows, rows[3, S - 1]), left, d0)
        k = Sp - W
        store(out, k, add(a0, a1))
        store(out, k + Sp, add(b0, b1))
        store(out, k + 2 * Sp, add(c0, c1))
        store(out, k + 3 * Sp, add(d0, d1))


@helper
def _add_counts(alpha, left, kept, right, n_steps, transition, weight, tile, counts):
    """Add weight * transition * sum over n_steps of alpha_{t-1} w_t^T to counts (S, S).

    ``left`` and ``right`` are the flat indices of the first alpha and the first w; rows are Sp apart.
    """
    S, Sp, W = counts.shape[0], transition.shape[0], lanes(transition)
    for i in range(0, S, ROWS):
        for j in range(0, Sp - W, 2 * W):
            zero = spread(transition, 0.0)
            a0, a1, b0, b1, c0, c1, d0, d1 = zero, zero, zero, zero, zero, zero, zero, zero
            at, to = left + i, right + j
            for _ in range(n_steps):
                u, v = load(kept, to), load(kept, to + W)
                x = spread_at(alpha, at)
                a0, a1 = fma(x, u, a0), fma(x, v, a1)
                x = spread_at(alpha, at + 1)
                b0, b1 = fma(x, u, b0), fma(x, v, b1)
                x = spread_at(alpha, at + 2)
                c0, c1 = fma(x, u, c0), fma(x, v, c1)
                x = spread_at(alpha, at + 3)
                d0, d1 = fma(x, u, d0), fma(x, v, d1)
                at += Sp
                to += Sp
            k = i * Sp + j
            store(tile, j, multiply(a0, load(transition, k)))
            store(tile, j + W, multiply(a1, load(transition, k + W)))
            store(tile, Sp + j, multiply(b0, load(transition, k + Sp)))
            store(tile, Sp + j + W, multiply(b1, load(transition, k + Sp + W)))
            store(tile, 2 * Sp + j, multiply(c0, load(transition, k + 2 * Sp)))
            store(tile, 2 * Sp + j + W, multiply(c1, load(transition, k + 2 * Sp + W)))
            store(tile, 3 * Sp + j, multiply(d0, load(transition, k + 3 * Sp)))
            store(tile, 3 * Sp + j + W, multiply(d1, load(transition, k + 3 * Sp + W)))
        if (Sp // W) % 2:
            zero = spread(transition, 0.0)
            a0, a1, b0, b1, c0, c1, d0, d1 = zero, zero, zero, zero, zero, zero, zero, zero
            at, to = left + i, right + Sp - W
            for _ in range(n_steps // 2):  # two steps at a time, as in ``_product``
                u, v = load(kept, to), load(kept, to + Sp)
                a0, a1 = fma(spread_at(alpha, at), u, a0), fma(spread_at(alpha, at + Sp), v, a1)
                b0, b1 = fma(spread_at(alpha, at + 1), u, b0), fma(spread_at(alpha, at + Sp + 1), v, b1)
                c0, c1 = fma(spread_at(alpha, at + 2), u, c0), fma(spread_at(alpha, at + Sp + 2), v, c1)
                d0, d1 = fma(spread_at(alpha, at + 3), u, d0), fma(spread_at(alpha, at + Sp + 3), v, d1)
                at += 2 * Sp
                to += 2 * Sp
            if n_steps % 2:
                u = load(kept, to)
                a0, b0 = fma(spread_at(alpha, at), u, a0), fma(spread_at(alpha, at + 1), u, b0)
                c0, d0 = fma(spread_at(alpha, at + 2), u, c0), fma(spread_at(alpha, at + 3), u, d0)
            j = Sp - W
            k = i * Sp + j
            store(tile, j, multiply(add(a0, a1), load(transition, k)))
            store(tile, Sp + j, multiply(add(b0, b1), load(transition, k + Sp)))
            store(tile, 2 * Sp + j, multiply(add(c0, c1), load(transition, k + 2 * Sp)))
            store(tile, 3 * Sp + j, multiply(add(d0, d1), load(transition, k + 3 * Sp)))
        for r in range(min(ROWS, S - i)):
            out, here = counts[i + r], tile[r]
            for j in range(S):
                out[j] += weight * here[j]


@kernel
def forward(start, stop, chains, transitions, lattice, log_z):
    """Fill the lattice and log_z (B,) for the sequences ``order[start:stop]``."""
    order, lengths, log_unary = chains
    place, emission, alpha, scale = lattice
    panels, log_shift = transitions.panels, transitions.log_shift
    T, S, Sp, W = log_unary.shape[1], log_unary.shape[2], alpha.shape[2], lanes(alpha)
    rows = np.zeros((ROWS, Sp), alpha.dtype)
    prior = np.empty((ROWS, Sp), alpha.dtype)
    mass = np.empty(ROWS)  # product of the scales since the last logarithm
    for group in range(start, stop, ROWS):
        n = min(ROWS, stop - group)
        prior[:] = 1
        mass[:] = 1
        for r in range(n):
            b = order[group + r]
            shifts = (lengths[b] - 1) * log_shift
            for t in range(lengths[b]):
                shifts += exp_row(log_unary, (b * T + t) * S, S, emission, (place[b] * T + t) * Sp, Sp)
            log_z[b] = shifts
        for t in range(lengths[order[group]]):
            if t > 0:
                _product(rows, panels, prior)
            for r in range(n):
                b = order[group + r]
                if t >= lengths[b]:
                    break  # sorted by length: the others have ended too
                row, here = r * Sp, (place[b] * T + t) * Sp
                sums = spread(rows, 0.0)
                for k in range(0, Sp, W):
                    product = multiply(load(prior, row + k), load(emission, here + k))
                    store(rows, row + k, product)
                    sums = add(sums, product)
                c = total(sums)
                inverse = spread(rows, 1 / c if c > 0 else c)
                for k in range(0, Sp, W):
                    value = multiply(load(rows, row + k), inverse)
                    store(rows, row + k, value)
                    store(alpha, here + k, value)
                scale[place[b], t] = c
                mass[r] *= c
                if not 1e-20 < mass[r] < 1e20:  # a logarithm now and then, not at every position
                    log_z[b] += math.log(mass[r]) if mass[r] > 0 else -np.inf
                    mass[r] = 1
        for r in range(n):
            log_z[order[group + r]] += math.log(mass[r])


@kernel
def backward(start, stop, chains, transitions, lattice, safe, out):
    """Fill the marginals, add to the counts, and clear ``safe`` (B,) of sequences beyond the limit.

    Sequences already marked unsafe are skipped.
    """
    order, lengths, _ = chains
    place, emission, alpha, scale = lattice
    weight, slot, marginals, counts = out
    panels, transition = transitions.panels_t, transitions.matrix
    limit = largest_safe(alpha)
    T, S, Sp, W = alpha.shape[1], marginals.shape[2], alpha.shape[2], lanes(alpha)
    whole = S - S % W
    beta = np.zeros((ROWS, Sp), alpha.dtype)
    w = np.zeros((ROWS, Sp), alpha.dtype)
    kept = np.empty((ROWS, BLOCK if counts.shape[0] else 0, Sp), alpha.dtype)
    tile = np.empty((ROWS, Sp), alpha.dtype)
    for group in range(start, stop, ROWS):
        n = min(ROWS, stop - group)
        w[:] = 0
        for t in range(lengths[order[group]] - 1, -1, -1):
            if t < lengths[order[group]] - 1:
                _product(w, panels, beta)
            for r in range(n):
                b = order[group + r]
                if t >= lengths[b]:
                    break
                row, here = r * Sp, (place[b] * T + t) * Sp
                if not safe[b]:
                    w[r] = 0
                    continue
                if t == lengths[b] - 1:
                    beta[r] = 1
                sums = spread(beta, 0.0)
                for k in range(0, Sp, W):
                    sums = fma(load(alpha, here + k), load(beta, row + k), sums)
                # The mass is 1 but for rounding; dividing by it keeps long sequences from drifting.
                m = total(sums)
                correction = 1 / m if m > 0 else m
                if marginals.shape[0]:
                    to_row, by = (b * T + t) * S, correction * weight[b]
                    for k in range(0, whole, W):
                        product = multiply(load(alpha, here + k), load(beta, row + k))
                        store(marginals, to_row + k, multiply(product, spread(alpha, by)))
                    for j in range(whole, S):
                        marginals[b, t, j] = alpha[place[b], t, j] * beta[r, j] * by
                if t == 0:
                    safe[b] = safe[b] and m > 0
                    continue
                c = scale[place[b], t]
                by_scale = spread(w, correction / c if c > 0 else c)
                top = spread(w, 0.0)
                to = (r * BLOCK + t % BLOCK) * Sp
                for k in range(0, Sp, W):
                    ahead = multiply(load(beta, row + k), by_scale)
                    top = maximum(ahead, top)
                    value = multiply(load(emission, here + k), ahead)
                    store(w, row + k, value)
                    if counts.shape[0]:
                        store(kept, to + k, value)
                if not (c > 0 and m > 0 and largest(top) <= limit):
                    safe[b] = False
                    w[r] = 0
                    continue
                if counts.shape[0] and (t == 1 or t % BLOCK == 0):
                    last = min(lengths[b] - 1, t - t % BLOCK + BLOCK - 1)
                    _add_counts(alpha, here - Sp, kept, to, last - t + 1, transition, weight[b], tile, counts[slot[b]])


@kernel
def forward_backward(start, stop, chains, transitions, log_z, safe, out):
    """Run both passes group by group, so that alpha is used while it is in the cache."""
    order, log_unary = chains.order, chains.log_unary
    place = np.empty(len(chains.lengths), np.int64)
    lattice = make_lattice(place, ROWS, log_unary.shape[1], transitions.matrix.shape[0], log_unary)
    for group in range(start, stop, ROWS):
        end = min(group + ROWS, stop)
        for r in range(end - group):
            place[order[group + r]] = r
        forward(group, end, chains, transitions, lattice, log_z)
        backward(group, end, chains, transitions, lattice, safe, out)
