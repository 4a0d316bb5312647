"""Compiled sparse forward-backward with beams where only few transitions exist, in probability space.

As ``beam_kernels``, for state spaces such as pairs or n-grams of labels: state i leads to ``targets[indptr[i]:
indptr[i+1]]`` alone, with weights beside them. State j emits label ``emits[j]``, which is what scores are given for, L
of them a position. Only states that some state of the beam leads to are ever looked at (*reached*), and only entries of
states in the beam: time O(L + sum of the entries of the beam) a position, whatever S is.
"""

import math
from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import lanes
from trelliswork.inference.chain.beam.kernels.select import select


class SparseSpace(NamedTuple):
    """Working memory for one sequence at a time."""

    emission: np.ndarray  # (T, Lp)
    reached_ptr: np.ndarray  # (T + 1,)
    reached: np.ndarray  # (T S,) when refining, else (S,)
    belief: np.ndarray  # the same size, and a vector more
    mark: np.ndarray  # (S,) the last position, counted over all sequences, that reached a state
    clock: np.ndarray  # (1,)
    dense: np.ndarray  # (S,) sums by state
    ptr: np.ndarray  # (T + 1,)
    states: np.ndarray  # (T S,)
    alpha: np.ndarray  # (T S,) then the marginals
    scale: np.ndarray  # (T,)
    kept: np.ndarray  # (T,)
    chosen: np.ndarray  # (S,)
    work: np.ndarray  # (S,) and a vector more
    beta: np.ndarray  # (S,)
    guess: np.ndarray  # (1,) of ``select``


@helper
def make_space(T, S, Lp, refine, like):
    """Allocate a ``SparseSpace`` in the precision of the array ``like``."""
    dtype, n = like.dtype, T * S if refine else S
    return SparseSpace(
        np.empty((T, Lp), dtype), np.zeros(T + 1, np.int64), np.empty(n, np.int32), np.zeros(n + lanes(like), dtype),
        np.zeros(S, np.int64), np.zeros(1, np.int64), np.zeros(S, dtype),
        np.zeros(T + 1, np.int64), np.empty(T * S, np.int32), np.empty(T * S, dtype), np.empty(T, dtype), np.zeros(T),
        np.empty(S, np.int32), np.empty(S + lanes(like), dtype), np.empty(S, dtype), np.full(1, 0.03, dtype),
    )  # fmt: skip


@helper
def _spread_out(t, indptr, targets, weights, to, s):
    """Reach the successors of beam t-1; their sums go to ``dense``, they to ``reached[to:]``; return how many."""
    clock, ptr, states, alpha, mark = s.clock, s.ptr, s.states, s.alpha, s.mark
    dense, reached = s.dense, s.reached
    clock[0] += 1
    now, n = clock[0], 0
    for a in range(ptr[t - 1], ptr[t]):
        i, x = states[a], alpha[a]
        for k in range(indptr[i], indptr[i + 1]):
            j = targets[k]
            if mark[j] != now:
                mark[j] = now
                dense[j] = 0
                reached[to + n] = j
                n += 1
            dense[j] += x * weights[k]
    return n


@helper
def _end_factor(t, T, j, start, end):
    """What the ends of the sequence multiply to state j at position t."""
    f = start[j] if t == 0 else start.dtype.type(1)
    return f * end[j] if t == T - 1 else f


