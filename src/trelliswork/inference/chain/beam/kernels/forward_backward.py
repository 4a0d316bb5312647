"""Compiled sparse forward-backward with beams: transitions shared (S, S) or by position, in probability space.

Pal, Sutton and McCallum (2006), section 3. With e and P scaled as in ``kernels``, and I_t the beam at position t:

    belief_t = (sum over i in I_{t-1} of alpha_{t-1}(i) P(i, .)) e_t      dense, not compressed        (1)
    I_t = the largest of belief_t, by a rule; alpha_t = belief_t on I_t, normalised (c_t)              (2)
    beta_{t-1}(i) = sum over j in I_t of P(i, j) e_t(j) beta_t(j) / c_t    for i in I_{t-1}            (3)

The alphas of (2) are those of the chain restricted to the beams, so that (3) ends exact forward-backward inside them:
one set for log Z and its gradient. Time O(|I_{t-1}| S) for (1), O(|I_{t-1}| |I_t|) for (3). *Refining* chooses the
beams anew from the end: belief_t times a dense beta_t, then forward again inside the new sets.

The rules are those of ``beam_select``. States stand in ascending order, those of position t at ``ptr[t]:ptr[t+1]``.

A matrix of transitions is read by flat offsets: scaled probabilities with rows of whole vectors (shared), or logarithms
(``is_log``), of which only the rows of states in the beam are ever exponentiated.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import add, get, lanes, load, multiply, put, spread, store, total
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.inference.chain.beam.kernels.given import gather, inside, refine
from trelliswork.inference.chain.beam.kernels.select import add_to_doubles, select
from trelliswork.inference.chain.beam.kernels.space import edge_row, edge_rows


@helper
def _matrix_rows(matrix, first, stride, S, is_log, states, alpha, before, n, rows, offset, coefficient):
    """Prepare the rows of n states from ``before`` on: their offsets and coefficients; return what was taken out."""
    if not is_log:
        for a in range(n):
            put(offset, a, first + get(states, before + a) * stride)
            put(coefficient, a, get(alpha, before + a))
        return 0.0
    Sp, top = rows.shape[1], -np.inf
    for a in range(n):
        offset[a] = a * Sp
        coefficient[a] = exp_row(matrix, first + states[before + a] * stride, S, rows, a * Sp, Sp)
        top = max(top, np.float64(coefficient[a]))
    if top == -np.inf:
        top = 0.0
    for a in range(n):
        coefficient[a] = alpha[before + a] * math.exp(coefficient[a] - top)
    return top


@helper
def _push(rows, offset, coefficient, n, emission, at, Sp, belief, to):
    """belief[to : to + Sp] = (coefficient @ rows) * emission, flat; return the sum. Equation (1)."""
    W = lanes(belief)
    sums = spread(belief, 0.0)
    k = 0
    while k + 4 * W <= Sp:
        zero = spread(belief, 0.0)
        a0, a1, a2, a3 = zero, zero, zero, zero
        for a in range(n):
            x, row = spread(belief, coefficient[a]), offset[a] + k
            a0, a1 = fma(x, load(rows, row), a0), fma(x, load(rows, row + W), a1)
            a2, a3 = fma(x, load(rows, row + 2 * W), a2), fma(x, load(rows, row + 3 * W), a3)
        a0, a1 = multiply(a0, load(emission, at + k)), multiply(a1, load(emission, at + k + W))
        a2, a3 = multiply(a2, load(emission, at + k + 2 * W)), multiply(a3, load(emission, at + k + 3 * W))
        store(belief, to + k, a0)
        store(belief, to + k + W, a1)
        store(belief, to + k + 2 * W, a2)
        store(belief, to + k + 3 * W, a3)
        sums = add(sums, add(add(a0, a1), add(a2, a3)))
        k += 4 * W
    while k < Sp:
        a0 = spread(belief, 0.0)
        for a in range(n):
            a0 = fma(spread(belief, coefficient[a]), load(rows, offset[a] + k), a0)
        a0 = multiply(a0, load(emission, at + k))
        store(belief, to + k, a0)
        sums = add(sums, a0)
        k += W
    return total(sums)


@helper
def _keep(belief, to, chosen, n, states, alpha, first):
    """Compress: n chosen states and their normalised alpha, from ``first`` on; return c_t. Equation (2)."""
    c = 0.0
    for a in range(n):
        j = get(chosen, a)
        v = get(belief, to + j)
        put(states, first + a, j)
        put(alpha, first + a, v)
        c += v
    inverse = alpha.dtype.type(1 / c if c > 0 else 0.0)
    for a in range(n):
        put(alpha, first + a, get(alpha, first + a) * inverse)
    return c


@helper
def forward(
    T, S, log_unary, at, unary_stride, matrix, first, stride, time_step, is_log, log_shift, gold, first_gold,
    least, keep, ratio, edges, s,
):  # fmt: skip
    """Choose the beams of a sequence and fill its alpha; return log Z of the chain restricted to them, -inf if lost.

    Scores of position t begin at ``at + t * unary_stride`` of ``log_unary``, the matrix into it at
    ``first + (t - 1) * time_step``; ``gold[first_gold + t]`` is always in the beam (empty: none). With ``edges`` the
    rows of the matrices are made here as they are needed, those into token ``first_gold + t``.
    """
    emission, belief, rows, row, shift = s.emission, s.belief, s.rows, s.row, s.shift
    ptr, states, alpha, scale, kept = s.ptr, s.states, s.alpha, s.scale, s.kept
    offset, coefficient, chosen, work, guess = s.offset, s.coefficient, s.chosen, s.work, s.guess
    Sp = emission.shape[1]
    log_z = (T - 1) * log_shift
    product, with_edges = 1.0, edges.wanted  # the product of the scales since the last logarithm
    ptr[0] = 0
    for t in range(T):
        s.tops[t] = exp_row(log_unary, at + t * unary_stride, S, emission, t * Sp, Sp)
        log_z += s.tops[t]
        to = t * Sp if belief.shape[0] > 1 else 0
        if t == 0:
            coefficient[0], offset[0] = 1, 0
            row[:] = 1
            mass = _push(row, offset, coefficient, 1, emission, 0, Sp, belief, 0)
        else:
            n, base = ptr[t] - ptr[t - 1], first + (t - 1) * time_step
            if with_edges:
                edge_rows(edges, first_gold + t, states, ptr[t - 1], n, S, matrix, base)
            shift[t] = _matrix_rows(
                matrix, base, stride, S, is_log, states, alpha, ptr[t - 1], n, rows, offset, coefficient
            )
            log_z += shift[t]
            mass = _push(rows if is_log else matrix, offset, coefficient, n, emission, t * Sp, Sp, belief, to)
        forced = gold[first_gold + t] if gold.size else -1
        n = select(belief, to, S, Sp, mass, least, keep, ratio, forced, chosen, work, guess)
        c = _keep(belief, to, chosen, n, states, alpha, ptr[t])
        if not c > 0:
            return -np.inf
        ptr[t + 1] = ptr[t] + n
        scale[t] = c
        kept[t] = min(1.0, c / mass)
        product *= c
        if not 1e-200 < product < 1e200:  # a logarithm now and then, not at every position
            log_z += math.log(product)
            product = 1.0
    return log_z + math.log(product)


@helper
def spread_ahead(states, first, n, ahead, dense, Sp):
    """dense (Sp,) = ahead at n states, else 0."""
    W = lanes(dense)
    for k in range(0, Sp, W):
        store(dense, k, spread(dense, 0.0))
    for k in range(n):
        put(dense, get(states, first + k), get(ahead, k))


@helper
def row_times(matrix, at, vector, Sp):
    """The product of a row of the matrix, from flat index ``at`` on, and a vector."""
    W = lanes(vector)
    a, b = spread(vector, 0.0), spread(vector, 0.0)
    for k in range(0, Sp - W, 2 * W):
        a = fma(load(matrix, at + k), load(vector, k), a)
        b = fma(load(matrix, at + k + W), load(vector, k + W), b)
    if (Sp // W) % 2:
        a = fma(load(matrix, at + Sp - W), load(vector, Sp - W), a)
    return total(add(a, b))


@helper
def _add_row(matrix, at, vector, x, counts, to):
    """counts[to : to + S] += x * row of the matrix * vector, in float64; ``at`` and ``to`` are flat."""
    S, W = counts.shape[1], lanes(vector)
    whole = S - S % W
    by = spread(vector, x)
    for k in range(0, whole, W):
        add_to_doubles(counts, to + k, multiply(multiply(load(matrix, at + k), load(vector, k)), by))
    for k in range(whole, S):
        put(counts, to + k, get(counts, to + k) + x * (get(matrix, at + k) * get(vector, k)))


@helper
def backward(T, matrix, first, stride, time_step, is_log, limit, weight, final, counts, pairs, s):
    """Equation (3); False if it is not safe (see ``kernels``). If ``final``: alpha becomes the weighted marginals,
    counts (S, S) grow by the weighted expected transitions, unless empty, and ``pairs`` takes those by position one by
    one, unless empty: |I_{t-1}| x |I_t| numbers a position, in order.
    """
    beta, ptr, alpha, scale, ahead = s.beta, s.ptr, s.alpha, s.scale, s.ahead
    emission, states, shift, row = s.emission, s.states, s.shift, s.row
    dense, Sp = s.dense, emission.shape[1]
    beta[: ptr[T] - ptr[T - 1]] = 1
    end, counting, pairing = 0, final and counts.shape[0] > 0, final and pairs.size > 0
    if pairing:
        for t in range(1, T):
            end += (ptr[t] - ptr[t - 1]) * (ptr[t + 1] - ptr[t])
    for t in range(T - 1, -1, -1):
        here, n = ptr[t], ptr[t + 1] - ptr[t]
        m = alpha.dtype.type(0)
        for k in range(n):
            m += alpha[here + k] * beta[k]
        if not m > 0:
            return False
        correction = 1 / m
        if final:
            for k in range(n):
                alpha[here + k] *= beta[k] * correction * weight
        if t == 0:
            return True
        by = correction / scale[t]
        top = alpha.dtype.type(0)
        for k in range(n):
            b = beta[k] * by
            top = max(top, b)
            ahead[k] = b * emission[t, states[here + k]]
        if not top <= limit:
            return False
        base, before = first + (t - 1) * time_step, ptr[t - 1]
        if pairing:
            end -= (here - before) * n
        many = not is_log and 4 * n > Sp  # then whole rows cost less than single numbers
        if many:
            spread_ahead(states, here, n, ahead, dense, Sp)
        for a in range(before, here):
            i = states[a]
            begin, to, x = base + i * stride, i * counts.shape[1], alpha[a] * weight
            b0, b1 = alpha.dtype.type(0), alpha.dtype.type(0)
            if many:
                beta[a - before] = row_times(matrix, begin, dense, Sp)
                if counting:
                    _add_row(matrix, begin, dense, x, counts, to)
                continue
            if is_log:
                gather(matrix, begin, states, here, n, True, shift[t], row)
                pair = end + (a - before) * n
                for k in range(n):
                    p = get(row, k) * get(ahead, k)
                    b0 += p
                    if counting:
                        j = to + get(states, here + k)
                        put(counts, j, get(counts, j) + x * p)
                    if pairing:
                        put(pairs, pair + k, x * p)
            elif counting:
                for k in range(n):
                    j = get(states, here + k)
                    p = get(matrix, begin + j) * get(ahead, k)
                    b0 += p
                    put(counts, to + j, get(counts, to + j) + x * p)
            else:
                for k in range(0, n - 1, 2):  # two sums that do not wait for each other
                    b0 += get(matrix, begin + get(states, here + k)) * get(ahead, k)
                    b1 += get(matrix, begin + get(states, here + k + 1)) * get(ahead, k + 1)
                if n % 2:
                    b0 += get(matrix, begin + get(states, here + n - 1)) * get(ahead, n - 1)
            beta[a - before] = b0 + b1
    return True


@helper
def one(
    T, S, log_unary, at, unary_stride, matrix, first, stride, time_step, is_log, log_shift, gold, first_gold,
    least, keep, ratio, refined, given_ptr, given_states, first_given, limit, check, weight,
    counts, pairs, spare, edges, s,
):  # fmt: skip
    """All of it for one sequence: log Z of the restricted chain, marginals in ``s.alpha``; nan if not safe.

    With ``given_ptr`` (T + 1 numbers from ``first_given`` on; empty: none) the beams are ``given_states``, not chosen.
    """
    emission, ptr, kept, states = s.emission, s.ptr, s.kept, s.states
    if edges.wanted and refined:
        for t in range(1, T):
            for i in range(S):
                edge_row(edges, first_gold + t, i, S, matrix, first + (t - 1) * time_step + i * stride)
    if given_ptr.size:
        Sp = emission.shape[1]
        begin = given_ptr[first_given]
        if edges.wanted:
            for t in range(1, T):
                before = given_ptr[first_given + t - 1]
                n = given_ptr[first_given + t] - before
                edge_rows(edges, first_gold + t, given_states, before, n, S, matrix, first + (t - 1) * time_step)
        for t in range(T):
            s.tops[t] = exp_row(log_unary, at + t * unary_stride, S, emission, t * Sp, Sp)
            ptr[t + 1] = given_ptr[first_given + t + 1] - begin
            kept[t] = np.nan
        ptr[0] = 0
        states[: ptr[T]] = given_states[begin : begin + ptr[T]]
        log_z = inside(T, S, matrix, first, stride, time_step, is_log, s.tops, log_shift, s)
    else:
        log_z = forward(
            T, S, log_unary, at, unary_stride, matrix, first, stride, time_step, is_log, log_shift, gold, first_gold,
            least, keep, ratio, edges, s,
        )  # fmt: skip
        if refined and log_z > -np.inf:
            if not refine(
                T, S, matrix, first, stride, time_step, is_log, gold, first_gold, least, keep, ratio, spare, s
            ):
                return np.nan
            log_z = inside(T, S, matrix, first, stride, time_step, is_log, s.tops, log_shift, s)
    if not log_z > -np.inf:
        return np.nan
    if check and not backward(T, matrix, first, stride, time_step, is_log, limit, weight, False, counts, pairs, s):
        return np.nan
    if not backward(T, matrix, first, stride, time_step, is_log, limit, weight, True, counts, pairs, s):
        return np.nan
    return log_z
