r"""Spanning trees by elimination of nodes, in probability space: one sentence at a time, rows in SIMD vectors.

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
holds the weights of the heads of word d + 1: ``A[d, h]`` of word h + 1, and ``A[d, d]`` of the root, since no word is
its own head. With a single root, the word that most prefers the root changes places with word 1: it is eliminated last,
so that all others have heads among the words. Rows are padded with zeros to full vectors.
"""

import math
from typing import Any, NamedTuple

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
    total,
)
from trelliswork.inference.tree.kernels.eisner import column_shifts
from trelliswork.inference.tree.kernels.records import LIMIT, Batch


class Elimination(NamedTuple):
    """Arrays of an elimination of up to n words; matrices are flat, with rows of ``stride(n)`` numbers."""

    A: Any  # weights, then those of each step
    G: Any  # derivatives of log Z by the weights
    columns: Any  # weights of the words under each word, when it was eliminated
    roots: Any  # (stride,) of each word, when it was eliminated
    inverses: Any  # (stride,) of the weights of its heads
    g_root: Any  # (stride,)
    t: Any  # (stride,)
    q: Any  # (stride,)
    scales: Any  # (stride,) of the errors of the derivatives of each word: see ``derivatives``


@helper(inline="always")
def stride(n, like):
    """Return the length of a padded row of n numbers."""
    return (n + lanes(like) - 1) // lanes(like) * lanes(like)


@helper(allocates=True)
def elimination(n, like):
    """Allocate the arrays."""
    M = stride(n, like)
    matrices = np.empty(n * M), np.empty(n * M), np.empty(n * M)
    return Elimination(*matrices, np.empty(M), np.empty(M), np.empty(M), np.empty(M), np.empty(M), np.empty(M))


@helper
def _swap(A, n, M, k):
    """Exchange words 0 and k in a matrix."""
    for h in range(n):
        A[h], A[k * M + h] = A[k * M + h], A[h]
    for d in range(n):
        A[d * M], A[d * M + k] = A[d * M + k], A[d * M]


@helper(error_model="numpy")
def _first(A, n, M):
    """Return the word with the largest share of the root."""
    first, top = 0, -1.0
    for d in range(n):
        mass = spread(A, 0.0)
        for h in range(0, M, lanes(A)):
            mass = add(mass, load(A, d * M + h))
        share = A[d * M + d] / total(mass)
        if share > top:
            first, top = d, share
    return first


@helper(error_model="numpy")
def _eliminate(n, M, single_root, work: Elimination):
    """Eliminate the words from the last to the first; return log Z, nan if a number has left its range."""
    A, columns, roots, inverses = work.A, work.columns, work.roots, work.inverses
    W, zero = lanes(A), spread(A, 0.0)
    log_z, product = 0.0, 1.0
    for k in range(n - 1, -1, -1):
        row, end = k * M, (k + W - 1) // W * W
        root = get(A, row + k)
        for h in range(k, end):
            put(A, row + h, 0.0)
            put(columns, row + h, 0.0)
        mass = zero
        for h in range(0, end, W):
            mass = add(mass, load(A, row + h))
        D = total(mass) + (0.0 if single_root and k > 0 else root)
        if not (D > 1e-290 and D < 1e290):
            return np.nan
        product *= D
        if not (product > 1e-9 and product < 1e9):  # few logarithms
            log_z += math.log(product)
            product = 1.0
        put(roots, k, root)
        put(inverses, k, 1 / D)
        for d in range(k):
            to = d * M
            share = get(A, to + k)
            put(columns, row + d, share)
            if share > 0:
                share /= D
                own, by = get(A, to + d) + share * root, spread(A, share)  # the diagonal is the arc from the root
                for h in range(0, end, W):
                    store(A, to + h, multiply_add(by, load(A, row + h), load(A, to + h)))
                put(A, to + d, own)
    return log_z + math.log(product)


