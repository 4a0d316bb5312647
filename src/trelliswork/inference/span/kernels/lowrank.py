"""Inside-outside of low-rank grammars in scaled rank space, one sentence at a time; equations in ``lowrank``.

Spans lie by width, then by first position, so that all spans of one width are one matrix. Every span's numbers are
divided by their largest, whose logarithm is ``scale``. Matrix products are our own, so that the threads are ours too.
"""

import math

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.inference.span.kernels.grammar import _add_product


@kernel(inline="always")
def _row(n, i, width):
    """Where the span of ``width`` positions from i on lies."""
    return (width - 1) * n - (width - 1) * (width - 2) // 2 + i


@kernel
def _splits(scale, n, i, width, weights):
    """Fill the weights of the splits after 1..width-1 positions; return the largest logarithm."""
    top = -np.inf
    for k in range(1, width):
        weights[k] = scale[_row(n, i, k)] + scale[_row(n, i + k, width - k)]
        top = max(top, weights[k])
    for k in range(1, width):
        weights[k] = math.exp(weights[k] - top) if top > -np.inf else 0.0
    return top


@kernel(fast=True)
def _add_times(a, b, by, out):
    """out += by * a * b, element by element."""
    for r in range(out.size):
        out[r] += by * a[r] * b[r]


@kernel(fast=True)
def _inside(n, R, shift, to_left_t, to_right_t, combined, left, right, scale, factor, weights):
    """Fill combined, left, right (spans, R), scale and factor (spans,) for widths from 2 on."""
    for width in range(2, n + 1):
        m, first = n - width + 1, _row(n, 0, width)
        for i in range(m):
            top, here = _splits(scale, n, i, width, weights), combined[first + i]
            here[:] = 0.0
            for k in range(1, width):
                if weights[k] > 0:
                    _add_times(left[_row(n, i, k)], right[_row(n, i + k, width - k)], weights[k], here)
            largest = 0.0
            for r in range(R):
                largest = max(largest, here[r])
            scale[first + i], factor[first + i] = -np.inf, 0.0
            if largest > 0:
                scale[first + i] = top + math.log(largest) + shift
                factor[first + i] = 1 / largest
                for r in range(R):
                    here[r] /= largest
        left[first : first + m], right[first : first + m] = 0.0, 0.0
        flat = combined.reshape(-1)
        _add_product(flat, first * R, R, 1, to_left_t.reshape(-1), left.reshape(-1), first * R, m, R, R)
        _add_product(flat, first * R, R, 1, to_right_t.reshape(-1), right.reshape(-1), first * R, m, R, R)


@kernel(fast=True)
def _outside(n, R, to_left, to_right, combined, left, right, scale, factor, by_combined, by_left, by_right, weights):
    """Fill the derivatives of log Z from that of the whole sentence in ``by_combined``; return the largest."""
    worst = 0.0
    for width in range(n, 1, -1):
        m, first = n - width + 1, _row(n, 0, width)
        out = by_combined.reshape(-1)
        _add_product(by_left.reshape(-1), first * R, R, 1, to_left.reshape(-1), out, first * R, m, R, R)
        _add_product(by_right.reshape(-1), first * R, R, 1, to_right.reshape(-1), out, first * R, m, R, R)
        for i in range(m):
            _splits(scale, n, i, width, weights)
            here = by_combined[first + i]
            for r in range(R):
                if not (here[r] <= worst and here[r] * factor[first + i] <= worst):
                    worst = max(here[r], here[r] * factor[first + i])
                    if not worst < np.inf:
                        return np.inf
            for k in range(1, width):
                by = weights[k] * factor[first + i]
                if by > 0:
                    a, b = _row(n, i, k), _row(n, i + k, width - k)
                    _add_times(here, right[b], by, by_left[a])
                    _add_times(here, left[a], by, by_right[b])
    return worst


