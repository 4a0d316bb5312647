"""Compiled forward-backward with beams in log space, float64: slower than ``beam_kernels``, right for every input.

One kernel for all transitions. Those out of state i are the entries ``indptr[i]`` to ``indptr[i+1]`` of ``weights``,
leading to ``targets``; or, with empty ``targets``, the S numbers from ``first + (t - 1) * time_step + i S`` on, leading
to all states. State j scores ``log_unary[at + t * unary_stride + emits[j]]``, and ``log_start[j]`` and ``log_end[j]``
at the ends.
"""

import math

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import lanes
from trelliswork.inference.chain.beam.kernels.select import select


@kernel
def _entries(i, t, S, indptr, targets, first, time_step):
    """First and last entry of the transitions from state i into position t."""
    if targets.size:
        return indptr[i], indptr[i + 1]
    begin = first + (t - 1) * time_step + i * S
    return begin, begin + S


@kernel
def _step(before, t, indptr, targets, weights, first, time_step, out):
    """out[j] = log sum_i exp(before[i] + weight(i, j)); -inf where nothing leads to j."""
    S = before.size
    top = np.full(S, -np.inf)
    for sweep in range(2):
        if sweep == 1:
            out[:] = 0
        for i in range(S):
            if not before[i] > -np.inf:
                continue
            begin, end = _entries(i, t, S, indptr, targets, first, time_step)
            for k in range(begin, end):
                j = targets[k] if targets.size else k - begin
                value = before[i] + weights[k]
                if sweep == 0:
                    top[j] = max(top[j], value)
                elif top[j] > -np.inf:
                    out[j] += math.exp(value - top[j])
    for j in range(S):
        out[j] = math.log(out[j]) + top[j] if top[j] > -np.inf else -np.inf


@kernel
def _ahead_sum(i, ahead, t, indptr, targets, weights, first, time_step):
    """log sum_j exp(weight(i, j) + ahead[j])."""
    begin, end = _entries(i, t, ahead.size, indptr, targets, first, time_step)
    top = -np.inf
    for k in range(begin, end):
        top = max(top, weights[k] + ahead[targets[k] if targets.size else k - begin])
    if top == -np.inf:
        return top
    mass = 0.0
    for k in range(begin, end):
        mass += math.exp(weights[k] + ahead[targets[k] if targets.size else k - begin] - top)
    return top + math.log(mass)


@kernel
def _choose(scores, least, keep, ratio, forced, member, values, chosen, work):
    """Mark the beam of log masses ``scores`` (S,) in ``member``; return the share kept, nan if none."""
    S = scores.size
    member[:] = False
    top = scores.max()
    if not top > -np.inf:
        return np.nan
    mass = 0.0
    values[:] = 0
    for j in range(S):
        values[j] = math.exp(scores[j] - top)
        mass += values[j]
    if keep >= 1:
        for j in range(S):
            member[j] = scores[j] > -np.inf or j == forced
        return 1.0
    n = select(values, 0, S, values.size, mass, least, keep, ratio, forced, chosen, work, np.full(1, 0.03))
    mass_kept = 0.0
    for k in range(n):
        member[chosen[k]] = True
        mass_kept += values[chosen[k]]
    return min(1.0, mass_kept / mass)


@kernel
def choose(
    T, log_unary, at, unary_stride, emits, log_start, log_end, indptr, targets, weights, first, time_step,
    gold, first_gold, least, keep, ratio, refined, member, kept,
):  # fmt: skip
    """Fill ``member`` (T, S), the beams of one sequence; False if they lose every path."""
    S = emits.size
    width = -(-S // lanes(kept)) * lanes(kept)
    values, work, chosen = np.zeros(width), np.empty(width), np.empty(S, np.int32)
    belief = np.empty((T, S))
    alpha, unary = np.full(S, -np.inf), np.empty((T, S))
    for t in range(T):
        for j in range(S):
            unary[t, j] = log_unary[at + t * unary_stride + emits[j]]
        if t == 0:
            unary[t] += log_start
            belief[t] = 0
        else:
            _step(alpha, t, indptr, targets, weights, first, time_step, belief[t])
        if t == T - 1:
            unary[t] += log_end
        belief[t] += unary[t]
        forced = gold[first_gold + t] if gold.size else -1
        kept[t] = _choose(belief[t], least, keep, ratio, forced, member[t], values, chosen, work)
        if not kept[t] > 0:
            return False
        for j in range(S):
            alpha[j] = belief[t, j] if member[t, j] else -np.inf
    if not refined:
        return True
    log_beta, ahead = np.zeros(S), np.empty(S)
    for t in range(T - 1, -1, -1):
        forced = gold[first_gold + t] if gold.size else -1
        kept[t] = _choose(belief[t] + log_beta, least, keep, ratio, forced, member[t], values, chosen, work)
        if not kept[t] > 0:
            return False
        if t > 0:
            for j in range(S):
                ahead[j] = unary[t, j] + log_beta[j] if member[t, j] else -np.inf
            for i in range(S):
                log_beta[i] = _ahead_sum(i, ahead, t, indptr, targets, weights, first, time_step)
    return True


@kernel
def masked(
    T, log_unary, at, unary_stride, emits, log_start, log_end, indptr, targets, weights, first, time_step,
    weight, member, marginals, counts, edges,
):  # fmt: skip
    """log Z of one sequence inside ``member`` (T, S), weighted marginals (T, S), and weighted transitions added up:

    ``counts`` has a number for each entry, or (S, S) flat; ``edges`` (T-1, S, S) flat takes them one by one. Either may
    be empty. An impossible sequence adds nothing.
    """
    S = emits.size
    alpha, unary = np.empty((T, S)), np.empty((T, S))
    marginals[:] = 0
    for t in range(T):
        for j in range(S):
            unary[t, j] = log_unary[at + t * unary_stride + emits[j]] if member[t, j] else -np.inf
        if t == 0:
            unary[t] += log_start
            alpha[t] = 0
        else:
            _step(alpha[t - 1], t, indptr, targets, weights, first, time_step, alpha[t])
        if t == T - 1:
            unary[t] += log_end
        alpha[t] += unary[t]
    top = alpha[T - 1].max()
    if not top > -np.inf:
        return -np.inf
    log_z = top + math.log(np.exp(alpha[T - 1] - top).sum())
    log_beta, ahead = np.zeros(S), np.empty(S)
    for t in range(T - 1, -1, -1):
        for j in range(S):
            marginals[t, j] = weight * math.exp(alpha[t, j] + log_beta[j] - log_z)
        if t == 0:
            break
        ahead[:] = unary[t] + log_beta
        for i in range(S):
            if not member[t - 1, i]:
                continue
            log_beta[i] = _ahead_sum(i, ahead, t, indptr, targets, weights, first, time_step)
            x = alpha[t - 1, i] - log_z
            if not x > -np.inf or not (counts.size or edges.size):
                continue
            begin, end = _entries(i, t, S, indptr, targets, first, time_step)
            for k in range(begin, end):
                j = targets[k] if targets.size else k - begin
                p = weight * math.exp(x + weights[k] + ahead[j])
                if counts.size:
                    counts[k if targets.size else i * S + j] += p
                if edges.size:
                    edges[((t - 1) * S + i) * S + j] = p
    return log_z
