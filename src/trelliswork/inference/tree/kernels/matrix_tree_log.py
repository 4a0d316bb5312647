"""Spanning trees by elimination of nodes in log space, one sentence at a time: accurate for every input.

Recursions and names are those of ``matrix_tree``. Used where probability space underflows, and for samples. Here nodes
keep their numbers, ``A[d, h]`` with the root as h = 0, and ``turn`` is the order of elimination, from its end: with a
single root, always the word that has the most weight from other words, since one without any must stay.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_add, log_dot
from trelliswork.compute.kernels.random import draw
from trelliswork.inference.tree.kernels.matrix_tree import arc_derivatives, elimination
from trelliswork.inference.tree.kernels.records import Batch

ACCURATE = 1e-6  # a difference of at least this fraction of its terms has nine digits left


@helper
def _log_degree(A, k, turn, m, extra, root):
    """Return the log weight of the heads of k: words turn[:m], ``extra`` unless 0, maybe the root.

    ``A[k, k]`` is -inf.
    """
    top = A[k, 0] if root else -np.inf
    if extra > 0:
        top = max(top, A[k, extra])
    for j in range(m):
        top = max(top, A[k, turn[j]])
    if top == -np.inf:
        return top
    mass = math.exp(A[k, 0] - top) if root else 0.0
    if extra > 0:
        mass += math.exp(A[k, extra] - top)
    for j in range(m):
        mass += math.exp(A[k, turn[j]] - top)
    return top + math.log(mass)


@helper
def eliminate(log_arc, n, extra, single_root, A, D, turn):
    """Fill A (n+1, n+1), D (n+1,) and turn (n,), whose last word is eliminated first; return the log of their product.

    Node ``extra`` (0: none) is not eliminated: it is a second root, and arcs into it are not read. With a single root
    the arcs from node 0 count to first order only: if the last word has no other head left, its arc is the one from
    the root. Also returns whether it is.
    """
    count = 0
    for d in range(1, n + 1):
        if d != extra:
            turn[count] = d
            count += 1
            for h in range(n + 1):
                A[d, h] = log_arc[h, d] if h != d else -np.inf
    total, first = 0.0, False
    for m in range(count - 1, -1, -1):
        if single_root and m > 0:
            at, top = m, -np.inf
            for j in range(m + 1):
                value = _log_degree(A, turn[j], turn, m + 1, extra, False)
                if value > top:
                    at, top = j, value
            turn[at], turn[m] = turn[m], turn[at]
        k = turn[m]
        D[k] = _log_degree(A, k, turn, m, extra, not single_root)
        if single_root and m == 0 and D[k] == -np.inf:
            D[k], first = A[k, 0], True
        total += D[k]
        if D[k] == -np.inf:
            return -np.inf, first
        for i in range(m):
            d = turn[i]
            share = A[d, k] - D[k]
            if share == -np.inf:
                continue
            A[d, 0] = log_add(A[d, 0], share + A[k, 0])
            if extra > 0:
                A[d, extra] = log_add(A[d, extra], share + A[k, extra])
            for j in range(m):
                if i != j:
                    A[d, turn[j]] = log_add(A[d, turn[j]], share + A[k, turn[j]])
    return total, first


@helper
def into_word(w, n, d, single_root, A, degree, turn, D):
    """Fill column d of D: eliminate all other words, then restore them with the mass of paths from each to the root."""
    D[:, d] = -np.inf
    total, first = eliminate(w, n, d, single_root, A, degree, turn)
    if total == -np.inf:
        return
    D[0, d] = -np.inf if first else total  # first: the single arc from the root has been used
    for m in range(n - 1):
        k = turn[m]
        if first and m == 0:
            D[k, d] = total
            continue
        value = -np.inf if first else A[k, 0] - degree[k] + total
        for j in range(m):
            value = log_add(value, A[k, turn[j]] - degree[k] + D[turn[j], d])
        D[k, d] = value


@helper(allocates=True)
def spanning_sums(w, n, single_root, heads, modifiers, D):
    """Fill D (n+1, n+1) for the arcs (K,) from log weights w; return log Z and the number of words done separately.

    One elimination for all words, O(n^3), in probability space. Its derivatives are differences: where one is so small
    that digits are lost, its word gets an elimination of its own without subtraction, O(n^3) each; so do all words
    where numbers leave their range.
    """
    N, K = n + 1, len(heads)
    tops = np.full(N, -np.inf)
    for a in range(K):
        tops[modifiers[a]] = max(tops[modifiers[a]], w[heads[a], modifiers[a]])
    log_z, x = np.nan, np.empty(K)
    by_arc, again, work = np.empty(K), np.zeros(N, np.bool_), elimination(n, w)
    if tops[1:].min() > -np.inf:
        for a in range(K):
            x[a] = math.exp(w[heads[a], modifiers[a]] - tops[modifiers[a]])
        log_z = tops[1:].sum() + arc_derivatives(n, single_root, x, heads, modifiers, K, work, by_arc)
    good = log_z > -np.inf and log_z < np.inf
    if good:
        for a in range(K):
            d = modifiers[a]
            again[d] |= not by_arc[a] / work.scales[d - 1] >= ACCURATE  # or nan
            D[heads[a], d] = math.log(by_arc[a]) + log_z - tops[d] if by_arc[a] > 0 else -np.inf
    A, degree, turn = np.empty((N, N)), np.empty(N), np.empty(N, np.int64)
    n_again = 0
    for d in range(1, N):
        if not good or again[d]:
            into_word(w, n, d, single_root, A, degree, turn, D)
            n_again += 1
    return log_z if good else log_dot(w[:, 1], D[:, 1], N), n_again


@kernel(allocates=True)
def expectations(start, stop, batch: Batch, log_z, marginals):
    """Fill log_z (B,) and marginals (B, n+1, n+1), zeros where no tree is possible. Time O(n^4)."""
    order, lengths, log_arc, single_root = batch
    N = log_arc.shape[1]
    w, D = np.empty((N, N)), np.empty((N, N))
    heads, modifiers = np.empty(N * N, np.int64), np.empty(N * N, np.int64)
    for at in range(start, stop):
        b = order[at]
        n, n_arcs = lengths[b], 0
        w[:] = -np.inf
        for h in range(n + 1):
            for d in range(1, n + 1):
                if h != d and log_arc[b, h, d] > -np.inf:
                    w[h, d], heads[n_arcs], modifiers[n_arcs] = log_arc[b, h, d], h, d
                    n_arcs += 1
        log_z[b], _ = spanning_sums(w, n, single_root, heads[:n_arcs], modifiers[:n_arcs], D)
        marginals[b] = 0.0
        if log_z[b] > -np.inf:
            for a in range(n_arcs):
                h, d = heads[a], modifiers[a]
                marginals[b, h, d] = min(math.exp(w[h, d] + D[h, d] - log_z[b]), 1.0)


@helper
def _draw_through(A, D, turn, place, n, log_arc, h, d, rows, state):
    """Draw the eliminated word that arc h -> d of a reduced graph goes through; 0 is the arc itself.

    The weight of an arc is the sum of its own and of those through each word eliminated before both its ends.
    """
    log_weights, zeros, first = rows[0], rows[1], max(place[h], place[d]) + 1
    log_weights[0] = log_arc[h, d]
    for m in range(first, n):
        k = turn[m]
        log_weights[1 + m - first] = A[d, k] + A[k, h] - D[k]
    at = draw(log_weights, zeros, 1 + n - first, log_dot(log_weights, zeros, 1 + n - first), state)
    return 0 if at == 0 else turn[first + at - 1]


@kernel(allocates=True)
def sample(start, stop, batch: Batch, seeds, log_z, heads):
    """Draw heads (k, B, n) by restoring the words, the last eliminated first; one seed (k, B) per tree.

    Let the arcs to d in S go through the restored word k. They become arcs from k, and k's head is drawn by the
    weights a[h, k] among the nodes that are still connected to the root. For given S and the rest, the weights of the
    trees before sum to those after (Cayley's formula for the ways to connect the parts), so draws are exact. With a
    single root, k's head is the root if the root's arc went through k, and else a word.
    """
    order, lengths, log_arc, single_root = batch
    N = log_arc.shape[1]
    A, D, turn = np.empty((N, N)), np.empty(N), np.empty(N, np.int64)
    head, through, place = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64)
    connected = np.empty(N, np.int8)
    rows = np.zeros((2, N + 1))
    log_weights, zeros = rows[0], rows[1]
    state = np.empty(1, np.uint64)
    for at in range(start, stop):
        b = order[at]
        n, arc = lengths[b], log_arc[b]
        log_z[b], _ = eliminate(arc, n, 0, single_root, A, D, turn)
        if log_z[b] == -np.inf:
            continue
        place[0] = -1
        for m in range(n):
            place[turn[m]] = m
        for number in range(heads.shape[0]):
            state[0] = seeds[number, b]
            head[turn[0]] = 0
            through[turn[0]] = _draw_through(A, D, turn, place, n, arc, 0, turn[0], rows, state)
            for m in range(1, n):
                k = turn[m]
                from_root = False
                for i in range(m):  # 1: connected to the root, 0: below a word in S, 2: not known yet
                    d = turn[i]
                    connected[d] = 0 if through[d] == k else 2
                    if through[d] == k and head[d] == 0:
                        from_root = True
                connected[0] = 1
                for i in range(m):
                    d = turn[i]
                    while connected[d] == 2:
                        d = head[d]
                    above, d = connected[d], turn[i]
                    while connected[d] == 2:
                        connected[d] = above
                        d = head[d]
                if single_root and from_root:
                    head[k] = 0
                else:
                    log_weights[m] = -np.inf if single_root else A[k, 0]
                    for j in range(m):
                        log_weights[j] = A[k, turn[j]] if connected[turn[j]] == 1 else -np.inf
                    j = draw(log_weights, zeros, m + 1, log_dot(log_weights, zeros, m + 1), state)
                    head[k] = turn[j] if j < m else 0
                through[k] = _draw_through(A, D, turn, place, n, arc, head[k], k, rows, state)
                for i in range(m):
                    d = turn[i]
                    if through[d] == k:
                        head[d] = k
                        through[d] = _draw_through(A, D, turn, place, n, arc, k, d, rows, state)
            for d in range(1, n + 1):
                heads[number, b, d - 1] = head[d]
