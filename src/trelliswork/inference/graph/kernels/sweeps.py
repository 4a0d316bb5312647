"""Sequential belief propagation in probability space: sweeps over the variables that use each new message at once."""

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.graph.kernels.log_space import Sweep
from trelliswork.inference.graph.kernels.messages import (
    RUNNING,
    Outcome,
    Probabilities,
    Source,
    Stopping,
    commit_weights,
    fill_rows,
    gather_weights,
    large_table,
    no_extremes,
    own_probabilities,
    send,
    status_of,
    width_of,
)
from trelliswork.inference.graph.kernels.records import Layout, Pairs, TableData


@helper
def _send_all(layout, e, rank, low, high, weights, weight_at, own, damping, seen):
    """New messages of a factor over more than two variables, at edge e, to its variables with low <= rank < high."""
    w, out = own.rows[0], own.rows[1]
    f = layout.edge_factor[e]
    slot = layout.fac_start[f]
    widest = len(out) // 4
    fill_rows(layout, f, own.q, w)
    arity = large_table(layout, f, weights, weight_at[f], w, out)
    for k in range(arity):
        to = layout.fac_edge[slot + k]
        v = layout.edge_variable[to]
        if low <= rank[v] < high:
            at, row = layout.edge_at[to], (4 - arity + k) * widest
            seen = commit_weights(out, row, layout.widths[v], own.r, own.r, at, damping, seen)
    return seen


@helper
def _sweep_once(layout, pairs, weights, weight_at, own, sweep, ahead, damping):
    """Update variable by variable, from the last to the first and back; return what was seen."""
    order, rank = sweep
    q, r, out = own.q, own.r, own.rows[1]
    V, keep = len(order), len(pairs.large) > 0
    seen = no_extremes(r)
    for n in range(2 * V):
        forward = n >= V
        v = order[n - V if forward else V - 1 - n]
        first, last, n_states = layout.var_start[v], layout.var_start[v + 1], layout.n_states[v]
        at = layout.edge_at[first] if keep else 0
        gather_weights(layout, v, own.unary, r, q, at)
        for e in range(first, last):
            if pairs.to[e] < 0:
                low, high = (rank[v] + 1, V) if forward else (0, rank[v])
                seen = _send_all(layout, e, rank, low, high, weights, weight_at, own, damping, seen)
            elif ahead[e] == forward:
                seen = send(layout, pairs, e, Source(q, at, n_states), weights, out, r, r, damping, seen)
            at += width_of(n_states)
        if seen.least_sum == 0.0:
            break
    return seen


@kernel
def sweep_weights(
    start, stop, layout: Layout, data: TableData, state: Probabilities, sweep: Sweep, ahead, pairs: Pairs,
    options: Stopping, outcome: Outcome,
):  # fmt: skip
    """Iterate graphs ``start:stop`` by sweeps over the variables; see ``log_space._sweep_once``.

    ``ahead`` (E,) is whether an edge of a factor over two variables leads to a later variable.
    """
    n_iter, residual, status = outcome
    for b in range(start, stop):
        weights = data.weights[b if len(data.weights) > 1 else 0]
        own = own_probabilities(state, b)
        if len(pairs.large) > 0:  # their tables take the products of all their variables
            for v in range(len(layout.n_states)):
                gather_weights(layout, v, own.unary, own.r, own.q, layout.edge_at[layout.var_start[v]])
        while status[b] == RUNNING and n_iter[b] < options.max_iter:
            seen = _sweep_once(layout, pairs, weights, data.weight_at, own, sweep, ahead, options.damping)
            n_iter[b] += 1
            status[b], residual[b] = status_of(seen, options)
