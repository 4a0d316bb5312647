"""Messages in probability space: products, normalization, changes. The fast path of belief propagation.

Messages sum to one; tables are exponentiated once. Underflow is detected: while every positive number of a message is
at least ``threshold``, no product of them in an iteration can underflow, so that a zero is a true zero. If one is
smaller, the kernels stop and the caller falls back to log space.

Variables with one or two states, the most frequent kind, have messages of two numbers, computed without vectors.
"""

from typing import NamedTuple

from trelliswork.compute.jit import helper
from trelliswork.compute.kernels.products import Factor, add_product
from trelliswork.compute.simd import (
    add,
    get,
    lanes,
    largest,
    load,
    maximum,
    multiply,
    multiply_add,
    put,
    spread,
    store,
    subtract,
    total,
    where_greater,
)
from trelliswork.compute.tiles import store_tile, tile
from trelliswork.inference.graph.kernels.records import LANES, NARROW, Doubles, Integers

RUNNING, CONVERGED, IMPOSSIBLE, UNDERFLOW = 0, 1, 2, 3


class Probabilities(NamedTuple):
    """Weights of states and messages in probability space, of all graphs or (in kernels) of one."""

    unary: Doubles  # (B, N)
    r: Doubles  # (B, M) to variables
    q: Doubles  # (B, M) to factors; scratch for one variable if all factors have two variables
    rows: Doubles  # (B, 3, 4 * widest) scratch


class Stopping(NamedTuple):
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


class Source(NamedTuple):
    """The product of messages to a variable from which it sends: place in ``q``, and number of states."""

    q: Doubles
    at: int
    n_states: int


class Extremes(NamedTuple):
    """What the messages of an iteration had: accumulators in registers.

    Those of vectors and those of single numbers are kept apart, since combining them takes longer than a short message.
    """

    least_sum: float  # 0 if a message is impossible
    change: float
    lowest: float  # smallest positive number, at most 1
    changes: object  # of vectors
    lowests: object  # negative


@helper
def no_extremes(like):
    """Return the accumulators before the first message; ``like`` is an array of the messages."""
    return Extremes(1.0, 0.0, 1.0, spread(like, 0.0), spread(like, -1.0))


@helper
def status_of(seen, options):
    """Return the status of a graph after an iteration, and the largest change of an entry of a message."""
    change = max(seen.change, largest(seen.changes))
    if min(seen.lowest, -largest(seen.lowests)) < options.threshold:  # first: a sum may be zero because of underflow
        return UNDERFLOW, change
    if seen.least_sum == 0.0:
        return IMPOSSIBLE, 0.0
    return CONVERGED if change <= options.tolerance else RUNNING, change


@helper
def width_of(n_states):
    """Return ``widths`` of a variable from its number of states: arithmetic is cheaper than one more random access."""
    return NARROW if n_states <= NARROW else whole_vectors(n_states)


@helper
def whole_vectors(n_states):
    """Round up to whole vectors."""
    return (n_states + LANES - 1) & -LANES


@helper
def own_probabilities(state, b):
    """Probabilities of graph b."""
    return Probabilities(state.unary[b], state.r[b], state.q[b], state.rows[b])


@helper
def weighted_rows(table, at, n_rows, width, by, by_at, out, out_at):
    """out[j] = sum_i by[i] table[i, j], flat indices; ``width`` is 2 or a whole number of vectors."""
    if width == NARROW:
        x = y = 0.0
        for i in range(n_rows):
            w = get(by, by_at + i)
            x += w * get(table, at + 2 * i)
            y += w * get(table, at + 2 * i + 1)
        put(out, out_at, x)
        put(out, out_at + 1, y)
        return
    if width > lanes(out):
        _wide_rows(table, at, n_rows, width, by, by_at, out, out_at)
        return
    store(out, out_at, one_vector(table, at, n_rows, by, by_at))


@helper(forceinline=True)
def one_vector(table, at, n_rows, by, by_at):
    """sum_i by[i] table[i], with rows of one vector."""
    message = spread(table, 0.0)
    for i in range(n_rows):
        message = multiply_add(spread(by, get(by, by_at + i)), load(table, at + i * lanes(table)), message)
    return message


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
    axes of length 1. ``width`` is a whole number of vectors.
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
def commit_weights(out, out_at, width, old, new, at, damping, seen):
    """Normalize the message in ``out``, damp it with that in ``old``, store it in ``new``; return what was seen."""
    if width == NARROW:
        return commit_two(get(out, out_at), get(out, out_at + 1), old, new, at, damping, seen)
    W = lanes(out)
    acc = spread(out, 0.0)
    for k in range(0, width, W):
        acc = add(acc, load(out, out_at + k))
    s = total(acc)
    scale, one, zero = spread(out, 1.0 / s if s > 0.0 else 0.0), spread(out, 1.0), spread(out, 0.0)
    fresh = spread(out, 1.0 - damping)
    stale = spread(out, damping)
    changes, lowests = seen.changes, seen.lowests
    for k in range(0, width, W):
        before = load(old, at + k)
        after = multiply(load(out, out_at + k), scale)
        changes = maximum(changes, maximum(subtract(after, before), subtract(before, after)))
        after = multiply_add(before, stale, multiply(after, fresh))
        lowests = maximum(lowests, subtract(zero, where_greater(after, zero, after, one)))
        store(new, at + k, after)
    if damping > 0.0:  # zeros are stored at once: a zero approached in small steps would never be reached
        for i in range(width):
            if out[out_at + i] == 0.0:
                new[at + i] = 0.0
    return Extremes(min(seen.least_sum, s), seen.change, seen.lowest, changes, lowests)


