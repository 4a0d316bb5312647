r"""Spanning trees by elimination of nodes, in probability space: sentences in the lanes of SIMD vectors.

By the matrix-tree theorem Z is the determinant of a Laplacian (Tutte 1984; Koo et al. 2007; Smith and Smith 2007). Its
LU decomposition without subtraction eliminates words one by one (Grassmann, Taksar and Heyman 1985). With
:math:`a_{hd}` the weight of arc h -> d, eliminating word k leaves a graph with

.. math:: a_{hd} \leftarrow a_{hd} + a_{hk} a_{kd} / D_k, \quad D_k = \sum_h a_{hk}, \quad Z = \prod_k D_k .

Nothing cancels, whatever the scores. Single root: the coefficient of :math:`t` in Z when root arcs weigh
:math:`t a_{0d}`. Then the root is left out of :math:`D_k`, except for the last word, which has no other head left.

The backward pass gives the derivatives :math:`g_{hd} = \partial \log Z / \partial a_{hd}`; with
:math:`q_h = a_{hk} / D_k`,

.. math:: g_{kd} = \sum_h q_h g_{hd}, \quad t_h = \sum_d g_{hd} a_{kd}, \quad g_{hk} = (1 + t_h - \sum_i q_i t_i) / D_k

(single root: :math:`g_{0k} = t_0 / D_k`). Words are eliminated from the last position to the first. Row d of ``A``
(M, M, W) holds the heads of d: ``A[d, h]``, and ``A[d, d]`` the root; the diagonal is free, as no word is its own head.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import (
    add,
    exponential,
    get,
    lanes,
    load,
    maximum,
    multiply,
    multiply_add,
    put,
    spread,
    store,
    subtract,
)
from trelliswork.inference.tree.kernels.eisner import column_shifts
from trelliswork.inference.tree.kernels.records import LIMIT, Batch


@helper
def _place(log_arc, b, n, M, single_root, words):
    """Fill words[position], 0 in the padding; the word that most prefers the root comes first.

    With a single root it is eliminated last, so that all others have heads among the words.
    """
    first, top = 1, -np.inf
    if single_root:
        for d in range(1, n + 1):
            other = -np.inf
            for h in range(1, n + 1):
                if h != d:
                    other = max(other, log_arc[b, h, d])
            if log_arc[b, 0, d] > -np.inf:
                value = np.inf if other == -np.inf else log_arc[b, 0, d] - other
                if value > top:
                    first, top = d, value
    words[0] = first
    at = 1
    for d in range(1, n + 1):
        if d != first:
            words[at] = d
            at += 1
    for k in range(at, M):
        words[k] = 0


@helper
def _weigh(log_arc, b, n, M, words, place, tops, lane, W, A):
    """Fill lane ``lane`` of the log weights A (M, M, W) by position; return the sum of the shifts of all columns.

    The padding depends on the word at position 0 with weight 1, so it changes nothing.
    """
    total = column_shifts(log_arc[b], n, tops)
    for k in range(M):
        place[words[k]] = k  # place[0] is never read
    for h in range(n + 1):
        for d in range(1, n + 1):
            if h != d:
                k = place[d]
                j = k if h == 0 else place[h]
                put(A, (k * M + j) * W + lane, log_arc[b, h, d] - tops[d])
    for k in range(n, M):
        for j in range(M):
            put(A, (k * M + j) * W + lane, 0.0 if j == 0 else -np.inf)
            put(A, (j * M + k) * W + lane, 0.0 if k == 0 else -np.inf)
    return total


@helper(allocates=True)
def _eliminate(M, single_root, A, D, zero):
    """Eliminate the words from the last position to the first; fill D (M, W) and leave each step's weights in A."""
    W = lanes(A)
    inverse = np.empty(W)
    for k in range(M - 1, -1, -1):
        row = k * M * W
        total = zero if single_root and k > 0 else load(A, row + k * W)
        for h in range(k):
            total = add(total, load(A, row + h * W))
        store(D, k * W, total)
        for lane in range(W):
            value = get(D, k * W + lane)
            put(inverse, lane, 1 / value if value > 0 else 0.0)
        by, root = load(inverse, 0), load(A, row + k * W)
        for d in range(k):
            at = d * M * W
            share = multiply(load(A, at + k * W), by)
            # The diagonal entry of d is its arc from the root, and is updated by the root's share.
            own = multiply_add(share, root, load(A, at + d * W))
            p = at
            for q in range(row, row + k * W, W):
                store(A, p, multiply_add(share, load(A, q), load(A, p)))
                p += W
            store(A, at + d * W, own)


