"""Messages in log space: any schedule, any range of scores, sums or maxima.

A message is held as logarithms with largest entry 0. A sum-product message is still computed from exponentials, which
are cheap: entries that come out so small that terms may have been lost are computed again, one by one, in log space.
"""

import math
from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.inference.graph.kernels.flooding import many_rows, weighted_rows

TINY = 1e-200  # what was lost to underflow is less than 1e-100 of a larger sum


class GraphTables(NamedTuple):
    """The tables of one graph: ``weights`` (W,) = exp(``log_weights`` (W',) - ``shifts`` (F,))."""

    weights: np.ndarray
    log_weights: np.ndarray
    shifts: np.ndarray


@helper
def of_graph(weights, log_weights, shifts, b):
    """The tables of graph b, or those that all graphs share."""
    row = b if len(weights) > 1 else 0
    return GraphTables(weights[row], log_weights[row], shifts[row])


@helper
def _sizes(net, f):
    """Arity of table factor f and the shape of its table with leading axes of length 1."""
    slot = net.fac_start[f]
    arity = net.fac_start[f + 1] - slot
    n0 = n1 = 1
    if arity == 4:
        n0 = net.n_states[net.edge_variable[net.fac_edge[slot]]]
    if arity >= 3:
        n1 = net.n_states[net.edge_variable[net.fac_edge[slot + arity - 3]]]
    n2 = net.n_states[net.edge_variable[net.fac_edge[slot + arity - 2]]]
    n3 = net.n_states[net.edge_variable[net.fac_edge[slot + arity - 1]]]
    return arity, n0, n1, n2, n3


@helper
def _spread_messages(net, f, log_q, w, widest, arity):
    """Copy the log-messages of the variables of f to the four rows of ``w``, zeros for the axes it does not have."""
    slot = net.fac_start[f]
    for k in range(4):
        to = k * widest
        if k < 4 - arity:
            w[to] = 0.0
            continue
        e = net.fac_edge[slot + k - (4 - arity)]
        at = net.edge_at[e]
        for i in range(net.n_states[net.edge_variable[e]]):
            w[to + i] = log_q[at + i]


@helper
def _exact_entry(net, f, tables, w, widest, axis, state):
    """log of the sum of table less its shift times the other messages (rows of ``w``), with ``state`` on one axis."""
    _, n0, n1, n2, n3 = _sizes(net, f)
    own = w[axis * widest + state]
    w[axis * widest + state] = 0.0
    first = (state if axis == 0 else 0, state if axis == 1 else 0, state if axis == 2 else 0, state if axis == 3 else 0)
    n = (n0, n1, n2, n3)
    last = (
        state + 1 if axis == 0 else n[0],
        state + 1 if axis == 1 else n[1],
        state + 1 if axis == 2 else n[2],
        state + 1 if axis == 3 else n[3],
    )
    top, acc = -np.inf, 0.0
    for h in range(first[0], last[0]):
        for i in range(first[1], last[1]):
            for j in range(first[2], last[2]):
                row = net.log_at[f] + ((h * n1 + i) * n2 + j) * n3
                scale = w[h] + w[widest + i] + w[2 * widest + j]
                for k in range(first[3], last[3]):
                    x = tables.log_weights[row + k] + scale + w[3 * widest + k]
                    if x > top:
                        acc = acc * math.exp(top - x) + 1.0
                        top = x
                    elif x > -np.inf:
                        acc += math.exp(x - top)
    w[axis * widest + state] = own
    return top + math.log(acc) - tables.shifts[f] if top > -np.inf else -np.inf


