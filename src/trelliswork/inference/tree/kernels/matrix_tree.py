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

(single root: :math:`g_{0k} = t_0 / D_k`). Words are eliminated from the last position to the first. Weights and
derivatives are stored twice: row d of ``A`` and ``G`` for the heads of word d + 1, row h of ``C`` and ``H`` for the
words under word h + 1. Then a step needs two products of a row and a matrix, which stay in registers. The root has
vectors of its own. With a single root, the word that most prefers the root changes places with word 1: it is eliminated
last, so that all others have heads among the words. Rows are padded with zeros to whole vectors.
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
    load_part,
    maximum,
    multiply,
    multiply_add,
    put,
    spread,
    store,
    store_part,
    subtract,
    total,
)
from trelliswork.inference.tree.kernels.eisner import column_shifts
from trelliswork.inference.tree.kernels.records import LIMIT, Batch


class Elimination(NamedTuple):
    """Arrays of an elimination of up to n words; matrices are flat, with rows of ``stride(n)`` numbers."""

    A: Any  # the shares q of the heads of each word, when it was eliminated
    C: Any  # weights by head, then those of each step
    G: Any  # derivatives of log Z by word
    H: Any  # derivatives of log Z by head
    roots: Any  # (stride,) weights of the arcs from the root, then those of each step
    inverses: Any  # (stride,) of the weights of the heads of each word
    g_root: Any  # (stride,) derivatives by the arcs from the root
    scales: Any  # (stride,) of the errors of the derivatives of each word: see ``derivatives``
    inside: Any  # ones, then as many zeros: masks of rows


@helper(inline="always")
def stride(n, like):
    """Return the length of a padded row of n numbers."""
    return (n + lanes(like) - 1) // lanes(like) * lanes(like)


@helper(allocates=True)
def elimination(n, like):
    """Allocate the arrays."""
    M = stride(n, like)
    matrices = np.empty(n * M), np.empty(n * M), np.empty(n * M), np.empty(n * M)
    inside = np.zeros(2 * M)
    inside[:M] = 1.0
    return Elimination(*matrices, np.empty(M), np.empty(M), np.empty(M), np.empty(M), inside)


@helper(inline="always")
def _products(sums, x, y, at, step, left, right, to, M, n):
    """Return two vectors of sums plus the rows of two matrices, each times one of the numbers of x or y."""
    one, two = sums
    for _ in range(n):  # together, since each sum waits for itself
        one = multiply_add(spread(x, get(x, at)), load(left, to), one)
        two = multiply_add(spread(y, get(y, at)), load(right, to), two)
        at += step
        to += M
    return one, two


@helper
def _swap(X, n, M, k):
    """Exchange words 0 and k in a matrix."""
    for h in range(n):
        X[h], X[k * M + h] = X[k * M + h], X[h]
    for d in range(n):
        X[d * M], X[d * M + k] = X[d * M + k], X[d * M]


@helper(error_model="numpy")
def _first(n, M, work: Elimination):
    """Return the word with the largest share of the root."""
    C, roots, mass = work.C, work.roots, work.g_root
    for d in range(0, M, lanes(C)):
        sums = spread(C, 0.0)
        for h in range(n):
            sums = add(sums, load(C, h * M + d))
        store(mass, d, sums)
    first, top = 0, -1.0
    for d in range(n):
        share = roots[d] / (mass[d] + roots[d])
        if share > top:
            first, top = d, share
    return first


