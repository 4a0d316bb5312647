"""Flooding belief propagation in probability space: all messages are computed from those of the iteration before.

The loop goes over variables: their messages are contiguous, and what they send mostly goes to variables nearby, so that
an iteration reads the memory once.
"""

from typing import NamedTuple

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import largest
from trelliswork.inference.graph.kernels.messages import (
    RUNNING,
    Extremes,
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
from trelliswork.inference.graph.kernels.records import Doubles, Integers, Layout, Pairs, TableData


class Shares(NamedTuple):
    """Shares of the variables of a large graph."""

    starts: Integers  # (n + 1,) first variable of each part, and the number of variables
    rows: Doubles  # (n, 3, 4 * widest) scratch
    seen: Doubles  # (n, 3) least sum, largest change and smallest positive number of what each part sends


@helper
def _from_variables(start, stop, layout, pairs, weights, own, new, damping):
    """Messages from variables ``start:stop`` through factors over two variables; return what was seen."""
    q, out = own.q, own.rows[1]
    keep, scratch = len(pairs.large) > 0, layout.edge_at[layout.var_start[start]]
    seen = no_extremes(new)
    for v in range(start, stop):
        first, last, n_states = layout.var_start[v], layout.var_start[v + 1], layout.n_states[v]
        at = layout.edge_at[first] if keep else scratch
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
    start, stop, layout: Layout, data: TableData, state: Probabilities, new, pairs: Pairs, options: Stopping,
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
            status[b], residual[b] = status_of(seen, options)
            own, other = Probabilities(own.unary, other, own.q, own.rows), own.r
        if n_iter[b] % 2:
            for i in range(len(other)):
                other[i] = own.r[i]


@kernel
def flood_parts(
    start, stop, layout: Layout, weights, own: Probabilities, new, pairs: Pairs, parts: Shares, options: Stopping
):  # fmt: skip
    """One iteration of parts ``start:stop`` of one graph whose factors are over two variables."""
    for p in range(start, stop):
        mine = Probabilities(own.unary, own.r, own.q, parts.rows[p])
        first, last = parts.starts[p], parts.starts[p + 1]
        seen = _from_variables(first, last, layout, pairs, weights, mine, new, options.damping)
        parts.seen[p, 0] = seen.least_sum
        parts.seen[p, 1] = max(seen.change, largest(seen.changes))
        parts.seen[p, 2] = min(seen.lowest, -largest(seen.lowests))


@kernel
def status_of_shares(parts: Shares, options: Stopping):
    """`status_of` an iteration of all parts."""
    seen = no_extremes(parts.seen)
    for p in range(len(parts.seen)):
        least_sum, change = min(seen.least_sum, parts.seen[p, 0]), max(seen.change, parts.seen[p, 1])
        seen = Extremes(least_sum, change, min(seen.lowest, parts.seen[p, 2]), seen.changes, seen.lowests)
    return status_of(seen, options)
