"""Dense transitions of beams: time O(|I_{t-1}| S) for equation (1) of ``forward_backward``, O(|I_{t-1}| |I_t|) for (3).

They are read by flat indices: scaled probabilities with rows of whole vectors (shared by all positions), or logarithms
(``is_log``), of which only the rows of states in the beam are exponentiated.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import (
    add,
    exponential,
    get,
    lanes,
    load,
    load_as,
    multiply,
    put,
    spread,
    store,
    subtract,
    total,
)
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.compute.tiles import add_outer, load_tile, store_tile, tile
from trelliswork.inference.chain.beam.kernels.forward_backward import beams, make_space


@helper
def _base(steps, sequence, t):
    """Return the flat index of the matrix into position t; that of shared probabilities is 0."""
    S = sequence.n_labels
    return (sequence.number * steps.batch_step + (t - 1) * steps.time_step) * S * S


@helper
def _n_states(steps, log_unary):
    return log_unary.shape[2]


@helper
def _state_at(steps, to, k, s):
    return k


@helper
def _emitted(steps, T, t, j, s):
    return s.emission[t, j]


@helper
def _matrix_rows(steps, base, S, before, n, s):
    """Prepare the rows of n states from ``before`` on: their offsets and coefficients; return what was taken out."""
    matrix, states, alpha, rows, offset, coefficient = steps.rows, s.states, s.alpha, s.rows, s.offset, s.coefficient
    stride = matrix.shape[1]
    if not steps.is_log:
        for a in range(n):
            put(offset, a, base + get(states, before + a) * stride)
            put(coefficient, a, get(alpha, before + a))
        return 0.0
    Sp, top = rows.shape[1], -np.inf
    for a in range(n):
        offset[a] = a * Sp
        coefficient[a] = exp_row(matrix, base + states[before + a] * stride, S, rows, a * Sp, Sp)
        top = max(top, np.float64(coefficient[a]))
    if top == -np.inf:
        top = 0.0
    for a in range(n):
        coefficient[a] = alpha[before + a] * math.exp(coefficient[a] - top)
    return top


@helper
def _add_rows(sums, rows, offset, coefficient, n, k):
    """Return the tile ``sums`` plus coefficient @ rows in columns from k on."""
    for a in range(n):
        sums = add_outer(sums, coefficient, a, 0, rows, offset[a] + k)
    return sums


@helper
def _product(rows, offset, coefficient, n, emission, at, Sp, belief, to):
    """Set belief[to : to + Sp] = (coefficient @ rows) * emission, flat; return the sum. Equation (1)."""
    W, k = lanes(belief), 0
    wide, narrow = tile(belief, 0.0, 1, 4), tile(belief, 0.0, 1, 1)
    sums, rest = wide, narrow
    while k + 4 * W <= Sp:
        four = multiply(_add_rows(wide, rows, offset, coefficient, n, k), load_tile(wide, emission, at + k, 0))
        store_tile(belief, to + k, 0, four)
        sums = add(sums, four)
        k += 4 * W
    while k < Sp:
        one = multiply(_add_rows(narrow, rows, offset, coefficient, n, k), load_tile(narrow, emission, at + k, 0))
        store_tile(belief, to + k, 0, one)
        rest = add(rest, one)
        k += W
    return total(sums) + total(rest)


@helper
def _push(steps, sequence, t, to, s):
    """Compute equation (1) for all states."""
    S, Sp, ptr = sequence.n_labels, s.emission.shape[1], s.ptr
    if t == 0:
        s.coefficient[0], s.offset[0] = 1, 0
        s.row[:] = 1
        return S, _product(s.row, s.offset, s.coefficient, 1, s.emission, 0, Sp, s.belief, to)
    n = ptr[t] - ptr[t - 1]
    s.shift[t] = _matrix_rows(steps, _base(steps, sequence, t), S, ptr[t - 1], n, s)
    s.sums[0] += s.shift[t]
    rows = s.rows if steps.is_log else steps.rows
    return S, _product(rows, s.offset, s.coefficient, n, s.emission, t * Sp, Sp, s.belief, to)


@helper
def _gather(matrix, at, states, first, n, is_log, shift, row):
    """Set row[:n] to the transitions from one state, whose row starts at flat ``at``, to n states.

    Zeros follow up to whole vectors.
    """
    W = lanes(row)
    width = -(-n // W) * W
    row[n:width] = -np.inf if is_log else 0.0
    for k in range(n):
        put(row, k, get(matrix, at + get(states, first + k)))
    if is_log:
        by = spread(row, row.dtype.type(shift))
        for k in range(0, width, W):
            store(row, k, exponential(subtract(load(row, k), by)))


@helper
def _inside(steps, sequence, t, s):
    """Compute alpha of the beam of position t, and the shift of its transitions."""
    ptr, states, alpha, row, ahead = s.ptr, s.states, s.alpha, s.row, s.ahead
    matrix, stride, is_log = steps.rows, steps.rows.shape[1], steps.is_log
    here, n = ptr[t], ptr[t + 1] - ptr[t]
    ahead[:n] = 1
    if t > 0:
        base, before = _base(steps, sequence, t), ptr[t - 1]
        if is_log:
            highest = -np.inf
            for a in range(before, here):
                for k in range(n):
                    highest = max(highest, np.float64(get(matrix, base + states[a] * stride + states[here + k])))
            s.shift[t] = highest if highest > -np.inf else 0.0
        ahead[:n] = 0
        for a in range(before, here):
            _gather(matrix, base + states[a] * stride, states, here, n, is_log, s.shift[t], row)
            for k in range(n):
                ahead[k] += alpha[a] * row[k]
    for k in range(n):
        alpha[here + k] = ahead[k] * s.emission[t, states[here + k]]


@helper
def _pull_all(steps, sequence, t, to, n, m, s):
    """Compute beta_t of all states from ``ahead`` of the m picked states of the next position; return the largest."""
    matrix, stride, is_log = steps.rows, steps.rows.shape[1], steps.is_log
    base, shift, highest = _base(steps, sequence, t + 1), -np.inf, 0.0
    if is_log:
        for i in range(n):
            for a in range(m):
                shift = max(shift, np.float64(get(matrix, base + i * stride + s.picked[a])))
    for i in range(n):
        _gather(matrix, base + i * stride, s.picked, 0, m, is_log, shift if shift > -np.inf else 0.0, s.row)
        b = s.beta.dtype.type(0)
        for a in range(m):
            b += s.row[a] * s.ahead[a]
        s.beta[i] = b
        highest = max(highest, np.float64(b))
    return highest


@helper
def _spread_ahead(states, first, n, ahead, dense, Sp):
    """Set dense (Sp,) to ``ahead`` at n states, else 0."""
    W = lanes(dense)
    for k in range(0, Sp, W):
        store(dense, k, spread(dense, 0.0))
    for k in range(n):
        put(dense, get(states, first + k), get(ahead, k))


@helper
def _row_times(matrix, at, vector, Sp):
    """Return the product of a row of the matrix, which starts at flat index ``at``, and a vector."""
    W = lanes(vector)
    a, b = spread(vector, 0.0), spread(vector, 0.0)
    for k in range(0, Sp - W, 2 * W):
        a = fma(load(matrix, at + k), load(vector, k), a)
        b = fma(load(matrix, at + k + W), load(vector, k + W), b)
    if (Sp // W) % 2:
        a = fma(load(matrix, at + Sp - W), load(vector, Sp - W), a)
    return total(add(a, b))


@helper
def _add_row(matrix, at, vector, x, row, counts, to):
    """Add x * row of the matrix * vector to counts[to : to + S], in float64; ``at`` and ``to`` are flat.

    ``row`` is scratch for the products.
    """
    S, W = counts.shape[1], lanes(vector)
    whole = S - S % W
    by = spread(vector, x)
    for k in range(0, whole, W):
        store(row, k, multiply(multiply(load(matrix, at + k), load(vector, k)), by))
        for half in range(k, k + W, lanes(counts)):
            store(counts, to + half, add(load(counts, to + half), load_as(counts, row, half)))
    for k in range(whole, S):
        put(counts, to + k, get(counts, to + k) + x * (get(matrix, at + k) * get(vector, k)))


@helper
def _pull(steps, sequence, t, weight, final, counts, s):
    """Compute beta of the beam of position t - 1; add the expected transitions."""
    beta, alpha, ptr, ahead, states, row, dense = s.beta, s.alpha, s.ptr, s.ahead, s.states, s.row, s.dense
    matrix, stride, is_log, Sp = steps.rows, steps.rows.shape[1], steps.is_log, s.emission.shape[1]
    base, before, here, n = _base(steps, sequence, t), ptr[t - 1], ptr[t], ptr[t + 1] - ptr[t]
    counting = final and counts.shape[0] > 0
    width = -(-n // lanes(alpha)) * lanes(alpha)
    ahead[n:width] = 0
    many = not is_log and 4 * n > Sp  # whole rows then cost less than single numbers
    if many:
        _spread_ahead(states, here, n, ahead, dense, Sp)
    for a in range(before, here):
        i = states[a]
        begin, to, x = base + i * stride, i * counts.shape[1], alpha[a] * weight
        if many:
            beta[a - before] = _row_times(matrix, begin, dense, Sp)
            if counting:
                _add_row(matrix, begin, dense, x, row, counts, to)
            continue
        _gather(matrix, begin, states, here, n, is_log, s.shift[t], row)
        beta[a - before] = _row_times(row, 0, ahead, width)
        for k in range(n if counting else 0):
            j = to + get(states, here + k)
            put(counts, j, get(counts, j) + x * (get(row, k) * get(ahead, k)))


class Matrices(NamedTuple):
    """Dense transitions: the matrix from t to t+1 of sequence b is number ``b * batch_step + t * time_step``."""

    rows: Any  # (n S, S) logarithms of all matrices, or (S, Sp) scaled probabilities of the only one
    batch_step: int
    time_step: int
    is_log: bool
    log_shift: float  # taken out of the logarithms of probabilities
    log_ends: float = 0.0
    n_states = _n_states
    push = _push
    state_at = _state_at
    emitted = _emitted
    inside = _inside
    pull = _pull
    pull_all = _pull_all


@kernel(allocates=True)
def dense(start, stop, batch, steps, choice, safety, counts, results, buffer):
    """Run `beams` with ``Matrices``."""
    T, S = batch.log_unary.shape[1:]
    space = make_space(T, S, S, choice.refine, steps.is_log, False, batch.log_unary)
    return beams(start, stop, batch, steps, space, choice, safety, counts, results, buffer)
