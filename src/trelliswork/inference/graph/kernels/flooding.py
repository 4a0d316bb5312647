"""Flooding belief propagation in probability space: the fast road.

Messages sum to one; tables are exponentiated once. A value that may have been lost to underflow is noticed, not
tolerated: while every positive number is at least ``threshold``, no product of them in an iteration can vanish, so that
a zero is a true zero. If one is smaller, the kernel stops and the caller takes the logarithmic road.
"""

from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import (
    add,
    get,
    lanes,
    largest,
    load,
    maximum,
    multiply,
    multiply_add,
    spread,
    spread_at,
    store,
    subtract,
    total,
)

RUNNING, CONVERGED, IMPOSSIBLE, UNDERFLOW = 0, 1, 2, 3


class Net(NamedTuple):
    """The arrays of `Layout` and `TableData` that kernels read."""

    n_states: np.ndarray
    state_at: np.ndarray
    var_start: np.ndarray
    edge_at: np.ndarray
    edge_variable: np.ndarray
    edge_factor: np.ndarray
    fac_start: np.ndarray
    fac_edge: np.ndarray
    weight_at: np.ndarray
    log_at: np.ndarray


@helper
def weighted_rows(table, at, n_rows, width, by, by_at, out, out_at):
    """out[j] = sum_i by[i] table[i, j], flat indices; ``width`` is a whole number of vectors."""
    W = lanes(out)
    j = 0
    while j + 4 * W <= width:
        a = spread(out, 0.0)
        b = spread(out, 0.0)
        c = spread(out, 0.0)
        d = spread(out, 0.0)
        row = at + j
        for i in range(n_rows):
            x = spread_at(by, by_at + i)
            a = multiply_add(x, load(table, row), a)
            b = multiply_add(x, load(table, row + W), b)
            c = multiply_add(x, load(table, row + 2 * W), c)
            d = multiply_add(x, load(table, row + 3 * W), d)
            row += width
        store(out, out_at + j, a)
        store(out, out_at + j + W, b)
        store(out, out_at + j + 2 * W, c)
        store(out, out_at + j + 3 * W, d)
        j += 4 * W
    while j + 2 * W <= width:
        a = spread(out, 0.0)
        b = spread(out, 0.0)
        row = at + j
        for i in range(n_rows):
            x = spread_at(by, by_at + i)
            a = multiply_add(x, load(table, row), a)
            b = multiply_add(x, load(table, row + W), b)
            row += width
        store(out, out_at + j, a)
        store(out, out_at + j + W, b)
        j += 2 * W
    while j < width:
        a = spread(out, 0.0)
        row = at + j
        for i in range(n_rows):
            a = multiply_add(spread_at(by, by_at + i), load(table, row), a)
            row += width
        store(out, out_at + j, a)
        j += W


@helper
def many_rows(table, at, n0, n1, n2, width, w, w0, w1, w2, w3, out, o0, o1, o2, o3):
    """All messages of a table (n0, n1, n2, width): each is the sum of table times the other three vectors of ``w``.

    ``w0`` .. ``w3`` and ``o0`` .. ``o3`` are where the vectors begin in ``w`` and ``out``. Tables over fewer variables
    have leading axes of length 1.
    """
    W = lanes(out)
    for i in range(n0):
        out[o0 + i] = 0.0
    for i in range(n1):
        out[o1 + i] = 0.0
    for i in range(n2):
        out[o2 + i] = 0.0
    for i in range(width):
        out[o3 + i] = 0.0
    row = at
    for h in range(n0):
        for i in range(n1):
            for j in range(n2):
                x, y, z = get(w, w0 + h), get(w, w1 + i), get(w, w2 + j)
                scale = spread(out, x * y * z)
                dot = spread(out, 0.0)
                for k in range(0, width, W):
                    entry = load(table, row + k)
                    dot = multiply_add(entry, load(w, w3 + k), dot)
                    store(out, o3 + k, multiply_add(entry, scale, load(out, o3 + k)))
                value = total(dot)
                out[o0 + h] += y * z * value
                out[o1 + i] += x * z * value
                out[o2 + j] += x * y * value
                row += width


@helper
def _commit(out, out_at, width, r, at, damping, worst):
    """Normalise a new message, damp it and put it in place; return (its sum, the largest changes so far)."""
    W = lanes(out)
    acc = spread(out, 0.0)
    for k in range(0, width, W):
        acc = add(acc, load(out, out_at + k))
    s = total(acc)
    if s == 0.0:
        return s, worst
    scale = spread(out, 1.0 / s)
    fresh = spread(out, 1.0 - damping)
    stale = spread(out, damping)
    for k in range(0, width, W):
        old = load(r, at + k)
        new = multiply(load(out, out_at + k), scale)
        worst = maximum(worst, maximum(subtract(new, old), subtract(old, new)))
        store(r, at + k, multiply_add(old, stale, multiply(new, fresh)))
    if damping > 0.0:  # what is impossible is so at once: a zero that came in small steps would never be one
        for i in range(width):
            if out[out_at + i] == 0.0:
                r[at + i] = 0.0
    return s, worst


