"""Compiled forward-backward of linear chains in log space, float64: slower than probability space, never wrong.

Used for sequences that underflow in probability space, for impossible ones, for samples and for segments. Equation
numbers are those of ``reference``.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_dot


class Messages(NamedTuple):
    """Results of both passes; arbitrary in the padding."""

    log_alpha: Any  # (B, T, S)
    log_beta: Any  # (B, T, S), or left out if axis 0 is empty
    log_z: Any  # (B,)


@helper(allocates=True)
def _scores(pairwise, b, t):
    """Return the transition scores (S, S) from t to t+1."""
    return pairwise.log_pairwise[b * pairwise.batch_step + t * pairwise.time_step]


@kernel(allocates=True)
def messages(start, stop, lengths, log_unary, pairwise, out):
    """Fill the ``Messages`` of sequences start..stop."""
    log_alpha, log_beta, log_z = out
    S = log_unary.shape[2]
    ahead = np.empty(S)
    for b in range(start, stop):
        last = lengths[b] - 1
        log_alpha[b, 0] = log_unary[b, 0]  # (1)
        for t in range(1, last + 1):
            scores = _scores(pairwise, b, t - 1)
            for j in range(S):
                log_alpha[b, t, j] = log_unary[b, t, j] + log_dot(log_alpha[b, t - 1], scores[:, j], S)  # (2)
        ahead[:] = 0
        log_z[b] = log_dot(log_alpha[b, last], ahead, S)  # (3)
        if log_beta.shape[0]:
            log_beta[b, last] = 0  # (4)
        for t in range(last - 1 if log_beta.shape[0] else -1, -1, -1):
            scores = _scores(pairwise, b, t)
            ahead[:] = log_unary[b, t + 1] + log_beta[b, t + 1]
            for i in range(S):
                log_beta[b, t, i] = log_dot(scores[i], ahead, S)  # (5)


@kernel(allocates=True)
def expectations(start, stop, lengths, log_unary, pairwise, passed, marginals, edges, counts):
    """Fill marginals (B, T, S), edges (B, T-1, S, S) and counts (B, S, S) from zero and from `Messages`.

    ``edges`` and ``counts`` are left out when their axis 0 is empty. Impossible sequences stay zero.
    """
    log_alpha, log_beta, log_z = passed
    S = log_unary.shape[2]
    for b in range(start, stop):
        for t in range(lengths[b] if log_z[b] > -np.inf else 0):
            marginals[b, t] = np.exp(log_alpha[b, t] + log_beta[b, t] - log_z[b])  # (6)
            for i in range(S if t > 0 and (edges.shape[0] or counts.shape[0]) else 0):
                before = log_alpha[b, t - 1, i] - log_z[b]
                if before > -np.inf:
                    row = np.exp(before + _scores(pairwise, b, t - 1)[i] + log_unary[b, t] + log_beta[b, t])  # (7)
                    if edges.shape[0]:
                        edges[b, t - 1, i] = row
                    if counts.shape[0]:
                        counts[b, i] += row


@kernel(allocates=True)
def products(start, stop, left, matrices, which, out):
    """Fill rows start..stop of out[n, j] = log sum_i exp(left[n, i] + matrices[which[n], i, j])."""
    S = left.shape[1]
    for n in range(start, stop):
        for j in range(S):
            out[n, j] = log_dot(left[n], matrices[which[n], :, j], S)
