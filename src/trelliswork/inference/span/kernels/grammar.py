"""Inside-outside of dense grammars in scaled probability space, one sentence at a time; equations in ``grammar``.

Charts lie by first position and width, row ``i * (n + 1) + width``. Every span's numbers are divided by their largest,
whose logarithm is ``scale``. Matrix products are our own (explicit SIMD), so that the threads are ours too.
"""

import math

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import get, lanes, load, multiply_add, put, spread_at, store


@kernel
def _add_product(A, at, row, column, B, C, to, m, K, L):
    """C[to + i * L + j] += sum_k A[at + i * row + k * column] * B[k * L + j] for i < m, j < L; flat arrays.

    Four rows by two vectors of C stay in registers while k runs.
    """
    W = lanes(A)
    i = 0
    while i < m:
        rows = 4 if i + 4 <= m else 1
        a0, c0 = at + i * row, to + i * L
        j = 0
        while j + 2 * W <= L:
            if rows == 4:
                c00, c01 = load(C, c0 + j), load(C, c0 + j + W)
                c10, c11 = load(C, c0 + L + j), load(C, c0 + L + j + W)
                c20, c21 = load(C, c0 + 2 * L + j), load(C, c0 + 2 * L + j + W)
                c30, c31 = load(C, c0 + 3 * L + j), load(C, c0 + 3 * L + j + W)
                a, b = a0, j
                for _ in range(K):
                    b0, b1 = load(B, b), load(B, b + W)
                    x = spread_at(A, a)
                    c00, c01 = multiply_add(x, b0, c00), multiply_add(x, b1, c01)
                    x = spread_at(A, a + row)
                    c10, c11 = multiply_add(x, b0, c10), multiply_add(x, b1, c11)
                    x = spread_at(A, a + 2 * row)
                    c20, c21 = multiply_add(x, b0, c20), multiply_add(x, b1, c21)
                    x = spread_at(A, a + 3 * row)
                    c30, c31 = multiply_add(x, b0, c30), multiply_add(x, b1, c31)
                    a += column
                    b += L
                store(C, c0 + j, c00)
                store(C, c0 + j + W, c01)
                store(C, c0 + L + j, c10)
                store(C, c0 + L + j + W, c11)
                store(C, c0 + 2 * L + j, c20)
                store(C, c0 + 2 * L + j + W, c21)
                store(C, c0 + 3 * L + j, c30)
                store(C, c0 + 3 * L + j + W, c31)
            else:
                c00, c01 = load(C, c0 + j), load(C, c0 + j + W)
                for k in range(K):
                    x = spread_at(A, a0 + k * column)
                    c00 = multiply_add(x, load(B, k * L + j), c00)
                    c01 = multiply_add(x, load(B, k * L + j + W), c01)
                store(C, c0 + j, c00)
                store(C, c0 + j + W, c01)
            j += 2 * W
        for r in range(rows):
            for rest in range(j, L):
                value = get(C, c0 + r * L + rest)
                for k in range(K):
                    value += get(A, a0 + r * row + k * column) * get(B, k * L + rest)
                put(C, c0 + r * L + rest, value)
        i += rows


@kernel
def _splits(scale, n, i, width, weights):
    """Fill the weights of the splits after 1..width-1 positions; return the largest logarithm."""
    top = -np.inf
    for k in range(1, width):
        weights[k] = scale[i * (n + 1) + k] + scale[(i + k) * (n + 1) + width - k]
        top = max(top, weights[k])
    for k in range(1, width):
        weights[k] = math.exp(weights[k] - top) if top > -np.inf else 0.0
    return top


@kernel(fast=True)
def _add_apply(matrix, offset, vector, by, out):
    """out[a] += by * sum_y matrix[a, offset + y] * vector[y]."""
    for a in range(out.size):
        row = matrix[a, offset : offset + vector.size]  # a slice, since an index that might be negative is slow
        total = 0.0
        for y in range(vector.size):
            total += row[y] * vector[y]
        out[a] += by * total


@kernel(fast=True)
def _add_back(matrix, offset, vector, by, out):
    """out[y] += by * sum_a vector[a] * matrix[a, offset + y]."""
    for a in range(vector.size):
        row, x = matrix[a, offset : offset + out.size], by * vector[a]
        for y in range(out.size):
            out[y] += x * row[y]


@kernel(fast=True)
def _add_outer(matrix, offset, left, right, by):
    """matrix[a, offset + y] += by * left[a] * right[y]."""
    for a in range(left.size):
        row, x = matrix[a, offset : offset + right.size], by * left[a]
        for y in range(right.size):
            row[y] += x * right[y]


