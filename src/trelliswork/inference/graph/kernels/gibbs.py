"""Gibbs sampling.

Random numbers come from a counter (splitmix64) for each graph, so that they do not depend on the number of threads.
"""

import math
from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.random import uniform
from trelliswork.inference.graph.kernels.records import Doubles, Flat, Integers, Neighbors, Variables


class Schedule(NamedTuple):
    """Sweeps of a walk: after ``burn_in`` of them, ``n_kept`` are kept."""

    burn_in: int
    n_kept: int


class Walk(NamedTuple):
    """Position of each walk, and scratch."""

    counters: np.ndarray  # (B,) of uint64
    states: Integers  # (B, V)
    scores: Doubles  # (S,)
    joint: Doubles  # (S * S,)


class Averages(NamedTuple):
    """Results of a walk; the last two may be empty."""

    marginals: Doubles  # (B, N) averages of the conditional probabilities
    entries: Doubles  # (B, sum of n_entries) relative frequencies of the states of each factor
    draws: Integers  # (n_kept, B, V)


@helper
def _place(b, f, flat, states):
    """Index in the tables of the entry of factor f for these states."""
    at = flat.base[f] + b * flat.step[f]
    for a in range(flat.ptr[f], flat.ptr[f + 1]):
        at += flat.strides[a] * states[flat.variables[a]]
    return at


@helper
def _score(b, v, skipped, variables, flat, near, states, scores):
    """scores[x] = score of state x of variable v given the others, without factors that touch ``skipped`` too."""
    n = variables.n_states[v]
    for x in range(n):
        scores[x] = variables.log_unary[b, variables.offsets[v] + x]
    for e in range(near.ptr[v], near.ptr[v + 1]):
        f = near.factors[e]
        both = False
        if skipped >= 0:
            for a in range(flat.ptr[f], flat.ptr[f + 1]):
                both = both or flat.variables[a] == skipped
        if not both:
            move = flat.strides[flat.ptr[f] + near.axes[e]]
            at = _place(b, f, flat, states) - move * states[v]
            for x in range(n):
                scores[x] += flat.tables[at + x * move]


@helper
def _normalize(scores, n):
    """Replace n scores by probabilities; at least one is finite."""
    top = -np.inf
    for x in range(n):
        top = max(top, scores[x])
    total = 0.0
    for x in range(n):
        scores[x] = math.exp(scores[x] - top)
        total += scores[x]
    for x in range(n):
        scores[x] /= total


@helper
def choose(probabilities, n, left):
    """Return the one of n in whose share of [0, 1) the number ``left`` is; never one with probability zero."""
    chosen = 0
    for x in range(n):
        if probabilities[x] > 0:
            chosen = x
            left -= probabilities[x]
            if left < 0:
                break
    return chosen


@kernel
def sample(
    start, stop, variables: Variables, flat: Flat, near: Neighbors, pairs, schedule: Schedule, walk: Walk,
    averages: Averages,
):  # fmt: skip
    """Sweep over variables and ``pairs`` (n, 2) of graphs ``start:stop``; add to the averages, fill the draws."""
    n_states, offsets = variables.n_states, variables.offsets
    burn_in, n_kept = schedule
    scores, joint = walk.scores, walk.joint
    marginals, entries, draws = averages
    for b in range(start, stop):
        here, counter = walk.states[b], walk.counters[b : b + 1]
        for sweep in range(burn_in + n_kept):
            kept = sweep >= burn_in
            for i in range(pairs.shape[0]):
                u, v = pairs[i, 0], pairs[i, 1]
                _score(b, u, v, variables, flat, near, here, scores)
                n = n_states[v]
                for x in range(n_states[u]):
                    row = joint[x * n : x * n + n]
                    if scores[x] == -np.inf:
                        row[:] = -np.inf
                        continue
                    here[u] = x
                    _score(b, v, -1, variables, flat, near, here, row)
                    for y in range(n):
                        row[y] += scores[x]
                _normalize(joint, n_states[u] * n)
                chosen = choose(joint, n_states[u] * n, uniform(counter))
                here[u], here[v] = chosen // n, chosen % n
            for v in range(n_states.size):
                _score(b, v, -1, variables, flat, near, here, scores)
                _normalize(scores, n_states[v])
                here[v] = choose(scores, n_states[v], uniform(counter))
                if kept:
                    for x in range(n_states[v]):
                        marginals[b, offsets[v] + x] += scores[x] / n_kept
            if kept:
                if draws.shape[0] > 0:
                    for v in range(n_states.size):
                        draws[sweep - burn_in, b, v] = here[v]
                if entries.shape[1] > 0:
                    at = 0
                    for f in range(flat.base.size):
                        entries[b, at + _place(b, f, flat, here) - flat.base[f] - b * flat.step[f]] += 1.0 / n_kept
                        at += flat.n_entries[f]
