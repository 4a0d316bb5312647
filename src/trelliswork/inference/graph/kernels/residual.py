"""Residual belief propagation: always the message that would change most.

A heap holds the edges by the change of their pending messages. Elidan, McGraw and Koller (2006).
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.graph.kernels.log_space import _messages, change, gather, of_graph


@helper
def _sift(heap, place, key, at, n):
    """Put the edge at ``at`` where its key belongs."""
    e = heap[at]
    while at > 0:
        parent = (at - 1) // 2
        if key[heap[parent]] >= key[e]:
            break
        heap[at] = heap[parent]
        place[heap[at]] = at
        at = parent
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and key[heap[child + 1]] > key[heap[child]]:
            child += 1
        if key[heap[child]] <= key[e]:
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    heap[at] = e
    place[e] = at


@helper
def _distance(net, e, pending, log_r, floor):
    worst = 0.0
    at = net.edge_at[e]
    for i in range(net.n_states[net.edge_variable[e]]):
        worst = max(worst, change(pending[at + i], log_r[at + i], floor))
    return worst


@helper
def _prepare(net, f, skip, log_r, log_q, pending, key, tables, maximise, floor, rows):
    """Pending messages of f to all slots but ``skip``, and their keys."""
    widest = rows.shape[1] // 4
    _messages(net, f, skip, log_q, tables, maximise, rows[0], rows[1], rows[2])
    slot = net.fac_start[f]
    arity = net.fac_start[f + 1] - slot
    for k in range(arity):
        if k == skip:
            continue
        e = net.fac_edge[slot + k]
        at, n, row = net.edge_at[e], net.n_states[net.edge_variable[e]], (4 - arity + k) * widest
        top = -np.inf
        for i in range(n):
            top = max(top, rows[1, row + i])
        for i in range(n):
            pending[at + i] = rows[1, row + i] - top if top > -np.inf else -np.inf
        key[e] = _distance(net, e, pending, log_r, floor)


@kernel
def residual_round(
    start, stop, net, weights, log_weights, shifts, log_unary, log_r, log_q, pending, heap, place, key, rows, damping,
    floor, maximise, tolerance, n_updates, done, residual,
):  # fmt: skip
    """At most ``n_updates`` messages of each graph of ``start:stop`` that is not done.

    ``pending`` (B, M), ``heap``, ``place`` and ``key`` (B, E) are scratch; ``residual`` gets the largest change left.
    """
    F = len(net.weight_at)
    for b in range(start, stop):
        if done[b]:
            continue
        tables = of_graph(weights, log_weights, shifts, b)
        for v in range(len(net.n_states)):
            gather(net, v, log_unary[b], log_r[b], log_q[b])
        for f in range(F):
            _prepare(net, f, -1, log_r[b], log_q[b], pending[b], key[b], tables, maximise, floor, rows[b])
        n = 0
        for e in range(len(net.edge_factor)):
            if net.edge_factor[e] < F:
                heap[b, n] = e
                place[b, e] = n
                n += 1
                _sift(heap[b], place[b], key[b], n - 1, n)
        for _ in range(n_updates):
            if n == 0 or key[b, heap[b, 0]] <= tolerance:
                break
            e = heap[b, 0]
            v = net.edge_variable[e]
            at = net.edge_at[e]
            for i in range(net.n_states[v]):
                new, old = pending[b, at + i], log_r[b, at + i]
                finite = new > -np.inf and old > -np.inf
                log_r[b, at + i] = (1.0 - damping) * new + damping * old if finite else new
            key[b, e] = _distance(net, e, pending[b], log_r[b], floor)
            _sift(heap[b], place[b], key[b], place[b, e], n)
            gather(net, v, log_unary[b], log_r[b], log_q[b])
            for other in range(net.var_start[v], net.var_start[v + 1]):
                f = net.edge_factor[other]
                if other == e or f >= F:
                    continue
                slot = net.fac_start[f]
                skip = 0
                while net.fac_edge[slot + skip] != other:
                    skip += 1
                _prepare(net, f, skip, log_r[b], log_q[b], pending[b], key[b], tables, maximise, floor, rows[b])
                for k in range(slot, net.fac_start[f + 1]):
                    if net.fac_edge[k] != other:
                        _sift(heap[b], place[b], key[b], place[b, net.fac_edge[k]], n)
        residual[b] = key[b, heap[b, 0]] if n > 0 else 0.0
