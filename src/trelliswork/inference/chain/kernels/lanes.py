"""Compiled forward-backward of linear chains with few states, one sequence per lane of a vector.

The sequences of a group advance together, two vectors of them (``n_lanes``). Numbers of one position and one state are
neighbors in memory, (T, S, L), so sums over states need no shuffles, and rows are not padded to whole vectors. The
equations are those of ``forward_backward``; a transition matrix is shared by all sequences.

A lane without a sequence, and positions after the end of one, have the log-potential -inf at all states. There e_t and
c_t are 0, and so are alpha_t and w_t: they add nothing to the sums of others. Each lane has counts of its own until the
end of the group; a sequence that is not safe is taken out before they are added up.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.kernels.memory import aligned
from trelliswork.compute.kernels.products import Factor, add_product
from trelliswork.compute.simd import (
    add,
    divide,
    exponential,
    if_positive,
    lanes,
    load,
    maximum,
    multiply,
    spread,
    store,
    subtract,
    total,
)
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.compute.tiles import add_pairs, load_tile, square, store_tile, tile, transpose
from trelliswork.inference.chain.kernels.forward_backward import largest_safe

ROWS = 4  # of a matrix product at once
COLUMNS = 2  # of the transition counts at once


class LaneGroup(NamedTuple):
    """Sequences of a group and the results of both passes; S is at least ``ROWS``, if need be by empty states."""

    lengths: Any  # (L,), 0 in a lane without a sequence
    weight: Any  # (L,) multiplies the outputs
    scores: Any  # (L, T, Sw) log-potentials, -inf in the padding; the backward pass replaces them by marginals
    emission: Any  # (T, S, L) e_t; the backward pass replaces it by w_t
    alpha: Any  # (T, S, L)
    scale: Any  # (T, L) c_t
    log_z: Any  # (L,)
    safe: Any  # (L,)


@helper(allocates=True)
def make_group(T, S, scores):
    """Allocate a group for the array ``scores``."""
    dtype, L = scores.dtype, 2 * lanes(scores)
    S = max(S, ROWS)
    return LaneGroup(
        np.zeros(L, np.int64),
        np.zeros(L, dtype),
        scores,
        aligned(T * S * L, scores).reshape(T, S, L),
        aligned(T * S * L, scores).reshape(T, S, L),
        aligned(T * L, scores).reshape(T, L),
        np.zeros(L),
        np.ones(L, np.bool_),
    )


@helper
def _exponentials(group, t, turned, shift):
    """Fill e_t; ``shift`` (L,) receives the subtracted maxima. ``turned`` (Sw, L) is room for the scores."""
    lengths, scores, emission = group.lengths, group.scores, group.emission
    S, L, W = emission.shape[1], emission.shape[2], lanes(emission)
    T, Sw = scores.shape[1:]
    for v in range(0, L, W):
        for k in range(0, Sw, W):
            block = load_tile(square(scores), scores, (v * T + t) * Sw + k, T * Sw)
            store_tile(turned, k * L + v, L, transpose(block))
    for b in range(L):
        if t >= lengths[b]:
            turned[:, b] = -np.inf
    for v in range(0, L, W):
        at = t * S * L + v
        top = spread(emission, -1e30)  # not -inf: exp(-inf - (-inf)) would be nan
        for j in range(S):
            top = maximum(load(turned, j * L + v), top)
        for j in range(S):
            store(emission, at + j * L, exponential(subtract(load(turned, j * L + v), top)))
        store(shift, v, top)


@helper
def _product(factor, other, at, S, first, out, to):
    """out = first + F @ other: (S, L) at flat index ``to``, from (S, L) at ``at``, with ``first`` (L,) in every row."""
    L = 2 * lanes(other)
    array, x, row, step = factor
    start = load_tile(tile(other, 0.0, 1, 2), first, 0, L)
    whole = S - S % ROWS
    for j in range(0, whole, ROWS):
        sums = load_tile(tile(other, 0.0, ROWS, 2), first, 0, 0)  # the same row four times
        sums = add_product(sums, Factor(array, x + j * row, row, step), other, at, L, S)
        store_tile(out, to + j * L, L, sums)
    for j in range(whole, S):
        store_tile(out, to + j * L, L, add_product(start, Factor(array, x + j * row, row, step), other, at, L, S))


@helper(allocates=True)
def forward(n_steps, group, matrix, log_shift):
    """Fill e_t, alpha, the scales and log Z of a group whose longest sequence has ``n_steps`` positions.

    ``matrix`` (Sp, Sp) is P = exp(log_pairwise - log_shift).
    """
    lengths, emission, alpha, scale, log_z = group.lengths, group.emission, group.alpha, group.scale, group.log_z
    S, L, W, Sp = emission.shape[1], emission.shape[2], lanes(emission), matrix.shape[1]
    shift, nothing = np.empty(L, emission.dtype), np.zeros(L, emission.dtype)
    turned = aligned(group.scores.shape[2] * L, emission).reshape(-1, L)
    mass = np.ones(L)  # product of the scales since the last logarithm
    for b in range(L):
        log_z[b] = (lengths[b] - 1) * log_shift
    for t in range(n_steps):
        here = t * S * L
        _exponentials(group, t, turned, shift)
        if t > 0:
            _product(Factor(matrix, 0, 1, Sp), alpha, here - S * L, S, nothing, alpha, here)
        for v in range(0, L, W):
            at = here + v
            sums = spread(emission, 0.0)
            for j in range(S):
                value = load(emission, at + j * L)
                if t > 0:
                    value = multiply(value, load(alpha, at + j * L))
                store(alpha, at + j * L, value)
                sums = add(sums, value)
            inverse = divide(spread(emission, 1.0), if_positive(sums, spread(emission, 1.0)))
            for j in range(S):
                store(alpha, at + j * L, multiply(load(alpha, at + j * L), inverse))
            store(scale, t * L + v, sums)
        for b in range(L):
            if t < lengths[b]:
                log_z[b] += shift[b]
                mass[b] *= scale[t, b]
                if not 1e-20 < mass[b] < 1e20:  # a logarithm now and then, not at every position
                    log_z[b] += math.log(mass[b]) if mass[b] > 0 else -np.inf
                    mass[b] = 1
    for b in range(L):
        log_z[b] += math.log(mass[b])


@helper(allocates=True)
def backward(n_steps, group, matrix, counts):
    """Fill the marginals and ``safe`` of a group after its forward pass, and add to ``counts`` (S, S) float64."""
    lengths, weight, scores, emission, alpha, scale, log_z, safe = group
    S, L, W, Sp = emission.shape[1], emission.shape[2], lanes(emission), matrix.shape[1]
    steps, Sw = scores.shape[1:]
    marginals = aligned(Sw * L, emission).reshape(Sw, L)
    marginals[:] = 0
    beta, ended = aligned(S * L, emission).reshape(S, L), np.zeros(L, emission.dtype)
    top, mass = np.zeros(L, emission.dtype), np.zeros(L, emission.dtype)
    one = spread(emission, 1.0)
    beta[:] = 1
    for t in range(n_steps - 1, -1, -1):
        here = t * S * L
        if t < n_steps - 1:
            for b in range(L):
                ended[b] = t >= lengths[b] - 1
            # After the end of a sequence w is 0, hence P w + 1 is the 1 that its last position starts from.
            _product(Factor(matrix, 0, Sp, 1), emission, here + S * L, S, ended, beta, 0)
        for v in range(0, L, W):
            at = here + v
            sums = spread(emission, 0.0)
            for j in range(S):
                sums = fma(load(alpha, at + j * L), load(beta, j * L + v), sums)
            # The mass is 1 but for rounding; dividing by it keeps long sequences from drifting.
            correction = divide(one, if_positive(sums, one))
            by = multiply(correction, load(weight, v))
            for j in range(S):
                product = multiply(load(alpha, at + j * L), load(beta, j * L + v))
                store(marginals, j * L + v, multiply(product, by))
            for k in range(0, Sw, W):
                block = load_tile(square(marginals), marginals, k * L + v, L)
                store_tile(scores, (v * steps + t) * Sw + k, steps * Sw, transpose(block))
            if t == 0:
                store(mass, v, sums)
                continue
            by = divide(correction, if_positive(load(scale, t * L + v), one))
            highest = load(top, v)
            for j in range(S):
                ahead = multiply(load(beta, j * L + v), by)
                highest = maximum(ahead, highest)
                store(emission, at + j * L, multiply(load(emission, at + j * L), ahead))
            store(top, v, highest)
    limit = largest_safe(emission)
    for b in range(L):
        # Where one mass is 0, or anything is no number, so is the mass of the first position.
        safe[b] = lengths[b] > 0 and log_z[b] > -np.inf and mass[b] > 0 and top[b] <= limit
        if lengths[b] > 0 and not safe[b]:
            alpha[:n_steps, :, b] = 0
            emission[:n_steps, :, b] = 0
        elif lengths[b] > 0 and weight[b] != 1:
            emission[:n_steps, :, b] *= weight[b]
    _add_counts(n_steps, group, matrix, counts)


@helper(allocates=True)
def _add_counts(n_steps, group, matrix, counts):
    """Add P * sum over t of alpha_{t-1} w_t^T, summed over the lanes, to counts (S, S)."""
    emission, alpha = group.emission, group.alpha
    n, S, L, W = counts.shape[0], emission.shape[1], emission.shape[2], lanes(emission)
    size = S * L
    room = np.empty((ROWS, COLUMNS, W), emission.dtype)
    for i_tile in range(0, S, ROWS):
        i = min(i_tile, S - ROWS)  # the last tile overlaps the one before
        for j_tile in range(0, S, COLUMNS):
            j = min(j_tile, S - COLUMNS)
            sums = tile(emission, 0.0, ROWS, COLUMNS)
            left, right = i * L, size + j * L
            for _ in range(1, n_steps):
                sums = add_pairs(sums, alpha, left, L, emission, right, L)
                sums = add_pairs(sums, alpha, left + W, L, emission, right + W, L)
                left += size
                right += size
            store_tile(room, 0, COLUMNS * W, sums)
            for r in range(i_tile - i, min(ROWS, n - i)):
                for c in range(j_tile - j, min(COLUMNS, n - j)):
                    counts[i + r, j + c] += matrix[i + r, j + c] * total(load(room, (r * COLUMNS + c) * W))