@helper(error_model="numpy")
def _eliminate(n, M, single_root, work: Elimination):
    """Eliminate the words from the last to the first; return log Z, nan if a number has left its range."""
    A, C, roots, inverses, inside = work.A, work.C, work.roots, work.inverses, work.inside
    zero, width, middle = spread(C, 0.0), lanes(C), inside.size // 2
    for k in range(n):
        store(A, k * M + k // width * width, zero)
        for h in range(k):
            put(A, k * M + h, get(C, h * M + k))
    log_z, product = 0.0, 1.0
    for k in range(n - 1, -1, -1):
        row, below, later, mass = k * M, (k + 1) * M, n - 1 - k, zero
        for h in range(0, k, width):
            own = load(inside, middle - k + h)
            sums = load(A, row + h), load(C, row + h)
            above, under = _products(sums, C, A, below + k, M, A, C, below + h, M, later)
            mass = multiply_add(above, own, mass)
            store(A, row + h, multiply(above, own))
            store(C, row + h, multiply(under, own))
        root = get(roots, k)
        D = total(mass) + (0.0 if single_root and k > 0 else root)
        if not (D > 1e-290 and D < 1e290):
            return np.nan
        product *= D
        if not (product > 1e-9 and product < 1e9):  # few logarithms
            log_z += math.log(product)
            product = 1.0
        inverse = 1 / D
        put(inverses, k, inverse)
        by, share = spread(C, inverse), spread(C, root * inverse)
        for h in range(0, k, width):
            store(A, row + h, multiply(load(A, row + h), by))
            store(roots, h, multiply_add(share, load(C, row + h), load(roots, h)))
    return log_z + math.log(product)


@helper(error_model="numpy")
def _derive(n, M, single_root, work: Elimination):
    """Fill G, H, g_root and ``scales`` from the first word to the last; return the sum of the sizes of C and of these.

    An error of a derivative is, up to rounding, at most its word's entry of ``scales`` times the distance of numbers
    around 1, since each derivative is a difference.
    """
    A, C, G, H, roots, inverses, g_root, scales, inside = work
    zero, width, middle = spread(C, 0.0), lanes(C), inside.size // 2
    G[: n * M], H[: n * M] = 0.0, 0.0
    g_root[:M], scales[:M] = 0.0, 0.0
    for k in range(n):
        row, inverse = k * M, get(inverses, k)
        q_root = get(roots, k) * inverse
        by_root, noises, lost = zero, zero, zero
        share, grown = spread(C, q_root), spread(C, 1 + q_root if single_root else 1.0)
        for d in range(0, k, width):
            under, scale, g = load(C, row + d), load(scales, d), load(g_root, d)
            noises = multiply_add(scale, under, noises)
            by_root = multiply_add(g, under, by_root)
            store(scales, d, multiply(scale, grown))
            t, g = _products((zero, multiply(share, g)), C, A, row, 1, G, H, d, M, k)
            lost = multiply_add(load(A, row + d), t, lost)
            store(G, row + d, t)
            store(H, row + d, g)
        t_root = total(by_root)
        some = total(lost) + q_root * t_root
        rest = 1 - some
        more, by = spread(C, rest), spread(C, inverse)
        for h in range(0, k, width):
            g = multiply(add(load(G, row + h), more), by)
            store(G, row + h, multiply(g, load(inside, middle - k + h)))
        for h in range(k):
            put(G, h * M + k, get(H, row + h))
            put(H, h * M + k, get(G, row + h))
        put(g_root, k, (t_root if single_root and k > 0 else t_root + rest) * inverse)
        put(scales, k, (max(1.0, some) + (2 + q_root) * total(noises)) * inverse)
    size, minus = zero, spread(C, -1.0)
    for p in range(0, n * M, width):
        g = load(H, p)
        size = add(size, add(load(C, p), maximum(g, multiply(g, minus))))
    for p in range(0, M, width):
        g = load(g_root, p)
        size = add(size, maximum(g, multiply(g, minus)))
    return total(size)


@helper
def derivatives(n, single_root, work: Elimination):
    """Replace the weights C and roots, fill their derivatives H, g_root and ``scales``.

    Return log Z, nan if numbers may have been lost: below the smallest normal one, and multiplied by a derivative that
    exceeds ``LIMIT``. The padding of C is 0, and so is its diagonal.
    """
    C, H, roots, g_root, scales = work.C, work.H, work.roots, work.g_root, work.scales
    M = stride(n, C)
    first = _first(n, M, work) if single_root else 0
    if first > 0:
        _swap(C, n, M, first)
        roots[0], roots[first] = roots[first], roots[0]
    log_z = _eliminate(n, M, single_root, work)
    if not log_z < np.inf or not _derive(n, M, single_root, work) < LIMIT:
        return np.nan
    if first > 0:
        _swap(H, n, M, first)
        g_root[0], g_root[first] = g_root[first], g_root[0]
        scales[0], scales[first] = scales[first], scales[0]
    return log_z


@helper
def arc_derivatives(n, single_root, x, heads, modifiers, n_arcs, work: Elimination, D):
    """Fill D (n_arcs,), the derivatives by the weights x of some arcs; return log Z, nan if numbers may be lost."""
    M = stride(n, work.C)
    work.C[: n * M] = 0.0
    work.roots[:M] = 0.0
    for a in range(n_arcs):
        if heads[a] == 0:
            work.roots[modifiers[a] - 1] = x[a]
        else:
            work.C[(heads[a] - 1) * M + modifiers[a] - 1] = x[a]
    log_z = derivatives(n, single_root, work)
    if log_z < np.inf:
        for a in range(n_arcs):
            d = modifiers[a] - 1
            D[a] = max(work.g_root[d] if heads[a] == 0 else work.H[(heads[a] - 1) * M + d], 0.0)
    return log_z


@kernel(allocates=True)
def expectations(start, stop, batch: Batch, log_z, safe, marginals):
    """Fill log_z (B,) and marginals (B, n+1, n+1) of sentences ``order[start:stop]``, zeros in the padding.

    ``safe`` (B,) becomes False where underflow may have lost significant mass.
    """
    order, lengths, log_arc, single_root = batch
    N, W = log_arc.shape[1], lanes(log_arc)
    work, tops = elimination(N - 1, log_arc), np.zeros(N + W)
    weights, minus = np.empty(work.roots.size * N), spread(log_arc, -1.0)
    for at in range(start, stop):
        b = order[at]
        n = lengths[b]
        M = stride(n, weights)
        shift = column_shifts(log_arc[b], n, tops)
        for h in range(n + 1):  # row 0 is that of the root
            for d in range(0, M, W):
                score = load_part(log_arc, (b * N + h) * N + 1 + d, n - d, -np.inf)
                store(weights, h * M + d, exponential(subtract(score, load(tops, 1 + d))))
        for h in range(n):
            put(weights, (h + 1) * M + h, 0.0)  # no word is its own head
        for p in range(0, M, W):
            store(work.roots, p, load(weights, p))
        for p in range(0, n * M, W):
            store(work.C, p, load(weights, M + p))
        value = derivatives(n, single_root, work)
        log_z[b], safe[b] = value + shift, value < np.inf
        if n + 1 < N:
            marginals[b] = 0.0
        marginals[b, :, 0] = 0.0
        for h in range(n + 1):
            row = (b * N + h) * N + 1
            for d in range(0, n, W):
                g = load(work.g_root, d) if h == 0 else load(work.H, (h - 1) * M + d)
                value = multiply(multiply(maximum(g, spread(log_arc, 0.0)), load(weights, h * M + d)), minus)
                store_part(marginals, row + d, n - d, multiply(maximum(value, minus), minus))  # at most 1