@helper(allocates=True)
def _derive(M, single_root, A, D, G, t, q, zero, one):
    """Fill the derivatives G (M, M, W), the root arcs' on the diagonal, from the first position to the last."""
    W = lanes(A)
    inverse, g_root = np.empty(W), np.empty(M * W)
    for k in range(M):
        row = k * M * W
        for lane in range(W):
            value = get(D, k * W + lane)
            put(inverse, lane, 1 / value if value > 0 else 0.0)
        by = load(inverse, 0)
        q_root, t_root = multiply(load(A, row + k * W), by), zero
        for h in range(k):
            store(q, h * W, multiply(load(A, row + h * W), by))
            store(t, h * W, zero)
        for d in range(k):
            at = d * M * W
            share, root = load(A, at + k * W), load(g_root, d * W)
            t_root = multiply_add(root, share, t_root)
            first, second = multiply(q_root, root), zero
            p, h = at, 0
            for _ in range(k // 2):
                g = load(G, p)
                store(t, h, multiply_add(g, share, load(t, h)))
                first = multiply_add(g, load(q, h), first)
                g = load(G, p + W)
                store(t, h + W, multiply_add(g, share, load(t, h + W)))
                second = multiply_add(g, load(q, h + W), second)
                p += 2 * W
                h += 2 * W
            if k % 2:
                g = load(G, p)
                store(t, h, multiply_add(g, share, load(t, h)))
                first = multiply_add(g, load(q, h), first)
            store(G, at + k * W, add(first, second))
        rest = multiply(q_root, t_root)
        for h in range(k):
            rest = multiply_add(load(q, h * W), load(t, h * W), rest)
        rest = subtract(one, rest)
        for h in range(k):
            store(G, row + h * W, multiply(add(load(t, h * W), rest), by))
        store(G, row + k * W, zero)  # no word is its own head
        if single_root and k > 0:
            store(g_root, k * W, multiply(t_root, by))
        else:
            store(g_root, k * W, multiply(add(t_root, rest), by))
    for k in range(M):
        store(G, (k * M + k) * W, load(g_root, k * W))


@kernel(allocates=True)
def expectations(start, stop, batch: Batch, log_z, safe, marginals):
    """Fill log_z (B,) and marginals (B, n+1, n+1) of sentences ``order[start:stop]``, zeros in the padding.

    ``safe`` (B,) becomes False where underflow may have lost significant mass: a lost number is below the smallest
    normal one and is multiplied by its derivative, which must not exceed ``LIMIT``.
    """
    order, lengths, log_arc, single_root = batch
    W = lanes(log_arc)
    N = log_arc.shape[1]
    M = 0
    for at in range(start, stop):
        M = max(M, lengths[order[at]])
    A, G, weights = np.empty(M * M * W), np.empty(M * M * W), np.empty(M * M * W)
    D, t, q = np.empty(M * W), np.empty(M * W), np.empty(M * W)
    words, place, tops = np.empty((W, M), np.int64), np.empty(N, np.int64), np.empty(N)
    shifts, mass = np.empty(W), np.empty(W)
    zero, one = spread(A, 0.0), spread(A, 1.0)
    for first in range(start, stop, W):
        count = min(W, stop - first)
        M = lengths[order[first]]
        for lane in range(W):
            b = order[first + min(lane, count - 1)]  # lanes without a sentence repeat the last one
            _place(log_arc, b, lengths[b], M, single_root, words[lane])
            shifts[lane] = _weigh(log_arc, b, lengths[b], M, words[lane], place, tops, lane, W, A)
        for p in range(0, M * M * W, W):
            value = exponential(load(A, p))
            store(A, p, value)
            store(weights, p, value)
        _eliminate(M, single_root, A, D, zero)
        _derive(M, single_root, A, D, G, t, q, zero, one)
        total = zero  # of all entries that must stay below the limit; nan if one of them is nan
        for p in range(0, M * M * W, W):
            g = load(G, p)
            total = add(total, add(load(A, p), maximum(g, subtract(zero, g))))
            store(G, p, maximum(multiply(g, load(weights, p)), zero))
        store(mass, 0, total)
        for lane in range(count):
            b = order[first + lane]
            value, product, good = shifts[lane], 1.0, mass[lane] < LIMIT
            for k in range(M):
                x = get(D, k * W + lane)
                good = good and x > 1e-290 and x < 1e290
                product *= x
                if not (product > 1e-9 and product < 1e9):  # few logarithms
                    value += math.log(product) if product > 0 else -np.inf
                    product = 1.0
            log_z[b] = value + math.log(product)
            safe[b] = good
            n = lengths[b]
            if n + 1 < N:
                marginals[b] = 0.0
            marginals[b, :, 0] = 0.0
            for k in range(n):
                d = words[lane, k]
                marginals[b, d, d] = 0.0
                for j in range(n):
                    h = 0 if j == k else words[lane, j]
                    marginals[b, h, d] = min(get(G, (k * M + j) * W + lane), 1.0)
