"""Compiled objective of linear-chain CRFs whose transitions depend on the observations.

Token i has the edge attributes ``edge_ids[edge_token_ptr[i]:edge_token_ptr[i+1]]``, which score the pair of labels
(y_{i-1}, y_i); attribute a has the weights ``edge[edge_ptr[a]:edge_ptr[a+1]]`` for the pairs ``edge_pairs`` beside
them, flat indices into (S, S). Everything else is as in ``crf_kernels``.

    log_pairwise_t(i, j) = log_transition(i, j) + sum of edge weights
    gradient of an edge weight += p(y_{t-1} = i, y_t = j | x) - [y_{t-1} = i, y_t = j]               (paper 1, eq. 20)
"""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.inference.chain.kernels.positions import backward, forward
from trelliswork.models.crf.kernels.objective import scatter, scores


@kernel
def edge_scores(start, stop, edge_token_ptr, edge_ids, edge_ptr, edge_pairs, edge, log_transition, out):
    """Transition scores into tokens ``start + 1`` to ``stop - 1`` of one sentence: out (stop - start - 1, S, S)."""
    for t in range(stop - start - 1):
        out[t] = log_transition
        flat = out[t].reshape(-1)
        i = start + t + 1
        for at in range(edge_token_ptr[i], edge_token_ptr[i + 1]):
            for f in range(edge_ptr[edge_ids[at]], edge_ptr[edge_ids[at] + 1]):
                flat[edge_pairs[f]] += edge[f]


@kernel
def edge_scatter(start, stop, edge_token_ptr, edge_ids, edge_ptr, edge_pairs, residual, edge_gradient, counts):
    """Add the residuals (stop - start - 1, S, S) of a sentence's edges to the gradients of edges and transitions."""
    for t in range(stop - start - 1):
        flat = residual[t].reshape(-1)
        i = start + t + 1
        for at in range(edge_token_ptr[i], edge_token_ptr[i + 1]):
            for f in range(edge_ptr[edge_ids[at]], edge_ptr[edge_ids[at] + 1]):
                edge_gradient[f] += flat[edge_pairs[f]]
        counts += residual[t]


@kernel
def loss_gradient(
    start, stop, offsets, gold, weight, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
    edge_token_ptr, edge_ids, wide, narrow, narrow_labels, edge_ptr, edge_pairs, edge, start_scores, end_scores,
    extra, extra_ids, n_labels, limit, log_transition,
    wide_gradient, narrow_gradient, edge_gradient, counts, loss, safe,
):  # fmt: skip
    """Add loss and gradient of the sentences ``start`` to ``stop``, longest first; mark those that underflow.

    As ``crf_kernels.loss_gradient``, with an ``edge_gradient`` besides; ``counts`` is (S, S).
    """
    S, Sw = n_labels, wide.shape[1]
    longest = offsets[start + 1] - offsets[start]
    dtype = wide.dtype
    padded = np.empty((longest, Sw), dtype)
    log_unary = np.empty((1, longest, S), dtype)
    log_pairwise = np.empty((max(1, longest - 1), S, S), dtype)
    emission = np.empty((1, longest, Sw), dtype)
    alpha = np.empty((1, longest, Sw), dtype)
    scale = np.empty((1, longest), dtype)
    marginals = np.empty((1, longest, S), dtype)
    edges = np.empty((1, max(1, longest - 1), S, S), dtype)
    lengths = np.empty(1, np.int64)
    here = np.zeros(1, np.int64)
    weights = np.empty(1, dtype)
    log_z = np.empty(1)
    good = np.empty(1, np.bool_)
    no_counts = np.empty((0, S, S), dtype)
    for s in range(start, stop):
        first, last = offsets[s], offsets[s + 1]
        T = last - first
        lengths[0], weights[0], good[0] = T, weight[s], True
        scores(
            first, last, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
            wide, narrow, narrow_labels, n_labels, padded, 0,
        )  # fmt: skip
        padded[0] += start_scores
        padded[T - 1] += end_scores
        for t in range(T):
            log_unary[0, t] = padded[t, :S]
            if extra_ids.size:
                log_unary[0, t] += extra[extra_ids[first + t], :S]
        edge_scores(first, last, edge_token_ptr, edge_ids, edge_ptr, edge_pairs, edge, log_transition, log_pairwise)
        forward(0, 1, here, lengths, log_unary, log_pairwise, 0, 1, here, emission, alpha, scale, log_z)
        good[0] = log_z[0] > -np.inf
        backward(
            0, 1, here, lengths, log_pairwise, 0, 1, limit, weights, here, here, emission, alpha, scale, good,
            marginals, edges, no_counts,
        )  # fmt: skip
        safe[s] = good[0]
        if not good[0]:
            continue
        score = 0.0
        padded[:T] = 0
        for t in range(T):
            padded[t, :S] = marginals[0, t]
            y = gold[first + t]
            if y >= 0:
                score += log_unary[0, t, y]
                padded[t, y] -= weights[0]
                if t > 0:
                    before = gold[first + t - 1]
                    score += log_pairwise[t - 1, before, y]
                    edges[0, t - 1, before, y] -= weights[0]
        scatter(
            first, last, padded, 0, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
            narrow_labels, wide_gradient, narrow_gradient,
        )  # fmt: skip
        edge_scatter(first, last, edge_token_ptr, edge_ids, edge_ptr, edge_pairs, edges[0], edge_gradient, counts)
        loss[s] = weight[s] * (log_z[0] - score)
