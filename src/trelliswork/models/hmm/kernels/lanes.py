"""Compiled E-step of categorical hidden Markov models with few states: one sequence per lane of a vector.

The equations are those of ``expected_counts``. There a row of a product holds the states of one sequence, padded to
two vectors; here it holds one state of two vectors of sequences. No state is padding, sums over states need no
operation across lanes, and a division serves all lanes. A group of sequences, longest first, advances together.

Scales are divided out one position later than there, so that no pass over the states is needed for them:

    a_0 = start e_0      a_t = (a_{t-1} P) e_t / c_{t-1}      c_t = sum a_t                                      (1)
    b_{T-1} = weight end / sum a_{T-1} end      v_t = e_t b_t / c_{t-1}      b_{t-1} = P v_t                     (2)
    marginal_t = a_t b_t      transition counts = P * sum_t a_{t-1} v_t^T                                        (3)

With alpha_t = a_t / c_t and beta_t = b_t c_t these are the recursions of ``expected_counts``, and b_t / weight is the
number that must stay below the limit of safety. The marginals of a position sum to the weight but for rounding, which
is not corrected here: over 2,000 positions it adds up to less than 1e-6 in float32. The lane of a sequence that has
ended or is not safe holds zeros.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.memory import aligned
from trelliswork.compute.kernels.products import Factor, add_product
from trelliswork.compute.simd import (
    VECTOR_BYTES,
    add,
    all_below,
    divide,
    get,
    lanes,
    load,
    multiply,
    prefetch,
    put,
    subtract,
    total,
)
from trelliswork.compute.tiles import (
    add_outer,
    add_pairs,
    add_rows,
    load_rows,
    load_tile,
    multiply_rows,
    square,
    store_rows,
    store_tile,
    tile,
    transpose,
)
from trelliswork.inference.chain.kernels.forward_backward import largest_safe

STATES = 4  # states are rounded up to whole blocks of as many; a block has two vectors of sequences
MORE = 8 if VECTOR_BYTES == 64 else STATES  # states of a block for which there are registers; the last may be smaller
STRETCH = 8  # positions of one pass over the transition counts: they fit the first-level cache


class LaneTables(NamedTuple):
    """Scaled parameters as in `Tables`. Rows of the emission table are whole vectors; the last one is zero."""

    start: Any  # (Sp,)
    end: Any  # (Sp,)
    emission: Any  # (n_symbols + 1, Sp)
    log_emission: Any  # (n_symbols,)
    transition: Any  # (S, S) P
    padded: Any  # (S4, S4) P, padded with zeros
    log_shift: Any  # float


class Space(NamedTuple):
    """Working memory of a group of L sequences; S4 and Sp are S rounded up to ``STATES`` and to whole vectors."""

    alpha: Any  # (T, S4, L) a_t
    ahead: Any  # (T + 1, Sp, L) e_t, then v_t
    inverse: Any  # (T + 1, L) 1 / c_{t-1}
    ending: Any  # (L,) sum of a_{T-1} end
    marginals: Any  # (Sp, L) a_t b_t
    outer: Any  # (S4, S4, W) sums of a_{t-1} v_t^T, lane by lane


@helper(forceinline=True)
def _states_ahead(sums, j, t, tables, space):
    """Compute a_t of the states from j on, as many as the tile ``sums`` has rows; return their sum."""
    alpha, ahead, inverse = space.alpha, space.ahead, space.inverse
    (_, S4, L), Sp, S = alpha.shape, ahead.shape[1], tables.transition.shape[0]
    if t == 0:
        sums = add_outer(sums, tables.start, j, 1, inverse, 0)
    else:
        sums = add_product(sums, Factor(tables.padded, j, 1, S4), alpha, (t - 1) * S4 * L, L, S)
    before = load_tile(tile(alpha, 0.0, 1, 2), inverse, t * L, L)
    sums = multiply(sums, multiply_rows(load_tile(sums, ahead, (t * Sp + j) * L, L), before))
    store_tile(alpha, (t * S4 + j) * L, L, sums)
    return add_rows(sums)


@helper(forceinline=True)
def _states_back(sums, i, t, tables, space, any_ends, ends):
    """Compute b_t, v_t and marginals of the states from i on; return the sum of b_t.

    ``ends`` (L,) are the factors of ``tables.end`` for sequences that end at t.
    """
    alpha, ahead, inverse = space.alpha, space.ahead, space.inverse
    (_, S4, L), Sp, S = alpha.shape, ahead.shape[1], tables.transition.shape[0]
    if any_ends:
        sums = add_outer(sums, tables.end, i, 1, ends, 0)
    sums = add_product(sums, Factor(tables.padded, i * S4, S4, 1), ahead, (t + 1) * Sp * L, L, S)
    here, before = (t * Sp + i) * L, load_tile(tile(alpha, 0.0, 1, 2), inverse, t * L, L)
    store_tile(ahead, here, L, multiply(sums, multiply_rows(load_tile(sums, ahead, here, L), before)))
    store_tile(space.marginals, i * L, L, multiply(sums, load_tile(sums, alpha, (t * S4 + i) * L, L)))
    return add_rows(sums)


@helper(allocates=True)
def _forward(first, n, T, observed, tables, space, safe):
    """Compute equations (1) of sequences ``first`` to ``first + n``; those that are not safe have zeros."""
    offsets, symbols, labels, _ = observed
    alpha, ahead, inverse = space.alpha, space.ahead, space.inverse
    table = tables.emission
    (_, S4, L), Sp, W, S = alpha.shape, ahead.shape[1], lanes(alpha), tables.transition.shape[0]
    n_full, line = S4 // MORE * MORE, 64 // alpha.itemsize
    step = table.shape[1]
    places = np.full(T * L, (table.shape[0] - 1) * step)  # of the emissions; the last row is that of no symbol
    idle = np.ones(L, alpha.dtype)  # 1 for lanes without a sequence, or after its end: c_t is then 0
    for r in range(n):
        if safe[first + r]:
            to, idle[r] = r, 0
            for k in range(offsets[first + r], offsets[first + r + 1]):
                row = np.int64(get(symbols, k)) * step
                put(places, to, row)
                for j in range(0, Sp, line):  # on their way to the cache before the first one is read
                    prefetch(table, row + j)
                to += L
    one = tile(alpha, 1.0, 1, 2)
    store_tile(inverse, 0, L, one)
    active = n
    for t in range(T):
        while offsets[first + active] - offsets[first + active - 1] <= t:
            active -= 1
            idle[active] = 1
        for v in range(0, L, W):
            for k in range(0, Sp, W):
                emission = transpose(load_rows(table, places, t * L + v, k))
                store_tile(ahead, (t * Sp + k) * L + v, L, emission)
        if labels.size:
            for r in range(active):
                y = labels[offsets[first + r] + t]
                if y >= 0:
                    for j in range(S):
                        if j != y:
                            ahead[t, j, r] = 0
        c = load_tile(one, idle, 0, L)
        for j in range(0, n_full, MORE):
            c = add(c, _states_ahead(tile(alpha, 0.0, MORE, 2), j, t, tables, space))
        if n_full < S4:
            c = add(c, _states_ahead(tile(alpha, 0.0, STATES, 2), n_full, t, tables, space))
        store_tile(inverse, (t + 1) * L, L, divide(one, c))


@helper(allocates=True)
def _add_up(first, n, T, observed, tables, space, log_evidence, safe):
    """Fill ``log_evidence`` and the sums of a_{T-1} end; return False if a sequence turns out not to be safe."""
    offsets, symbols = observed.offsets, observed.symbols
    alpha, inverse, ending = space.alpha, space.inverse, space.ending
    S, L = tables.transition.shape[0], alpha.shape[2]
    limit, most = largest_safe(alpha), alpha.dtype.type(1e20 if alpha.itemsize == 8 else 1e8)
    mass = np.empty(L, alpha.dtype)
    for s in range(first, first + n):
        scales = (offsets[s + 1] - offsets[s] - 1) * tables.log_shift
        for k in range(offsets[s], offsets[s + 1]):
            scales += get(tables.log_emission, np.int64(get(symbols, k)))
        log_evidence[s] = scales if safe[s] else -np.inf
    one, least = tile(alpha, 1.0, 1, 2), tile(alpha, 1 / most, 1, 2)
    product = one  # of 1 / c_t since the last logarithm
    for t in range(1, T + 1):
        product = multiply(product, load_tile(one, inverse, t * L, L))
        if t < T and all_below(product, most) and all_below(subtract(least, product), 0.0):
            continue  # a logarithm now and then, not at every position
        store_tile(mass, 0, L, product)
        for r in range(n):
            log_evidence[first + r] -= math.log(mass[r])
        product = one
    fine = True
    for r in range(n):
        s = first + r
        last, sums = offsets[s + 1] - offsets[s] - 1, alpha.dtype.type(0)
        for j in range(S):
            sums += alpha[last, j, r] * tables.end[j]
        ending[r] = sums
        share = sums * inverse[last + 1, r]
        if safe[s] and not share * limit >= 1:
            safe[s] = fine = False
        log_evidence[s] += math.log(share) if safe[s] else -np.inf
    return fine


@helper(allocates=True)
def _backward(first, n, T, observed, tables, space, safe, rows, origin):
    """Compute equations (2) and the marginals; return True if all sequences stay safe, else ``rows`` are invalid."""
    offsets, _, labels, weights = observed
    alpha, ahead, _, ending, marginals, _ = space
    limit = largest_safe(alpha)
    (_, S4, L), Sp, W, S = alpha.shape, ahead.shape[1], lanes(alpha), tables.transition.shape[0]
    n_full = S4 // MORE * MORE
    width, nothing = rows.shape[1], (rows.shape[0] - 1) * rows.shape[1]
    places = np.full(L, nothing)
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
            if safe[s]:
                ends[active] = weights[s] / ending[active]
                per_weight[active] = 1 / weights[s]
            places[active] = (offsets[s] + t + 1 - origin) * width
            active += 1
        for r in range(active):
            put(places, r, get(places, r) - width)
        b = zero
        any_ends = active > entered
        for i in range(0, n_full, MORE):
            b = add(b, _states_back(tile(alpha, 0.0, MORE, 2), i, t, tables, space, any_ends, ends))
        if n_full < S4:
            b = add(b, _states_back(tile(alpha, 0.0, STATES, 2), n_full, t, tables, space, any_ends, ends))
        if not all_below(multiply(b, load_tile(zero, per_weight, 0, L)), limit):  # some lane may not be safe
            store_tile(beta, 0, L, b)
            fine = True
            for r in range(active):
                y = labels[offsets[first + r] + t] if labels.size else -1
                if y >= 0:  # only b_t of this state counts
                    beta[r] = ends[r] * tables.end[y]
                    for j in range(S):
                        beta[r] += tables.transition[y, j] * ahead[t + 1, j, r]
                if safe[first + r] and not beta[r] * per_weight[r] < limit:
                    safe[first + r] = fine = False
            if not fine:
                return False
        if any_ends:
            ends[entered:active] = 0
        for v in range(0, L, W):
            for k in range(0, Sp, W):
                block = load_tile(square(marginals), marginals, k * L + v, L)
                store_rows(rows, places, v, k, transpose(block))
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
                k = (i * S4 + j) * W
                sums = load_tile(tile(outer, 0.0, STATES, STATES), outer, k, S4 * W)
                for t in range(t0, t1):
                    left, right = ((t - 1) * S4 + i) * L, (t * Sp + j) * L
                    sums = add_pairs(sums, alpha, left, L, ahead, right, L)
                    sums = add_pairs(sums, alpha, left + W, L, ahead, right + W, L)
                store_tile(outer, k, S4 * W, sums)


@kernel(allocates=True)
def forward_backward(start, stop, observed, tables, rows, origin, counts, log_evidence, safe):
    """Run both passes for sequences ``start`` to ``stop``; write weighted marginals to ``rows`` (token - origin).

    The last of the ``rows`` is scratch. Adds transition counts to ``counts`` (S, S) float64.
    """
    offsets, table, S4, S = observed.offsets, tables.emission, tables.padded.shape[0], tables.transition.shape[0]
    W = lanes(table)
    L, Sp, T = 2 * W, rows.shape[1], offsets[start + 1] - offsets[start]
    space = Space(
        aligned(T * S4 * L, table).reshape((T, S4, L)),
        aligned((T + 1) * Sp * L, table).reshape((T + 1, Sp, L)),
        aligned((T + 1) * L, table).reshape((T + 1, L)),
        aligned(L, table),
        aligned(Sp * L, table).reshape((Sp, L)),
        aligned(S4 * S4 * W, table).reshape((S4, S4, W)),
    )
    space.marginals[S4:] = 0
    space.outer[:] = 0
    for first in range(start, stop, L):
        n = min(L, stop - first)
        T = offsets[first + 1] - offsets[first]
        fine = False
        while not fine:  # rarely more than once
            _forward(first, n, T, observed, tables, space, safe)
            fine = _add_up(first, n, T, observed, tables, space, log_evidence, safe)
            fine = fine and _backward(first, n, T, observed, tables, space, safe, rows, origin)
        _add_transitions(T, space)
    for i in range(S):
        for j in range(S):
            counts[i, j] += tables.transition[i, j] * total(load(space.outer, (i * S4 + j) * W))
