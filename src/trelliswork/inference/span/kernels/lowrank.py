"""Inside-outside of low-rank grammars in scaled rank space, one sentence at a time; equations in ``span.lowrank``.

Spans are sorted by width, then by first position, so that all spans of one width form a matrix. The numbers of each
span are divided by their maximum, whose logarithm is ``scale``. Matrix products are single-threaded (``products``):
parallelism is over sentences.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.span.kernels.grammar import LIMIT
from trelliswork.inference.span.kernels.products import add_matrix_product


class Factors(NamedTuple):
    """Exponentials of the factors of the rules, combined for rank space; ``_t`` are transposes."""

    root: Any  # (R,) root probabilities times U
    shift: Any  # float: logarithm subtracted from each rule
    to_left: Any  # (R, R) V U
    to_left_t: Any
    to_right: Any  # (R, R) W U
    to_right_t: Any
    leaf_left: Any  # (R, P) V of preterminals
    leaf_left_t: Any
    leaf_right: Any  # (R, P) W of preterminals
    leaf_right_t: Any


class Sentences(NamedTuple):
    """Scores of a batch of sentences, and their weights in the sums."""

    lengths: Any  # (B,)
    weights: Any  # (B,)
    leaves: Any  # (B, n, P) exponentials of terminal scores
    leaf_scale: Any  # (B, n) maxima of the log scores, subtracted from them


class Sums(NamedTuple):
    """Derivatives of log Z by the factors, summed over sentences with their weights; one row per range of sentences."""

    root: Any  # (ranges, R)
    to_left: Any  # (ranges, R, R)
    to_right: Any  # (ranges, R, R)
    leaf_left: Any  # (ranges, R, P)
    leaf_right: Any  # (ranges, R, P)


class Output(NamedTuple):
    """Results; ``safe`` is False where underflow may matter."""

    log_z: Any  # (B,)
    safe: Any  # (B,)
    spans: Any  # (B, n, n)
    terminals: Any  # (B, n, P)
    charts: Any  # (B, n, n, 3, R), or with an empty axis 0: combined numbers and derivatives by left and right


class Inside(NamedTuple):
    """Inside charts of one sentence."""

    combined: Any  # (spans, R) sums over splits
    left: Any  # (spans, R) as left parts
    right: Any  # (spans, R) as right parts
    scale: Any  # (spans,)
    factor: Any  # (spans,) 1 / the number that ``combined`` was divided by


class Derivatives(NamedTuple):
    """Derivatives of log Z by the inside charts."""

    by_combined: Any
    by_left: Any
    by_right: Any


@helper(inline="always")
def _row(n, i, width):
    """Return the row of the span of ``width`` positions from i on."""
    return (width - 1) * n - (width - 1) * (width - 2) // 2 + i


@helper
def _splits(scale, n, i, width, weights):
    """Fill the weights of the splits after 1..width-1 positions; return their maximum logarithm."""
    top = -np.inf
    for k in range(1, width):
        weights[k] = scale[_row(n, i, k)] + scale[_row(n, i + k, width - k)]
        top = max(top, weights[k])
    for k in range(1, width):
        weights[k] = math.exp(weights[k] - top) if top > -np.inf else 0.0
    return top


@helper(fast=True)
def _add_times(a, b, by, out):
    """Add by * a * b to out, element by element."""
    for r in range(out.size):
        out[r] += by * a[r] * b[r]


@helper(fast=True)
def _inside(n, R, factors: Factors, charts: Inside, weights):
    """Fill the charts for widths from 2 on."""
    shift, to_left_t, to_right_t = factors.shift, factors.to_left_t, factors.to_right_t
    combined, left, right, scale, factor = charts
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
        add_matrix_product(flat, first * R, R, 1, to_left_t.reshape(-1), left.reshape(-1), first * R, m, R, R)
        add_matrix_product(flat, first * R, R, 1, to_right_t.reshape(-1), right.reshape(-1), first * R, m, R, R)


@helper(fast=True)
def _outside(n, R, factors: Factors, charts: Inside, derivatives: Derivatives, weights):
    """Fill the derivatives of log Z from that of the whole sentence in ``by_combined``; return the largest."""
    to_left, to_right = factors.to_left, factors.to_right
    _, left, right, scale, factor = charts
    by_combined, by_left, by_right = derivatives
    worst = 0.0
    for width in range(n, 1, -1):
        m, first = n - width + 1, _row(n, 0, width)
        out = by_combined.reshape(-1)
        add_matrix_product(by_left.reshape(-1), first * R, R, 1, to_left.reshape(-1), out, first * R, m, R, R)
        add_matrix_product(by_right.reshape(-1), first * R, R, 1, to_right.reshape(-1), out, first * R, m, R, R)
        for i in range(m):
            _splits(scale, n, i, width, weights)
            here = by_combined[first + i]
            for r in range(R):
                if not (here[r] <= worst and here[r] * factor[first + i] <= worst):
                    if not (here[r] < np.inf and here[r] * factor[first + i] < np.inf):  # one is nan: max may drop it
                        return np.inf
                    worst = max(here[r], here[r] * factor[first + i])
            for k in range(1, width):
                by = weights[k] * factor[first + i]
                if by > 0:
                    a, b = _row(n, i, k), _row(n, i + k, width - k)
                    _add_times(here, right[b], by, by_left[a])
                    _add_times(here, left[a], by, by_right[b])
    return worst


@kernel(allocates=True)
def expectations(start, stop, number, factors: Factors, sentences: Sentences, sums: Sums, out: Output):
    """Fill the results of sentences start..stop; add their derivatives to row ``number`` of the sums."""
    lengths, weights, leaves, leaf_scale = sentences
    log_z, safe, spans, terminals, charts = out
    root, leaf_left, leaf_right = factors.root, factors.leaf_left, factors.leaf_right
    R, P = leaf_left.shape
    n = leaves.shape[1]
    size = n * (n + 1) // 2
    combined, left, right = np.empty((size, R)), np.empty((size, R)), np.empty((size, R))
    by_combined, by_left, by_right = np.empty((size, R)), np.empty((size, R)), np.empty((size, R))
    scale, factor, split = np.empty(size), np.empty(size), np.empty(n + 1)
    weighted, by_leaf = np.empty((size, R)), np.empty((n, P))
    inside, derivatives = Inside(combined, left, right, scale, factor), Derivatives(by_combined, by_left, by_right)
    for b in range(start, stop):
        n, leaf = lengths[b], leaves[b]
        size = n * (n + 1) // 2
        log_z[b], safe[b] = -np.inf, False
        left[:n], right[:n], combined[:n] = 0.0, 0.0, 0.0
        for i in range(n):
            scale[i] = leaf_scale[b, i]
        flat = leaf.reshape(-1)
        add_matrix_product(flat, 0, P, 1, factors.leaf_left_t.reshape(-1), left.reshape(-1), 0, n, P, R)
        add_matrix_product(flat, 0, P, 1, factors.leaf_right_t.reshape(-1), right.reshape(-1), 0, n, P, R)
        _inside(n, R, factors, inside, split)
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
        good = _outside(n, R, factors, inside, derivatives, split) < LIMIT and log_z[b] < np.inf
        for i in range(n):
            for r in range(R):
                if not (by_left[i, r] < LIMIT and by_right[i, r] < LIMIT):
                    good = False
        safe[b] = good
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
        add_matrix_product(by_left.reshape(-1), 0, R, 1, leaf_left.reshape(-1), by_leaf.reshape(-1), 0, n, R, P)
        add_matrix_product(by_right.reshape(-1), 0, R, 1, leaf_right.reshape(-1), by_leaf.reshape(-1), 0, n, R, P)
        for i in range(n):
            spans[b, i, i] = 1.0
            for x in range(P):
                terminals[b, i, x] = by_leaf[i, x] * leaf[i, x]
        by = weights[b]
        for r in range(R):
            sums.root[number, r] += by * combined[size - 1, r] / mass
        for matrix, by_rank, by_terminal in (
            (by_left, sums.to_left, sums.leaf_left),
            (by_right, sums.to_right, sums.leaf_right),
        ):
            for at in range(size):
                for r in range(R):
                    weighted[at, r] = by * matrix[at, r]
            flat = weighted.reshape(-1)
            add_matrix_product(flat, 0, 1, R, leaf.reshape(-1), by_terminal[number].reshape(-1), 0, R, n, P)
            if size > n:
                add_matrix_product(
                    flat, n * R, 1, R, combined[n:].reshape(-1), by_rank[number].reshape(-1), 0, R, size - n, R
                )
