r"""Messages in log space: any schedule, any range of scores, sums or maxima.

A message is a vector of logarithms with largest entry 0. Sum-product messages are still computed from exponentials,
which is cheap; a factor with an entry so small that terms may have underflowed is recomputed in logarithms.

The messages r to a variable count with the ``weight`` of their edge, 1 in belief propagation: the message to factor f
is :math:`q_f = u + \sum_g \rho_g r_g - r_f`.
"""

import math
from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_add
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.inference.graph.kernels.messages import (
    many_rows,
    table_shape,
    weighted_rows,
    whole_vectors,
    width_of,
)
from trelliswork.inference.graph.kernels.records import Integers, Layout, Messages, TableData

TINY = 1e-200  # terms lost to underflow are below 1e-100 of a larger sum


class Rule(NamedTuple):
    """How messages are updated: fraction of the old message, floor of `change`, and maxima or sums."""

    damping: float
    floor: float
    maximize: bool


class Sweep(NamedTuple):
    """Order of the variables (V,), and its inverse."""

    order: Integers
    rank: Integers


@helper
def tables_of(data, b):
    """Tables of graph b, or those that all graphs share."""
    row = b if len(data.weights) > 1 else 0
    return TableData(
        data.weights[row], data.log_weights[row], data.shifts[row], data.weight_at, data.log_at, data.lowest
    )


@helper
def messages_of(messages, b):
    """Messages of graph b."""
    weights = messages.weights[b if len(messages.weights) > 1 else 0]
    return Messages(messages.log_unary[b], messages.log_r[b], messages.log_q[b], messages.rows[b], weights)


@helper(forceinline=True)
def join(a, b, maximize):
    """Sum or maximum of two numbers given by their logarithms."""
    return max(a, b) if maximize else log_add(a, b)


@helper
def _plain_messages(layout, f, tables, messages, maximize):
    """Rows of ``messages.rows[1]``: all messages of f by sums (times exp of its shift) or maxima of logarithms."""
    out, log_q = messages.rows[1], messages.log_q
    widest = len(out) // 4
    arity, n0, n1, n2, n3 = table_shape(layout, f)
    edges = layout.fac_edge[layout.fac_start[f] : layout.fac_start[f + 1]]
    at0, at1 = layout.edge_at[edges[0]], layout.edge_at[edges[max(arity - 3, 0)]]
    at2, at3 = layout.edge_at[edges[arity - 2]], layout.edge_at[edges[arity - 1]]
    for i in range(len(out)):
        out[i] = -np.inf
    row = tables.log_at[f]
    for h in range(n0):
        for i in range(n1):
            for j in range(n2):
                x, y, z = log_q[at0 + h] if arity == 4 else 0.0, log_q[at1 + i] if arity > 2 else 0.0, log_q[at2 + j]
                top, scale = -np.inf, x + y + z
                for k in range(n3):
                    entry = tables.log_weights[row + k]
                    top = join(top, entry + log_q[at3 + k], maximize)
                    out[3 * widest + k] = join(out[3 * widest + k], entry + scale, maximize)
                out[2 * widest + j] = join(out[2 * widest + j], top + x + y, maximize)
                if arity > 2:
                    out[widest + i] = join(out[widest + i], top + x + z, maximize)
                    out[h] = join(out[h], top + y + z, maximize)
                row += n3


@helper
def _sum_messages(layout, f, skip, tables, messages):
    """Rows of ``messages.rows[1]``: the sum-product messages of f, except that to slot ``skip``."""
    shifts, out, scratch = messages.rows  # the shift of a message is the first number of its row
    widest = len(out) // 4
    arity, n0, n1, n2, n3 = table_shape(layout, f)
    slot = layout.fac_start[f] - (4 - arity)
    total = 0.0
    for k in range(4):
        shifts[k * widest] = 0.0
        if k < 4 - arity:
            scratch[k * widest] = 1.0
        elif not (arity == 2 and skip >= 0 and k - 2 != skip):
            e = layout.fac_edge[slot + k]
            n = layout.n_states[layout.edge_variable[e]]
            shift = exp_row(messages.log_q, layout.edge_at[e], n, scratch, k * widest, whole_vectors(n))
            if shift > -np.inf:
                shifts[k * widest] = shift
                total += shift
    table = tables.weight_at[f]
    if arity == 2:
        width2, width3 = width_of(n2), width_of(n3)
        if skip != 1:
            weighted_rows(tables.weights, table, n2, width3, scratch, 2 * widest, out, 3 * widest)
        if skip != 0:
            weighted_rows(tables.weights, table + n2 * width3, n3, width2, scratch, 3 * widest, out, 2 * widest)
    else:
        many_rows(tables.weights, table, n0, n1, n2, whole_vectors(n3), scratch, out, widest)
    n = (n0, n1, n2, n3)
    for k in range(4 - arity, 4):
        for i in range(n[k] if k - (4 - arity) != skip else 0):
            x = out[k * widest + i]
            if x < TINY:
                _plain_messages(layout, f, tables, messages, False)
                for at in range(len(out)):
                    out[at] -= tables.shifts[f]
                return
            out[k * widest + i] = math.log(x) + (total - shifts[k * widest])


@helper(forceinline=True)
def factor_messages(layout, f, skip, tables, messages, maximize):
    """``messages.rows[1]``: new messages of table factor f, in four rows, except that to slot ``skip``."""
    if maximize:
        _plain_messages(layout, f, tables, messages, True)
    else:
        _sum_messages(layout, f, skip, tables, messages)


