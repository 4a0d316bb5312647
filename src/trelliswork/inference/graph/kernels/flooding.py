"""Flooding belief propagation in probability space: all messages are computed from those of the iteration before.

The loop goes over variables: their messages are contiguous, and what they send mostly goes to variables nearby, so that
an iteration reads the memory once.
"""

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.graph.kernels.messages import (
    RUNNING,
    Options,
    Outcome,
    Probabilities,
    Source,
    commit_weights,
    fill_rows,
    gather_weights,
    judge,
    large_table,
    nothing_seen,
    own_probabilities,
    send,
    width_of,
)
from trelliswork.inference.graph.kernels.records import Layout, Pairs, TableData


@helper
def _from_variables(start, stop, layout, pairs, weights, own, new, damping):
    """Messages from variables ``start:stop`` through factors over two variables; return what was seen."""
    q, out = own.q, own.rows[1]
    keep = len(pairs.large) > 0
    seen = nothing_seen(new)
    for v in range(start, stop):
        first, last, n_states = layout.var_start[v], layout.var_start[v + 1], layout.n_states[v]
        at = layout.edge_at[first] if keep else 0
        gather_weights(layout, v, own.unary, own.r, q, at)
        for e in range(first, last):
            if pairs.to[e] >= 0:
                seen = send(layout, pairs, e, Source(q, at, n_states), weights, out, own.r, new, damping, seen)
            at += width_of(n_states)
    return seen


@helper
def _from_large(layout, pairs, weights, weight_at, own, new, damping, seen):
    """Messages from the factors over more than two variables; return what was seen."""
    w, out = own.rows[0], own.rows[1]
    widest = len(out) // 4
    for f in pairs.large:
        fill_rows(layout, f, own.q, w)
        arity = large_table(layout, f, weights, weight_at[f], w, out)
        for k in range(arity):
            e = layout.fac_edge[layout.fac_start[f] + k]
            at, width = layout.edge_at[e], layout.widths[layout.edge_variable[e]]
            seen = commit_weights(out, (4 - arity + k) * widest, width, own.r, new, at, damping, seen)
    return seen


@kernel
def flood(
    start, stop, layout: Layout, data: TableData, state: Probabilities, new, pairs: Pairs, options: Options,
    outcome: Outcome,
):  # fmt: skip
    """Iterate graphs ``start:stop``; ``new`` (B, M) is scratch."""
    n_iter, residual, status = outcome
    for b in range(start, stop):
        weights = data.weights[b if len(data.weights) > 1 else 0]
        own, other = own_probabilities(state, b), new[b]
        while status[b] == RUNNING and n_iter[b] < options.max_iter:
            seen = _from_variables(0, len(layout.n_states), layout, pairs, weights, own, other, options.damping)
            seen = _from_large(layout, pairs, weights, data.weight_at, own, other, options.damping, seen)
            n_iter[b] += 1
            status[b], residual[b] = judge(seen, options)
            own, other = Probabilities(own.unary, other, own.q, own.rows), own.r
        if n_iter[b] % 2:
            for i in range(len(other)):
                other[i] = own.r[i]
