"""Spanning trees by elimination of nodes in log space, one sentence at a time: right for every input.

The recursions and the names are those of ``matrix_tree_kernels``. Used where probability space underflows, and for
samples. Here nodes keep their numbers, ``A[d, h]`` with the root as h = 0, and ``turn`` tells the order in which words
are taken away: with a single root, always the word that has the most weight from other words, since one without any
must stay.
"""

import math

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.kernels.random import uniform


@kernel(inline="always")
def _log_add(a, b):
    top = max(a, b)
    return top if top == -np.inf else top + math.log1p(math.exp(min(a, b) - top))


@kernel
def _log_degree(A, k, turn, m, single_root):
    """Log weight of all heads of k among the words turn[:m], and the root if it counts."""
    top = -np.inf if single_root else A[k, 0]
    for j in range(m):
        if turn[j] != k:
            top = max(top, A[k, turn[j]])
    if top == -np.inf:
        return top
    mass = 0.0 if single_root else math.exp(A[k, 0] - top)
    for j in range(m):
        if turn[j] != k:
            mass += math.exp(A[k, turn[j]] - top)
    return top + math.log(mass)


@kernel
def _eliminate(log_arc, n, single_root, A, D, turn):
    """Fill A (n+1, n+1), D (n+1,) and turn (n,), whose last word goes first; return log Z."""
    for d in range(1, n + 1):
        turn[d - 1] = d
        for h in range(n + 1):
            A[d, h] = log_arc[h, d] if h != d else -np.inf
    total = 0.0
    for m in range(n - 1, 0, -1):
        if single_root:
            at, top = m, -np.inf
            for j in range(m + 1):
                value = _log_degree(A, turn[j], turn, m + 1, True)
                if value > top:
                    at, top = j, value
            turn[at], turn[m] = turn[m], turn[at]
        k = turn[m]
        D[k] = _log_degree(A, k, turn, m, single_root)
        total += D[k]
        if D[k] == -np.inf:
            return -np.inf
        for i in range(m):
            d = turn[i]
            share = A[d, k] - D[k]
            if share == -np.inf:
                continue
            A[d, 0] = _log_add(A[d, 0], share + A[k, 0])
            for j in range(m):
                if i != j:
                    A[d, turn[j]] = _log_add(A[d, turn[j]], share + A[k, turn[j]])
    D[turn[0]] = A[turn[0], 0]
    return total + D[turn[0]]


@kernel
def _derive(n, single_root, A, D, turn, G):
    """Fill the log derivatives G[d, h] of log Z by the weights."""
    t = np.empty(n + 1)
    for m in range(n):
        k = turn[m]
        rest = 1.0
        for j in range(m + 1):
            h = turn[j] if j < m else 0
            top = -np.inf
            for i in range(m):
                if turn[i] != h:
                    top = max(top, G[turn[i], h] + A[turn[i], k])
            mass = 0.0
            if top > -np.inf:
                for i in range(m):
                    if turn[i] != h:
                        mass += math.exp(G[turn[i], h] + A[turn[i], k] - top)
                t[h] = top + math.log(mass)
                rest -= math.exp(t[h] + A[k, h] - D[k])
            else:
                t[h] = -np.inf
        for i in range(m):
            d = turn[i]
            top = -np.inf
            for j in range(m + 1):
                h = turn[j] if j < m else 0
                if h != d:
                    top = max(top, A[k, h] + G[d, h])
            G[d, k] = -np.inf
            if top > -np.inf:
                mass = 0.0
                for j in range(m + 1):
                    h = turn[j] if j < m else 0
                    if h != d:
                        mass += math.exp(A[k, h] + G[d, h] - top)
                G[d, k] = top + math.log(mass) - D[k]
        for j in range(m + 1):
            h = turn[j] if j < m else 0
            by = 0.0 if single_root and h == 0 and m > 0 else rest
            if by == 0.0:
                G[k, h] = t[h] - D[k]
            elif t[h] > 30:  # exp(t) may overflow
                G[k, h] = t[h] + math.log1p(by * math.exp(-t[h])) - D[k]
            else:
                value = math.exp(t[h]) + by
                G[k, h] = math.log(value) - D[k] if value > 0 else -np.inf


