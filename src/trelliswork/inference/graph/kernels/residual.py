"""Residual belief propagation in probability space: update the messages that may change most.

How much a message would change is not computed but bounded by the changes of the messages it depends on, so that an
update computes one message (Sutton and McCallum, 2007, "Improved dynamic schedules for belief propagation"). Messages
are compared by the logarithm of max(new / old) / min(new / old) over the states, Hilbert's metric, which is at least
the largest relative change of an entry. If the messages to a variable have changed by d1, d2, .. since it last sent,
what it sends through a table changes by at most c (d1 + d2 + ..), where c <= 1 is the contraction of the table
(Birkhoff, 1957). So when all bounds are below the tolerance, all relative changes are. x - 1 in place of log x makes
the bounds larger and saves the logarithms.

Edges are in buckets by the exponents of their bounds, last in, first out: this converges on more graphs than the
largest bound first or first in, first out, and what was touched last is in the cache.
"""

from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.graph.kernels.messages import (
    CONVERGED,
    IMPOSSIBLE,
    RUNNING,
    UNDERFLOW,
    Outcome,
    Probabilities,
    Stopping,
    large_table,
    own_probabilities,
    weighted_rows,
    width_of,
)
from trelliswork.inference.graph.kernels.records import Doubles, Integers, Layout, Pairs, TableData

LEVELS = 64  # buckets; the last one has all bounds below 2^-62
TINY = 1e-300  # in place of zeros: a zero that appears or vanishes is a change of at least 1e200
SLACK = 1.0 + 1e-9  # for rounding in contractions


class Buckets(NamedTuple):
    """Edges in buckets by the exponents of their bounds, of all graphs or of one.

    A bucket is a ring: ``after[e]`` is the next edge and ``before[e]`` the one before; number E + k stands for bucket k
    itself. Edges whose bound is not above the tolerance are in none.
    """

    key: Doubles  # (B, E) bound of the distance of the message from what it would be now
    contraction: Doubles  # (1 or B, E) of the table from the edge's variable to the other one
    after: Integers  # (B, E + LEVELS)
    before: Integers  # (B, E + LEVELS)


@helper(forceinline=True)
def _level(key, tolerance):
    """Bucket of a bound, or ``LEVELS`` if it is not above the tolerance."""
    exponent = (np.float64(key).view(np.int64) >> 52) - 1023
    return min(max(-exponent, 0), LEVELS - 1) if key > tolerance else LEVELS


@helper(forceinline=True)
def _insert(queue, e, at):
    """Put e behind ``at``."""
    following = queue.after[at]
    queue.after[e], queue.before[e] = following, at
    queue.after[at], queue.before[following] = e, e


@helper(forceinline=True)
def _remove(queue, e):
    """Take e from its ring."""
    queue.after[queue.before[e]], queue.before[queue.after[e]] = queue.after[e], queue.before[e]


@helper(forceinline=True)
def _raise(queue, e, by, tolerance, top):
    """Raise the bound of an edge, which becomes the first of its bucket; return the first bucket that has an edge."""
    before = _level(queue.key[e], tolerance)
    queue.key[e] += by
    level = _level(queue.key[e], tolerance)
    if level < before:
        if before < LEVELS:
            _remove(queue, e)
        _insert(queue, e, len(queue.key) + level)
    return min(top, level)


@helper(forceinline=True)
def _raise_from(layout, pairs, e, change, queue, tolerance, top):
    """Raise the bounds of all messages that depend on the message to edge e."""
    v = layout.edge_variable[e]
    for k in range(layout.var_start[v], layout.var_start[v + 1]):
        if k == e:
            continue
        if pairs.to[k] >= 0:
            top = _raise(queue, pairs.to[k], queue.contraction[k] * change, tolerance, top)
            continue
        f = layout.edge_factor[k]
        for slot in range(layout.fac_start[f], layout.fac_start[f + 1]):
            if layout.fac_edge[slot] != k:
                top = _raise(queue, layout.fac_edge[slot], change, tolerance, top)
    return top


@helper(forceinline=True)
def _product(layout, skip, own, w, to):
    """w[to:] = the product of unary weights and messages to the variable of edge ``skip``, but that of the edge."""
    v = layout.edge_variable[skip]
    width, state = width_of(layout.n_states[v]), layout.state_at[v]
    for i in range(width):
        w[to + i] = own.unary[state + i]
    for e in range(layout.var_start[v], layout.var_start[v + 1]):
        if e != skip:
            at = layout.edge_at[e]
            for i in range(width):
                w[to + i] *= own.r[at + i]


@helper(forceinline=True)
def _compute(layout, pairs, e, weights, weight_at, own):
    """Compute the message to edge e; return its place in ``own.rows[1]``."""
    w, out, sender = own.rows[0], own.rows[1], pairs.to[e]
    if sender >= 0:
        width = layout.edge_at[e + 1] - layout.edge_at[e]
        _product(layout, sender, own, w, 0)
        n_states = layout.n_states[layout.edge_variable[sender]]
        weighted_rows(weights, pairs.table_at[sender], n_states, width, w, 0, out, 0)
        return 0
    f, widest = layout.edge_factor[e], len(out) // 4
    slot = layout.fac_start[f]
    arity = layout.fac_start[f + 1] - slot
    w[:] = 0.0
    w[0] = w[widest] = 1.0
    place = 0
    for k in range(arity):
        row = (4 - arity + k) * widest
        _product(layout, layout.fac_edge[slot + k], own, w, row)
        if layout.fac_edge[slot + k] == e:
            place = row
    large_table(layout, f, weights, weight_at[f], w, out)
    return place