@helper(forceinline=True)
def commit_two(x, y, old, new, at, damping, seen):
    """`commit_weights` for the two numbers of a short message."""
    s = x + y
    scale = 1.0 / s if s > 0.0 else 0.0
    x, y, before = x * scale, y * scale, get(old, at)
    change = max(seen.change, abs(x - before))  # the other number changes as much
    if damping > 0.0:
        x = x + damping * (before - x) if x > 0.0 else 0.0
        y = y + damping * (get(old, at + 1) - y) if y > 0.0 else 0.0
    put(new, at, x)
    put(new, at + 1, y)
    low = min(x, y)
    lowest = min(seen.lowest, low if low > 0.0 else 1.0)
    return Extremes(min(seen.least_sum, s), change, lowest, seen.changes, seen.lowests)


@helper
def gather_weights(layout, v, unary, r, q, to):
    """q[to:] of variable v: the product of the unary weights and all messages but the edge's own, edge by edge."""
    W = lanes(q)
    first, last = layout.var_start[v], layout.var_start[v + 1]
    if first == last:
        return
    state, width = layout.state_at[v], width_of(layout.n_states[v])
    base = layout.edge_at[first]
    size = (last - first) * width
    if width == NARROW:
        x, y = get(unary, state), get(unary, state + 1)
        for k in range(0, size, NARROW):
            put(q, to + k, x)
            put(q, to + k + 1, y)
            x *= get(r, base + k)
            y *= get(r, base + k + 1)
        x, y = get(r, base + size - 2), get(r, base + size - 1)
        for k in range(size - 2 * NARROW, -1, -NARROW):
            put(q, to + k, get(q, to + k) * x)
            put(q, to + k + 1, get(q, to + k + 1) * y)
            x *= get(r, base + k)
            y *= get(r, base + k + 1)
        return
    for i in range(0, width, W):
        product = load(unary, state + i)
        for k in range(i, size, width):
            store(q, to + k, product)
            product = multiply(product, load(r, base + k))
        product = load(r, base + size - width + i)
        for k in range(size - 2 * width + i, -1, -width):
            store(q, to + k, multiply(load(q, to + k), product))
            product = multiply(product, load(r, base + k))


@helper(forceinline=True)
def send(layout, pairs, e, source, weights, out, old, new, damping, seen):
    """Message of edge e's variable through a factor over two variables: from ``old`` to ``new``; ``out`` is scratch."""
    at = layout.edge_at[pairs.to[e]]
    width = layout.edge_at[pairs.to[e] + 1] - at
    table, q, q_at = pairs.table_at[e], source.q, source.at
    if width == NARROW and source.n_states == NARROW:
        x, y = get(q, q_at), get(q, q_at + 1)
        to_x = x * get(weights, table) + y * get(weights, table + 2)
        to_y = x * get(weights, table + 1) + y * get(weights, table + 3)
        return commit_two(to_x, to_y, old, new, at, damping, seen)
    if width == lanes(out) and damping == 0.0:
        message = one_vector(weights, table, source.n_states, q, q_at)
        s = total(message)
        message, before = multiply(message, spread(out, 1.0 / s if s > 0.0 else 0.0)), load(old, at)
        store(new, at, message)
        changes = maximum(seen.changes, maximum(subtract(message, before), subtract(before, message)))
        zero, one = spread(out, 0.0), spread(out, 1.0)
        lowests = maximum(seen.lowests, subtract(zero, where_greater(message, zero, message, one)))
        return Extremes(min(seen.least_sum, s), seen.change, seen.lowest, changes, lowests)
    weighted_rows(weights, table, source.n_states, width, q, q_at, out, 0)
    return commit_weights(out, 0, width, old, new, at, damping, seen)


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
def large_table(layout, f, weights, table, w, out):
    """Rows of ``out``: all messages of table factor f, of any arity, before normalization; rows of ``w`` are given."""
    arity, n0, n1, n2, n3 = table_shape(layout, f)
    many_rows(weights, table, n0, n1, n2, whole_vectors(n3), w, out, len(out) // 4)
    return arity


@helper
def fill_rows(layout, f, q, w):
    """Rows of ``w``: the messages q of the variables of table factor f, with zeros up to whole vectors."""
    widest = len(w) // 4
    slot = layout.fac_start[f]
    arity = layout.fac_start[f + 1] - slot
    w[0] = w[widest] = 1.0
    for k in range(arity):
        e = layout.fac_edge[slot + k]
        at, to, n = layout.edge_at[e], (4 - arity + k) * widest, layout.n_states[layout.edge_variable[e]]
        for i in range(n):
            w[to + i] = q[at + i]
        for i in range(n, whole_vectors(n)):
            w[to + i] = 0.0
