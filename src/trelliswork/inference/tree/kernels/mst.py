"""The best spanning tree: Chu-Liu-Edmonds on dense graphs, in Tarjan's order, O(n^2).

With a single root, arcs are compared by two numbers: first the number of root arcs (fewer is better), then the score.
Both are added and subtracted when cycles are contracted, so the result is exactly the best tree among those with the
fewest root arcs: no large constant costs digits of the scores.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.tree.kernels.records import Batch


class Workspace(NamedTuple):
    """Scratch arrays of `best_tree`, for words and contracted cycles: at most 2N nodes for N words and root."""

    gain: Any  # (2N, N) score of the best arc from a source into a node
    roots: Any  # (2N, N) its number of root arcs
    into: Any  # (2N, N) the word it leads to
    parent: Any  # (2N,) contracted node around a node, or -1
    state: Any  # (2N,) 0: not visited, 1: on the path, 2: connected to the root
    path: Any  # (2N,)
    enter: Any  # (2N, 2) source and word of the chosen arc
    heads: Any  # (N,) result: the head of word d at d - 1


@helper(allocates=True)
def workspace(N):
    """Allocate the scratch arrays for N nodes, the root included."""
    return Workspace(
        np.empty((2 * N, N)),
        np.empty((2 * N, N), np.int64),
        np.empty((2 * N, N), np.int64),
        np.empty(2 * N, np.int64),
        np.empty(2 * N, np.int64),
        np.empty(2 * N, np.int64),
        np.empty((2 * N, 2), np.int64),
        np.empty(N, np.int64),
    )


@helper
def _outermost(parent, v):
    """Return the outermost contracted node that contains v."""
    while parent[v] >= 0:
        v = parent[v]
    return v


@helper
def best_tree(log_arc, n, single_root, work: Workspace):
    """Fill the heads of the best tree of one sentence; return False if there is none."""
    gain, roots, into, parent, state, path, enter, heads = work
    for d in range(1, n + 1):
        for h in range(n + 1):
            gain[d, h] = log_arc[h, d] if h != d else -np.inf
            roots[d, h] = 1 if single_root and h == 0 else 0
            into[d, h] = d
    for v in range(2 * n + 1):
        parent[v], state[v] = -1, 0
    state[0] = 2
    last = n
    for word in range(1, n + 1):
        v = _outermost(parent, word)
        if state[v] == 2:
            continue
        length = 0
        while True:
            state[v] = 1
            path[length] = v
            length += 1
            source = -1
            for h in range(n + 1):
                if (
                    gain[v, h] > -np.inf
                    and _outermost(parent, h) != v
                    and (
                        source < 0
                        or roots[v, h] < roots[v, source]
                        or (roots[v, h] == roots[v, source] and gain[v, h] > gain[v, source])
                    )
                ):
                    source = h
            if source < 0:
                return False
            enter[v, 0], enter[v, 1] = source, into[v, source]
            u = _outermost(parent, source)
            if state[u] == 2:
                for i in range(length):
                    state[path[i]] = 2
                break
            if state[u] == 0:
                v = u
                continue
            last += 1  # a cycle: from u along the path to v
            for h in range(n + 1):
                gain[last, h], roots[last, h] = -np.inf, 0
            while True:
                length -= 1
                x = path[length]
                less, fewer = gain[x, enter[x, 0]], roots[x, enter[x, 0]]
                for h in range(n + 1):
                    if gain[x, h] == -np.inf:
                        continue
                    value, number = gain[x, h] - less, roots[x, h] - fewer
                    if (
                        gain[last, h] == -np.inf
                        or number < roots[last, h]
                        or (number == roots[last, h] and value > gain[last, h])
                    ):
                        gain[last, h], roots[last, h], into[last, h] = value, number, into[x, h]
                parent[x] = last
                if x == u:
                    break
            v = last
    for v in range(last, n, -1):  # the arc into a cycle replaces one of its arcs
        x = enter[v, 1]
        while parent[x] != v:
            x = parent[x]
        enter[x, 0], enter[x, 1] = enter[v, 0], enter[v, 1]
    count = 0
    for d in range(1, n + 1):
        heads[d - 1] = enter[d, 0]
        count += enter[d, 0] == 0
    return not single_root or count == 1


@kernel(allocates=True)
def best(start, stop, batch: Batch, heads, scores):
    """Fill heads (B, n) and scores (B,); -inf where there is no tree."""
    order, lengths, log_arc, single_root = batch
    work = workspace(log_arc.shape[1])
    for at in range(start, stop):
        b = order[at]
        n = lengths[b]
        scores[b] = -np.inf
        if best_tree(log_arc[b], n, single_root, work):
            scores[b] = 0.0
            for d in range(1, n + 1):
                heads[b, d - 1] = work.heads[d - 1]
                scores[b] += log_arc[b, work.heads[d - 1], d]
