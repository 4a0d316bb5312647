"""Compiled scores and gradients of transitions that depend on the observations.

log_pairwise_t(i, j) = log_transition(i, j) + sum of edge weights
gradient of an edge weight += p(y_{t-1} = i, y_t = j | x) - [y_{t-1} = i, y_t = j]               (paper 1, eq. 20)
"""

from typing import Any, NamedTuple

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import get, put


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


@kernel
def edge_scores(start, stop, edges, log_transition, out):
    """Fill out (stop - start - 1, S, S), the transition scores into all tokens of a sentence but the first."""
    for t in range(stop - start - 1):
        first, i = t * log_transition.size, start + t + 1
        for k in range(log_transition.size):
            put(out, first + k, get(log_transition, k))
        for at in range(edges.token_ptr[i], edges.token_ptr[i + 1]):
            for f in range(edges.ptr[edges.ids[at]], edges.ptr[edges.ids[at] + 1]):
                pair = first + edges.pairs[f]
                put(out, pair, get(out, pair) + edges.weights[f])


@kernel
def edge_scatter(start, stop, edges, residual, edge_gradient, counts):
    """Add the residuals (stop - start - 1, S, S) of a sentence's edges to the gradients of edges and transitions."""
    for t in range(stop - start - 1):
        first, i = t * counts.size, start + t + 1
        for at in range(edges.token_ptr[i], edges.token_ptr[i + 1]):
            for f in range(edges.ptr[edges.ids[at]], edges.ptr[edges.ids[at] + 1]):
                edge_gradient[f] += get(residual, first + edges.pairs[f])
        for k in range(counts.size):
            put(counts, k, get(counts, k) + get(residual, first + k))
