"""Compiled forward-backward of linear chains that share one transition matrix, in probability space.

Four sequences advance together, so that one step is a small matrix product (4, S) x (S, S). With
e_t = exp(log_unary_t - max), P = exp(log_pairwise - max):

    prior_t = alpha_{t-1} P        c_t = sum prior_t e_t      alpha_t = prior_t e_t / c_t       (1)
    w_t = e_t beta_t / c_t         beta_{t-1} = P w_t                                           (2)
    marginal_t = alpha_t beta_t    counts = sum_t alpha_{t-1} w_t^T * P                         (3)

and log Z = sum_t log c_t + the subtracted maxima. Equations (1) are Rabiner's (1989) eqs. 91-93 (scaling).

A number too small for the type is lost as zero. A product prior_t(j) e_t(j) below ``tiny`` is the mass of paths whose
posterior probability is below ``tiny * beta_t(j) / c_t``, and similar bounds hold for the other products. Hence a
sequence whose beta / c stays below a limit is *safe*: it lost nothing visible. The others (deep underflow, impossible
sentences) are marked, and the caller recomputes them by the plain tier.

Scores come from a *source*: an array (B, T, S), or a record whose class has the helpers

    row(source, b, t)                             the row of the marginals of position t of sequence b
    fill(source, b, t, length, out, to, width)    write e_t to flat index ``to``; return the logarithm of its scale
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel, method
from trelliswork.compute.kernels.products import Factor, add_product
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import (
    VECTOR_BYTES,
    add,
    get,
    lanes,
    largest,
    load,
    load_part,
    maximum,
    multiply,
    put,
    spread,
    store,
    store_part,
    total,
)
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.compute.tiles import add_outer, load_tile, store_tile, tile
from trelliswork.inference.chain.kernels.records import Chains, Outputs, Transitions, make_lattice

ROWS = 4  # sequences that advance together
MANY, WIDE = 16, 128  # from this many states on, more do
MORE = 8 if VECTOR_BYTES == 64 else ROWS  # rows of a product for which there are registers
BLOCK = 64  # positions whose w is kept for one pass over the transition counts
# Numbers below the smallest normal one are lost; times the limit that is still far below the type's precision.
LIMIT_32, LIMIT_64 = 1e25, 1e280


class BackwardSpace(NamedTuple):
    """Working memory of the backward pass of n sequences."""

    beta: Any  # (n, Sp)
    w: Any  # (n, Sp)
    kept: Any  # (n, BLOCK, Sp) w of the last positions
    outer: Any  # (1 or n, S up to whole tiles, Sp) sums of alpha_{t-1} w_t^T


@helper
def largest_safe(like):
    """Return the limit of beta / c for a safe sequence, in the precision of the array ``like``."""
    return like.dtype.type(LIMIT_32 if like.itemsize == 4 else LIMIT_64)


@helper
def _row_of_array(log_unary, b, t):
    return b * log_unary.shape[1] + t


@helper
def _fill_from_array(log_unary, b, t, length, out, to, width):
    T, S = log_unary.shape[1:]
    return exp_row(log_unary, (b * T + t) * S, S, out, to, width)


row_of = method("row", _row_of_array)
fill = method("fill", _fill_from_array)


def group_size(Sp):
    """Return how many sequences advance together: more if the transitions do not stay in the first-level cache."""
    return MANY if Sp >= WIDE else ROWS


_group_size = helper(group_size)


@helper
def _product(rows, n, panels, out):
    """Compute out = rows @ P of the first n rows; ``panels`` (Sp/2W, S, 2W) is P cut into strips two vectors wide.

    If Sp is an odd number of vectors, only the left half of the last strip is used.
    """
    _, S, wide = panels.shape
    Sp = rows.shape[1]
    whole = Sp - Sp % wide
    for j in range(0, whole, wide):
        if n == 1:
            store_tile(out, j, Sp, add_product(tile(rows, 0.0, 1, 2), Factor(rows, 0, Sp, 1), panels, j * S, wide, S))
            continue
        most = n // MORE * MORE * Sp
        for r in range(0, most, MORE * Sp):
            sums = add_product(tile(rows, 0.0, MORE, 2), Factor(rows, r, Sp, 1), panels, j * S, wide, S)
            store_tile(out, r + j, Sp, sums)
        for r in range(most, n * Sp, ROWS * Sp):
            rest = add_product(tile(rows, 0.0, ROWS, 2), Factor(rows, r, Sp, 1), panels, j * S, wide, S)
            store_tile(out, r + j, Sp, rest)
    if whole < Sp:
        if n == 1:
            half = _half(tile(rows, 0.0, 1, 1), Factor(rows, 0, Sp, 1), panels, whole * S, wide, S)
            store_tile(out, whole, Sp, half)
            return
        for r in range(0, n * Sp, ROWS * Sp):
            halves = _half(tile(rows, 0.0, ROWS, 1), Factor(rows, r, Sp, 1), panels, whole * S, wide, S)
            store_tile(out, r + whole, Sp, halves)


@helper
def _half(zero, factor, other, at, step, n):
    """Return a product as a tile like ``zero``, by even and odd terms: sums that do not wait for each other."""
    array, x, row, next_x = factor
    even, odd = zero, zero
    for _ in range(n // 2):
        even = add_outer(even, array, x, row, other, at)
        odd = add_outer(odd, array, x + next_x, row, other, at + step)
        x += 2 * next_x
        at += 2 * step
    if n % 2:
        even = add_outer(even, array, x, row, other, at)
    return add(even, odd)


@helper
def _add_outer(alpha, left, kept, right, n_steps, S, weight, outer, to):
    """Add weight * sum over n_steps of alpha_{t-1} w_t^T to outer, whose rows start at flat index ``to``.

    ``left`` and ``right`` are the flat indices of the first alpha and the first w; rows are Sp apart.
    """
    Sp, W, most = outer.shape[2], lanes(outer), S // MORE * MORE
    for j in range(0, Sp - W, 2 * W):  # a strip of w stays in the first-level cache
        for i in range(0, most, MORE):
            sums = add_product(tile(outer, 0.0, MORE, 2), Factor(alpha, left + i, 1, Sp), kept, right + j, Sp, n_steps)
            old = load_tile(sums, outer, to + i * Sp + j, Sp)
            store_tile(outer, to + i * Sp + j, Sp, fma(sums, tile(outer, weight, MORE, 2), old))
        for i in range(most, S, ROWS):
            rest = add_product(tile(outer, 0.0, ROWS, 2), Factor(alpha, left + i, 1, Sp), kept, right + j, Sp, n_steps)
            old_rest = load_tile(rest, outer, to + i * Sp + j, Sp)
            store_tile(outer, to + i * Sp + j, Sp, fma(rest, tile(outer, weight, ROWS, 2), old_rest))
    if (Sp // W) % 2:
        j = Sp - W
        for i in range(0, S, ROWS):
            half = _half(tile(outer, 0.0, ROWS, 1), Factor(alpha, left + i, 1, Sp), kept, right + j, Sp, n_steps)
            old_half = load_tile(half, outer, to + i * Sp + j, Sp)
            store_tile(outer, to + i * Sp + j, Sp, fma(half, tile(outer, weight, ROWS, 1), old_half))


@helper
def _add_counts(transition, outer, counts):
    """Add transition * outer to counts (S, S), and set ``outer`` to zero."""
    for i in range(counts.shape[0]):
        out, factor, here = counts[i], transition[i], outer[i]
        for j in range(counts.shape[1]):
            out[j] += factor[j] * here[j]
    outer[:] = 0


@kernel
def lay_transitions(log_pairwise, weights, matrix, panels, panels_t):
    """Fill P = exp(log_pairwise - its largest entry) in all layouts of `Transitions`; return the largest entry, or 0.

    ``log_pairwise`` (1, S, S), ``weights`` (S * S, up to whole vectors) is scratch.
    """
    (n_strips, S, wide), Sp, W = panels.shape, matrix.shape[1], lanes(matrix)
    shift = exp_row(log_pairwise, 0, S * S, weights, 0, weights.size)
    matrix[S:] = 0
    panels_t[n_strips - 1] = 0
    for p in range(n_strips):
        left, strip = p * wide, p * S * wide
        for i in range(S):
            for k in range(0, wide, W):
                part = load_part(weights, i * S + left + k, S - left - k, 0.0)
                store(panels, strip + i * wide + k, part)
                if left + k < Sp:
                    store(matrix, i * Sp + left + k, part)
        for i in range(left, min(left + wide, S)):
            for j in range(S):
                put(panels_t, strip + j * wide + i - left, get(weights, i * S + j))
    return float(shift) if shift > -np.inf else 0.0


@helper(allocates=True)
def new_transitions(log_pairwise):
    """Return the `Transitions` of the scores (1, S, S)."""
    S, W, dtype = log_pairwise.shape[1], lanes(log_pairwise), log_pairwise.dtype
    width, strips = -(-S // W) * W, (-(-S // (2 * W)), S, 2 * W)
    matrix, panels, panels_t = np.empty((width, width), dtype), np.empty(strips, dtype), np.empty(strips, dtype)
    shift = lay_transitions(log_pairwise, np.empty(-(-S * S // W) * W, dtype), matrix, panels, panels_t)
    return Transitions(matrix, panels, panels_t, shift)


@kernel(allocates=True)
def forward(start, stop, chains, transitions, lattice, log_z):
    """Fill the lattice and log_z (B,) for the sequences ``order[start:stop]``."""
    order, lengths, scores = chains
    place, emission, alpha, scale = lattice
    panels, log_shift = transitions.panels, transitions.log_shift
    T, Sp, W = alpha.shape[1], alpha.shape[2], lanes(alpha)
    size = _group_size(Sp)
    rows = np.zeros((size, Sp), alpha.dtype)
    prior = np.empty((size, Sp), alpha.dtype)
    mass = np.empty(size)  # product of the scales since the last logarithm
    for group in range(start, stop, size):
        n = min(size, stop - group)
        prior[:] = 1
        mass[:] = 1
        for r in range(n):
            b = order[group + r]
            shifts = (lengths[b] - 1) * log_shift
            for t in range(lengths[b]):
                shifts += fill(scores, b, t, lengths[b], emission, (place[b] * T + t) * Sp, Sp)
            log_z[b] = shifts
        for t in range(lengths[order[group]]):
            if t > 0:
                _product(rows, n, panels, prior)
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


@helper
def _backward(group, n, chains, transitions, lattice, safe, out, space):
    """Run the backward pass of n sequences, whose counts are added up in ``space.outer``: of all, or one for each."""
    order, lengths, scores = chains
    place, emission, alpha, scale = lattice
    weight, _, marginals, counts = out
    beta, w, kept, outer = space
    panels = transitions.panels_t
    limit = largest_safe(alpha)
    T, Sp, W, S, width = alpha.shape[1], alpha.shape[2], lanes(alpha), panels.shape[1], marginals.shape[-1]
    each = outer.shape[1] * Sp if outer.shape[0] > 1 else 0
    w[:] = 0
    for t in range(lengths[order[group]] - 1, -1, -1):
        if t < lengths[order[group]] - 1:
            _product(w, n, panels, beta)
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
                to_row, by = row_of(scores, b, t) * width, correction * weight[b]
                for k in range(0, width, W):
                    product = multiply(load(alpha, here + k), load(beta, row + k))
                    store_part(marginals, to_row + k, width - k, multiply(product, spread(alpha, by)))
            if t == 0:
                safe[b] = safe[b] and m > 0 and scale[place[b], 0] * limit >= 1
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
                _add_outer(alpha, here - Sp, kept, to, last - t + 1, S, weight[b], outer, r * each)


@kernel(allocates=True)
def backward(start, stop, chains, transitions, lattice, safe, out):
    """Fill the marginals, add to the counts, and clear ``safe`` (B,) of sequences beyond the limit.

    Sequences already marked unsafe are skipped.
    """
    order, alpha, (_, slot, _, counts) = chains.order, lattice.alpha, out
    S, Sp, dtype = transitions.panels.shape[1], alpha.shape[2], alpha.dtype
    separate = False  # whether sequences that advance together have counts of their own
    for k in range(start, stop - 1):
        separate |= slot[order[k]] != slot[order[k + 1]]
    size = ROWS if separate else _group_size(Sp)
    space = BackwardSpace(
        np.zeros((size, Sp), dtype),
        np.zeros((size, Sp), dtype),
        np.empty((size, BLOCK if counts.shape[0] else 0, Sp), dtype),
        np.zeros((ROWS if separate else 1, -(-S // ROWS) * ROWS if counts.shape[0] else 0, Sp), dtype),
    )
    before = np.empty(size, np.bool_)
    for group in range(start, stop, size):
        n, fine = min(size, stop - group), False
        while not fine:  # rarely more than once: what an unsafe sequence added to shared counts must go
            for r in range(n):
                before[r] = safe[order[group + r]]
            _backward(group, n, chains, transitions, lattice, safe, out, space)
            fine = separate or counts.shape[0] == 0
            if not fine:
                fine = True
                for r in range(n):
                    fine &= before[r] == safe[order[group + r]]
                if not fine:
                    space.outer[:] = 0
        if counts.shape[0]:
            for r in range(n if separate else 1):
                _add_counts(transitions.matrix, space.outer[r], counts[slot[order[group + r]]])


@kernel(allocates=True)
def forward_backward(start, stop, chains, transitions, log_z, safe, out):
    """Run both passes group by group, so that alpha is used while it is in the cache."""
    order, lengths, matrix = chains.order, chains.lengths, transitions.matrix
    place, size = np.empty(len(lengths), np.int64), max(1, min(_group_size(matrix.shape[0]), stop - start))
    lattice = make_lattice(place, size, lengths[order[start]] if start < stop else 0, matrix.shape[0], matrix)
    for group in range(start, stop, size):
        end = min(group + size, stop)
        for r in range(end - group):
            place[order[group + r]] = r
        forward(group, end, chains, transitions, lattice, log_z)
        backward(group, end, chains, transitions, lattice, safe, out)


@kernel(allocates=True)
def one_sentence(length, log_unary, log_pairwise, log_z, marginals, counts):
    """Run both passes for a single short sequence: one call that prepares everything, for the least delay.

    ``marginals`` (1 or 0, T, S) and ``counts`` (1 or 0, S, S). Return whether the sequence is safe and possible.
    """
    first, safe = np.zeros(1, np.int64), np.ones(1, np.bool_)
    marginals[:, length:] = 0
    counts[:] = 0
    transitions = new_transitions(log_pairwise)
    out = Outputs(np.ones(1, log_unary.dtype), first, marginals, counts)
    forward_backward(0, 1, Chains(first, np.full(1, length), log_unary), transitions, log_z, safe, out)
    return safe[0] and log_z[0] > -np.inf
