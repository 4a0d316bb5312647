"""Compiled forward-backward with beams in log space, float64: slow, but correct for every input.

One kernel for all transitions. Those from state i are the entries ``indptr[i]`` to ``indptr[i+1]`` of ``values``, which
lead to ``targets``; or, with empty ``targets``, the S numbers from ``(t - 1) * time_step + i S`` on, which lead to all
states.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import lanes
from trelliswork.inference.chain.beam.kernels.select import make_selection, select


class LogChain(NamedTuple):
    """One sequence with dense or sparse transitions."""

    log_unary: Any  # (T, L) scores of labels
    emits: Any  # (S,) label of each state
    log_start: Any  # (S,)
    log_end: Any  # (S,)
    indptr: Any
    targets: Any
    values: Any
    time_step: int


@helper(allocates=True)
def _state_scores(chain):
    """Return the scores (T, S) of the states at each position, with those of the ends."""
    T, S = len(chain.log_unary), chain.emits.size
    unary = np.empty((T, S))
    for t in range(T):
        for j in range(S):
            unary[t, j] = chain.log_unary[t, chain.emits[j]]
    unary[0] += chain.log_start
    unary[T - 1] += chain.log_end
    return unary


@helper
def _entries(i, t, chain):
    """Return the first entry of the transitions from state i into position t, and the end of them."""
    if chain.targets.size:
        return chain.indptr[i], chain.indptr[i + 1]
    S = chain.emits.size
    begin = (t - 1) * chain.time_step + i * S
    return begin, begin + S


@helper(allocates=True)
def _step(before, t, chain, out):
    """Set out[j] = log sum_i exp(before[i] + value(i, j)); -inf where nothing leads to j."""
    S, targets, values = before.size, chain.targets, chain.values
    top = np.full(S, -np.inf)
    for sweep in range(2):
        if sweep == 1:
            out[:] = 0
        for i in range(S):
            if not before[i] > -np.inf:
                continue
            begin, end = _entries(i, t, chain)
            for k in range(begin, end):
                j = targets[k] if targets.size else k - begin
                value = before[i] + values[k]
                if sweep == 0:
                    top[j] = max(top[j], value)
                elif top[j] > -np.inf:
                    out[j] += math.exp(value - top[j])
    for j in range(S):
        out[j] = math.log(out[j]) + top[j] if top[j] > -np.inf else -np.inf


@helper
def _ahead_sum(i, ahead, t, chain):
    """Return log sum_j exp(value(i, j) + ahead[j])."""
    targets, values = chain.targets, chain.values
    begin, end = _entries(i, t, chain)
    top = -np.inf
    for k in range(begin, end):
        top = max(top, values[k] + ahead[targets[k] if targets.size else k - begin])
    if top == -np.inf:
        return top
    mass = 0.0
    for k in range(begin, end):
        mass += math.exp(values[k] + ahead[targets[k] if targets.size else k - begin] - top)
    return top + math.log(mass)


@helper(allocates=True)
def _choose(scores, rule, forced, member, values, selection):
    """Mark the beam of log masses ``scores`` (S,) in ``member``; return the share kept, nan if there is none."""
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
    if rule.keep >= 1:
        for j in range(S):
            member[j] = scores[j] > -np.inf or j == forced
        return 1.0
    selection.guess[0] = 0.03
    n = select(values, 0, S, values.size, mass, rule, forced, selection)
    mass_kept = 0.0
    for k in range(n):
        member[selection.chosen[k]] = True
        mass_kept += values[selection.chosen[k]]
    return min(1.0, mass_kept / mass)


@kernel(allocates=True)
def choose(chain, choice, member, kept):
    """Fill ``member`` (T, S), the beams of one sequence; return False if they lose every path."""
    T, S = member.shape
    gold, rule = choice.gold, choice.rule
    width = -(-S // lanes(kept)) * lanes(kept)
    values, selection = np.zeros(width), make_selection(S, width, kept)
    belief, alpha, unary = np.zeros((T, S)), np.full(S, -np.inf), _state_scores(chain)
    for t in range(T):
        if t > 0:
            _step(alpha, t, chain, belief[t])
        belief[t] += unary[t]
        kept[t] = _choose(belief[t], rule, gold[t] if gold.size else -1, member[t], values, selection)
        if not kept[t] > 0:
            return False
        for j in range(S):
            alpha[j] = belief[t, j] if member[t, j] else -np.inf
    if not choice.refine:
        return True
    log_beta, ahead = np.zeros(S), np.empty(S)
    for t in range(T - 1, -1, -1):
        forced = gold[t] if gold.size else -1
        kept[t] = _choose(belief[t] + log_beta, rule, forced, member[t], values, selection)
        if not kept[t] > 0:
            return False
        if t > 0:
            for j in range(S):
                ahead[j] = unary[t, j] + log_beta[j] if member[t, j] else -np.inf
            for i in range(S):
                log_beta[i] = _ahead_sum(i, ahead, t, chain)
    return True


@kernel(allocates=True)
def masked(chain, weight, member, marginals, counts, edges):
    """Return log Z of one sequence inside ``member`` (T, S); fill the weighted marginals (T, S), add the transitions.

    ``counts`` has one number per entry, or is (S, S) flat; ``edges`` (T-1, S, S) flat takes the transitions of each
    position. Either may be empty. An impossible sequence adds nothing.
    """
    T, S = member.shape
    targets, values = chain.targets, chain.values
    alpha, unary = np.zeros((T, S)), _state_scores(chain)
    marginals[:] = 0
    for t in range(T):
        for j in range(S):
            unary[t, j] = unary[t, j] if member[t, j] else -np.inf
        if t > 0:
            _step(alpha[t - 1], t, chain, alpha[t])
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
            log_beta[i] = _ahead_sum(i, ahead, t, chain)
            x = alpha[t - 1, i] - log_z
            if not x > -np.inf or not (counts.size or edges.size):
                continue
            begin, end = _entries(i, t, chain)
            for k in range(begin, end):
                j = targets[k] if targets.size else k - begin
                p = weight * math.exp(x + values[k] + ahead[j])
                if counts.size:
                    counts[k if targets.size else i * S + j] += p
                if edges.size:
                    edges[((t - 1) * S + i) * S + j] = p
    return log_z