@helper(error_model="numpy")
def _derive(n, M, single_root, work: Elimination):
    """Fill G and ``scales`` from the first word to the last; return the sum of all entries of A and absolute ones of G.

    An error of G is, up to rounding, at most its word's entry of ``scales`` times the distance of numbers around 1,
    since each derivative is a difference.
    """
    A, G, columns, roots, inverses, g_root, t, q, scales = work
    W, zero = lanes(A), spread(A, 0.0)
    for k in range(0, n * M, W):
        store(G, k, zero)
    for k in range(0, M, W):
        store(g_root, k, zero)
        store(scales, k, zero)
    for k in range(n):
        row, end, inverse = k * M, (k + W - 1) // W * W, get(inverses, k)
        by, q_root = spread(A, inverse), get(roots, k) * inverse
        noises, by_root, grown = zero, zero, spread(A, 1 + q_root if single_root else 1.0)
        for d in range(0, end, W):
            column, scale = load(columns, row + d), load(scales, d)
            noises = multiply_add(scale, column, noises)
            by_root = multiply_add(load(g_root, d), column, by_root)
            store(scales, d, multiply(scale, grown))
            store(q, d, multiply(load(A, row + d), by))
            store(t, d, zero)
        for d in range(k):
            to, share, sums = d * M, spread(A, get(columns, row + d)), zero
            for h in range(0, end, W):
                g = load(G, to + h)
                sums = multiply_add(g, load(q, h), sums)
                store(t, h, multiply_add(g, share, load(t, h)))
            put(G, to + k, total(sums) + q_root * get(g_root, d))
        lost, t_root = zero, total(by_root)
        for h in range(0, end, W):
            lost = multiply_add(load(q, h), load(t, h), lost)
        some = total(lost) + q_root * t_root
        rest = 1 - some
        for h in range(0, end, W):
            store(G, row + h, multiply(add(load(t, h), spread(A, rest)), by))
        for h in range(k, end):
            put(G, row + h, 0.0)  # no word is its own head
        put(g_root, k, (t_root if single_root and k > 0 else t_root + rest) * inverse)
        put(scales, k, (max(1.0, some) + (2 + q_root) * total(noises)) * inverse)
    size = zero
    for k in range(n):
        put(G, k * M + k, get(g_root, k))
    for p in range(0, n * M, W):
        g = load(G, p)
        size = add(size, add(load(A, p), maximum(g, multiply(g, spread(A, -1.0)))))
    return total(size)


@helper
def derivatives(n, single_root, work: Elimination):
    """Replace the weights A, fill their derivatives G and ``scales``; return log Z, nan if numbers may have been lost.

    A lost number is below the smallest normal one and is multiplied by its derivative, which must not exceed ``LIMIT``.
    """
    A, G, scales = work.A, work.G, work.scales
    M = stride(n, A)
    first = _first(A, n, M) if single_root else 0
    if first > 0:
        _swap(A, n, M, first)
    log_z = _eliminate(n, M, single_root, work)
    if not log_z < np.inf or not _derive(n, M, single_root, work) < LIMIT:
        return np.nan
    if first > 0:
        _swap(G, n, M, first)
        scales[0], scales[first] = scales[first], scales[0]
    return log_z


@helper
def arc_derivatives(n, single_root, x, heads, modifiers, n_arcs, work: Elimination, D):
    """Fill D (n_arcs,), the derivatives by the weights x of some arcs; return log Z, nan if numbers may be lost."""
    A, G = work.A, work.G
    M = stride(n, A)
    for k in range(n * M):
        A[k] = 0.0
    for a in range(n_arcs):
        d = modifiers[a] - 1
        A[d * M + (d if heads[a] == 0 else heads[a] - 1)] = x[a]
    log_z = derivatives(n, single_root, work)
    if log_z < np.inf:
        for a in range(n_arcs):
            d = modifiers[a] - 1
            D[a] = max(G[d * M + (d if heads[a] == 0 else heads[a] - 1)], 0.0)
    return log_z


@kernel(allocates=True)
def expectations(start, stop, batch: Batch, log_z, safe, marginals):
    """Fill log_z (B,) and marginals (B, n+1, n+1) of sentences ``order[start:stop]``, zeros in the padding.

    ``safe`` (B,) becomes False where underflow may have lost significant mass.
    """
    order, lengths, log_arc, single_root = batch
    N, W = log_arc.shape[1], lanes(log_arc)
    work, tops = elimination(N - 1, log_arc), np.empty(N)
    weights = np.empty(work.A.size)
    for at in range(start, stop):
        b = order[at]
        n = lengths[b]
        M, score = stride(n, weights), log_arc[b]
        shift = column_shifts(score, n, tops)
        for k in range(n * M):
            weights[k] = -np.inf
        for d in range(n):
            weights[d * M + d] = score[0, d + 1] - tops[d + 1]
        for h in range(n):
            for d in range(n):
                if h != d:
                    put(weights, d * M + h, score[h + 1, d + 1] - tops[d + 1])
        for p in range(0, n * M, W):
            value = exponential(load(weights, p))
            store(weights, p, value)
            store(work.A, p, value)
        value = derivatives(n, single_root, work)
        log_z[b], safe[b] = value + shift, value < np.inf
        if n + 1 < N:
            marginals[b] = 0.0
        marginals[b, :, 0] = 0.0
        for d in range(n):
            marginals[b, d + 1, d + 1] = 0.0
        zero = spread(weights, 0.0)
        for p in range(0, n * M, W):
            store(weights, p, multiply(maximum(load(work.G, p), zero), load(weights, p)))
        for d in range(n):
            marginals[b, 0, d + 1] = min(get(weights, d * M + d), 1.0)
        for h in range(n):
            for d in range(n):
                if h != d:
                    marginals[b, h + 1, d + 1] = min(get(weights, d * M + h), 1.0)