@helper
def change(new, old, floor):
    """Difference of two log-values: absolute up to 1, relative beyond. Values below ``floor`` are all equal.

    Differences of probabilities would not do: whether an entry is 1e-100 or 1e-200 may decide elsewhere, where a zero
    forbids the likely state. Forests need no floor; in a cycle with zeros some entries decrease without end.
    """
    new, old = max(new, floor), max(old, floor)
    return 0.0 if new == old else abs(new - old) / max(1.0, abs(new)) if new > -np.inf else np.inf


@helper
def commit(out, out_at, n, log_r, at, damping, floor):
    """Normalize a new message, damp it (geometrically) and store it; return the largest change of an entry."""
    top = -np.inf
    for i in range(n):
        top = max(top, out[out_at + i])
    worst = 0.0
    for i in range(n):
        new = out[out_at + i] - top if top > -np.inf else -np.inf
        old = log_r[at + i]
        worst = max(worst, change(new, old, floor))
        # once impossible, always impossible: the support of a message only shrinks
        log_r[at + i] = (1.0 - damping) * new + damping * old if new > -np.inf and old > -np.inf else new
    return worst


@helper
def gather(layout, v, messages):
    """``log_q`` of variable v: unary scores and weighted messages less the edge's own, summed from both sides."""
    log_unary, log_r, log_q, weights = messages.log_unary, messages.log_r, messages.log_q, messages.weights
    first, last = layout.var_start[v], layout.var_start[v + 1]
    for i in range(layout.n_states[v]):
        acc = log_unary[layout.state_at[v] + i]
        for e in range(first, last):
            at = layout.edge_at[e] + i
            log_q[at] = acc
            acc += weights[e] * log_r[at]
        acc = 0.0
        for e in range(last - 1, first - 1, -1):
            at = layout.edge_at[e] + i
            log_q[at] += acc
            if weights[e] < 1.0:  # a message of -inf forbids the state
                log_q[at] += (weights[e] - 1.0) * log_r[at] if log_r[at] > -np.inf else -np.inf
            acc += weights[e] * log_r[at]


@helper(forceinline=True)
def _send(layout, f, rank, low, high, tables, messages, rule):
    """New messages from table factor f to its variables with low <= rank < high; return the largest change."""
    out = messages.rows[1]
    widest = len(out) // 4
    slot = layout.fac_start[f]
    arity = layout.fac_start[f + 1] - slot
    n_wanted = 0
    skip = -1
    for k in range(arity):
        wanted = low <= rank[layout.edge_variable[layout.fac_edge[slot + k]]] < high
        n_wanted += wanted
        if not wanted:
            skip = k
    if n_wanted == 0:
        return 0.0
    factor_messages(layout, f, skip if n_wanted == arity - 1 else -1, tables, messages, rule.maximize)
    worst = 0.0
    for k in range(arity):
        e = layout.fac_edge[slot + k]
        v = layout.edge_variable[e]
        if low <= rank[v] < high:
            row, at = (4 - arity + k) * widest, layout.edge_at[e]
            changed = commit(out, row, layout.n_states[v], messages.log_r, at, rule.damping, rule.floor)
            worst = max(worst, changed)
    return worst


@helper
def _flood_once(layout, tables, messages, rule, rank):
    """One flooding iteration of one graph; return the residual."""
    V = len(rank)
    for v in range(V):
        gather(layout, v, messages)
    worst = 0.0
    for f in range(layout.n_tables):
        worst = max(worst, _send(layout, f, rank, 0, V, tables, messages, rule))
    return worst


@helper
def _sweep_once(layout, tables, messages, rule, sweep):
    """Update variable by variable, from the last to the first and back; return the residual.

    Each variable sends to the variables that follow it in the sweep. On a forest in breadth-first order this goes from
    the leaves to the roots and back, and all messages are final.
    """
    order, rank = sweep
    V = len(order)
    worst = 0.0
    for n in range(2 * V):
        v = order[V - 1 - n if n < V else n - V]
        low, high = (0, rank[v]) if n < V else (rank[v] + 1, V)
        gather(layout, v, messages)
        for e in range(layout.var_start[v], layout.var_start[v + 1]):
            f = layout.edge_factor[e]
            if f < layout.n_tables:
                worst = max(worst, _send(layout, f, rank, low, high, tables, messages, rule))
    return worst


@kernel
def iterate(
    start, stop, layout: Layout, data: TableData, messages: Messages, rule: Rule, sweep: Sweep, sequential, done,
    residual,
):  # fmt: skip
    """Run one iteration, flooding or sweeps, of those graphs of ``start:stop`` that are not done."""
    for b in range(start, stop):
        if done[b]:
            continue
        tables, own = tables_of(data, b), messages_of(messages, b)
        if sequential:
            residual[b] = _sweep_once(layout, tables, own, rule, sweep)
        else:
            residual[b] = _flood_once(layout, tables, own, rule, sweep.rank)


@kernel
def gather_for(variables, layout: Layout, messages: Messages):
    """Update ``log_q`` of some variables of all graphs."""
    for b in range(len(messages.log_r)):
        own = messages_of(messages, b)
        for v in variables:
            gather(layout, v, own)


@kernel
def commit_factor(layout: Layout, f, values, log_r, rule: Rule, done, residual):
    """Store messages ``values`` (B, N) of a structured factor f; raise ``residual`` (B,) to their changes."""
    slot = layout.fac_start[f]
    arity = layout.fac_start[f + 1] - slot
    for b in range(len(values)):
        if done[b]:
            continue
        at = 0
        for k in range(arity):
            e = layout.fac_edge[slot + k]
            n = layout.n_states[layout.edge_variable[e]]
            changed = commit(values[b], at, n, log_r[b], layout.edge_at[e], rule.damping, rule.floor)
            residual[b] = max(residual[b], changed)
            at += n
