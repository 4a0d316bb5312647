"""Sparse transitions of beams, for state spaces such as pairs or n-grams of labels.

State j emits the label ``emits[j]``, and scores are given for labels, L per position. Only states that some state of
the beam leads to are computed (*reached*), and only entries of states in the beam are read: time O(L + sum of the
entries of the beam) per position, independent of S. States with a score of -inf are never reached.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import get, lanes
from trelliswork.inference.chain.beam.kernels.forward_backward import beams, make_space


@helper
def _n_states(steps, log_unary):
    return steps.emits.size


@helper
def _state_at(steps, to, k, s):
    return s.reached[to + k]


@helper
def _emitted(steps, T, t, j, s):
    """Return e_t of the label of state j, with the factors of the ends of the sequence."""
    e = s.emission[t, steps.emits[j]]
    if t == 0:
        e *= steps.start[j]
    if t == T - 1:
        e *= steps.end[j]
    return e


@helper
def _push(steps, sequence, t, to, s):
    """Compute equation (1) for the states that the last beam leads to."""
    indptr, targets, values, emits, start = steps.indptr, steps.targets, steps.values, steps.emits, steps.start
    clock, ptr, states, alpha, mark = s.clock, s.ptr, s.states, s.alpha, s.mark
    dense, reached, belief, scores, W = s.dense, s.reached, s.belief, sequence.log_unary, lanes(s.belief)
    at, n, mass = sequence.at + t * sequence.stride, 0, 0.0
    clock[0] += 1
    now = clock[0]
    if t == 0:
        for j in range(emits.size):
            if start[j] > 0 and get(scores, at + emits[j]) > -np.inf:
                reached[to + n], dense[j] = j, 1
                n += 1
    else:
        for a in range(ptr[t - 1], ptr[t]):
            i, x = states[a], alpha[a]
            for k in range(indptr[i], indptr[i + 1]):
                j = targets[k]
                if not get(scores, at + emits[j]) > -np.inf:
                    continue
                if mark[j] != now:
                    mark[j] = now
                    dense[j] = 0
                    reached[to + n] = j
                    n += 1
                dense[j] += x * values[k]
    for k in range(to, to + n):
        j = reached[k]
        belief[k] = dense[j] * _emitted(steps, sequence.n_positions, t, j, s)
        mass += belief[k]
    for k in range(to + n, to + -(-n // W) * W):
        belief[k] = 0
    return n, mass


@helper
def _inside(steps, sequence, t, s):
    """Compute alpha of the beam of position t."""
    indptr, targets, values = steps.indptr, steps.targets, steps.values
    ptr, states, alpha, dense = s.ptr, s.states, s.alpha, s.dense
    here = ptr[t]
    for a in range(here, ptr[t + 1]):
        dense[states[a]] = 0 if t > 0 else 1
    for a in range(ptr[t - 1] if t > 0 else here, here):
        i = states[a]
        for k in range(indptr[i], indptr[i + 1]):
            dense[targets[k]] += alpha[a] * values[k]
    for a in range(here, ptr[t + 1]):
        j = states[a]
        alpha[a] = dense[j] * _emitted(steps, sequence.n_positions, t, j, s)


@helper
def _pull_all(steps, sequence, t, to, n, m, s):
    """Compute beta_t of the states reached, from ``ahead`` of the m picked ones that follow; return the largest."""
    indptr, targets, values, dense, highest = steps.indptr, steps.targets, steps.values, s.dense, 0.0
    dense[:] = 0
    for a in range(m):
        dense[s.picked[a]] = s.ahead[a]
    for r in range(n):
        j = s.reached[to + r]
        b = s.beta.dtype.type(0)
        for k in range(indptr[j], indptr[j + 1]):
            b += values[k] * dense[targets[k]]
        s.beta[r] = b
        highest = max(highest, np.float64(b))
    return highest


@helper
def _pull(steps, sequence, t, weight, final, counts, s):
    """Compute beta of the beam of position t - 1; add the expected transitions."""
    indptr, targets, values = steps.indptr, steps.targets, steps.values
    beta, ptr, dense, alpha, states = s.beta, s.ptr, s.dense, s.alpha, s.states
    before, here, n = ptr[t - 1], ptr[t], ptr[t + 1] - ptr[t]
    if t == sequence.n_positions - 1:
        dense[:] = 0
    for k in range(n):
        dense[states[here + k]] = s.ahead[k]
    for a in range(before, here):
        i = states[a]
        b = alpha.dtype.type(0)
        x = alpha[a] * weight
        for k in range(indptr[i], indptr[i + 1]):
            w = dense[targets[k]]
            if w != 0:
                p = values[k] * w
                b += p
                if final and counts.size:
                    counts[k] += x * p
        beta[a - before] = b
    for k in range(n):
        dense[states[here + k]] = 0


class Entries(NamedTuple):
    """Sparse transitions: state i leads to ``targets[indptr[i]:indptr[i + 1]]``; scaled probabilities or logarithms."""

    emits: Any  # (S,) label of each state
    start: Any  # (S,) of first states
    end: Any  # (S,) of last states
    log_ends: float  # taken out of start and end together
    indptr: Any
    targets: Any
    values: Any  # of the transitions
    log_shift: float  # taken out of the logarithms of the transitions
    n_states = _n_states
    push = _push
    state_at = _state_at
    emitted = _emitted
    inside = _inside
    pull = _pull
    pull_all = _pull_all


@kernel(allocates=True)
def sparse(start, stop, batch, steps, choice, safety, counts, results, buffer):
    """Run `beams` with ``Entries``."""
    T, L = batch.log_unary.shape[1:]
    space = make_space(T, steps.emits.size, L, choice.refine, False, True, batch.log_unary)
    return beams(start, stop, batch, steps, space, choice, safety, counts, results, buffer)