@kernel(fast=True)
def _inside(n, N, shift, symbols, pairs, leaves, left, right, beta, scale, factor, products, sums, weights):
    """Fill beta, factor (rows, N), scale (rows,) and the products of both sides' numbers, (spans, N * N)."""
    rows = 0  # of products: spans by width, from 4 on
    for width in range(2, n + 1):
        m = n - width + 1
        sums[:m] = 0.0
        if width > 3:
            for i in range(m):
                _splits(scale, n, i, width, weights)
                product = products[rows + i].reshape(N, N)
                product[:] = 0.0
                for k in range(2, width - 1):
                    _add_outer(product, 0, beta[i * (n + 1) + k], beta[(i + k) * (n + 1) + width - k], weights[k])
            _add_product(
                products.reshape(-1), rows * N * N, N * N, 1, pairs.reshape(-1), sums.reshape(-1), 0, m, N * N, N
            )
            rows += m
        for i in range(m):
            top = _splits(scale, n, i, width, weights)
            here, at = sums[i], i * (n + 1) + width
            if width == 2:
                _add_apply(left[i], N, leaves[i + 1], 1.0, here)
            else:
                _add_apply(left[i], 0, beta[(i + 1) * (n + 1) + width - 1], weights[1], here)
                _add_apply(right[i + width - 1], 0, beta[at - 1], weights[width - 1], here)
            largest = -np.inf
            for a in range(N):
                gain = shift[a]
                if symbols.shape[0]:
                    gain += symbols[i, i + width - 1, a]
                factor[at, a] = gain
                here[a] = math.log(here[a]) + gain if here[a] > 0 else -np.inf
                largest = max(largest, here[a])
            scale[at] = top + largest
            for a in range(N):
                beta[at, a] = math.exp(here[a] - largest) if largest > -np.inf else 0.0
                factor[at, a] = math.exp(factor[at, a] - largest) if largest > -np.inf else 0.0


@kernel(fast=True)
def _outside(n, N, pairs_t, leaves, left, right, beta, scale, factor, n_rows, outer, by_leaf, by_left, by_right,
             by_sum, by_pair, weights):  # fmt: skip
    """Fill the derivatives of log Z from that of the whole sentence in ``outer``; return the largest."""
    rows, worst = n_rows, 0.0
    for width in range(n, 1, -1):
        m = n - width + 1
        rows = rows - m if width > 3 else 0
        # The spans of 4 and more positions keep their rows of by_sum: expected rules are made of them at the end.
        at_sum = rows if width > 3 else n_rows
        for i in range(m):
            at = i * (n + 1) + width
            for a in range(N):
                by_sum[at_sum + i, a] = outer[at, a] * factor[at, a]
                if not (outer[at, a] <= worst and by_sum[at_sum + i, a] <= worst):
                    worst = max(outer[at, a], by_sum[at_sum + i, a])
                    if not worst < np.inf:
                        return np.inf
        if width > 3:
            by_pair[:m] = 0.0
            _add_product(by_sum.reshape(-1), at_sum * N, N, 1, pairs_t.reshape(-1), by_pair.reshape(-1), 0, m, N, N * N)
        for i in range(m):
            at, here = i * (n + 1) + width, by_sum[at_sum + i]
            if width == 2:
                _add_back(left[i], N, here, 1.0, by_leaf[i + 1])
                _add_outer(by_left[i], N, here, leaves[i + 1], 1.0)
                continue
            _splits(scale, n, i, width, weights)
            below = (i + 1) * (n + 1) + width - 1
            _add_back(left[i], 0, here, weights[1], outer[below])
            _add_outer(by_left[i], 0, here, beta[below], weights[1])
            _add_back(right[i + width - 1], 0, here, weights[width - 1], outer[at - 1])
            _add_outer(by_right[i + width - 1], 0, here, beta[at - 1], weights[width - 1])
            if width > 3:
                pair = by_pair[i].reshape(N, N)
                for k in range(2, width - 1):
                    first, second = i * (n + 1) + k, (i + k) * (n + 1) + width - k
                    _add_apply(pair, 0, beta[second], weights[k], outer[first])
                    _add_back(pair, 0, beta[first], weights[k], outer[second])
    return worst


