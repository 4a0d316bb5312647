"""Compiled forward-backward of linear chains with few states: one sequence per lane of a vector.

The equations are those of ``forward_backward``. There a row of a product holds the states of one sequence, padded to
two vectors; here it holds one state of two vectors of sequences. No state is padding, sums over states need no
operation across lanes, and a division serves all lanes. A group of sequences, longest first, advances together.

Scales are divided out one position later than there, so that no pass over the states is needed for them:

    a_0 = start e_0      a_t = (a_{t-1} P) e_t / c_{t-1}      c_t = sum a_t                                      (1)
    b_{T-1} = weight end / sum a_{T-1} end      v_t = e_t b_t / c_{t-1}      b_{t-1} = P v_t                     (2)
    marginal_t = a_t b_t      transition counts = P * sum_t a_{t-1} v_t^T                                        (3)

With alpha_t = a_t / c_t and beta_t = b_t c_t these are the recursions of ``forward_backward``, and b_t / weight is the
number that must stay below the limit of safety. The marginals of a position sum to the weight but for rounding, which
is not corrected here: over 2,000 positions it adds up to less than 1e-6 in float32. The lane of a sequence that has
ended or is not safe holds zeros.

Scores come from a *source*, a record with the fields ``offsets`` (n + 1,) and ``weights`` (n,) of the sequences and
``log_scale`` (L,) float64, the logarithms of what the lanes lack. Its class has the helpers

    begin(source, group, safe)                 prepare a group; fill or clear ``log_scale``
    fill_lanes(source, group, t, active, out)  write e_t to out[t] (T + 1, Sp, L), zeros in lanes from ``active`` on
    absorb(source, group, t, active, marginals)  take the weighted marginals (Sp, L) of position t
    end(source, group, log_z, safe)            all positions are done

which find zeros in the lanes of sequences that are not safe, or write them.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, method
from trelliswork.compute.kernels.memory import aligned
from trelliswork.compute.kernels.products import Factor, add_product
from trelliswork.compute.simd import (
    VECTOR_BYTES,
    add,
    divide,
    lanes,
    largest,
    load,
    multiply,
    multiply_add,
    subtract,
    total,
)
from trelliswork.compute.tiles import add_outer, add_rows, load_tile, store_tile, tile
from trelliswork.inference.chain.kernels.forward_backward import largest_safe

STATES = 4  # states are rounded up to whole blocks of as many; a block has two vectors of sequences
MORE = 8 if VECTOR_BYTES == 64 else STATES  # states of a block for which there are registers; the last may be smaller
STRETCH = 8  # positions of one pass over the transition counts: they fit the first-level cache
ADDED = 4096  # positions of all lanes after which the counts are added up in float64


class Group(NamedTuple):
    """Sequences that advance together: n from ``first`` on, of which the longest has T positions."""

    first: Any
    n: Any
    T: Any


class LaneSteps(NamedTuple):
    """Transitions in probability space, and the factors of the first and the last states."""

    start: Any  # (Sp,)
    end: Any  # (Sp,)
    transition: Any  # (S, S) P
    padded: Any  # (S4, S4) P, padded with zeros
    log_shift: Any  # float: logarithm of the scale of P


class LaneSpace(NamedTuple):
    """Working memory of a group of L sequences; S4 and Sp are S rounded up to ``STATES`` and to whole vectors."""

    alpha: Any  # (T, S4, L) a_t
    ahead: Any  # (T + 1, Sp, L) e_t, then v_t
    inverse: Any  # (T + 1, L) 1 / c_{t-1}
    ending: Any  # (L,) sum of a_{T-1} end
    marginals: Any  # (Sp, L) a_t b_t
    outer: Any  # (S4, S4, W) sums of a_{t-1} v_t^T, lane by lane


begin = method("begin")
fill_lanes = method("fill_lanes")
absorb = method("absorb")
end = method("end")


@helper(forceinline=True)
def _states_ahead(sums, j, t, steps, space):
    """Compute a_t of the states from j on, as many as the tile ``sums`` has rows; return their sum."""
    alpha, ahead, inverse = space.alpha, space.ahead, space.inverse
    (_, S4, L), Sp, S = alpha.shape, ahead.shape[1], steps.transition.shape[0]
    if t == 0:
        sums = add_outer(sums, steps.start, j, 1, inverse, 0)
    else:
        sums = add_product(sums, Factor(steps.padded, j, 1, S4), alpha, (t - 1) * S4 * L, L, S)
    before = load_tile(sums, inverse, t * L, 0)
    sums = multiply(sums, multiply(load_tile(sums, ahead, (t * Sp + j) * L, L), before))
    store_tile(alpha, (t * S4 + j) * L, L, sums)
    return add_rows(sums)


@helper(forceinline=True)
def _states_back(sums, i, t, steps, space, any_ends, ends):
    """Compute b_t, v_t and marginals of the states from i on; return the sum of b_t.

    ``ends`` (L,) are the factors of ``steps.end`` for sequences that end at t.
    """
    alpha, ahead, inverse = space.alpha, space.ahead, space.inverse
    (_, S4, L), Sp, S = alpha.shape, ahead.shape[1], steps.transition.shape[0]
    if any_ends:
        sums = add_outer(sums, steps.end, i, 1, ends, 0)
    sums = add_product(sums, Factor(steps.padded, i * S4, S4, 1), ahead, (t + 1) * Sp * L, L, S)
    here, before = (t * Sp + i) * L, load_tile(sums, inverse, t * L, 0)
    store_tile(ahead, here, L, multiply(sums, multiply(load_tile(sums, ahead, here, L), before)))
    store_tile(space.marginals, i * L, L, multiply(sums, load_tile(sums, alpha, (t * S4 + i) * L, L)))
    return add_rows(sums)


@helper(allocates=True)
def _forward(group, source, steps, space, safe):
    """Compute equations (1) of a group; sequences that are not safe have zeros."""
    offsets, alpha, inverse = source.offsets, space.alpha, space.inverse
    first, n, T = group
    (_, S4, L) = alpha.shape
    n_full = S4 // MORE * MORE
    idle = np.ones(L, alpha.dtype)  # 1 for lanes without a sequence, or after its end: c_t is then 0
    for r in range(n):
        if safe[first + r]:
            idle[r] = 0
    one = tile(alpha, 1.0, 1, 2)
    store_tile(inverse, 0, L, one)
    active = n
    for t in range(T):
        while offsets[first + active] - offsets[first + active - 1] <= t:
            active -= 1
            idle[active] = 1
        fill_lanes(source, group, t, active, space.ahead)
        c = load_tile(one, idle, 0, L)
        for j in range(0, n_full, MORE):
            c = add(c, _states_ahead(tile(alpha, 0.0, MORE, 2), j, t, steps, space))
        if n_full < S4:
            c = add(c, _states_ahead(tile(alpha, 0.0, STATES, 2), n_full, t, steps, space))
        store_tile(inverse, (t + 1) * L, L, divide(one, c))


@helper(allocates=True)
def _add_up(group, source, steps, space, log_z, safe):
    """Fill ``log_z`` and the sums of a_{T-1} end; return False if a sequence turns out not to be safe."""
    offsets, alpha, inverse, ending = source.offsets, space.alpha, space.inverse, space.ending
    first, n, T = group
    S, L = steps.transition.shape[0], alpha.shape[2]
    limit, most = largest_safe(alpha), alpha.dtype.type(1e20 if alpha.itemsize == 8 else 1e8)
    mass = np.empty(L, alpha.dtype)
    for r in range(n):
        s = first + r
        scales = source.log_scale[r] + (offsets[s + 1] - offsets[s] - 1) * steps.log_shift
        log_z[s] = scales if safe[s] else -np.inf
    one, least = tile(alpha, 1.0, 1, 2), tile(alpha, 1 / most, 1, 2)
    product = one  # of 1 / c_t since the last logarithm
    for t in range(1, T + 1):
        product = multiply(product, load_tile(one, inverse, t * L, L))
        if t < T and total(product) < most and largest(subtract(least, product)) < 0:
            continue  # a logarithm now and then, not at every position
        store_tile(mass, 0, L, product)
        for r in range(n):
            log_z[first + r] -= math.log(mass[r])
        product = one
    fine = True
    for r in range(n):
        s = first + r
        last, sums = offsets[s + 1] - offsets[s] - 1, alpha.dtype.type(0)
        for j in range(S):
            sums += alpha[last, j, r] * steps.end[j]
        ending[r] = sums
        share = sums * inverse[last + 1, r]
        if safe[s] and not share * limit >= 1:
            safe[s] = fine = False
        log_z[s] += math.log(share) if safe[s] else -np.inf
    return fine


@helper(allocates=True)
def _backward(group, source, steps, space, safe):
    """Compute equations (2) and the marginals; return True if all sequences stay safe, else the group is repeated."""
    offsets, weights = source.offsets, source.weights
    first, n, T = group
    alpha, ahead, _, ending, marginals, _ = space
    limit = largest_safe(alpha)
    (_, S4, L), Sp = alpha.shape, ahead.shape[1]
    n_full = S4 // MORE * MORE
    ends = np.zeros(L, alpha.dtype)
    per_weight, beta = np.zeros(L, alpha.dtype), np.empty(L, alpha.dtype)  # 1 / weight; sum of b_t
    zero = tile(alpha, 0.0, 1, 2)
    for j in range(Sp):
        store_tile(ahead, (T * Sp + j) * L, L, zero)
    active = 0
    for t in range(T - 1, -1, -1):
        entered = active
        while active < n and offsets[first + active + 1] - offsets[first + active] > t:
            s = first + active
            if safe[s] and weights[s] != 0:
                ends[active] = weights[s] / ending[active]
                per_weight[active] = 1 / weights[s]
            active += 1
        b = zero
        any_ends = active > entered
        for i in range(0, n_full, MORE):
            b = add(b, _states_back(tile(alpha, 0.0, MORE, 2), i, t, steps, space, any_ends, ends))
        if n_full < S4:
            b = add(b, _states_back(tile(alpha, 0.0, STATES, 2), n_full, t, steps, space, any_ends, ends))
        if not total(multiply(b, load_tile(zero, per_weight, 0, L))) < limit:  # some lane may not be safe
            store_tile(beta, 0, L, b)
            fine = True
            for r in range(active):
                if safe[first + r] and not beta[r] * per_weight[r] < limit:
                    safe[first + r] = fine = False
            if not fine:
                return False
        if any_ends:
            ends[entered:active] = 0
        absorb(source, group, t, active, marginals)
    return True


@helper
def _add_transitions(T, space):
    """Add the sums over positions of a_{t-1} v_t^T."""
    alpha, ahead, outer = space.alpha, space.ahead, space.outer
    (_, S4, L), Sp, W = alpha.shape, ahead.shape[1], lanes(alpha)
    for t0 in range(1, T, STRETCH):
        t1 = min(t0 + STRETCH, T)
        for i in range(0, S4, STATES):
            for j in range(0, S4, STATES):
                # The columns of a block of 4 x 4 states; each row of the tile is the vector of one pair of states.
                k, step, column = (i * S4 + j) * W, S4 * W, tile(outer, 0.0, STATES, 1)
                a, b = load_tile(column, outer, k, step), load_tile(column, outer, k + W, step)
                c, d = load_tile(column, outer, k + 2 * W, step), load_tile(column, outer, k + 3 * W, step)
                for t in range(t0, t1):
                    for half in range(0, L, W):
                        left, right = ((t - 1) * S4 + i) * L + half, (t * Sp + j) * L + half
                        rows = load_tile(column, alpha, left, L)
                        a = multiply_add(rows, load_tile(column, ahead, right, 0), a)
                        b = multiply_add(rows, load_tile(column, ahead, right + L, 0), b)
                        c = multiply_add(rows, load_tile(column, ahead, right + 2 * L, 0), c)
                        d = multiply_add(rows, load_tile(column, ahead, right + 3 * L, 0), d)
                store_tile(outer, k, step, a)
                store_tile(outer, k + W, step, b)
                store_tile(outer, k + 2 * W, step, c)
                store_tile(outer, k + 3 * W, step, d)


@helper
def _add_counts(space, transition, counts):
    """Add P times the sums of all lanes to counts (S, S), and set the sums to zero."""
    S, S4, W = len(counts), space.outer.shape[0], space.outer.shape[2]
    for i in range(S):
        for j in range(S):
            counts[i, j] += transition[i, j] * total(load(space.outer, (i * S4 + j) * W))
    space.outer[:] = 0


@helper(allocates=True)
def forward_backward(start, stop, source, steps, counts, log_z, safe):
    """Run both passes for sequences ``start`` to ``stop`` of a source; add transitions to ``counts`` (S, S) float64."""
    offsets, like, S4, Sp = source.offsets, steps.padded, steps.padded.shape[0], len(steps.start)
    W, T = lanes(like), offsets[start + 1] - offsets[start]
    L = 2 * W
    space = LaneSpace(
        aligned(T * S4 * L, like).reshape((T, S4, L)),
        aligned((T + 1) * Sp * L, like).reshape((T + 1, Sp, L)),
        aligned((T + 1) * L, like).reshape((T + 1, L)),
        aligned(L, like),
        aligned(Sp * L, like).reshape((Sp, L)),
        aligned(S4 * S4 * W, like).reshape((S4, S4, W)),
    )
    space.marginals[S4:] = 0
    space.outer[:] = 0
    added = 0
    for first in range(start, stop, L):
        group = Group(first, min(L, stop - first), offsets[first + 1] - offsets[first])
        fine = False
        while not fine:  # rarely more than once
            begin(source, group, safe)
            _forward(group, source, steps, space, safe)
            fine = _add_up(group, source, steps, space, log_z, safe)
            fine = fine and _backward(group, source, steps, space, safe)
        end(source, group, log_z, safe)
        _add_transitions(group.T, space)
        added += group.T * L
        if added >= ADDED:
            _add_counts(space, steps.transition, counts)
            added = 0
    _add_counts(space, steps.transition, counts)
