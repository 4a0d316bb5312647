"""Residual belief propagation in probability space: update the messages that may change most.

How much a message would change is not computed but bounded by the changes of the messages it depends on, so that an
update computes one message (Sutton and McCallum, 2007, "Improved dynamic schedules for belief propagation"). Messages
are compared by the logarithm of max(new / old) / min(new / old) over the states, Hilbert's metric, which is at least
the largest relative change of an entry. If the messages to a variable have changed by d1, d2, .. since it last sent,
what it sends through a table changes by at most c (d1 + d2 + ..), where c <= 1 is the contraction of the table
(Birkhoff, 1957). So when all bounds are below the tolerance, all relative changes are. x - 1 in place of log x makes
the bounds larger and saves the logarithms.

Edges are in buckets by the exponents of their bounds, last in, first out: this takes fewer updates than first in, first
out, and what was touched last is in the cache.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import (
    add,
    divide,
    get,
    if_positive,
    lanes,
    largest,
    load,
    maximum,
    multiply,
    put,
    spread,
    store,
    total,
)
from trelliswork.inference.graph.kernels.messages import (
    CONVERGED,
    IMPOSSIBLE,
    RUNNING,
    UNDERFLOW,
    Options,
    Outcome,
    Probabilities,
    large_table,
    own_probabilities,
    weighted_rows,
    width_of,
)
from trelliswork.inference.graph.kernels.records import NARROW, Doubles, Layout, Pairs, TableData

LEVELS = 64  # buckets; the last one has all bounds below 2^-62
TINY = 1e-300  # in place of zeros: a zero that appears or vanishes is a change of at least 1e200
SLACK = 1.0 + 1e-9  # for rounding in contractions


class Buckets(NamedTuple):
    """Edges in buckets by the exponents of their bounds, of all graphs or of one.

    A bucket is a ring: ``links[2 * e]`` is the edge after e and ``links[2 * e + 1]`` the one before; number E + k
    stands for bucket k itself. Edges whose bound is not above the tolerance are in none.
    """

    key: Doubles  # (B, E) bound of the distance of the message from what it would be now
    contraction: Doubles  # (1 or B, E) of the table from the edge's variable to the other one
    links: NDArray[np.int32]  # (B, 2 * (E + LEVELS))


@helper(forceinline=True)
def _level(key, tolerance):
    """Bucket of a bound, or ``LEVELS`` if it is not above the tolerance."""
    exponent = (np.float64(key).view(np.int64) >> 52) - 1023
    return min(max(-exponent, 0), LEVELS - 1) if key > tolerance else LEVELS


@helper(forceinline=True)
def _insert(links, e, after):
    """Put e behind ``after``."""
    following = get(links, 2 * after)
    put(links, 2 * e, following)
    put(links, 2 * e + 1, np.int32(after))
    put(links, 2 * after, np.int32(e))
    put(links, 2 * np.int64(following) + 1, np.int32(e))


@helper(forceinline=True)
def _remove(links, e):
    """Take e from its ring."""
    following, before = get(links, 2 * e), get(links, 2 * e + 1)
    put(links, 2 * np.int64(before), following)
    put(links, 2 * np.int64(following) + 1, before)


@helper(forceinline=True)
def _raise(queue, e, by, tolerance, top):
    """Raise the bound of an edge, which becomes the first of its bucket; return the first bucket that has an edge."""
    old = get(queue.key, e)
    key = old + by
    put(queue.key, e, key)
    before, level = _level(old, tolerance), _level(key, tolerance)
    if level < before:
        if before < LEVELS:
            _remove(queue.links, e)
        _insert(queue.links, e, len(queue.key) + level)
    return min(top, level)


@helper(forceinline=True)
def _raise_from(layout, pairs, e, change, queue, tolerance, top):
    """Raise the bounds of all messages that depend on the message to edge e."""
    v = get(layout.edge_variable, e)
    for k in range(get(layout.var_start, v), get(layout.var_start, v + 1)):
        to = get(pairs.to, k)
        if to >= 0:
            by = get(queue.contraction, k) * change
            top = _raise(queue, to, by if k != e else 0.0, tolerance, top)  # no branch, which would be mispredicted
        elif k != e:
            f = layout.edge_factor[k]
            for slot in range(layout.fac_start[f], layout.fac_start[f + 1]):
                if layout.fac_edge[slot] != k:
                    top = _raise(queue, layout.fac_edge[slot], change, tolerance, top)
    return top


@helper(forceinline=True)
def _product_of_two(state, start, stop, skip, own):
    """Product of two unary weights and the messages from ``start`` to ``stop``, but that at ``skip``."""
    x, y = get(own.unary, state), get(own.unary, state + 1)
    for at in range(start, stop, NARROW):
        by_x, by_y = get(own.r, at), get(own.r, at + 1)
        x, y = x * (by_x if at != skip else 1.0), y * (by_y if at != skip else 1.0)
    return x, y


@helper
def _product(layout, skip, own, w, to):
    """w[to:] = the product of unary weights and messages to the variable of edge ``skip``, but that of the edge."""
    v, W = layout.edge_variable[skip], lanes(w)
    state, width, first = layout.state_at[v], width_of(layout.n_states[v]), layout.var_start[v]
    base = layout.edge_at[first]
    if width == NARROW:
        x, y = _product_of_two(state, base, layout.edge_at[layout.var_start[v + 1]], layout.edge_at[skip], own)
        store(w, to, spread(w, 0.0))
        put(w, to, x)
        put(w, to + 1, y)
        return
    for i in range(0, width, W):
        product = load(own.unary, state + i)
        for e in range(first, layout.var_start[v + 1]):
            if e != skip:
                product = multiply(product, load(own.r, base + (e - first) * width + i))
        store(w, to + i, product)


@helper
def _compute_large(layout, e, weights, weight_at, own):
    """Compute the message of a factor over more than two variables to edge e; return its place in ``own.rows[1]``."""
    w, out = own.rows[0], own.rows[1]
    f, widest = layout.edge_factor[e], len(out) // 4
    slot = layout.fac_start[f]
    arity = layout.fac_start[f + 1] - slot
    w[0] = w[widest] = 1.0
    place = 0
    for k in range(arity):
        row = (4 - arity + k) * widest
        _product(layout, layout.fac_edge[slot + k], own, w, row)
        if layout.fac_edge[slot + k] == e:
            place = row
    large_table(layout, f, weights, weight_at[f], w, out)
    return place


@helper(forceinline=True)
def _update(layout, pairs, e, weights, weight_at, own, damping):
    """Compute and store the message to edge e; see `_accept`."""
    at, sender = get(layout.edge_at, e), get(pairs.to, e)
    if sender >= 0 and get(layout.edge_at, e + 1) == at + NARROW:
        v, skip, table = get(layout.edge_variable, sender), get(layout.edge_at, sender), get(pairs.table_at, sender)
        if get(layout.n_states, v) == NARROW:
            start, stop = (
                get(layout.edge_at, get(layout.var_start, v)),
                get(layout.edge_at, get(layout.var_start, v + 1)),
            )
            x, y = _product_of_two(get(layout.state_at, v), start, stop, skip, own)
            to_x = x * get(weights, table) + y * get(weights, table + 2)
            to_y = x * get(weights, table + 1) + y * get(weights, table + 3)
            return _accept_two(to_x, to_y, own.r, at, damping)
    return _update_any(layout, pairs, e, weights, weight_at, own, damping)


@helper
def _update_any(layout, pairs, e, weights, weight_at, own, damping):
    """`_update` for tables of any size."""
    out, sender, at = own.rows[1], pairs.to[e], layout.edge_at[e]
    width = layout.edge_at[e + 1] - at
    if sender < 0:
        return _accept(out, _compute_large(layout, e, weights, weight_at, own), width, own.r, at, damping)
    n_states = layout.n_states[layout.edge_variable[sender]]
    _product(layout, sender, own, own.rows[0], 0)
    weighted_rows(weights, pairs.table_at[sender], n_states, width, own.rows[0], 0, out, 0)
    return _accept(out, 0, width, own.r, at, damping)


@helper(forceinline=True)
def _change_of_two(x, y, before_x, before_y):
    """Bound of the distance of messages (x, y) and (before_x, before_y): the larger ratio over the smaller, less 1."""
    up, down = x * before_y, y * before_x
    least = min(up, down)
    return abs(up - down) / least if least > 0.0 else 0.0 if up == down else np.inf


@helper(forceinline=True)
def _accept_two(x, y, r, at, damping):
    """`_accept` for the two numbers of a short message."""
    before_x, before_y, s = get(r, at), get(r, at + 1), x + y
    change, rest = _change_of_two(x, y, before_x, before_y), 0.0
    scale = 1.0 / s if s > 0.0 else 0.0
    x, y = x * scale, y * scale
    if damping > 0.0:
        goal_x, goal_y = x, y
        x = x + damping * (before_x - x) if x > 0.0 else 0.0
        y = y + damping * (before_y - y) if y > 0.0 else 0.0
        change, rest = _change_of_two(x, y, before_x, before_y), _change_of_two(goal_x, goal_y, x, y)
    put(r, at, x)
    put(r, at + 1, y)
    low = min(x, y)
    return s, low if low > 0.0 else 1.0, change, rest


@helper
def _accept(out, out_at, width, r, at, damping):
    """Normalize, damp and store a message; return its sum, its smallest positive number, its change and what remains.

    ``out`` has the message without damping afterwards.
    """
    if width == NARROW:
        return _accept_two(get(out, out_at), get(out, out_at + 1), r, at, damping)
    W = lanes(out)
    acc = spread(out, 0.0)
    for k in range(0, width, W):
        acc = add(acc, load(out, out_at + k))
    s = total(acc)
    scale, tiny = spread(out, 1.0 / s if s > 0.0 else 0.0), spread(out, TINY)
    up = down = up_rest = down_rest = spread(out, 1.0)
    low = 1.0
    for k in range(0, width, W):
        store(out, out_at + k, multiply(load(out, out_at + k), scale))
        before = if_positive(load(r, at + k), tiny)
        for i in range(k, k + W):
            x = get(out, out_at + i)
            x = x + damping * (get(r, at + i) - x) if x > 0.0 else 0.0  # zeros at once, see `commit_weights`
            put(r, at + i, x)
            low = min(low, x if x > 0.0 else 1.0)
        goal, new = if_positive(load(out, out_at + k), tiny), if_positive(load(r, at + k), tiny)
        up, down = maximum(up, divide(new, before)), maximum(down, divide(before, new))
        up_rest, down_rest = maximum(up_rest, divide(goal, new)), maximum(down_rest, divide(new, goal))
    return s, low, largest(up) * largest(down) - 1.0, largest(up_rest) * largest(down_rest) - 1.0


@helper
def _by_bounds(layout, pairs, weights, weight_at, own, queue, options):
    """Update messages whose bounds are largest until none is left; return a status, the rounds and the largest bound.

    Bounds are compared by their exponents: that of the updated message is at least half of the largest.
    """
    key, links, tolerance = queue.key, queue.links, options.tolerance
    E = len(key)
    for k in range(E, E + LEVELS):
        links[2 * k] = links[2 * k + 1] = k
    for e in range(E - 1, -1, -1):
        key[e] = np.inf
        _insert(links, e, E)
    status, n_updates, top = RUNNING, 0, 0
    while status == RUNNING and n_updates < options.max_iter * E:
        while top < LEVELS and get(links, 2 * (E + top)) == E + top:
            top += 1
        if top == LEVELS:
            status = CONVERGED
            break
        e = np.int64(get(links, 2 * (E + top)))
        _remove(links, e)
        s, low, change, key[e] = _update(layout, pairs, e, weights, weight_at, own, options.damping)
        n_updates += 1
        if low < options.threshold:
            status = UNDERFLOW
        elif s == 0.0:
            status = IMPOSSIBLE
        level = _level(key[e], tolerance)  # above the tolerance with damping only
        if level < LEVELS:  # behind those that wait, so that other messages are updated in between
            _insert(links, e, np.int64(get(links, 2 * (E + level) + 1)))
        top = _raise_from(layout, pairs, e, change, queue, tolerance, min(top, level))
    largest_bound = 0.0
    if status != IMPOSSIBLE:
        for e in range(E):
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
    start, stop, layout: Layout, data: TableData, state: Probabilities, queue: Buckets, pairs: Pairs, options: Options,
    outcome: Outcome,
):  # fmt: skip
    """Iterate graphs ``start:stop`` by residuals; an iteration is as many messages as there are edges."""
    n_iter, residual, status = outcome
    for b in range(start, stop):
        row = b if len(data.weights) > 1 else 0
        mine = Buckets(queue.key[b], queue.contraction[row], queue.links[b])
        own = own_probabilities(state, b)
        status[b], n_iter[b], residual[b] = _by_bounds(
            layout, pairs, data.weights[row], data.weight_at, own, mine, options
        )
