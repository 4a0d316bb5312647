"""Tree-reweighted belief propagation in log space."""

import math
from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_dot
from trelliswork.inference.graph.kernels.records import Doubles, Integers, Variables


class Edges(NamedTuple):
    """Pairs of variables that factors join, and their tables.

    Edge e joins the variables ``ends[e, 0]`` < ``ends[e, 1]``; its log-table for graph b is at
    ``base[e] + b * step[e] + x * strides[e, 0] + y * strides[e, 1]`` of ``tables``. The message to end i of edge e
    starts at ``place[e, i]``, its beliefs start at ``entry[e]``. The edges of variable v are
    ``near_ptr[v]:near_ptr[v + 1]`` of ``near``, and v is end ``side`` of them.
    """

    tables: Doubles
    ends: Integers
    base: Integers
    step: Integers
    strides: Integers
    place: Integers
    entry: Integers
    near_ptr: Integers
    near: Integers
    side: Integers


class Options(NamedTuple):
    """Stopping rules of `solve`."""

    damping: float
    tolerance: float
    max_iter: int


class Beliefs(NamedTuple):
    """Results for B graphs."""

    scores: Doubles  # (B, N) unary scores and weighted messages
    beliefs: Doubles  # (B, N)
    entries: Doubles  # (B, n) beliefs of edges; may be empty
    log_z: Doubles  # (B,)
    information: Doubles  # (B, E) mutual information of the ends of each edge


@helper
def _gather(v, edges, offsets, unary, weights, messages, own):
    """own[x] = unary score + weighted messages to variable v."""
    n = offsets[v + 1] - offsets[v]
    for x in range(n):
        own[x] = unary[offsets[v] + x]
    for i in range(edges.near_ptr[v], edges.near_ptr[v + 1]):
        e, at = edges.near[i], edges.place[edges.near[i], edges.side[i]]
        for x in range(n):
            own[x] += weights[e] * messages[at + x]


@helper
def _less(score, message):
    """Return score - message, or -inf where the message is -inf."""
    return score - message if message > -np.inf else -np.inf


@helper
def _send(b, v, edges, offsets, unary, weights, damping, messages, room):
    """Send messages from variable v along all its edges; return the largest change, as probabilities."""
    tables, own, rest, new, zeros = edges.tables, room[0], room[1], room[2], room[3]
    _gather(v, edges, offsets, unary, weights, messages, own)
    n = offsets[v + 1] - offsets[v]
    change = 0.0
    for i in range(edges.near_ptr[v], edges.near_ptr[v + 1]):
        e, side = edges.near[i], edges.side[i]
        other = edges.ends[e, 1 - side]
        m = offsets[other + 1] - offsets[other]
        back, out = edges.place[e, side], edges.place[e, 1 - side]
        base = edges.base[e] + b * edges.step[e]
        by, across = edges.strides[e, side], edges.strides[e, 1 - side]
        scale = 1.0 / weights[e]
        for x in range(n):
            rest[x] = _less(own[x], messages[back + x])
        for y in range(m):
            top = -np.inf
            for x in range(n):
                top = max(top, rest[x] + scale * tables[base + x * by + y * across])
            if top > -np.inf:
                mass = 0.0
                for x in range(n):
                    mass += math.exp(rest[x] + scale * tables[base + x * by + y * across] - top)
                top += math.log(mass)
            new[y] = top
        log_sum = log_dot(new, zeros, m)
        for y in range(m):
            fresh, old = (new[y] - log_sum if log_sum > -np.inf else -np.inf), messages[out + y]
            change = max(change, abs(math.exp(fresh) - math.exp(old)))
            if fresh > -np.inf and old > -np.inf:
                fresh += damping * (old - fresh)
            messages[out + y] = fresh
    return change


@kernel
def solve(start, stop, edges: Edges, variables: Variables, weights, options: Options, room, messages, n_iter, residual):
    """Sweep forth and back over the variables until no message changes by more than the tolerance."""
    V = variables.n_states.size
    for b in range(start, stop):
        unary, rho, here = variables.log_unary[b], weights[b], messages[b]
        n_iter[b] = 0
        for _ in range(options.max_iter):
            n_iter[b] += 1
            residual[b] = 0.0
            for i in range(2 * V):
                v = i if i < V else 2 * V - 1 - i
                change = _send(b, v, edges, variables.offsets, unary, rho, options.damping, here, room)
                residual[b] = max(residual[b], change)
            if residual[b] <= options.tolerance:
                break


@kernel(allocates=True)
def finish(start, stop, edges: Edges, variables: Variables, weights, messages, out: Beliefs):
    """Fill ``out`` from the messages.

    The value is sum_v (1 - sum of weights at v) log Z_v + sum_e weight_e log Z_e: its gradient by the messages vanishes
    at a fixed point, so that it has no first-order error before.
    """
    offsets, log_unary, tables = variables.offsets, variables.log_unary, edges.tables
    scores, beliefs, entries, log_z, information = out
    V, E = offsets.size - 1, edges.base.size
    for b in range(start, stop):
        rho, value, possible = weights[b], 0.0, True
        for v in range(V):
            own = scores[b, offsets[v] : offsets[v + 1]]
            _gather(v, edges, offsets, log_unary[b], rho, messages[b], own)
            top, mass, count = own.max(), 0.0, 1.0
            if top == -np.inf:
                possible = False
                break
            for x in range(own.size):
                beliefs[b, offsets[v] + x] = math.exp(own[x] - top)
                mass += beliefs[b, offsets[v] + x]
            for x in range(own.size):
                beliefs[b, offsets[v] + x] /= mass
            for i in range(edges.near_ptr[v], edges.near_ptr[v + 1]):
                count -= rho[edges.near[i]]
            value += count * (top + math.log(mass))
        for e in range(E if possible else 0):
            u, v = edges.ends[e, 0], edges.ends[e, 1]
            n, m = offsets[u + 1] - offsets[u], offsets[v + 1] - offsets[v]
            base = edges.base[e] + b * edges.step[e]
            top, mass = -np.inf, 0.0
            joint, left, right = np.empty((n, m)), np.zeros(n), np.zeros(m)
            for x in range(n):
                for y in range(m):
                    joint[x, y] = (
                        _less(scores[b, offsets[u] + x], messages[b, edges.place[e, 0] + x])
                        + _less(scores[b, offsets[v] + y], messages[b, edges.place[e, 1] + y])
                        + tables[base + x * edges.strides[e, 0] + y * edges.strides[e, 1]] / rho[e]
                    )
                    top = max(top, joint[x, y])
            if top == -np.inf:
                possible = False
                break
            for x in range(n):
                for y in range(m):
                    joint[x, y] = math.exp(joint[x, y] - top)
                    mass += joint[x, y]
            value += rho[e] * (top + math.log(mass))
            for x in range(n):
                for y in range(m):
                    joint[x, y] /= mass
                    left[x] += joint[x, y]
                    right[y] += joint[x, y]
            information[b, e] = 0.0
            for x in range(n):
                for y in range(m):
                    if joint[x, y] > 0:
                        ratio = math.log(joint[x, y]) - math.log(left[x]) - math.log(right[y])
                        information[b, e] += joint[x, y] * ratio
                    if entries.shape[1] > 0:
                        entries[b, edges.entry[e] + x * m + y] = joint[x, y]
        log_z[b] = value if possible else -np.inf
        if not possible:
            beliefs[b] = 0
            entries[b] = 0
            information[b] = 0
