"""Dynamic programs of structured factors: whole chains, and the number of variables that are on."""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_add
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.inference.graph.kernels.log_space import TINY
from trelliswork.inference.graph.kernels.messages import weighted_rows


@helper
def _step(weights, log_table, scores, out, w, acc):
    """out[j] = log sum_i exp(scores[i] + log_table[i, j]); ``weights`` is exp(log_table), flat, with padded rows."""
    S = len(scores)
    shift = exp_row(scores, 0, S, w, 0, len(w))
    weighted_rows(weights, 0, S, len(w), w, 0, acc, 0)
    for j in range(S):
        if acc[j] >= TINY:
            out[j] = math.log(acc[j]) + shift
        else:  # terms may have underflowed: add one by one
            value = -np.inf
            for i in range(S):
                value = log_add(value, scores[i] + log_table[i, j])
            out[j] = value


@kernel
def chain_sums(weights, log_tables, weights_back, log_tables_back, scores, before, after, rows):
    """Fill sums over all labels before (B, T, S) and after (B, T, S) each position, without its own scores.

    ``weights`` (1 or B, 1 or T-1, S * width), ``log_tables`` (1 or B, 1 or T-1, S, S); ``*_back`` transposed; ``rows``
    (3, width) is scratch.
    """
    B, T, S = scores.shape
    total = rows[2, :S]
    for b in range(B):
        g = b if len(weights) > 1 else 0
        before[b, 0] = 0.0
        for t in range(1, T):
            step = t - 1 if weights.shape[1] > 1 else 0
            for j in range(S):
                total[j] = before[b, t - 1, j] + scores[b, t - 1, j]
            _step(weights[g, step], log_tables[g, step], total, before[b, t], rows[0], rows[1])
        after[b, T - 1] = 0.0
        for t in range(T - 2, -1, -1):
            step = t if weights.shape[1] > 1 else 0
            for j in range(S):
                total[j] = after[b, t + 1, j] + scores[b, t + 1, j]
            _step(weights_back[g, step], log_tables_back[g, step], total, after[b, t], rows[0], rows[1])


@kernel
def chain_maxima(log_tables, scores, before, after, best):
    """Fill the same with maxima, and the best labels (B, T); -1 where nothing is possible."""
    B, T, S = scores.shape
    for b in range(B):
        g = b if len(log_tables) > 1 else 0
        before[b, 0] = 0.0
        after[b, T - 1] = 0.0
        for t in range(T - 2, -1, -1):
            table = log_tables[g, t if log_tables.shape[1] > 1 else 0]
            for i in range(S):
                top = -np.inf
                for j in range(S):
                    top = max(top, table[i, j] + (after[b, t + 1, j] + scores[b, t + 1, j]))
                after[b, t, i] = top
        for t in range(1, T):
            table = log_tables[g, t - 1 if log_tables.shape[1] > 1 else 0]
            for j in range(S):
                top = -np.inf
                for i in range(S):
                    top = max(top, before[b, t - 1, i] + scores[b, t - 1, i] + table[i, j])
                before[b, t, j] = top
        last = -1
        for t in range(T):
            top = -np.inf
            arg = -1
            for j in range(S):
                value = scores[b, t, j] + after[b, t, j]
                if t > 0:
                    value += log_tables[g, t - 1 if log_tables.shape[1] > 1 else 0, last, j]
                if value > top:
                    top, arg = value, j
            if arg < 0:
                best[b, :] = -1
                break
            best[b, t] = arg
            last = arg


@helper
def _join(a, b, maximize):
    return max(a, b) if maximize else log_add(a, b)


@kernel
def counts(log_counts, scores, before, after, messages, maximize):
    """Messages (B, k, 2) of a factor that scores the number of variables that are on, from their messages (B, k, 2).

    before[b, i, c]: the first i variables with c of them on; after[b, i, c]: the remaining variables when c are on
    already, with the score of the count. Both (B, k + 1, K + 2), for counts up to K. All terms are positive: nothing is
    subtracted.
    """
    B, k, _ = scores.shape
    K = before.shape[2] - 2
    for b in range(B):
        row = log_counts[b if len(log_counts) > 1 else 0]
        before[b, 0] = -np.inf
        before[b, 0, 0] = 0.0
        for i in range(k):
            before[b, i + 1, K + 1] = -np.inf
            for c in range(K + 1):
                value = before[b, i, c] + scores[b, i, 0]
                if c > 0:
                    value = _join(value, before[b, i, c - 1] + scores[b, i, 1], maximize)
                before[b, i + 1, c] = value
        after[b, k] = -np.inf
        for c in range(K + 1):
            after[b, k, c] = row[c]
        for i in range(k - 1, -1, -1):
            after[b, i, K + 1] = -np.inf  # more than K cannot be on
            for c in range(K + 1):
                after[b, i, c] = _join(
                    after[b, i + 1, c] + scores[b, i, 0], after[b, i + 1, c + 1] + scores[b, i, 1], maximize
                )
        for i in range(k):
            off = on = -np.inf
            for c in range(K + 1):
                off = _join(off, before[b, i, c] + after[b, i + 1, c], maximize)
                on = _join(on, before[b, i, c] + after[b, i + 1, c + 1], maximize)
            messages[b, i, 0] = off
            messages[b, i, 1] = on


@kernel
def best_counts(scores, after, best):
    """Fill 1 for variables (B, k) on in the best assignment, from ``after`` of maxima; -1 if nothing is possible."""
    B, k, _ = scores.shape
    for b in range(B):
        if after[b, 0, 0] == -np.inf:
            best[b, :] = -1
            continue
        c = 0
        for i in range(k):
            off, on = scores[b, i, 0] + after[b, i + 1, c], scores[b, i, 1] + after[b, i + 1, c + 1]
            best[b, i] = 1 if on > off else 0
            c += best[b, i]