@helper
def _accept(out, out_at, n, r, at, damping):
    """Normalize, damp and store a message; return its sum, its smallest positive number, its change and what remains.

    Zeros are stored at once, see `commit_weights`.
    """
    s = 0.0
    for i in range(n):
        s += out[out_at + i]
    scale, low = 1.0 / s if s > 0.0 else 0.0, 1.0
    most = most_left = 0.0
    least = least_left = np.inf
    for i in range(n):
        goal, old = scale * out[out_at + i], r[at + i]
        new = goal + damping * (old - goal) if goal > 0.0 else 0.0
        r[at + i] = new
        low = min(low, new if new > 0.0 else 1.0)
        ratio = max(new, TINY) / max(old, TINY)
        most, least = max(most, ratio), min(least, ratio)
        if damping > 0.0:
            ratio = max(goal, TINY) / max(new, TINY)
            most_left, least_left = max(most_left, ratio), min(least_left, ratio)
    return s, low, most / least - 1.0, most_left / least_left - 1.0 if damping > 0.0 else 0.0


@helper
def _by_bounds(layout, pairs, weights, weight_at, own, queue, options):
    """Update messages whose bounds are largest until none is left; return a status, the rounds and the largest bound.

    Bounds are compared by their exponents: that of the updated message is at least half of the largest.
    """
    key, tolerance, E = queue.key, options.tolerance, len(queue.key)
    for k in range(E, E + LEVELS):
        queue.after[k] = queue.before[k] = k
    for e in range(E - 1, -1, -1):
        key[e] = np.inf
        _insert(queue, e, E)
    status, n_updates, top = RUNNING, 0, 0
    while status == RUNNING and n_updates < options.max_iter * E:
        while top < LEVELS and queue.after[E + top] == E + top:
            top += 1
        if top == LEVELS:
            status = CONVERGED
            break
        e = queue.after[E + top]
        _remove(queue, e)
        place = _compute(layout, pairs, e, weights, weight_at, own)
        n_states, at = layout.n_states[layout.edge_variable[e]], layout.edge_at[e]
        s, low, change, key[e] = _accept(own.rows[1], place, n_states, own.r, at, options.damping)
        n_updates += 1
        if low < options.threshold:
            status = UNDERFLOW
        elif s == 0.0:
            status = IMPOSSIBLE
        level = _level(key[e], tolerance)  # above the tolerance with damping only
        if level < LEVELS:  # behind those that wait, so that other messages are updated in between
            _insert(queue, e, queue.before[E + level])
        top = _raise_from(layout, pairs, e, change, queue, tolerance, min(top, level))
    largest_bound = 0.0
    for e in range(E if status != IMPOSSIBLE else 0):
        largest_bound = max(largest_bound, key[e])
    return status, max(1, -(-n_updates // max(E, 1))), largest_bound


@helper
def _contract(table, at, n_rows, n_columns, width):
    """Upper bound of the contraction of a table: tanh(diameter / 4) in Hilbert's metric.

    The distance of two rows is at most the sum of their distances from the first one.
    """
    most = second = 1.0
    for i in range(1, n_rows):
        up = down = 0.0
        for j in range(n_columns):
            first, entry = table[at + j], table[at + i * width + j]
            if first == 0.0 or entry == 0.0:
                return 1.0
            up, down = max(up, entry / first), max(down, first / entry)
        second = max(second, min(most, up * down))
        most = max(most, up * down)
    ratio = np.sqrt(most) * np.sqrt(second)
    return min(1.0, SLACK * (ratio - 1.0) / (ratio + 1.0) + 1e-15) if ratio < 1e100 else 1.0


@kernel
def contractions(layout: Layout, data: TableData, pairs: Pairs, out):
    """Fill (1 or B, E) for the edges of factors over two variables."""
    for b in range(len(out)):
        for e in range(len(pairs.to)):
            to = pairs.to[e]
            if to >= 0:
                n_rows, n_columns = layout.n_states[layout.edge_variable[e]], layout.n_states[layout.edge_variable[to]]
                out[b, e] = _contract(data.weights[b], pairs.table_at[e], n_rows, n_columns, width_of(n_columns))


@kernel
def residual_weights(
    start, stop, layout: Layout, data: TableData, state: Probabilities, queue: Buckets, pairs: Pairs, options: Stopping,
    outcome: Outcome,
):  # fmt: skip
    """Iterate graphs ``start:stop`` by residuals; an iteration is as many messages as there are edges."""
    n_iter, residual, status = outcome
    for b in range(start, stop):
        row = b if len(data.weights) > 1 else 0
        mine = Buckets(queue.key[b], queue.contraction[row], queue.after[b], queue.before[b])
        own = own_probabilities(state, b)
        status[b], n_iter[b], residual[b] = _by_bounds(
            layout, pairs, data.weights[row], data.weight_at, own, mine, options
        )