@kernel
def expectations(
    start, stop, lengths, root, shift, rules, pairs, pairs_t, left_rules, left_rules_t, right_rules, right_rules_t,
    leaves, leaf_scale, log_symbols, limit, log_z, safe, roots, counts, symbols, charts,
):  # fmt: skip
    """Fill log_z (B,) without the root's shift and, from zero, roots (B, N), counts (B, N, S, S), symbols (B, n, n, S).

    ``charts`` (B, n, n, S), if axis 0 is not empty, gets log beta. ``safe`` (B,) is False where underflow may count.
    """
    N, S = rules.shape[:2]
    P, n = S - N, leaves.shape[1]
    size = n * (n + 1)
    n_rows = max((n - 3) * (n - 2) // 2, 0)
    beta, factor, outer, scale = np.empty((size, N)), np.empty((size, N)), np.empty((size, N)), np.empty(size)
    products, by_sum = np.empty((max(n_rows, 1), N * N)), np.empty((n_rows + n, N))
    sums, by_pair, weights = np.empty((n, N)), np.empty((n, N * N)), np.empty(n + 1)
    left, by_left = np.empty((n, N, S)), np.empty((n, N, S))
    right, by_right = np.empty((n, N, N)), np.empty((n, N, N))
    by_leaf, by_start, by_end, middle = (
        np.empty((n, P)),
        np.empty((P, N * S)),
        np.empty((P, N * N)),
        np.empty((N, N * N)),
    )
    for b in range(start, stop):
        n, leaf = lengths[b], leaves[b]
        n_rows = max((n - 3) * (n - 2) // 2, 0)
        log_z[b], safe[b] = -np.inf, False
        left[:], right[:], by_left[:], by_right[:] = 0.0, 0.0, 0.0, 0.0
        by_leaf[:], outer[:], beta[:], scale[:] = 0.0, 0.0, 0.0, -np.inf
        for i in range(n):
            scale[i * (n + 1) + 1] = leaf_scale[b, i]
        _add_product(leaf.reshape(-1), 0, P, 1, left_rules.reshape(-1), left.reshape(-1), 0, n, P, N * S)
        _add_product(leaf.reshape(-1), 0, P, 1, right_rules.reshape(-1), right.reshape(-1), 0, n, P, N * N)
        evidence = log_symbols[b] if log_symbols.shape[0] else log_symbols.reshape(0, 0, 0)
        _inside(n, N, shift, evidence, pairs, leaf, left, right, beta, scale, factor, products, sums, weights)
        if charts.shape[0]:
            for i in range(n):
                for x in range(P):
                    charts[b, i, i, N + x] = math.log(leaf[i, x]) + leaf_scale[b, i] if leaf[i, x] > 0 else -np.inf
                for width in range(2, n - i + 1):
                    for a in range(N):
                        at, value = i * (n + 1) + width, beta[i * (n + 1) + width, a]
                        charts[b, i, i + width - 1, a] = math.log(value) + scale[at] if value > 0 else -np.inf
        mass = 0.0
        for a in range(N):
            mass += root[a] * beta[n, a]
        if not mass > 1e-290:
            continue
        log_z[b] = math.log(mass) + scale[n]
        for a in range(N):
            outer[n, a] = root[a] / mass
            roots[b, a] = root[a] * beta[n, a] / mass
        worst = _outside(
            n, N, pairs_t, leaf, left, right, beta, scale, factor, n_rows, outer, by_leaf, by_left, by_right, by_sum,
            by_pair, weights,
        )  # fmt: skip
        _add_product(by_left.reshape(-1), 0, N * S, 1, left_rules_t.reshape(-1), by_leaf.reshape(-1), 0, n, N * S, P)
        _add_product(by_right.reshape(-1), 0, N * N, 1, right_rules_t.reshape(-1), by_leaf.reshape(-1), 0, n, N * N, P)
        for i in range(n):
            for x in range(P):
                symbols[b, i, i, N + x] = by_leaf[i, x] * leaf[i, x]
                if not by_leaf[i, x] <= worst:
                    worst = by_leaf[i, x]
            for width in range(2, n - i + 1):
                for a in range(N):
                    symbols[b, i, i + width - 1, a] = outer[i * (n + 1) + width, a] * beta[i * (n + 1) + width, a]
        safe[b] = worst < limit and log_z[b] < np.inf
        if counts.shape[0] == 0:
            continue
        by_start[:], by_end[:], middle[:] = 0.0, 0.0, 0.0
        _add_product(leaf.reshape(-1), 0, 1, P, by_left.reshape(-1), by_start.reshape(-1), 0, P, n, N * S)
        _add_product(leaf.reshape(-1), 0, 1, P, by_right.reshape(-1), by_end.reshape(-1), 0, P, n, N * N)
        _add_product(by_sum.reshape(-1), 0, 1, N, products.reshape(-1), middle.reshape(-1), 0, N, n_rows, N * N)
        for a in range(N):
            for x in range(N):
                for y in range(N):
                    counts[b, a, x, y] = middle[a, x * N + y] * rules[a, x, y]
                for y in range(P):
                    counts[b, a, x, N + y] = by_end[y, a * N + x] * rules[a, x, N + y]
            for x in range(P):
                for y in range(S):
                    counts[b, a, N + x, y] = by_start[x, a * S + y] * rules[a, N + x, y]
