"""Sweeps and residual belief propagation in probability space, as fast as flooding per message.

Unlike in flooding, a new message is used at once. So underflow is looked for in every message that is stored: as long
as all messages have no positive number below ``threshold``, no product of them can underflow (`flooding`).
"""

from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import (
    add,
    divide,
    if_positive,
    lanes,
    largest,
    load,
    maximum,
    multiply,
    spread,
    store,
    subtract,
    total,
)
from trelliswork.inference.graph.kernels.flooding import (
    CONVERGED,
    IMPOSSIBLE,
    RUNNING,
    UNDERFLOW,
    Options,
    Outcome,
    Probabilities,
    commit_weights,
    gather_weights,
    large_table,
    smallest_positive,
    weighted_rows,
)
from trelliswork.inference.graph.kernels.log_space import Sweep
from trelliswork.inference.graph.kernels.records import Doubles, Integers, Layout, TableData

LEVELS = 64  # buckets of pending messages; the last one has all changes below 2^-62


class Buckets(NamedTuple):
    """Pending messages and edges in buckets by the exponent of their change, of all graphs or of one.

    A bucket is a ring of edges: ``after`` and ``before`` are neighbors, and number E + k stands for bucket k itself.
    Edges whose change is not above the tolerance are in none, and have level ``LEVELS``.
    """

    pending: Doubles  # (B, M)
    key: Doubles  # (B, E) change of the pending message
    level: Integers  # (B, E) number of the bucket
    after: Integers  # (B, E + LEVELS)
    before: Integers  # (B, E + LEVELS)
    top: Integers  # (B, 1) no bucket below this one has an edge


class Pairs(NamedTuple):
    """For each edge of a factor over two variables: the other edge, and the table with the states of this one as rows.

    ``other`` is -1 for edges of larger factors.
    """

    other: Integers  # (E,)
    table_at: Integers  # (E,)


@kernel
def pair_edges(layout: Layout, weight_at, pairs: Pairs):
    """Fill ``pairs``."""
    for e in range(len(layout.edge_factor)):
        f = layout.edge_factor[e]
        slot = layout.fac_start[f]
        pairs.other[e] = -1
        if layout.fac_start[f + 1] - slot == 2:
            e0, e1 = layout.fac_edge[slot], layout.fac_edge[slot + 1]
            size = layout.n_states[layout.edge_variable[e0]] * layout.widths[layout.edge_variable[e1]]
            pairs.other[e] = e1 if e == e0 else e0
            pairs.table_at[e] = weight_at[f] + (0 if e == e0 else size)


@helper
def _send_all(layout, e, rank, low, high, weights, weight_at, state, options, worst):
    """New messages of a factor over more than two variables, at edge e, to its variables with low <= rank < high.

    Returns a status and the changes so far.
    """
    q, r, w, out = state.q, state.r, state.rows[0], state.rows[1]
    f = layout.edge_factor[e]
    slot = layout.fac_start[f]
    widest = len(out) // 4
    arity = large_table(layout, f, weights, weight_at[f], q, w, out)
    status = RUNNING
    for k in range(arity):
        to = layout.fac_edge[slot + k]
        v = layout.edge_variable[to]
        if low <= rank[v] < high and status == RUNNING:
            at, width = layout.edge_at[to], layout.widths[v]
            s, worst = commit_weights(out, (4 - arity + k) * widest, width, r, at, options.damping, worst)
            status = _status(s, smallest_positive(r, at, at + width), options.threshold)
    return status, worst


@helper
def _status(s, low, threshold):
    """What a new message with sum s and smallest positive number ``low`` means."""
    return IMPOSSIBLE if s == 0.0 else UNDERFLOW if low < threshold else RUNNING


@helper
def _sweep_once(layout, weights, weight_at, state, sweep, pairs, options):
    """Update variable by variable, from the last to the first and back; return a status and the largest change."""
    order, rank = sweep
    q, r, out = state.q, state.r, state.rows[1]
    V = len(order)
    worst = spread(r, 0.0)
    status = RUNNING
    n = 0
    while n < 2 * V and status == RUNNING:
        v = order[V - 1 - n if n < V else n - V]
        low, high = (0, rank[v]) if n < V else (rank[v] + 1, V)
        gather_weights(layout, v, state.unary, r, q)
        n_rows = layout.n_states[v]
        e, last = layout.var_start[v], layout.var_start[v + 1]
        while e < last and status == RUNNING:
            to = pairs.other[e]
            if to < 0:
                status, worst = _send_all(layout, e, rank, low, high, weights, weight_at, state, options, worst)
            else:
                neighbor = layout.edge_variable[to]
                if low <= rank[neighbor] < high:
                    at, width = layout.edge_at[to], layout.widths[neighbor]
                    weighted_rows(weights, pairs.table_at[e], n_rows, width, q, layout.edge_at[e], out, 0)
                    s, worst = commit_weights(out, 0, width, r, at, options.damping, worst)
                    status = _status(s, smallest_positive(r, at, at + width), options.threshold)
            e += 1
        n += 1
    return status, largest(worst) if status == RUNNING else 0.0