@kernel
def expectations(
    start, stop, number, lengths, weights, root, shift, to_left, to_left_t, to_right, to_right_t, leaf_left,
    leaf_left_t, leaf_right, leaf_right_t, leaves, leaf_scale, limit, log_z, safe, by_root, by_to_left,
    by_to_right, by_leaf_left, by_leaf_right, spans, terminals, charts,
):  # fmt: skip
    """Fill log_z, safe (B,), spans (B, n, n), terminals (B, n, P); add the derivatives by the factors, those of a range
    at ``number``: by_root (ranges, R), by_to_left, by_to_right (ranges, R, R), by_leaf_left, by_leaf_right (ranges,
    R, P), each sentence times its weight. ``charts`` (B, n, n, 3, R), if axis 0 is not empty, gets combined numbers
    and the derivatives by left and right.
    """
    R, P = leaf_left.shape
    n = leaves.shape[1]
    size = n * (n + 1) // 2
    combined, left, right = np.empty((size, R)), np.empty((size, R)), np.empty((size, R))
    by_combined, by_left, by_right = np.empty((size, R)), np.empty((size, R)), np.empty((size, R))
    scale, factor, split = np.empty(size), np.empty(size), np.empty(n + 1)
    weighted, by_leaf = np.empty((size, R)), np.empty((n, P))
    for b in range(start, stop):
        n, leaf = lengths[b], leaves[b]
        size = n * (n + 1) // 2
        log_z[b], safe[b] = -np.inf, False
        left[:n], right[:n], combined[:n] = 0.0, 0.0, 0.0
        for i in range(n):
            scale[i] = leaf_scale[b, i]
        flat = leaf.reshape(-1)
        _add_product(flat, 0, P, 1, leaf_left_t.reshape(-1), left.reshape(-1), 0, n, P, R)
        _add_product(flat, 0, P, 1, leaf_right_t.reshape(-1), right.reshape(-1), 0, n, P, R)
        _inside(n, R, shift, to_left_t, to_right_t, combined, left, right, scale, factor, split)
        mass = 0.0
        if n > 1:
            for r in range(R):
                mass += root[r] * combined[size - 1, r]
        if not mass > 1e-290:
            continue
        log_z[b] = math.log(mass) + scale[size - 1]
        by_combined[:size], by_left[:size], by_right[:size] = 0.0, 0.0, 0.0
        for r in range(R):
            by_combined[size - 1, r] = root[r] / mass
        worst = _outside(
            n, R, to_left, to_right, combined, left, right, scale, factor, by_combined, by_left, by_right, split
        )
        for i in range(n):
            for r in range(R):
                if not (by_left[i, r] <= worst and by_right[i, r] <= worst):
                    worst = max(by_left[i, r], by_right[i, r])
        safe[b] = worst < limit and log_z[b] < np.inf
        if not safe[b]:
            continue
        for width in range(2, n + 1):
            for i in range(n - width + 1):
                at, total = _row(n, i, width), 0.0
                for r in range(R):
                    total += combined[at, r] * by_combined[at, r]
                    if charts.shape[0]:
                        charts[b, i, i + width - 1, 0, r] = combined[at, r]
                        charts[b, i, i + width - 1, 1, r] = by_left[at, r]
                        charts[b, i, i + width - 1, 2, r] = by_right[at, r]
                spans[b, i, i + width - 1] = total
        by_leaf[:n] = 0.0
        _add_product(by_left.reshape(-1), 0, R, 1, leaf_left.reshape(-1), by_leaf.reshape(-1), 0, n, R, P)
        _add_product(by_right.reshape(-1), 0, R, 1, leaf_right.reshape(-1), by_leaf.reshape(-1), 0, n, R, P)
        for i in range(n):
            spans[b, i, i] = 1.0
            for x in range(P):
                terminals[b, i, x] = by_leaf[i, x] * leaf[i, x]
        by = weights[b]
        for r in range(R):
            by_root[number, r] += by * combined[size - 1, r] / mass
        for matrix, rest, leafs in (
            (by_left, by_to_left, by_leaf_left),
            (by_right, by_to_right, by_leaf_right),
        ):
            for at in range(size):
                for r in range(R):
                    weighted[at, r] = by * matrix[at, r]
            flat = weighted.reshape(-1)
            _add_product(flat, 0, 1, R, leaf.reshape(-1), leafs[number].reshape(-1), 0, R, n, P)
            if size > n:
                _add_product(flat, n * R, 1, R, combined[n:].reshape(-1), rest[number].reshape(-1), 0, R, size - n, R)
