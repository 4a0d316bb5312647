"""Inside-outside of low-rank grammars in log space, for sentences that underflow; equations in ``span.lowrank``."""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_add


class Scores(NamedTuple):
    """The arrays of ``LowRankGrammar``, and the weights of the sentences in the sums."""

    log_root: Any  # (N,)
    log_up: Any  # (N, R)
    log_left: Any  # (R, S)
    log_right: Any  # (R, S)
    log_terminals: Any  # (B, n, P)
    lengths: Any  # (B,)
    weights: Any  # (B,)


class Sums(NamedTuple):
    """Expected uses of the factors' entries, weighted; one row per range of sentences."""

    roots: Any  # (ranges, N)
    ups: Any  # (ranges, N, R)
    lefts: Any  # (ranges, R, S)
    rights: Any  # (ranges, R, S)


class Output(NamedTuple):
    """Results of each sentence."""

    log_z: Any  # (B,)
    spans: Any  # (B, n, n)
    terminals: Any  # (B, n, P)
    symbols: Any  # (B, n, n, S), or with an empty axis 0


@helper
def _add_project(matrix, vector, out):
    """Add sum_x exp(matrix[r, x] + vector[x]) to exp(out[r]), in logarithms."""
    for r in range(out.size):
        for x in range(vector.size):
            out[r] = log_add(out[r], matrix[r, x] + vector[x])


@helper
def _add_back(matrix, vector, out):
    """Add sum_r exp(matrix[r, x] + vector[r]) to exp(out[x]), in logarithms."""
    for r in range(vector.size):
        for x in range(out.size):
            out[x] = log_add(out[x], matrix[r, x] + vector[r])


@helper
def _add_counts(matrix, by, values, weight, counts):
    """Add weight * exp(by[r] + matrix[r, x] + values[x]) to counts[r, x]."""
    for r in range(by.size):
        if by[r] > -np.inf:
            for x in range(values.size):
                counts[r, x] += weight * math.exp(by[r] + matrix[r, x] + values[x])


@kernel(allocates=True)
def expectations(start, stop, number, scores: Scores, sums: Sums, out: Output):
    """Fill the results of sentences start..stop; add their weighted counts to row ``number`` of the sums."""
    log_root, log_up, log_left, log_right, log_terminals, lengths, weights = scores
    roots, ups, lefts, rights = sums
    log_z, spans, terminals, symbols = out
    N, R = log_up.shape
    P, n = log_terminals.shape[2], log_terminals.shape[1]
    up_t = np.ascontiguousarray(log_up.T)
    beta, by_beta = np.empty((n, n, N)), np.empty((n, n, N))
    left, right, mix = np.empty((n, n, R)), np.empty((n, n, R)), np.empty((n, n, R))
    by_left, by_right, by_mix, by_leaf = np.empty((n, n, R)), np.empty((n, n, R)), np.empty(R), np.empty(P)
    for b in range(start, stop):
        n, weight = lengths[b], weights[b]
        left[:], right[:], mix[:], beta[:] = -np.inf, -np.inf, -np.inf, -np.inf
        for i in range(n):
            _add_project(log_left[:, N:], log_terminals[b, i], left[i, i])
            _add_project(log_right[:, N:], log_terminals[b, i], right[i, i])
        for width in range(2, n + 1):
            for i in range(n + 1 - width):
                j = i + width - 1
                for k in range(i, j):
                    for r in range(R):
                        mix[i, j, r] = log_add(mix[i, j, r], left[i, k, r] + right[k + 1, j, r])
                _add_project(log_up, mix[i, j], beta[i, j])
                _add_project(log_left[:, :N], beta[i, j], left[i, j])
                _add_project(log_right[:, :N], beta[i, j], right[i, j])
        log_z[b] = -np.inf
        if n > 1:
            for a in range(N):
                log_z[b] = log_add(log_z[b], log_root[a] + beta[0, n - 1, a])
        if log_z[b] == -np.inf:
            continue
        by_left[:], by_right[:], by_beta[:] = -np.inf, -np.inf, -np.inf
        for a in range(N):
            by_beta[0, n - 1, a] = log_root[a] - log_z[b]
            roots[number, a] += weight * math.exp(by_beta[0, n - 1, a] + beta[0, n - 1, a])
        for width in range(n, 0, -1):
            for i in range(n + 1 - width):
                j = i + width - 1
                if width == 1:
                    by_leaf[:] = -np.inf
                    _add_back(log_left[:, N:], by_left[i, i], by_leaf)
                    _add_back(log_right[:, N:], by_right[i, i], by_leaf)
                    _add_counts(log_left[:, N:], by_left[i, i], log_terminals[b, i], weight, lefts[number, :, N:])
                    _add_counts(log_right[:, N:], by_right[i, i], log_terminals[b, i], weight, rights[number, :, N:])
                    spans[b, i, i] = 1.0
                    for x in range(P):
                        terminals[b, i, x] = math.exp(by_leaf[x] + log_terminals[b, i, x])
                    if symbols.shape[0]:
                        symbols[b, i, i, N:] = terminals[b, i]
                    continue
                _add_back(log_left[:, :N], by_left[i, j], by_beta[i, j])
                _add_back(log_right[:, :N], by_right[i, j], by_beta[i, j])
                _add_counts(log_left[:, :N], by_left[i, j], beta[i, j], weight, lefts[number, :, :N])
                _add_counts(log_right[:, :N], by_right[i, j], beta[i, j], weight, rights[number, :, :N])
                _add_counts(log_up, by_beta[i, j], mix[i, j], weight, ups[number])
                spans[b, i, j] = 0.0
                for a in range(N):
                    p = math.exp(by_beta[i, j, a] + beta[i, j, a])
                    spans[b, i, j] += p
                    if symbols.shape[0]:
                        symbols[b, i, j, a] = p
                by_mix[:] = -np.inf
                _add_project(up_t, by_beta[i, j], by_mix)
                for k in range(i, j):
                    for r in range(R):
                        by_left[i, k, r] = log_add(by_left[i, k, r], by_mix[r] + right[k + 1, j, r])
                        by_right[k + 1, j, r] = log_add(by_right[k + 1, j, r], by_mix[r] + left[i, k, r])