@helper
def forward(
    T, L, log_unary, at, unary_stride, emits, start, end, log_ends, indptr, targets, weights, log_shift,
    gold, first_gold, least, keep, ratio, s,
):  # fmt: skip
    """Choose the beams of a sequence and fill its alpha; return log Z of the chain restricted to them, -inf if lost.

    ``start``, ``end`` (S,) multiply the masses at the ends; ``log_ends`` was taken out of both together.
    """
    guess = s.guess
    emission, ptr, reached_ptr, belief, reached = s.emission, s.ptr, s.reached_ptr, s.belief, s.reached
    dense, chosen, work = s.dense, s.chosen, s.work
    S, Lp, W = emits.size, emission.shape[1], lanes(emission)
    log_z = (T - 1) * log_shift + log_ends
    ptr[0], reached_ptr[0] = 0, 0
    for t in range(T):
        log_z += exp_row(log_unary, at + t * unary_stride, L, emission, t * Lp, Lp)
        to = reached_ptr[t] if belief.size > S + W else 0
        if t == 0:
            n = S
            for j in range(S):
                reached[j], dense[j] = j, 1
        else:
            n = _spread_out(t, indptr, targets, weights, to, s)
        reached_ptr[t + 1] = to + n
        mass, place = 0.0, -1
        wanted = gold[first_gold + t] if gold.size else -1
        ends = t == 0 or t == T - 1
        for r in range(to, to + n):
            j = reached[r]
            v = dense[j] * emission[t, emits[j]]
            if ends:
                v *= _end_factor(t, T, j, start, end)
            belief[r] = v
            mass += v
            place = r - to if j == wanted else place
        width = -(-n // W) * W
        for r in range(to + n, to + width):
            belief[r] = 0
        size = select(belief, to, n, width, mass, least, keep, ratio, place, chosen, work, guess)
        log_z += _keep(t, size, mass, to, s)
        if not log_z > -np.inf:
            return -np.inf
    return log_z


@helper
def _keep(t, n, mass, to, s):
    """Compress: states and alpha of position t from ``chosen``; return the logarithm of c_t."""
    ptr, chosen, states, reached, alpha = s.ptr, s.chosen, s.states, s.reached, s.alpha
    belief, scale, kept = s.belief, s.scale, s.kept
    first, c = ptr[t], 0.0
    for a in range(n):
        r = to + chosen[a]
        states[first + a] = reached[r]
        alpha[first + a] = belief[r]
        c += belief[r]
    ptr[t + 1] = first + n
    scale[t] = c
    inverse = alpha.dtype.type(1 / c if c > 0 else 0.0)
    for a in range(n):
        alpha[first + a] *= inverse
    kept[t] = min(1.0, c / mass) if c > 0 else 1.0
    return math.log(c) if c > 0 else -np.inf


@helper
def inside(T, L, log_unary, at, unary_stride, emits, start, end, log_ends, indptr, targets, weights, log_shift, s):
    """Forward within the sets that stand in ``s``; ``emission`` is filled; return log Z, -inf if no path is left."""
    ptr, dense, states, alpha, emission = s.ptr, s.dense, s.states, s.alpha, s.emission
    scale = s.scale
    log_z = (T - 1) * log_shift + log_ends
    scores = log_unary.reshape(-1)
    for t in range(T):
        top = -np.inf
        for j in range(L):
            top = max(top, np.float64(scores[at + t * unary_stride + j]))
        log_z += top
        here, c = ptr[t], 0.0
        if t > 0:
            for a in range(here, ptr[t + 1]):
                dense[states[a]] = 0
            for a in range(ptr[t - 1], here):
                i = states[a]
                for k in range(indptr[i], indptr[i + 1]):
                    dense[targets[k]] += alpha[a] * weights[k]
        for a in range(here, ptr[t + 1]):
            j = states[a]
            v = dense[j] if t > 0 else dense.dtype.type(1)
            alpha[a] = v * emission[t, emits[j]] * _end_factor(t, T, j, start, end)
            c += alpha[a]
        scale[t] = c
        log_z += math.log(c) if c > 0 else -np.inf
        if not log_z > -np.inf:
            return -np.inf
        inverse = alpha.dtype.type(1 / c)
        for a in range(here, ptr[t + 1]):
            alpha[a] *= inverse
    return log_z


@helper
def refine(T, emits, start, end, indptr, targets, weights, gold, first_gold, least, keep, ratio, spare, s):
    """Choose the sets anew from the end by belief times beta, among the states reached; False if it underflows.

    ``spare`` (T S,) takes the new states, last position first.
    """
    guess = s.guess
    emission, dense, reached_ptr, reached, beta = s.emission, s.dense, s.reached_ptr, s.reached, s.beta
    work, belief, chosen, kept, ptr = s.work, s.belief, s.chosen, s.kept, s.ptr
    states = s.states
    W = lanes(emission)
    sizes = np.empty(T, np.int64)
    used = 0
    dense[:] = 0
    for t in range(T - 1, -1, -1):
        to, n = reached_ptr[t], reached_ptr[t + 1] - reached_ptr[t]
        wanted = gold[first_gold + t] if gold.size else -1
        mass, place, highest = 0.0, -1, 0.0
        for r in range(n):
            j = reached[to + r]
            b = beta.dtype.type(1 if t == T - 1 else 0)
            if t < T - 1:
                for k in range(indptr[j], indptr[j + 1]):
                    b += weights[k] * dense[targets[k]]
            beta[r] = b
            highest = max(highest, np.float64(b))
            place = r if j == wanted else place
        if not 0 < highest < np.inf:
            return False
        for a in range(used - sizes[t + 1] if t < T - 1 else used, used):
            dense[spare[a]] = 0
        width = -(-n // W) * W
        work[:] = 0
        values = np.zeros(width, work.dtype)
        for r in range(n):
            beta[r] /= beta.dtype.type(highest)
            values[r] = belief[to + r] * beta[r]
            mass += values[r]
        size = select(values, 0, n, width, mass, least, keep, ratio, place, chosen, work, guess)
        mass_kept = 0.0
        for a in range(size):
            j = reached[to + chosen[a]]
            spare[used + size - 1 - a] = j
            mass_kept += values[chosen[a]]
            dense[j] = beta[chosen[a]] * emission[t, emits[j]] * _end_factor(t, T, j, start, end)
        if not mass_kept > 0:
            return False
        kept[t] = min(1.0, mass_kept / mass)
        used += size
        sizes[t] = size
    to = 0
    for t in range(T):
        ptr[t] = to
        for a in range(sizes[t]):
            used -= 1
            states[to + a] = spare[used]
        to += sizes[t]
    ptr[T] = to
    return True


@helper
def backward(T, emits, start, end, indptr, targets, weights, limit, weight, final, counts, s):
    """Beta inside the beams; False if it is not safe. If ``final``: alpha becomes the weighted marginals, and
    ``counts`` (entries,), unless empty, grow by the weighted expected transitions.
    """
    beta, ptr, dense, alpha, scale = s.beta, s.ptr, s.dense, s.alpha, s.scale
    states, emission = s.states, s.emission
    beta[: ptr[T] - ptr[T - 1]] = 1
    dense[:] = 0
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
            j = states[here + k]
            dense[j] = b * emission[t, emits[j]]
            if t == T - 1:
                dense[j] *= end[j]
        if not top <= limit:
            return False
        before = ptr[t - 1]
        for a in range(before, here):
            i = states[a]
            b = alpha.dtype.type(0)
            x = alpha[a] * weight
            for k in range(indptr[i], indptr[i + 1]):
                w = dense[targets[k]]
                if w != 0:
                    p = weights[k] * w
                    b += p
                    if final and counts.size:
                        counts[k] += x * p
            beta[a - before] = b
        for k in range(n):
            dense[states[here + k]] = 0
    return True


@helper
def one(
    T, L, log_unary, at, unary_stride, emits, start, end, log_ends, indptr, targets, weights, log_shift,
    gold, first_gold, least, keep, ratio, refined, given_ptr, given_states, first_given, limit, weight,
    counts, spare, s,
):  # fmt: skip
    """All of it for one sequence: log Z of the restricted chain, marginals in ``s.alpha``; nan if not safe."""
    emission, ptr, kept, states = s.emission, s.ptr, s.kept, s.states
    scores = (T, L, log_unary, at, unary_stride, emits, start, end, log_ends, indptr, targets, weights, log_shift)
    if given_ptr.size:
        Lp = emission.shape[1]
        begin = given_ptr[first_given]
        for t in range(T):
            exp_row(log_unary, at + t * unary_stride, L, emission, t * Lp, Lp)
            ptr[t + 1] = given_ptr[first_given + t + 1] - begin
            kept[t] = np.nan
        ptr[0] = 0
        states[: ptr[T]] = given_states[begin : begin + ptr[T]]
        log_z = inside(*scores, s)
    else:
        log_z = forward(*scores, gold, first_gold, least, keep, ratio, s)
        if refined and log_z > -np.inf:
            if not refine(
                T, emits, start, end, indptr, targets, weights, gold, first_gold, least, keep, ratio, spare, s
            ):
                return np.nan
            log_z = inside(*scores, s)
    if not log_z > -np.inf:
        return np.nan
    # Few transitions exist: nothing is safe beforehand, so a first look without outputs.
    if not backward(T, emits, start, end, indptr, targets, weights, limit, weight, False, counts, s):
        return np.nan
    backward(T, emits, start, end, indptr, targets, weights, limit, weight, True, counts, s)
    return log_z
