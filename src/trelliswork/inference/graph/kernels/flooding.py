"""Flooding belief propagation in probability space: the fast path.

Messages sum to one; tables are exponentiated once. Underflow is detected: while every positive number is at least
``threshold``, no product of them in an iteration can underflow, so that a zero is a true zero. If one is smaller, the
kernel stops and the caller falls back to log space.
"""

from typing import NamedTuple

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.products import Factor, add_product
from trelliswork.compute.simd import (
    add,
    get,
    if_positive,
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
from trelliswork.compute.tiles import store_tile, tile
from trelliswork.inference.graph.kernels.records import LANES, Doubles, Integers, Layout, TableData

RUNNING, CONVERGED, IMPOSSIBLE, UNDERFLOW = 0, 1, 2, 3


class Probabilities(NamedTuple):
    """Weights of states and messages in probability space."""

    unary: Doubles  # (B, N)
    r: Doubles  # (B, M) to variables
    q: Doubles  # (B, M) to factors
    rows: Doubles  # (B, 3, 4 * widest) scratch


class Options(NamedTuple):
    """Stopping rules."""

    damping: float
    tolerance: float
    max_iter: int
    threshold: float


class Outcome(NamedTuple):
    """Iterations, last residual and status of each graph, (B,)."""

    n_iter: Integers
    residual: Doubles
    status: Integers


@helper
def weighted_rows(table, at, n_rows, width, by, by_at, out, out_at):
    """out[j] = sum_i by[i] table[i, j], flat indices; ``width`` is a whole number of vectors."""
    if width > lanes(out):
        _wide_rows(table, at, n_rows, width, by, by_at, out, out_at)
        return
    # Few states: small enough to be inlined, so that the processor can load several tables at once.
    message = spread(out, 0.0)
    for i in range(n_rows):
        message = multiply_add(spread_at(by, by_at + i), load(table, at + i * width), message)
    store(out, out_at, message)


@helper
def _wide_rows(table, at, n_rows, width, by, by_at, out, out_at):
    """`weighted_rows` for several vectors, whose sums are independent."""
    W, left = lanes(out), Factor(by, by_at, 0, 1)
    j = 0
    while j + 4 * W <= width:
        store_tile(out, out_at + j, 0, add_product(tile(out, 0.0, 1, 4), left, table, at + j, width, n_rows))
        j += 4 * W
    while j + 2 * W <= width:
        store_tile(out, out_at + j, 0, add_product(tile(out, 0.0, 1, 2), left, table, at + j, width, n_rows))
        j += 2 * W
    while j < width:
        store_tile(out, out_at + j, 0, add_product(tile(out, 0.0, 1, 1), left, table, at + j, width, n_rows))
        j += W


@helper
def many_rows(table, at, n0, n1, n2, width, w, out, widest):
    """All messages of a table (n0, n1, n2, width): each is the sum of table times the other three vectors of ``w``.

    The four vectors of ``w`` and ``out`` start at multiples of ``widest``. Tables over fewer variables have leading
    axes of length 1.
    """
    W = lanes(out)
    a1, a2, a3 = widest, 2 * widest, 3 * widest
    for i in range(4 * widest):
        out[i] = 0.0
    row = at
    for h in range(n0):
        for i in range(n1):
            for j in range(n2):
                x, y, z = get(w, h), get(w, a1 + i), get(w, a2 + j)
                scale = spread(out, x * y * z)
                dot = spread(out, 0.0)
                for k in range(0, width, W):
                    entry = load(table, row + k)
                    dot = multiply_add(entry, load(w, a3 + k), dot)
                    store(out, a3 + k, multiply_add(entry, scale, load(out, a3 + k)))
                value = total(dot)
                out[h] += y * z * value
                out[a1 + i] += x * z * value
                out[a2 + j] += x * y * value
                row += width


@helper
def commit_weights(out, out_at, width, r, at, damping, worst):
    """Normalize a new message, damp it and store it; return its sum and the largest changes so far."""
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
    if damping > 0.0:  # zeros are stored at once: a zero approached in small steps would never be reached
        for i in range(width):
            if out[out_at + i] == 0.0:
                r[at + i] = 0.0
    return s, worst


@helper
def gather_weights(layout, v, unary, r, q):
    """q of variable v: the product of the unary weights and all messages but the edge's own."""
    W = lanes(q)
    first, last = layout.var_start[v], layout.var_start[v + 1]
    if first == last:
        return
    state, width = layout.state_at[v], layout.widths[v]
    base = layout.edge_at[first]
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
def width_of(n_states):
    """Return ``widths`` of a variable from its number of states: arithmetic is cheaper than one more random access."""
    return (n_states + LANES - 1) & -LANES


@helper
def table_shape(layout, f):
    """Arity of table factor f and the shape of its table, with leading axes of length 1."""
    slot = layout.fac_start[f]
    arity = layout.fac_start[f + 1] - slot
    n0 = n1 = 1
    if arity == 4:
        n0 = layout.n_states[layout.edge_variable[layout.fac_edge[slot]]]
    if arity >= 3:
        n1 = layout.n_states[layout.edge_variable[layout.fac_edge[slot + arity - 3]]]
    n2 = layout.n_states[layout.edge_variable[layout.fac_edge[slot + arity - 2]]]
    n3 = layout.n_states[layout.edge_variable[layout.fac_edge[slot + arity - 1]]]
    return arity, n0, n1, n2, n3


@helper
def large_table(layout, f, weights, table, q, w, out):
    """Rows of ``out``: all messages of table factor f, of any arity, before normalization; return its arity."""
    widest = len(out) // 4
    slot = layout.fac_start[f]
    arity, n0, n1, n2, n3 = table_shape(layout, f)
    w[0] = 1.0
    for k in range(arity):
        e = layout.fac_edge[slot + k]
        at, to = layout.edge_at[e], (4 - arity + k) * widest
        for i in range(layout.widths[layout.edge_variable[e]]):
            w[to + i] = q[at + i]
    many_rows(weights, table, n0, n1, n2, width_of(n3), w, out, widest)
    return arity


@helper
def _scatter(layout, weights, weight_at, r, q, w, out, damping):
    """r of all table factors; return whether all messages are possible, and the largest change."""
    widest = len(out) // 4
    worst = spread(out, 0.0)
    for f in range(layout.n_tables):
        slot = layout.fac_start[f]
        table = weight_at[f]
        if layout.fac_start[f + 1] - slot == 2:
            e0, e1 = layout.fac_edge[slot], layout.fac_edge[slot + 1]
            n2, n3 = layout.n_states[layout.edge_variable[e0]], layout.n_states[layout.edge_variable[e1]]
            width, last = width_of(n2), width_of(n3)
            at0, at1 = layout.edge_at[e0], layout.edge_at[e1]
            weighted_rows(weights, table, n2, last, q, at0, out, 3 * widest)
            weighted_rows(weights, table + n2 * last, n3, width, q, at1, out, 2 * widest)
            s, worst = commit_weights(out, 3 * widest, last, r, at1, damping, worst)
            if s == 0.0:
                return False, 0.0
            s, worst = commit_weights(out, 2 * widest, width, r, at0, damping, worst)
            if s == 0.0:
                return False, 0.0
        else:
            arity = large_table(layout, f, weights, table, q, w, out)
            for k in range(arity):
                e = layout.fac_edge[slot + k]
                width = layout.widths[layout.edge_variable[e]]
                s, worst = commit_weights(out, (4 - arity + k) * widest, width, r, layout.edge_at[e], damping, worst)
                if s == 0.0:
                    return False, 0.0
    return True, largest(worst)


@helper
def smallest_positive(values, start, stop):
    """Return the smallest positive number, at most 1, of whole vectors."""
    zero, one, low = spread(values, 0.0), spread(values, 1.0), spread(values, -1.0)
    for k in range(start, stop, lanes(values)):
        low = maximum(subtract(zero, if_positive(load(values, k), one)), low)
    return -largest(low)


@kernel
def flood(start, stop, layout: Layout, data: TableData, state: Probabilities, options: Options, outcome: Outcome):
    """Iterate graphs ``start:stop``: all messages to factors, then all messages to variables."""
    n_iter, residual, status = outcome
    for b in range(start, stop):
        table = data.weights[b if len(data.weights) > 1 else 0]
        unary, r, q = state.unary[b], state.r[b], state.q[b]
        for n in range(options.max_iter):
            for v in range(len(layout.n_states)):
                gather_weights(layout, v, unary, r, q)
            possible, residual[b] = _scatter(
                layout, table, data.weight_at, r, q, state.rows[b, 0], state.rows[b, 1], options.damping
            )
            n_iter[b] = n + 1
            if not possible:
                status[b] = IMPOSSIBLE
                break
            if smallest_positive(r, 0, r.size) < options.threshold:
                status[b] = UNDERFLOW
                break
            if residual[b] <= options.tolerance:
                status[b] = CONVERGED
                break
