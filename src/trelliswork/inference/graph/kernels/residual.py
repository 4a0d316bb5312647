"""Residual belief propagation: always update the message that would change most.

A heap orders the edges by the change of their pending messages. Elidan, McGraw and Koller (2006).
"""

from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.graph.kernels.log_space import (
    Rule,
    change,
    factor_messages,
    gather,
    messages_of,
    tables_of,
)
from trelliswork.inference.graph.kernels.records import Doubles, Integers, Layout, Messages, TableData


class Queue(NamedTuple):
    """Pending messages and a heap of edges, of all graphs or (in kernels) of one, without the first axis."""

    pending: Doubles  # (B, M)
    heap: Integers  # (B, E) edges
    place: Integers  # (B, E) of each edge in the heap
    key: Doubles  # (B, E) change of its pending message


@helper
def sift(queue, at, n):
    """Move the edge at ``at`` to where its key belongs."""
    heap, place, key = queue.heap, queue.place, queue.key
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
def _distance(layout, e, pending, log_r, floor):
    worst = 0.0
    at = layout.edge_at[e]
    for i in range(layout.n_states[layout.edge_variable[e]]):
        worst = max(worst, change(pending[at + i], log_r[at + i], floor))
    return worst


@helper
def _prepare(layout, f, skip, tables, messages, queue, rule):
    """Compute pending messages of f to all slots but ``skip``, and their keys."""
    out, pending = messages.rows[1], queue.pending
    widest = len(out) // 4
    factor_messages(layout, f, skip, tables, messages, rule.maximize)
    slot = layout.fac_start[f]
    arity = layout.fac_start[f + 1] - slot
    for k in range(arity):
        if k == skip:
            continue
        e = layout.fac_edge[slot + k]
        at, n, row = layout.edge_at[e], layout.n_states[layout.edge_variable[e]], (4 - arity + k) * widest
        top = -np.inf
        for i in range(n):
            top = max(top, out[row + i])
        for i in range(n):
            pending[at + i] = out[row + i] - top if top > -np.inf else -np.inf
        queue.key[e] = _distance(layout, e, pending, messages.log_r, rule.floor)


@kernel
def residual_round(
    start, stop, layout: Layout, data: TableData, messages: Messages, queue: Queue, rule: Rule, tolerance, done,
    residual,
):  # fmt: skip
    """Update at most E messages of each graph of ``start:stop`` that is not done, E being the number of edges.

    ``queue`` is scratch; ``residual`` gets the largest remaining change.
    """
    F, E = layout.n_tables, len(layout.edge_factor)
    for b in range(start, stop):
        if done[b]:
            continue
        tables, own = tables_of(data, b), messages_of(messages, b)
        mine = Queue(queue.pending[b], queue.heap[b], queue.place[b], queue.key[b])
        heap, log_r = mine.heap, own.log_r
        for v in range(len(layout.n_states)):
            gather(layout, v, own)
        for f in range(F):
            _prepare(layout, f, -1, tables, own, mine, rule)
        n = 0
        for e in range(E):
            if layout.edge_factor[e] < F:
                heap[n] = e
                mine.place[e] = n
                n += 1
                sift(mine, n - 1, n)
        for _ in range(E):
            if n == 0 or mine.key[heap[0]] <= tolerance:
                break
            e = heap[0]
            v = layout.edge_variable[e]
            at = layout.edge_at[e]
            for i in range(layout.n_states[v]):
                new, old = mine.pending[at + i], log_r[at + i]
                finite = new > -np.inf and old > -np.inf
                log_r[at + i] = (1.0 - rule.damping) * new + rule.damping * old if finite else new
            mine.key[e] = _distance(layout, e, mine.pending, log_r, rule.floor)
            sift(mine, mine.place[e], n)
            gather(layout, v, own)
            for other in range(layout.var_start[v], layout.var_start[v + 1]):
                f = layout.edge_factor[other]
                if other == e or f >= F:
                    continue
                slot = layout.fac_start[f]
                skip = 0
                while layout.fac_edge[slot + skip] != other:
                    skip += 1
                _prepare(layout, f, skip, tables, own, mine, rule)
                for k in range(slot, layout.fac_start[f + 1]):
                    if layout.fac_edge[k] != other:
                        sift(mine, mine.place[layout.fac_edge[k]], n)
        residual[b] = mine.key[heap[0]] if n > 0 else 0.0