@kernel
def sweep_weights(
    start, stop, layout: Layout, data: TableData, state: Probabilities, sweep: Sweep, pairs: Pairs, options: Options,
    outcome: Outcome,
):  # fmt: skip
    """Iterate graphs ``start:stop`` by sweeps over the variables; see ``log_space._sweep_once``."""
    n_iter, residual, status = outcome
    for b in range(start, stop):
        weights = data.weights[b if len(data.weights) > 1 else 0]
        own = Probabilities(state.unary[b], state.r[b], state.q[b], state.rows[b])
        for v in range(len(layout.n_states)):  # tables over several variables take all of them
            gather_weights(layout, v, own.unary, own.r, own.q)
        for n in range(options.max_iter):
            status[b], residual[b] = _sweep_once(layout, weights, data.weight_at, own, sweep, pairs, options)
            n_iter[b] = n + 1
            if status[b] == RUNNING and residual[b] <= options.tolerance:
                status[b] = CONVERGED
            if status[b] != RUNNING:
                break


@helper
def _place(queue, e, key, tolerance):
    """Set the change of an edge and move it to the end of its bucket, unless it is in that bucket already."""
    queue.key[e] = key
    level = LEVELS
    if key > tolerance:
        exponent = (np.float64(key).view(np.int64) >> 52) - 1023
        level = min(max(-exponent, 0), LEVELS - 1)
    if level == queue.level[e]:
        return
    after, before = queue.after, queue.before
    if queue.level[e] < LEVELS:
        after[before[e]], before[after[e]] = after[e], before[e]
    queue.level[e] = level
    if level < LEVELS:
        bucket = len(queue.key) + level
        last = before[bucket]
        after[last], before[e], after[e], before[bucket] = e, last, bucket, e
        queue.top[0] = min(queue.top[0], level)


@helper
def _next(queue):
    """Return the first edge of the first bucket that has one, or -1."""
    E = len(queue.key)
    while queue.top[0] < LEVELS:
        bucket = E + queue.top[0]
        if queue.after[bucket] != bucket:
            return queue.after[bucket]
        queue.top[0] += 1
    return -1


@helper
def _propose(out, out_at, width, pending, r, at):
    """Store a new message, normalized, as pending; return its sum and the largest relative change of an entry.

    Differences of probabilities would not do: a message that is not sent because only tiny entries change may forbid
    or allow the likely state elsewhere.
    """
    W = lanes(out)
    acc = spread(out, 0.0)
    for k in range(0, width, W):
        acc = add(acc, load(out, out_at + k))
    s = total(acc)
    scale, one, worst = spread(out, 1.0 / s if s > 0.0 else 0.0), spread(out, 1.0), spread(out, 0.0)
    for k in range(0, width, W):
        old, new = load(r, at + k), multiply(load(out, out_at + k), scale)
        difference = maximum(subtract(new, old), subtract(old, new))
        worst = maximum(worst, divide(difference, if_positive(maximum(new, old), one)))
        store(pending, at + k, new)
    return s, largest(worst)


@helper
def _propose_all(layout, e, weights, weight_at, state, queue, tolerance):
    """`_propose` the messages of a factor over more than two variables, at edge e, to its other variables.

    Moves their edges between buckets; returns whether all are possible.
    """
    q, r, w, out = state.q, state.r, state.rows[0], state.rows[1]
    f = layout.edge_factor[e]
    slot = layout.fac_start[f]
    widest = len(out) // 4
    arity = large_table(layout, f, weights, weight_at[f], q, w, out)
    possible = True
    for k in range(arity):
        to = layout.fac_edge[slot + k]
        if to != e:
            width = layout.widths[layout.edge_variable[to]]
            s, key = _propose(out, (4 - arity + k) * widest, width, queue.pending, r, layout.edge_at[to])
            possible = possible and s > 0.0
            _place(queue, to, key, tolerance)
    return possible


