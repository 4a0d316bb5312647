"""Inside-outside of low-rank grammars in log space, for what underflows or is impossible; equations in ``lowrank``."""

import math

import numpy as np

from trelliswork.compute.jit import kernel


@kernel(inline="always")
def _log_add(a, b):
    top = max(a, b)
    return top if top == -np.inf else top + math.log1p(math.exp(min(a, b) - top))


@kernel
def _add_project(matrix, vector, out):
    """out[r] = log(exp(out[r]) + sum_x exp(matrix[r, x] + vector[x]))."""
    for r in range(out.size):
        for x in range(vector.size):
            out[r] = _log_add(out[r], matrix[r, x] + vector[x])


@kernel
def _add_back(matrix, vector, out):
    """out[x] = log(exp(out[x]) + sum_r exp(matrix[r, x] + vector[r]))."""
    for r in range(vector.size):
        for x in range(out.size):
            out[x] = _log_add(out[x], matrix[r, x] + vector[r])


@kernel
def _add_counts(matrix, by, values, weight, counts):
    """counts[r, x] += weight * exp(by[r] + matrix[r, x] + values[x])."""
    for r in range(by.size):
        if by[r] > -np.inf:
            for x in range(values.size):
                counts[r, x] += weight * math.exp(by[r] + matrix[r, x] + values[x])


@kernel
def expectations(
    start, stop, number, lengths, weights, log_root, log_up, log_left, log_right, log_terminals,
    log_z, roots, ups, lefts, rights, spans, terminals, symbols,
):  # fmt: skip
    """Fill log_z, spans, terminals; add weighted counts of a range at ``number``: roots, ups, lefts, rights.

    ``symbols`` (B, n, n, S), if axis 0 is not empty, gets p(symbol over span).
    """
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
                        mix[i, j, r] = _log_add(mix[i, j, r], left[i, k, r] + right[k + 1, j, r])
                _add_project(log_up, mix[i, j], beta[i, j])
                _add_project(log_left[:, :N], beta[i, j], left[i, j])
                _add_project(log_right[:, :N], beta[i, j], right[i, j])
        log_z[b] = -np.inf
        if n > 1:
            for a in range(N):
                log_z[b] = _log_add(log_z[b], log_root[a] + beta[0, n - 1, a])
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
                        by_left[i, k, r] = _log_add(by_left[i, k, r], by_mix[r] + right[k + 1, j, r])
                        by_right[k + 1, j, r] = _log_add(by_right[k + 1, j, r], by_mix[r] + left[i, k, r])
