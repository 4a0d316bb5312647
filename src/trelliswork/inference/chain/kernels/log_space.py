"""Compiled chain inference in log space, float64: slower than probability space, correct for every input.

Used for sequences that underflow in probability space, for impossible ones, and for k-best and sampling.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel


@helper(allocates=True)
def _sum_over_previous(previous, log_pairwise, out):
    """Compute out[j] = log sum_i exp(previous[i] + log_pairwise[i, j]); -inf where nothing leads to j."""
    S = previous.size
    top = np.full(S, -np.inf)
    for i in range(S):
        if previous[i] > -np.inf:
            for j in range(S):
                top[j] = max(top[j], previous[i] + log_pairwise[i, j])
    out[:] = 0
    for i in range(S):
        if previous[i] > -np.inf:
            for j in range(S):
                if top[j] > -np.inf:
                    out[j] += math.exp(previous[i] + log_pairwise[i, j] - top[j])
    for j in range(S):
        out[j] = math.log(out[j]) + top[j] if top[j] > -np.inf else -np.inf


@helper
def _log_sum(values):
    top = -np.inf
    for v in values:
        top = max(top, v)
    if top == -np.inf:
        return top
    mass = 0.0
    for v in values:
        mass += math.exp(v - top)
    return top + math.log(mass)


@kernel(allocates=True)
def forward(start, stop, lengths, log_unary, pairwise, log_alpha, log_z):
    """Fill log_alpha (B, T, S) and log_z (B,); paper 1, eqs. 8 and 9."""
    log_pairwise, batch_step, time_step = pairwise
    for b in range(start, stop):
        log_alpha[b, 0] = log_unary[b, 0]
        for t in range(1, lengths[b]):
            here = log_alpha[b, t]
            _sum_over_previous(log_alpha[b, t - 1], log_pairwise[b * batch_step + (t - 1) * time_step], here)
            here += log_unary[b, t]
        log_z[b] = _log_sum(log_alpha[b, lengths[b] - 1])


@kernel(allocates=True)
def backward(start, stop, lengths, log_unary, pairwise, log_alpha, log_z, marginals, edges, counts):
    """Fill marginals (B, T, S), edges (B, T-1, S, S) and counts (B, S, S) from zero; paper 1, eqs. 17-21.

    ``edges`` and ``counts`` are left out when their axis 0 is empty. Impossible sequences stay zero.
    """
    log_pairwise, batch_step, time_step = pairwise
    S = log_unary.shape[2]
    log_beta = np.empty(S)
    ahead = np.empty(S)
    for b in range(start, stop):
        if log_z[b] == -np.inf:
            continue
        log_beta[:] = 0
        for t in range(lengths[b] - 1, -1, -1):
            for j in range(S):
                marginals[b, t, j] = math.exp(log_alpha[b, t, j] + log_beta[j] - log_z[b])
            if t == 0:
                break
            ahead[:] = log_unary[b, t] + log_beta
            scores = log_pairwise[b * batch_step + (t - 1) * time_step]
            for i in range(S):
                row = scores[i] + ahead
                log_beta[i] = _log_sum(row)
                a = log_alpha[b, t - 1, i] - log_z[b]
                if a > -np.inf and (edges.shape[0] or counts.shape[0]):
                    for j in range(S):
                        p = math.exp(a + row[j])
                        if edges.shape[0]:
                            edges[b, t - 1, i, j] = p
                        if counts.shape[0]:
                            counts[b, i, j] += p


@kernel(allocates=True)
def sample(start, stop, lengths, pairwise, log_alpha, uniforms, labels):
    """Draw labels (n, B, T) from the last position to the first, with one uniform number in [0, 1) per position."""
    log_pairwise, batch_step, time_step = pairwise
    S = log_alpha.shape[2]
    weights = np.empty(S)
    for b in range(start, stop):
        for k in range(labels.shape[0]):
            j = -1
            for t in range(lengths[b] - 1, -1, -1):
                top = -np.inf
                for i in range(S):
                    weights[i] = log_alpha[b, t, i]
                    if j >= 0:
                        weights[i] += log_pairwise[b * batch_step + t * time_step, i, j]
                    top = max(top, weights[i])
                mass = 0.0
                for i in range(S):
                    weights[i] = math.exp(weights[i] - top)
                    mass += weights[i]
                left = uniforms[k, b, t] * mass
                j = -1
                for i in range(S):
                    if weights[i] > 0:
                        j = i  # the last possible label takes the remainder of rounding
                        left -= weights[i]
                        if left < 0:
                            break
                labels[k, b, t] = j


@kernel(allocates=True)
def topk(start, stop, lengths, log_unary, pairwise, labels, scores):
    """Fill the k best labelings (B, k, T) and scores (B, k), best first; -1 and -inf when there are fewer.

    Each (position, label) keeps its k best prefixes, sorted, with a pointer ``previous label * k + rank``.
    Time O(T S^2 k) in the worst case, usually about O(T S (S + k)): a list is left at its first candidate that is too
    small.
    """
    log_pairwise, batch_step, time_step = pairwise
    S, K = log_unary.shape[2], scores.shape[1]
    longest = 0
    for b in range(start, stop):
        longest = max(longest, lengths[b])
    back = np.empty((longest, S, K), np.int32)
    best = np.empty((S, K))
    ahead = np.empty((S, K))
    for b in range(start, stop):
        best[:] = -np.inf
        best[:, 0] = log_unary[b, 0]
        for t in range(1, lengths[b]):
            ahead[:] = -np.inf
            matrix = log_pairwise[b * batch_step + (t - 1) * time_step]
            for j in range(S):
                here, pointers = ahead[j], back[t, j]
                if log_unary[b, t, j] == -np.inf:
                    continue
                for i in range(S):
                    for rank in range(K):
                        value = best[i, rank] + matrix[i, j]
                        if not value > here[K - 1]:
                            break
                        at = K - 1
                        while at > 0 and value > here[at - 1]:
                            here[at], pointers[at] = here[at - 1], pointers[at - 1]
                            at -= 1
                        here[at], pointers[at] = value, i * K + rank
                for rank in range(K):
                    here[rank] += log_unary[b, t, j]
            best, ahead = ahead, best
        flat = best.copy().reshape(-1)
        for k in range(K):
            state = np.argmax(flat)
            scores[b, k] = flat[state]
            if flat[state] == -np.inf:
                break
            flat[state] = -np.inf
            for t in range(lengths[b] - 1, -1, -1):
                labels[b, k, t] = state // K
                if t > 0:
                    state = back[t, state // K, state % K]


@kernel
def score(start, stop, lengths, log_unary, pairwise, labels, scores):
    """Fill scores (B,): the sum of the potentials along labels (B, T)."""
    log_pairwise, batch_step, time_step = pairwise
    for b in range(start, stop):
        value = np.float64(log_unary[b, 0, labels[b, 0]])
        for t in range(1, lengths[b]):
            value += log_unary[b, t, labels[b, t]]
            value += log_pairwise[b * batch_step + (t - 1) * time_step, labels[b, t - 1], labels[b, t]]
        scores[b] = value