@kernel
def expectations(start, stop, order, lengths, log_arc, single_root, log_z, marginals):
    """Fill log_z (B,) and marginals (B, n+1, n+1), zeros where nothing is possible."""
    N = log_arc.shape[1]
    A, G, D, turn = np.empty((N, N)), np.empty((N, N)), np.empty(N), np.empty(N, np.int64)
    for at in range(start, stop):
        b = order[at]
        n = lengths[b]
        log_z[b] = _eliminate(log_arc[b], n, single_root, A, D, turn)
        marginals[b] = 0.0
        if log_z[b] == -np.inf:
            continue
        _derive(n, single_root, A, D, turn, G)
        for d in range(1, n + 1):
            for h in range(n + 1):
                if h != d and log_arc[b, h, d] > -np.inf:
                    marginals[b, h, d] = min(math.exp(log_arc[b, h, d] + G[d, h]), 1.0)


@kernel
def _draw(log_weights, n, state):
    """The index k < n with probability proportional to exp(log_weights[k])."""
    top = -np.inf
    for k in range(n):
        top = max(top, log_weights[k])
    mass = 0.0
    for k in range(n):
        mass += math.exp(log_weights[k] - top)
    left = uniform(state) * mass
    chosen = -1
    for k in range(n):
        p = math.exp(log_weights[k] - top)
        if p > 0:
            chosen = k  # the last possible one takes what rounding leaves over
            left -= p
            if left < 0:
                break
    return chosen


@kernel
def _way(A, D, turn, place, n, log_arc, h, d, log_weights, state):
    """Which word the arc h -> d of a graph without some words stands for: through turn[place], or 0: the arc itself.

    The weight of an arc is the sum of its own and of those through each word taken away before both its ends.
    """
    first = max(place[h], place[d]) + 1
    log_weights[0] = log_arc[h, d]
    for m in range(first, n):
        k = turn[m]
        log_weights[1 + m - first] = A[d, k] + A[k, h] - D[k]
    at = _draw(log_weights, 1 + n - first, state)
    return 0 if at == 0 else turn[first + at - 1]


@kernel
def sample(start, stop, order, lengths, log_arc, single_root, seeds, log_z, heads):
    """Draw heads (k, B, n) by putting the words back, the last taken away first; one seed (k, B) a tree.

    Let the arcs to d in S go through the word k that comes back. They become arcs from k, and k's head is drawn by the
    weights a[h, k] among the nodes that still hang from the root. For given S and the rest, the weights of the trees
    before sum to those after (Cayley's formula for the ways in which the parts can hang together), so draws are exact.
    With a single root, k's head is the root if the root's arc went through k, and else a word.
    """
    N = log_arc.shape[1]
    A, D, turn = np.empty((N, N)), np.empty(N), np.empty(N, np.int64)
    head, way, place, hangs = (
        np.empty(N, np.int64),
        np.empty(N, np.int64),
        np.empty(N, np.int64),
        np.empty(N, np.int8),
    )
    log_weights = np.empty(N + 1)
    state = np.empty(1, np.uint64)
    for at in range(start, stop):
        b = order[at]
        n, arc = lengths[b], log_arc[b]
        log_z[b] = _eliminate(arc, n, single_root, A, D, turn)
        if log_z[b] == -np.inf:
            continue
        place[0] = -1
        for m in range(n):
            place[turn[m]] = m
        for draw in range(heads.shape[0]):
            state[0] = seeds[draw, b]
            head[turn[0]] = 0
            way[turn[0]] = _way(A, D, turn, place, n, arc, 0, turn[0], log_weights, state)
            for m in range(1, n):
                k = turn[m]
                from_root = False
                for i in range(m):  # 1: hangs from the root, 0: from a word in S, 2: not known yet
                    d = turn[i]
                    hangs[d] = 0 if way[d] == k else 2
                    if way[d] == k and head[d] == 0:
                        from_root = True
                hangs[0] = 1
                for i in range(m):
                    d = turn[i]
                    while hangs[d] == 2:
                        d = head[d]
                    found, d = hangs[d], turn[i]
                    while hangs[d] == 2:
                        hangs[d] = found
                        d = head[d]
                if single_root and from_root:
                    head[k] = 0
                else:
                    log_weights[m] = -np.inf if single_root else A[k, 0]
                    for j in range(m):
                        log_weights[j] = A[k, turn[j]] if hangs[turn[j]] == 1 else -np.inf
                    j = _draw(log_weights, m + 1, state)
                    head[k] = turn[j] if j < m else 0
                way[k] = _way(A, D, turn, place, n, arc, head[k], k, log_weights, state)
                for i in range(m):
                    d = turn[i]
                    if way[d] == k:
                        head[d] = k
                        way[d] = _way(A, D, turn, place, n, arc, k, d, log_weights, state)
            for d in range(1, n + 1):
                heads[draw, b, d - 1] = head[d]