@helper
def _propose_from(layout, v, skip, weights, weight_at, state, queue, pairs, tolerance):
    """Pending messages of the factors of variable v, but that of edge ``skip``, to their other variables.

    As in `_propose_all`.
    """
    q, r, out = state.q, state.r, state.rows[1]
    possible = True
    n_rows = layout.n_states[v]
    for e in range(layout.var_start[v], layout.var_start[v + 1]):
        if e == skip:
            continue
        to = pairs.other[e]
        if to < 0:
            possible = _propose_all(layout, e, weights, weight_at, state, queue, tolerance) and possible
        else:
            width = layout.widths[layout.edge_variable[to]]
            weighted_rows(weights, pairs.table_at[e], n_rows, width, q, layout.edge_at[e], out, 0)
            s, key = _propose(out, 0, width, queue.pending, r, layout.edge_at[to])
            possible = possible and s > 0.0
            _place(queue, to, key, tolerance)
    return possible


@helper
def _accept(layout, e, state, queue, damping, tolerance):
    """Store the pending message of edge e, which moves to another bucket; return its smallest positive number."""
    r, pending = state.r, queue.pending
    at, width = layout.edge_at[e], layout.widths[layout.edge_variable[e]]
    if damping == 0.0:
        for k in range(0, width, lanes(r)):
            store(r, at + k, load(pending, at + k))
        _place(queue, e, 0.0, tolerance)
    else:
        worst = 0.0
        for i in range(at, at + width):  # zeros are stored at once, see `commit_weights`
            r[i] = (1.0 - damping) * pending[i] + damping * r[i] if pending[i] > 0.0 else 0.0
            worst = max(worst, abs(pending[i] - r[i]) / max(pending[i], r[i], 1e-300))
        _place(queue, e, worst, tolerance)
    return smallest_positive(r, at, at + width)


@helper
def _by_residual(layout, weights, weight_at, state, queue, pairs, options):
    """Update messages that would change most until none would; return a status, the rounds and the largest change.

    Changes are compared by their exponents: the message is the one that has waited longest among those whose change
    is at least half of the largest.
    """
    E, V, tolerance = len(queue.key), len(layout.n_states), options.tolerance
    status, n_updates = RUNNING, 0
    queue.level[:] = LEVELS
    queue.top[0] = LEVELS
    for k in range(E, E + LEVELS):
        queue.after[k] = queue.before[k] = k
    for v in range(V):
        gather_weights(layout, v, state.unary, state.r, state.q)
    for v in range(V):
        if not _propose_from(layout, v, -1, weights, weight_at, state, queue, pairs, tolerance):
            status = IMPOSSIBLE
    while status == RUNNING and n_updates < options.max_iter * E:
        e = _next(queue)
        if e < 0:
            status = CONVERGED
        elif _accept(layout, e, state, queue, options.damping, tolerance) < options.threshold:
            status = UNDERFLOW
        else:
            n_updates += 1
            v = layout.edge_variable[e]
            gather_weights(layout, v, state.unary, state.r, state.q)
            if not _propose_from(layout, v, e, weights, weight_at, state, queue, pairs, tolerance):
                status = IMPOSSIBLE
    largest_change = 0.0
    if status != IMPOSSIBLE:
        for e in range(E):
            largest_change = max(largest_change, queue.key[e])
    return status, max(1, -(-n_updates // E)), largest_change


@kernel
def residual_weights(
    start, stop, layout: Layout, data: TableData, state: Probabilities, queue: Buckets, pairs: Pairs, options: Options,
    outcome: Outcome,
):  # fmt: skip
    """Iterate graphs ``start:stop`` by residuals; an iteration is as many messages as there are edges."""
    n_iter, residual, status = outcome
    for b in range(start, stop):
        if len(queue.key[b]) == 0:
            status[b], n_iter[b] = CONVERGED, 1
            continue
        weights = data.weights[b if len(data.weights) > 1 else 0]
        own = Probabilities(state.unary[b], state.r[b], state.q[b], state.rows[b])
        mine = Buckets(
            queue.pending[b], queue.key[b], queue.level[b], queue.after[b], queue.before[b], queue.top[b]
        )  # fmt: skip
        status[b], n_iter[b], residual[b] = _by_residual(layout, weights, data.weight_at, own, mine, pairs, options)
