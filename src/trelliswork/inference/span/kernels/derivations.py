"""Trees of dense grammars: samples and the k best, one sentence at a time.

Recursion and names as in ``span.grammar``; charts (n, n, S) contain spans i..j with both ends, nonterminals first.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.merge import insert
from trelliswork.compute.kernels.random import draw, uniform


class Scores(NamedTuple):
    """The arrays of ``Grammar``, with zeros if symbols over spans have no scores."""

    log_root: Any  # (N,)
    log_rules: Any  # (N, S, S)
    log_terminals: Any  # (B, n, P)
    log_symbols: Any  # (B, n, n, S)
    lengths: Any  # (B,)


@helper(inline="always")
def _symbols_over(width, N, S):
    """Return the range of symbols over spans of ``width`` positions."""
    return (N, S) if width == 1 else (0, N)


@kernel(allocates=True)
def sample(start, stop, scores: Scores, charts, log_z, seeds, trees):
    """Draw trees (k, B, n, n), symbols at their spans, top down from inside charts (B, n, n, S)."""
    log_root, log_rules, log_symbols, lengths = scores.log_root, scores.log_rules, scores.log_symbols, scores.lengths
    N, S = log_rules.shape[:2]
    n = charts.shape[1]
    stack, state = np.empty((2 * n, 3), np.int64), np.empty(1, np.uint64)
    for b in range(start, stop):
        n, chart = lengths[b], charts[b]
        for k in range(trees.shape[0]):
            state[0] = seeds[k, b]
            stack[0] = 0, n - 1, draw(log_root, chart[0, n - 1], N, log_z[b], state)
            top = 1
            while top > 0:
                top -= 1
                i, j, a = stack[top]
                trees[k, b, i, j] = a
                if i == j:
                    continue
                left = uniform(state)
                total = chart[i, j, a] - log_symbols[b, i, j, a]
                split, first, second = -1, -1, -1
                for r in range(i, j):
                    x0, x1 = _symbols_over(r - i + 1, N, S)
                    y0, y1 = _symbols_over(j - r, N, S)
                    for x in range(x0, x1):
                        if left < 0 and split >= 0:
                            break
                        for y in range(y0, y1):
                            p = math.exp(log_rules[a, x, y] + chart[i, r, x] + chart[r + 1, j, y] - total)
                            if p > 0:
                                split, first, second = r, x, y
                                left -= p
                                if left < 0:
                                    break
                    if left < 0 and split >= 0:
                        break
                stack[top] = i, split, first
                stack[top + 1] = split + 1, j, second
                top += 2


@kernel(allocates=True)
def topk(start, stop, scores: Scores, trees, values):
    """Fill trees (B, k, n, n), symbols at their spans, and values (B, k) of the k best trees, best first.

    -1 and -inf mark missing trees.
    """
    log_root, log_rules, log_terminals, log_symbols, lengths = scores
    N, S = log_rules.shape[:2]
    n, K = log_terminals.shape[1], values.shape[1]
    value, pointers = np.empty((n, n, S, K)), np.empty((n, n, N, K, 5), np.int64)
    final, origin = np.empty(K), np.empty((K, 2), np.int64)
    stack = np.empty((2 * n, 4), np.int64)
    for b in range(start, stop):
        n = lengths[b]
        value[:] = -np.inf
        for i in range(n):
            for x in range(N, S):
                value[i, i, x, 0] = log_terminals[b, i, x - N] + log_symbols[b, i, i, x]
        for width in range(2, n + 1):
            for i in range(n + 1 - width):
                j = i + width - 1
                for a in range(N):
                    here, to = value[i, j, a], pointers[i, j, a]
                    if log_symbols[b, i, j, a] == -np.inf:
                        continue
                    for r in range(i, j):
                        x0, x1 = _symbols_over(r - i + 1, N, S)
                        y0, y1 = _symbols_over(j - r, N, S)
                        for x in range(x0, x1):
                            left = value[i, r, x, 0]
                            if left == -np.inf:
                                continue
                            for y in range(y0, y1):
                                rule = log_rules[a, x, y]
                                if not left + value[r + 1, j, y, 0] + rule > here[K - 1]:
                                    continue
                                for p in range(K):
                                    for q in range(K // (p + 1)):
                                        score = value[i, r, x, p] + value[r + 1, j, y, q] + rule
                                        if not score > here[K - 1]:
                                            break
                                        at = insert(score, here, to)
                                        to[at, 0], to[at, 1], to[at, 2], to[at, 3], to[at, 4] = r, x, y, p, q
                    for p in range(K):
                        here[p] += log_symbols[b, i, j, a]
        final[:] = -np.inf
        if n > 1:
            for a in range(N):
                for p in range(K):
                    score = log_root[a] + value[0, n - 1, a, p]
                    if not score > final[K - 1]:
                        break
                    at = insert(score, final, origin)
                    origin[at, 0], origin[at, 1] = a, p
        for k in range(K):
            values[b, k] = final[k]
            if final[k] == -np.inf:
                break
            stack[0] = 0, n - 1, origin[k, 0], origin[k, 1]
            top = 1
            while top > 0:
                top -= 1
                i, j, a, rank = stack[top]
                trees[b, k, i, j] = a
                if i < j:
                    r, x, y, p, q = pointers[i, j, a, rank]
                    stack[top] = i, r, x, p
                    stack[top + 1] = r + 1, j, y, q
                    top += 2
