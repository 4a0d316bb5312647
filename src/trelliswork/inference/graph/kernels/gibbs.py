"""Compiled walks over assignments: Gibbs sampling, and a local search for an assignment that is possible.

``flat`` is a `flat.Flat`; the factors of variable v are ``near_ptr[v]:near_ptr[v + 1]`` of ``near``, its axes in them
stand in ``near_axis``. Random numbers come from a counter (splitmix64), one for each graph: the same on any number of
threads.
"""

import math

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.kernels.random import uniform


@kernel
def _place(b, f, flat, states):
    """Where the entry of factor f for these states lies in the tables."""
    at = flat.base[f] + b * flat.step[f]
    for a in range(flat.ptr[f], flat.ptr[f + 1]):
        at += flat.strides[a] * states[flat.variables[a]]
    return at


@kernel
def _score(b, v, skipped, flat, near_ptr, near, near_axis, n_states, offsets, log_unary, states, scores):
    """scores[x] = all that depends on variable v when its state is x, but for factors that touch ``skipped`` too."""
    for x in range(n_states[v]):
        scores[x] = log_unary[b, offsets[v] + x]
    for e in range(near_ptr[v], near_ptr[v + 1]):
        f = near[e]
        both = False
        if skipped >= 0:
            for a in range(flat.ptr[f], flat.ptr[f + 1]):
                both = both or flat.variables[a] == skipped
        if not both:
            move = flat.strides[flat.ptr[f] + near_axis[e]]
            at = _place(b, f, flat, states) - move * states[v]
            for x in range(n_states[v]):
                scores[x] += flat.tables[at + x * move]


@kernel
def _normalise(scores, n):
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


@kernel
def _draw(probabilities, n, counter):
    """Draw one of n; never one with probability zero."""
    left, chosen = uniform(counter), 0
    for x in range(n):
        if probabilities[x] > 0:
            chosen = x
            left -= probabilities[x]
            if left < 0:
                break
    return chosen


@kernel
def sample(
    start, stop, flat, near_ptr, near, near_axis, n_states, offsets, log_unary, pairs, burn_in, n_kept, thin, counters,
    states, scores, joint, marginals, entries, draws,
):  # fmt: skip
    """Sweep over variables and ``pairs`` (n, 2); after ``burn_in`` sweeps keep ``n_kept``, each ``thin``-th one.

    Adds to marginals (B, N) the average of the conditional probabilities met; to entries (B, sum of n_entries) how
    often the factors were in each state; fills draws (n_kept, B, V). The last two may be empty. Scratch: scores (S,),
    joint (S * S,).
    """
    V = n_states.size
    for b in range(start, stop):
        here, counter = states[b], counters[b : b + 1]
        for sweep in range(burn_in + n_kept * thin):
            kept = sweep >= burn_in and (sweep - burn_in + 1) % thin == 0
            for i in range(pairs.shape[0]):
                u, v = pairs[i, 0], pairs[i, 1]
                _score(b, u, v, flat, near_ptr, near, near_axis, n_states, offsets, log_unary, here, scores)
                n = n_states[v]
                for x in range(n_states[u]):
                    if scores[x] == -np.inf:
                        joint[x * n : x * n + n] = -np.inf
                        continue
                    here[u] = x
                    row = joint[x * n : x * n + n]
                    _score(b, v, -1, flat, near_ptr, near, near_axis, n_states, offsets, log_unary, here, row)
                    for y in range(n):
                        row[y] += scores[x]
                _normalise(joint, n_states[u] * n)
                chosen = _draw(joint, n_states[u] * n, counter)
                here[u], here[v] = chosen // n, chosen % n
            for v in range(V):
                _score(b, v, -1, flat, near_ptr, near, near_axis, n_states, offsets, log_unary, here, scores)
                _normalise(scores, n_states[v])
                here[v] = _draw(scores, n_states[v], counter)
                if kept:
                    for x in range(n_states[v]):
                        marginals[b, offsets[v] + x] += scores[x] / n_kept
            if kept:
                if draws.shape[0] > 0:
                    draws[(sweep - burn_in) // thin, b] = here
                if entries.shape[1] > 0:
                    at = 0
                    for f in range(flat.base.size):
                        entries[b, at + _place(b, f, flat, here) - flat.base[f] - b * flat.step[f]] += 1.0 / n_kept
                        at += flat.n_entries[f]


@kernel
def _broken(b, v, flat, near_ptr, near, near_axis, n_states, offsets, log_unary, states, count):
    """count[x] = factors of v that forbid its state x; more than there are where its own scores do."""
    for x in range(n_states[v]):
        count[x] = 0 if log_unary[b, offsets[v] + x] > -np.inf else near.size + 1
    for e in range(near_ptr[v], near_ptr[v + 1]):
        f = near[e]
        move = flat.strides[flat.ptr[f] + near_axis[e]]
        at = _place(b, f, flat, states) - move * states[v]
        for x in range(n_states[v]):
            if flat.tables[at + x * move] == -np.inf:
                count[x] += 1


@kernel
def search(
    graphs, flat, near_ptr, near, near_axis, n_states, offsets, log_unary, max_steps, counters, states, count, waiting,
    position, found,
):  # fmt: skip
    """Look for assignments states (n, V) of ``graphs`` (n,) that no factor forbids: min-conflicts with noise.

    Begins at the best unary scores. Scratch: count (S,), waiting and position (F,). found (n,) says whether it did.
    """
    F = flat.base.size
    for g in range(graphs.size):
        b, here, counter = graphs[g], states[g], counters[g : g + 1]
        found[g] = True
        for v in range(n_states.size):
            top = 0
            for x in range(1, n_states[v]):
                if log_unary[b, offsets[v] + x] > log_unary[b, offsets[v] + top]:
                    top = x
            here[v] = top
            found[g] = found[g] and log_unary[b, offsets[v] + top] > -np.inf
        if not found[g]:
            continue
        n_waiting = 0
        for f in range(F):
            position[f] = -1
            if flat.tables[_place(b, f, flat, here)] == -np.inf:
                position[f], waiting[n_waiting] = n_waiting, f
                n_waiting += 1
        for _ in range(max_steps):
            if n_waiting == 0:
                break
            f = waiting[int(uniform(counter) * n_waiting)]
            first, k = flat.ptr[f], flat.ptr[f + 1] - flat.ptr[f]
            noisy = uniform(counter) < 0.1
            only = flat.variables[first + int(uniform(counter) * k)]
            chosen, state, least, ties = -1, -1, near.size + 1, 0
            for a in range(k):
                v = flat.variables[first + a]
                if noisy and v != only:
                    continue
                _broken(b, v, flat, near_ptr, near, near_axis, n_states, offsets, log_unary, here, count)
                for x in range(n_states[v]):
                    if x == here[v] or count[x] > near.size:
                        continue
                    value = 0 if noisy else count[x]
                    if value < least:
                        chosen, state, least, ties = v, x, value, 1
                    elif value == least:
                        ties += 1
                        if uniform(counter) * ties < 1:
                            chosen, state = v, x
            if chosen < 0:
                continue
            here[chosen] = state
            for e in range(near_ptr[chosen], near_ptr[chosen + 1]):
                f = near[e]
                broken = flat.tables[_place(b, f, flat, here)] == -np.inf
                if broken and position[f] < 0:
                    position[f], waiting[n_waiting] = n_waiting, f
                    n_waiting += 1
                elif not broken and position[f] >= 0:
                    n_waiting -= 1
                    moved = waiting[n_waiting]
                    waiting[position[f]], position[moved] = moved, position[f]
                    position[f] = -1
        found[g] = n_waiting == 0
