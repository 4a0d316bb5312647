"""Binary bracketings in log space, float64, one sentence at a time: accurate for every input.

Positions are 0..n-1 and a span i..j includes both ends. A bracketing of n positions has n spans of one position and n-1
longer ones, each composed of two neighbors:

    I[i, j] = s[i, j] + log sum_r exp(I[i, r] + I[r+1, j]),    I[i, i] = s[i, i],    log Z = I[0, n-1]
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_add, log_dot
from trelliswork.compute.kernels.merge import merge
from trelliswork.compute.kernels.random import draw


@helper
def _inside(log_span, n, chart):
    """Fill chart (n, n) of one sentence; return log Z."""
    for i in range(n):
        chart[i, i] = log_span[i, i]
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            chart[i, j] = log_dot(chart[i, i:], chart[i + 1 :, j], width) + log_span[i, j]
    return chart[0, n - 1]


@kernel(allocates=True)
def expectations(start, stop, lengths, log_span, log_z, marginals):
    """Fill log_z (B,) and marginals (B, n, n), zeros where no bracketing is possible."""
    n = log_span.shape[1]
    chart, out = np.empty((n, n)), np.empty((n, n))
    for b in range(start, stop):
        n, score = lengths[b], log_span[b]
        log_z[b] = _inside(score, n, chart)
        marginals[b] = 0.0
        if log_z[b] == -np.inf:
            continue
        out[:n, :n] = -np.inf
        out[0, n - 1] = -log_z[b]
        for width in range(n - 1, -1, -1):
            for i in range(n - width):
                j = i + width
                if out[i, j] == -np.inf or chart[i, j] == -np.inf:
                    continue
                marginals[b, i, j] = math.exp(out[i, j] + chart[i, j])
                above = out[i, j] + score[i, j]
                for r in range(i, j):
                    out[i, r] = log_add(out[i, r], above + chart[r + 1, j])
                    out[r + 1, j] = log_add(out[r + 1, j], above + chart[i, r])


@kernel(allocates=True)
def sample(start, stop, lengths, log_span, seeds, log_z, charts):
    """Draw bracketings (k, B, n, n) top down, 0 at their spans; one seed (k, B) per draw."""
    n = log_span.shape[1]
    chart, stack, state = np.empty((n, n)), np.empty((2 * n, 2), np.int64), np.empty(1, np.uint64)
    for b in range(start, stop):
        n, score = lengths[b], log_span[b]
        log_z[b] = _inside(score, n, chart)
        if log_z[b] == -np.inf:
            continue
        for k in range(charts.shape[0]):
            state[0] = seeds[k, b]
            stack[0] = 0, n - 1
            top = 1
            while top > 0:
                top -= 1
                i, j = stack[top]
                charts[k, b, i, j] = 0
                if i == j:
                    continue
                split = i + draw(chart[i, i:], chart[i + 1 :, j], j - i, chart[i, j] - score[i, j], state)
                stack[top] = i, split
                stack[top + 1] = split + 1, j
                top += 2


@kernel(allocates=True)
def topk(start, stop, lengths, log_span, charts, scores):
    """Fill charts (B, k, n, n) of the k best bracketings, with the rank of each span's label, and scores (B, k).

    ``log_span`` (B, n, n, R) holds the scores of the R best labels of each span, sorted.
    """
    n, K = log_span.shape[1], scores.shape[1]
    inner, value = np.empty((n, n, K)), np.empty((n, n, K))
    to_inner, to_value = np.empty((n, n, K, 3), np.int64), np.empty((n, n, K, 3), np.int64)
    stack = np.empty((2 * n, 3), np.int64)
    for b in range(start, stop):
        n, score = lengths[b], log_span[b]
        inner[:], value[:] = -np.inf, -np.inf
        for i in range(n):
            inner[i, i, 0] = 0.0
        for width in range(n):
            for i in range(n - width):
                j = i + width
                for r in range(i, j):
                    merge(value[i, r], value[r + 1, j], r, inner[i, j], to_inner[i, j])
                merge(inner[i, j], score[i, j], 0, value[i, j], to_value[i, j])
        for k in range(K):
            scores[b, k] = value[0, n - 1, k]
            if scores[b, k] == -np.inf:
                break
            stack[0] = 0, n - 1, k
            top = 1
            while top > 0:
                top -= 1
                i, j, rank = stack[top]
                charts[b, k, i, j] = to_value[i, j, rank, 2]
                if i < j:
                    r, first, second = to_inner[i, j, to_value[i, j, rank, 1]]
                    stack[top] = i, r, first
                    stack[top + 1] = r + 1, j, second
                    top += 2
