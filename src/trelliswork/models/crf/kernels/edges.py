"""Compiled objective of linear-chain CRFs whose transitions depend on the observations.

    log_pairwise_t(i, j) = log_transition(i, j) + sum of edge weights
    gradient of an edge weight += p(y_{t-1} = i, y_t = j | x) - [y_{t-1} = i, y_t = j]               (paper 1, eq. 20)

Everything else is as in ``objective``.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.inference.chain.kernels.positions import forward_backward
from trelliswork.inference.chain.kernels.records import Chains, Outputs, Pairwise
from trelliswork.models.crf.kernels.objective import scatter, scores


class EdgeFeatures(NamedTuple):
    """Edge attributes of tokens and their weights.

    Token i has the attributes ``ids[token_ptr[i] : token_ptr[i + 1]]``, which score the pair of labels
    (y_{i-1}, y_i); attribute a has the weights ``weights[ptr[a] : ptr[a + 1]]``, and ``pairs`` at the same indices are
    their label pairs, flat indices into (S, S).
    """

    token_ptr: Any
    ids: Any
    ptr: Any
    pairs: Any
    weights: Any


@kernel(allocates=True)
def edge_scores(start, stop, edges, log_transition, out):
    """Fill out (stop - start - 1, S, S), the transition scores into all tokens of a sentence but the first."""
    for t in range(stop - start - 1):
        out[t] = log_transition
        flat = out[t].reshape(-1)
        i = start + t + 1
        for at in range(edges.token_ptr[i], edges.token_ptr[i + 1]):
            for f in range(edges.ptr[edges.ids[at]], edges.ptr[edges.ids[at] + 1]):
                flat[edges.pairs[f]] += edges.weights[f]


@kernel
def edge_scatter(start, stop, edges, residual, edge_gradient, counts):
    """Add the residuals (stop - start - 1, S, S) of a sentence's edges to the gradients of edges and transitions."""
    for t in range(stop - start - 1):
        flat = residual[t].reshape(-1)
        i = start + t + 1
        for at in range(edges.token_ptr[i], edges.token_ptr[i + 1]):
            for f in range(edges.ptr[edges.ids[at]], edges.ptr[edges.ids[at] + 1]):
                edge_gradient[f] += flat[edges.pairs[f]]
        counts += residual[t]


@kernel(allocates=True)
def loss_gradient(start, stop, sentences, tokens, weights, edges, labels, gradient, edge_gradient, sums):
    """Add loss and gradient of the sentences ``start`` to ``stop``, longest first; mark those that underflow."""
    offsets, gold, weight, extra, extra_ids = sentences
    counts, loss, safe = sums
    log_transition = labels.log_transition
    S, Sw = log_transition.shape[0], labels.start.size
    longest = offsets[start + 1] - offsets[start]
    dtype = weights.wide.dtype
    padded = np.empty((longest, Sw), dtype)
    log_unary = np.empty((1, longest, S), dtype)
    log_pairwise = np.empty((max(1, longest - 1), S, S), dtype)
    marginals = np.empty((1, longest, S), dtype)
    pairs = np.empty((1, max(1, longest - 1), S, S), dtype)
    lengths = np.empty(1, np.int64)
    here = np.zeros(1, np.int64)
    one_weight = np.empty(1, dtype)
    log_z = np.empty(1)
    good = np.empty(1, np.bool_)
    chains, pairwise = Chains(here, lengths, log_unary), Pairwise(log_pairwise, 0, 1)
    out = Outputs(one_weight, here, marginals, np.empty((0, S, S), dtype))
    for s in range(start, stop):
        first, last = offsets[s], offsets[s + 1]
        T = last - first
        lengths[0], one_weight[0], good[0] = T, weight[s], True
        scores(first, last, tokens, weights, S, padded, 0)
        padded[0] += labels.start
        padded[T - 1] += labels.end
        for t in range(T):
            log_unary[0, t] = padded[t, :S]
            if extra_ids.size:
                log_unary[0, t] += extra[extra_ids[first + t], :S]
        edge_scores(first, last, edges, log_transition, log_pairwise)
        forward_backward(0, 1, chains, pairwise, log_z, good, out, pairs)
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
                padded[t, y] -= one_weight[0]
                if t > 0:
                    before = gold[first + t - 1]
                    score += log_pairwise[t - 1, before, y]
                    pairs[0, t - 1, before, y] -= one_weight[0]
        scatter(first, last, padded, 0, tokens, gradient)
        edge_scatter(first, last, edges, pairs[0], edge_gradient, counts[0])
        loss[s] = weight[s] * (log_z[0] - score)
