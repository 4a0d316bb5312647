"""Inside-outside of dense grammars in scaled probability space, one sentence at a time; equations in ``span.grammar``.

Row ``i * (n + 1) + width`` of a chart is the span of ``width`` positions from i on. The inside numbers of each span are
divided by their maximum, whose logarithm is ``scale``. Matrix products are single-threaded (``products``): parallelism
is over sentences.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.span.kernels.products import add_matrix_product

LIMIT = 1e270  # of derivatives: a subnormal number times this is negligible


class Rules(NamedTuple):
    """Exponentials of root and rule scores; the rules in the layouts of the matrix products and their transposes."""

    root: Any  # (N,)
    shift: Any  # (N,) maximum of the log rules of each nonterminal, subtracted from them
    rules: Any  # (N, S, S)
    pairs: Any  # (N N, N) both children nonterminals: xy by A
    pairs_t: Any
    left: Any  # (P, N S) left child a preterminal: x by Ay
    left_t: Any
    right: Any  # (P, N N) right child a preterminal, left child a nonterminal: y by Ax
    right_t: Any


class Sentences(NamedTuple):
    """Scores of a batch of sentences."""

    lengths: Any  # (B,)
    leaves: Any  # (B, n, P) exponentials of terminal scores
    leaf_scale: Any  # (B, n) maxima of the log scores, subtracted from them
    log_symbols: Any  # (B, n, n, S), or with an empty axis 0


class Output(NamedTuple):
    """Results; ``safe`` is False where underflow may matter. ``charts`` gets log beta if its axis 0 is not empty."""

    log_z: Any  # (B,) without the root's shift
    safe: Any  # (B,)
    roots: Any  # (B, N), zero at first, as the next two
    rules: Any  # (B, N, S, S)
    symbols: Any  # (B, n, n, S)
    charts: Any  # (B, n, n, S)


class Inside(NamedTuple):
    """Inside charts of one sentence, rows by first position and width."""

    left: Any  # (n, N, S) rules whose left child is the preterminal at a position, summed over preterminals
    right: Any  # (n, N, N) the same for right children
    beta: Any  # (rows, N)
    scale: Any  # (rows,)
    factor: Any  # (rows, N) derivatives of beta by its sum over rules
    products: Any  # (spans of width 4 or more, N N) sums over splits of products of nonterminals


class Derivatives(NamedTuple):
    """Derivatives of log Z by the inside charts."""

    outer: Any  # (rows, N) by beta
    by_leaf: Any  # (n, P)
    by_left: Any  # (n, N, S)
    by_right: Any  # (n, N, N)
    by_sum: Any  # (spans of width 4 or more, and n, N) by the sums over rules
    by_pair: Any  # (n, N N) by ``products``, of one width


@helper
def _splits(scale, n, i, width, weights):
    """Fill the weights of the splits after 1..width-1 positions; return their maximum logarithm."""
    top = -np.inf
    for k in range(1, width):
        weights[k] = scale[i * (n + 1) + k] + scale[(i + k) * (n + 1) + width - k]
        top = max(top, weights[k])
    for k in range(1, width):
        weights[k] = math.exp(weights[k] - top) if top > -np.inf else 0.0
    return top


@helper(fast=True)
def _add_apply(matrix, offset, vector, by, out):
    """Add by * sum_y matrix[a, offset + y] * vector[y] to out[a]."""
    for a in range(out.size):
        row = matrix[a, offset : offset + vector.size]  # a slice: indices that might be negative are slow
        total = 0.0
        for y in range(vector.size):
            total += row[y] * vector[y]
        out[a] += by * total


@helper(fast=True)
def _add_back(matrix, offset, vector, by, out):
    """Add by * sum_a vector[a] * matrix[a, offset + y] to out[y]."""
    for a in range(vector.size):
        row, x = matrix[a, offset : offset + out.size], by * vector[a]
        for y in range(out.size):
            out[y] += x * row[y]


@helper(fast=True)
def _add_outer(matrix, offset, left, right, by):
    """Add by * left[a] * right[y] to matrix[a, offset + y]."""
    for a in range(left.size):
        row, x = matrix[a, offset : offset + right.size], by * left[a]
        for y in range(right.size):
            row[y] += x * right[y]


@helper(fast=True)
def _inside(n, N, grammar: Rules, leaves, evidence, charts: Inside, sums, weights):
    """Fill beta, scale, factor and products from leaves (n, P) and log scores of symbols over spans (n, n, S).

    ``sums`` (n, N) and ``weights`` (n + 1,) are scratch space.
    """
    shift, pairs = grammar.shift, grammar.pairs
    left, right, beta, scale, factor, products = charts
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
            add_matrix_product(
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
                if evidence.shape[0]:
                    gain += evidence[i, i + width - 1, a]
                factor[at, a] = gain
                here[a] = math.log(here[a]) + gain if here[a] > 0 else -np.inf
                largest = max(largest, here[a])
            scale[at] = top + largest
            for a in range(N):
                beta[at, a] = math.exp(here[a] - largest) if largest > -np.inf else 0.0
                factor[at, a] = math.exp(factor[at, a] - largest) if largest > -np.inf else 0.0


@helper(fast=True)
def _outside(n, N, n_rows, pairs_t, leaves, charts: Inside, derivatives: Derivatives, weights):
    """Fill the derivatives of log Z from that of the whole sentence in ``outer``; return the largest."""
    left, right, beta, scale, factor, _ = charts
    outer, by_leaf, by_left, by_right, by_sum, by_pair = derivatives
    rows, worst = n_rows, 0.0
    for width in range(n, 1, -1):
        m = n - width + 1
        rows = rows - m if width > 3 else 0
        # The spans of 4 or more positions keep their rows of by_sum: expected rules are computed from them at the end.
        at_sum = rows if width > 3 else n_rows
        for i in range(m):
            at = i * (n + 1) + width
            for a in range(N):
                by_sum[at_sum + i, a] = outer[at, a] * factor[at, a]
                if not (outer[at, a] <= worst and by_sum[at_sum + i, a] <= worst):
                    if not (outer[at, a] < np.inf and by_sum[at_sum + i, a] < np.inf):  # one is nan: max may drop it
                        return np.inf
                    worst = max(outer[at, a], by_sum[at_sum + i, a])
        if width > 3:
            by_pair[:m] = 0.0
            add_matrix_product(
                by_sum.reshape(-1), at_sum * N, N, 1, pairs_t.reshape(-1), by_pair.reshape(-1), 0, m, N, N * N
            )
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


@kernel(allocates=True)
def expectations(start, stop, grammar: Rules, sentences: Sentences, out: Output):
    """Fill the results of sentences start..stop."""
    root, rules = grammar.root, grammar.rules
    lengths, leaves, leaf_scale, log_symbols = sentences
    log_z, safe, roots, counts, symbols, charts = out
    N, S = rules.shape[:2]
    P, n = S - N, leaves.shape[1]
    size = n * (n + 1)
    n_rows = max((n - 3) * (n - 2) // 2, 0)
    beta, factor, outer, scale = np.empty((size, N)), np.empty((size, N)), np.empty((size, N)), np.empty(size)
    products, by_sum = np.empty((max(n_rows, 1), N * N)), np.empty((n_rows + n, N))
    sums, by_pair, weights = np.empty((n, N)), np.empty((n, N * N)), np.empty(n + 1)
    left, by_left = np.empty((n, N, S)), np.empty((n, N, S))
    right, by_right = np.empty((n, N, N)), np.empty((n, N, N))
    by_leaf, by_start = np.empty((n, P)), np.empty((P, N * S))
    by_end, middle = np.empty((P, N * N)), np.empty((N, N * N))
    inside = Inside(left, right, beta, scale, factor, products)
    derivatives = Derivatives(outer, by_leaf, by_left, by_right, by_sum, by_pair)
    for b in range(start, stop):
        n, leaf = lengths[b], leaves[b]
        n_rows = max((n - 3) * (n - 2) // 2, 0)
        log_z[b], safe[b] = -np.inf, False
        left[:], right[:], by_left[:], by_right[:] = 0.0, 0.0, 0.0, 0.0
        by_leaf[:], outer[:], beta[:], scale[:] = 0.0, 0.0, 0.0, -np.inf
        for i in range(n):
            scale[i * (n + 1) + 1] = leaf_scale[b, i]
        add_matrix_product(leaf.reshape(-1), 0, P, 1, grammar.left.reshape(-1), left.reshape(-1), 0, n, P, N * S)
        add_matrix_product(leaf.reshape(-1), 0, P, 1, grammar.right.reshape(-1), right.reshape(-1), 0, n, P, N * N)
        evidence = log_symbols[b] if log_symbols.shape[0] else log_symbols.reshape(0, 0, 0)
        _inside(n, N, grammar, leaf, evidence, inside, sums, weights)
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
        largest = _outside(n, N, n_rows, grammar.pairs_t, leaf, inside, derivatives, weights)
        good = largest < LIMIT and log_z[b] < np.inf
        add_matrix_product(
            by_left.reshape(-1), 0, N * S, 1, grammar.left_t.reshape(-1), by_leaf.reshape(-1), 0, n, N * S, P
        )
        add_matrix_product(
            by_right.reshape(-1), 0, N * N, 1, grammar.right_t.reshape(-1), by_leaf.reshape(-1), 0, n, N * N, P
        )
        for i in range(n):
            for x in range(P):
                symbols[b, i, i, N + x] = by_leaf[i, x] * leaf[i, x]
                if not by_leaf[i, x] < LIMIT:
                    good = False
            for width in range(2, n - i + 1):
                for a in range(N):
                    symbols[b, i, i + width - 1, a] = outer[i * (n + 1) + width, a] * beta[i * (n + 1) + width, a]
        safe[b] = good
        by_start[:], by_end[:], middle[:] = 0.0, 0.0, 0.0
        add_matrix_product(leaf.reshape(-1), 0, 1, P, by_left.reshape(-1), by_start.reshape(-1), 0, P, n, N * S)
        add_matrix_product(leaf.reshape(-1), 0, 1, P, by_right.reshape(-1), by_end.reshape(-1), 0, P, n, N * N)
        add_matrix_product(by_sum.reshape(-1), 0, 1, N, products.reshape(-1), middle.reshape(-1), 0, N, n_rows, N * N)
        for a in range(N):
            for x in range(N):
                for y in range(N):
                    counts[b, a, x, y] = middle[a, x * N + y] * rules[a, x, y]
                for y in range(P):
                    counts[b, a, x, N + y] = by_end[y, a * N + x] * rules[a, x, N + y]
            for x in range(P):
                for y in range(S):
                    counts[b, a, N + x, y] = by_start[x, a * S + y] * rules[a, N + x, y]