@helper
def _sum_messages(net, f, skip, log_q, tables, w, out, scratch):
    """Rows of ``out``: the sum-product messages of f; that to slot ``skip`` is not wanted."""
    widest = len(out) // 4
    arity, n0, n1, n2, n3 = _sizes(net, f)
    slot = net.fac_start[f]
    s0 = s1 = s2 = s3 = 0.0
    for k in range(4):
        to = k * widest
        if k < 4 - arity:
            scratch[to] = 1.0
            continue
        if arity == 2 and skip >= 0 and k - 2 != skip:
            continue
        e = net.fac_edge[slot + k - (4 - arity)]
        v = net.edge_variable[e]
        width = net.state_at[v + 1] - net.state_at[v]
        shift = exp_row(log_q, net.edge_at[e], net.n_states[v], scratch, to, width)
        shift = shift if shift > -np.inf else 0.0
        if k == 0:
            s0 = shift
        elif k == 1:
            s1 = shift
        elif k == 2:
            s2 = shift
        else:
            s3 = shift
    v2, v3 = net.edge_variable[net.fac_edge[slot + arity - 2]], net.edge_variable[net.fac_edge[slot + arity - 1]]
    width2 = net.state_at[v2 + 1] - net.state_at[v2]
    width3 = net.state_at[v3 + 1] - net.state_at[v3]
    table = net.weight_at[f]
    if arity == 2:
        if skip != 1:
            weighted_rows(tables.weights, table, n2, width3, scratch, 2 * widest, out, 3 * widest)
        if skip != 0:
            weighted_rows(tables.weights, table + n2 * width3, n3, width2, scratch, 3 * widest, out, 2 * widest)
    else:
        at = (0, widest, 2 * widest, 3 * widest)
        many_rows(
            tables.weights,
            table,
            n0,
            n1,
            n2,
            width3,
            scratch,
            at[0],
            at[1],
            at[2],
            at[3],
            out,
            at[0],
            at[1],
            at[2],
            at[3],
        )
    shifts = (s1 + s2 + s3, s0 + s2 + s3, s0 + s1 + s3, s0 + s1 + s2)
    n = (n0, n1, n2, n3)
    copied = False
    for k in range(4 - arity, 4):
        if k - (4 - arity) == skip:
            continue
        for i in range(n[k]):
            x = out[k * widest + i]
            if x >= TINY:
                out[k * widest + i] = math.log(x) + shifts[k]
            else:
                if not copied:
                    _spread_messages(net, f, log_q, w, widest, arity)
                    copied = True
                out[k * widest + i] = _exact_entry(net, f, tables, w, widest, k, i)


@helper
def _max_messages(net, f, log_q, tables, w, out):
    """Rows of ``out``: the max-product messages of f."""
    widest = len(out) // 4
    arity, n0, n1, n2, n3 = _sizes(net, f)
    _spread_messages(net, f, log_q, w, widest, arity)
    for i in range(len(out)):
        out[i] = -np.inf
    row = net.log_at[f]
    for h in range(n0):
        for i in range(n1):
            for j in range(n2):
                x, y, z = w[h], w[widest + i], w[2 * widest + j]
                top = -np.inf
                scale = x + y + z
                for k in range(n3):
                    entry = tables.log_weights[row + k]
                    top = max(top, entry + w[3 * widest + k])
                    out[3 * widest + k] = max(out[3 * widest + k], entry + scale)
                out[2 * widest + j] = max(out[2 * widest + j], top + x + y)
                out[widest + i] = max(out[widest + i], top + x + z)
                out[h] = max(out[h], top + y + z)
                row += n3


@helper
def _messages(net, f, skip, log_q, tables, maximise, w, out, scratch):
    if maximise:
        _max_messages(net, f, log_q, tables, w, out)
    else:
        _sum_messages(net, f, skip, log_q, tables, w, out, scratch)


@helper
def change(new, old, floor):
    """How far apart two log-values are: absolutely up to 1, relatively beyond. Below ``floor`` all are alike.

    Differences of probabilities would not do: what is 1e-100 or 1e-200 here may decide elsewhere, where a zero forbids
    the likely state. On a forest there is no floor; in a cycle with zeros some entries sink without end.
    """
    new, old = max(new, floor), max(old, floor)
    return 0.0 if new == old else abs(new - old) / max(1.0, abs(new)) if new > -np.inf else np.inf


@helper
def commit(out, out_at, n, log_r, at, damping, floor):
    """Normalise a new message, damp it (geometrically) and put it in place; return the largest change of an entry."""
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
def gather(net, v, log_unary, log_r, log_q):
    """log_q of variable v: unary scores and all messages but the edge's own, summed from both sides."""
    first, last = net.var_start[v], net.var_start[v + 1]
    n = net.n_states[v]
    for i in range(n):
        acc = log_unary[net.state_at[v] + i]
        for e in range(first, last):
            at = net.edge_at[e] + i
            log_q[at] = acc
            acc += log_r[at]
        acc = 0.0
        for e in range(last - 1, first - 1, -1):
            at = net.edge_at[e] + i
            log_q[at] += acc
            acc += log_r[at]