@helper
def _gather(net, unary, r, q, start, stop):
    """q of variables ``start:stop``: the product of the unary weights and all messages but the edge's own."""
    W = lanes(q)
    for v in range(start, stop):
        first, last = net.var_start[v], net.var_start[v + 1]
        if first == last:
            continue
        state = net.state_at[v]
        width = net.state_at[v + 1] - state
        base = net.edge_at[first]
        end = base + (last - first) * width
        for k in range(0, width, W):
            product = load(unary, state + k)
            for at in range(base + k, end, width):
                store(q, at, product)
                product = multiply(product, load(r, at))
            product = load(r, end - width + k)
            for at in range(end - 2 * width + k, base - 1, -width):
                store(q, at, multiply(load(q, at), product))
                product = multiply(product, load(r, at))


@helper
def _scatter(net, weights, r, q, w, out, damping, start, stop):
    """r of table factors ``start:stop``; return (whether all is possible, the largest change)."""
    widest = len(out) // 4
    worst = spread(out, 0.0)
    for f in range(start, stop):
        slot = net.fac_start[f]
        arity = net.fac_start[f + 1] - slot
        table = net.weight_at[f]
        if arity == 2:
            e0, e1 = net.fac_edge[slot], net.fac_edge[slot + 1]
            v0, v1 = net.edge_variable[e0], net.edge_variable[e1]
            n0, n1 = net.n_states[v0], net.n_states[v1]
            width0 = net.state_at[v0 + 1] - net.state_at[v0]
            width1 = net.state_at[v1 + 1] - net.state_at[v1]
            at0, at1 = net.edge_at[e0], net.edge_at[e1]
            weighted_rows(weights, table, n0, width1, q, at0, out, 0)
            weighted_rows(weights, table + n0 * width1, n1, width0, q, at1, out, widest)
            s, worst = _commit(out, 0, width1, r, at1, damping, worst)
            if s == 0.0:
                return False, 0.0
            s, worst = _commit(out, widest, width0, r, at0, damping, worst)
            if s == 0.0:
                return False, 0.0
        else:
            w[0] = 1.0
            n0, at0 = 1, 0
            if arity == 4:
                e = net.fac_edge[slot]
                n0, at0 = net.n_states[net.edge_variable[e]], net.edge_at[e]
                for i in range(n0):
                    w[i] = q[at0 + i]
            e1, e2, e3 = net.fac_edge[slot + arity - 3], net.fac_edge[slot + arity - 2], net.fac_edge[slot + arity - 1]
            n1, n2, n3 = net.n_states[net.edge_variable[e1]], net.n_states[net.edge_variable[e2]], 0
            v3 = net.edge_variable[e3]
            n3 = net.state_at[v3 + 1] - net.state_at[v3]
            at1, at2, at3 = net.edge_at[e1], net.edge_at[e2], net.edge_at[e3]
            for i in range(n1):
                w[widest + i] = q[at1 + i]
            for i in range(n2):
                w[2 * widest + i] = q[at2 + i]
            for i in range(n3):
                w[3 * widest + i] = q[at3 + i]
            for i in range(4 * widest):
                out[i] = 0.0
            many_rows(
                weights,
                table,
                n0,
                n1,
                n2,
                n3,
                w,
                0,
                widest,
                2 * widest,
                3 * widest,
                out,
                0,
                widest,
                2 * widest,
                3 * widest,
            )
            for k in range(arity):
                e = net.fac_edge[slot + k]
                v = net.edge_variable[e]
                width = net.state_at[v + 1] - net.state_at[v]
                s, worst = _commit(out, (4 - arity + k) * widest, width, r, net.edge_at[e], damping, worst)
                if s == 0.0:
                    return False, 0.0
    return True, largest(worst)


@helper(fast=True)
def _smallest_positive(values):
    low = 1.0
    for x in values:
        low = min(low, x if x > 0.0 else 1.0)
    return low


@kernel
def flood(
    start, stop, net, weights, unary, r, q, rows, damping, tolerance, max_iter, threshold, n_iter, residual, status
):
    """Iterate graphs ``start:stop``: all messages to factors, then all messages to variables.

    ``r`` and ``q`` (B, M) are the messages to variables and to factors; ``unary`` (B, N), ``weights`` (1 or B, W);
    ``rows`` (B, 3, 4 * widest) is scratch. ``n_iter``, ``residual`` and ``status`` (B,) tell how it ended.
    """
    V = len(net.n_states)
    F = len(net.weight_at)
    for b in range(start, stop):
        table = weights[b if len(weights) > 1 else 0]
        for n in range(max_iter):
            _gather(net, unary[b], r[b], q[b], 0, V)
            possible, residual[b] = _scatter(net, table, r[b], q[b], rows[b, 0], rows[b, 1], damping, 0, F)
            n_iter[b] = n + 1
            if not possible:
                status[b] = IMPOSSIBLE
                break
            if _smallest_positive(r[b]) < threshold:
                status[b] = UNDERFLOW
                break
            if residual[b] <= tolerance:
                status[b] = CONVERGED
                break
