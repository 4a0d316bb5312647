"""Beams that are given, or chosen anew from the end: the rarer half of ``beam_kernels``, with its equations.

Numba's disk cache does not notice edits here in the kernels that call it: ``make clean-kernels`` after a change.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import add, exponential, get, lanes, load, multiply, put, spread, store, subtract, total
from trelliswork.inference.chain.beam.kernels.select import select


@helper
def gather(matrix, at, states, first, n, is_log, shift, row):
    """row[:n] = transitions from one state (its row begins at flat ``at``) to n states, zeros up to a whole vector."""
    W = lanes(row)
    for k in range(n):
        put(row, k, get(matrix, at + get(states, first + k)))
    if is_log:
        width = -(-n // W) * W
        row[n:width] = -np.inf
        by = spread(row, row.dtype.type(shift))
        for k in range(0, width, W):
            store(row, k, exponential(subtract(load(row, k), by)))


@helper
def inside(T, S, matrix, first, stride, time_step, is_log, tops, log_shift, s):
    """Forward within the sets that stand in ``s``: fill alpha, scale and shift; return log Z, -inf if no path is left.

    ``emission`` must be filled; ``tops`` (T,) are the shifts that were taken out of its rows.
    """
    emission, ptr, ahead, shift, states = s.emission, s.ptr, s.ahead, s.shift, s.states
    row, alpha, scale = s.row, s.alpha, s.scale
    log_z = (T - 1) * log_shift
    flat = matrix.reshape(-1)
    for t in range(T):
        here, n = ptr[t], ptr[t + 1] - ptr[t]
        log_z += tops[t]
        ahead[:n] = 1
        if t > 0:
            base = first + (t - 1) * time_step
            before = ptr[t - 1]
            shift[t] = 0
            if is_log:
                highest = -np.inf
                for a in range(before, here):
                    for k in range(n):
                        highest = max(highest, np.float64(flat[base + states[a] * stride + states[here + k]]))
                shift[t] = highest if highest > -np.inf else 0.0
                log_z += shift[t]
            ahead[:n] = 0
            for a in range(before, here):
                gather(matrix, base + states[a] * stride, states, here, n, is_log, shift[t], row)
                for k in range(n):
                    ahead[k] += alpha[a] * row[k]
        c = 0.0
        for k in range(n):
            alpha[here + k] = ahead[k] * emission[t, states[here + k]]
            c += alpha[here + k]
        scale[t] = c
        log_z += math.log(c) if c > 0 else -np.inf
        if not log_z > -np.inf:
            return -np.inf
        inverse = alpha.dtype.type(1 / c)
        for k in range(n):
            alpha[here + k] *= inverse
    return log_z


@helper
def refine(T, S, matrix, first, stride, time_step, is_log, gold, first_gold, least, keep, ratio, spare, s):
    """Choose the sets anew from the last position to the first by belief times a dense beta; False if it underflows.

    ``spare`` (T S,) takes the new states, last position first.
    """
    emission, beta, work, belief, chosen = s.emission, s.beta, s.work, s.belief, s.chosen
    kept, ahead, row, ptr, states = s.kept, s.ahead, s.row, s.ptr, s.states
    guess = s.guess
    Sp, W = emission.shape[1], lanes(emission)
    flat = matrix.reshape(-1)
    beta[:] = 1
    used = 0
    sizes = np.empty(T, np.int64)
    for t in range(T - 1, -1, -1):
        mass = spread(work, 0.0)
        for k in range(0, Sp, W):
            product = multiply(load(belief, t * Sp + k), load(beta, k))
            store(belief, t * Sp + k, product)
            mass = add(mass, product)
        m = total(mass)
        forced = gold[first_gold + t] if gold.size else -1
        n = select(belief, t * Sp, S, Sp, m, least, keep, ratio, forced, chosen, work, guess)
        mass_kept = 0.0
        for a in range(n):
            spare[used + n - 1 - a] = chosen[a]
            mass_kept += belief[t, chosen[a]]
        if not (m > 0 and mass_kept > 0):
            return False
        kept[t] = min(1.0, mass_kept / m)
        used += n
        sizes[t] = n
        if t == 0:
            break
        highest = 0.0
        for a in range(n):
            ahead[a] = emission[t, chosen[a]] * beta[chosen[a]]
        base, shift = first + (t - 1) * time_step, -np.inf
        if is_log:
            for i in range(S):
                for a in range(n):
                    shift = max(shift, np.float64(flat[base + i * stride + chosen[a]]))
        for i in range(S):
            gather(matrix, base + i * stride, chosen, 0, n, is_log, shift if shift > -np.inf else 0.0, row)
            b = row.dtype.type(0)
            for a in range(n):
                b += row[a] * ahead[a]
            beta[i] = b
            highest = max(highest, np.float64(b))
        if not 0 < highest < np.inf:
            return False
        inverse = beta.dtype.type(1 / highest)
        for i in range(S):
            beta[i] *= inverse
    to = 0
    for t in range(T):
        ptr[t] = to
        for a in range(sizes[t]):
            used -= 1
            states[to + a] = spare[used]
        to += sizes[t]
    ptr[T] = to
    return True