@helper
def _send(net, f, rank, low, high, log_r, log_q, tables, maximise, damping, floor, rows):
    """New messages from table factor f to its variables with low <= rank < high; return the largest change."""
    w, out, scratch = rows[0], rows[1], rows[2]
    widest = len(out) // 4
    slot = net.fac_start[f]
    arity = net.fac_start[f + 1] - slot
    n_wanted = 0
    skip = -1
    for k in range(arity):
        wanted = low <= rank[net.edge_variable[net.fac_edge[slot + k]]] < high
        n_wanted += wanted
        if not wanted:
            skip = k
    if n_wanted == 0:
        return 0.0
    _messages(net, f, skip if n_wanted == arity - 1 else -1, log_q, tables, maximise, w, out, scratch)
    worst = 0.0
    for k in range(arity):
        e = net.fac_edge[slot + k]
        v = net.edge_variable[e]
        if low <= rank[v] < high:
            got = commit(out, (4 - arity + k) * widest, net.n_states[v], log_r, net.edge_at[e], damping, floor)
            worst = max(worst, got)
    return worst


@helper
def _flood_once(net, tables, log_unary, log_r, log_q, rows, damping, floor, maximise, rank):
    """One flooding iteration of one graph; return the residual."""
    V = len(rank)
    for v in range(V):
        gather(net, v, log_unary, log_r, log_q)
    worst = 0.0
    for f in range(len(net.weight_at)):
        worst = max(worst, _send(net, f, rank, 0, V, log_r, log_q, tables, maximise, damping, floor, rows))
    return worst


@helper
def _sweep_once(net, tables, log_unary, log_r, log_q, rows, damping, floor, maximise, order, rank):
    """Variable by variable, from the last to the first and back; return the residual.

    Each tells the variables that come after it in the sweep what it has heard so far. On a forest in breadth-first
    order this is from the leaves to the roots and back, and all there is to do.
    """
    V = len(order)
    worst = 0.0
    for n in range(2 * V):
        v = order[V - 1 - n if n < V else n - V]
        low, high = (0, rank[v]) if n < V else (rank[v] + 1, V)
        gather(net, v, log_unary, log_r, log_q)
        for e in range(net.var_start[v], net.var_start[v + 1]):
            f = net.edge_factor[e]
            if f < len(net.weight_at):
                got = _send(net, f, rank, low, high, log_r, log_q, tables, maximise, damping, floor, rows)
                worst = max(worst, got)
    return worst


@kernel
def iterate(
    start, stop, net, weights, log_weights, shifts, log_unary, log_r, log_q, rows, damping, floor, maximise, order,
    rank, sequential, done, residual,
):  # fmt: skip
    """One iteration, flooding or sweeps, of those graphs of ``start:stop`` that are not done.

    ``log_r`` and ``log_q`` (B, M) are the messages to variables and to factors; ``rows`` (B, 3, 4 * widest) is scratch;
    ``order`` (V,) and ``rank`` (V,) are inverse to each other.
    """
    for b in range(start, stop):
        if done[b]:
            continue
        tables = of_graph(weights, log_weights, shifts, b)
        unary, r, q, own = log_unary[b], log_r[b], log_q[b], rows[b]
        if sequential:
            residual[b] = _sweep_once(net, tables, unary, r, q, own, damping, floor, maximise, order, rank)
        else:
            residual[b] = _flood_once(net, tables, unary, r, q, own, damping, floor, maximise, rank)


@kernel
def gather_for(variables, net, log_unary, log_r, log_q):
    """log_q of some variables of all graphs."""
    for b in range(len(log_r)):
        for v in variables:
            gather(net, v, log_unary[b], log_r[b], log_q[b])


@kernel
def commit_factor(net, f, values, log_r, damping, floor, done, residual):
    """Put messages ``values`` (B, N) of a structured factor f in place; raise ``residual`` (B,) to their changes."""
    slot = net.fac_start[f]
    arity = net.fac_start[f + 1] - slot
    for b in range(len(values)):
        if done[b]:
            continue
        at = 0
        for k in range(arity):
            e = net.fac_edge[slot + k]
            n = net.n_states[net.edge_variable[e]]
            got = commit(values[b], at, n, log_r[b], net.edge_at[e], damping, floor)
            residual[b] = max(residual[b], got)
            at += n
