"""Compiled merging of clusters for Brown clustering.

``counts`` (C + 1, C + 1) are bigrams of clusters, ``left`` and ``right`` (C + 1,) the counts of clusters as first and
second element of all bigrams. The loss of a merge is the decrease of the mutual information of neighbors.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel


class Neighbors(NamedTuple):
    """Words next to each word: those of w are ``words[first[w] : first[w + 1]]``, with their ``counts``."""

    first: Any
    words: Any
    counts: Any


@helper
def _part(n, a, b, total):
    """Return the contribution of a pair of clusters to the mutual information."""
    return n / total * np.log(n * total / (a * b)) if n > 0 else 0.0


@helper
def _both(counts, left, right, i, j, total):
    """Return the contribution of both directions of a pair; of a cluster with itself once."""
    part = _part(counts[i, j], left[i], right[j], total)
    return part if i == j else part + _part(counts[j, i], left[j], right[i], total)


@helper
def _seen(counts, left, right, shared, v, w, d, total):
    """Return the part of the loss of merging v and w that is due to their bigrams with d."""
    merged = _part(counts[v, d] + counts[w, d], left[v] + left[w], right[d], total)
    merged += _part(counts[d, v] + counts[d, w], left[d], right[v] + right[w], total)
    return shared[v, d] + shared[w, d] - merged


@helper
def _loss(counts, left, right, shared, v, w, n, total):
    """Return the loss of merging v and w among the first n clusters."""
    loss = shared[v, v] + shared[w, w] + shared[v, w]
    inside = counts[v, v] + counts[v, w] + counts[w, v] + counts[w, w]
    loss -= _part(inside, left[v] + left[w], right[v] + right[w], total)
    for d in range(n):
        if d not in (v, w):
            loss += _seen(counts, left, right, shared, v, w, d, total)
    return loss


@kernel
def cluster(order, after, before, left_words, right_words, n_clusters, total, of_word):
    """Set ``of_word`` to the cluster of each word, -1 for words that are not in ``order``.

    ``order`` are words, most frequent first; ``after`` and ``before`` the ``Neighbors`` of words on either side.
    """
    C = n_clusters
    counts = np.zeros((C + 1, C + 1))
    left, right = np.zeros(C + 1), np.zeros(C + 1)
    shared, losses = np.zeros((C + 1, C + 1)), np.full((C + 1, C + 1), np.inf)
    of_word[:] = -1
    for k in range(len(order)):
        w = order[k]
        new = min(k, C)
        of_word[w] = new
        left[new], right[new] = left_words[w], right_words[w]
        for at in range(after.first[w], after.first[w + 1]):
            if of_word[after.words[at]] >= 0:
                counts[new, of_word[after.words[at]]] += after.counts[at]
        for at in range(before.first[w], before.first[w + 1]):
            if of_word[before.words[at]] >= 0 and before.words[at] != w:
                counts[of_word[before.words[at]], new] += before.counts[at]
        n = new + 1
        for d in range(n):
            shared[new, d] = shared[d, new] = _both(counts, left, right, new, d, total)
        for v in range(n):
            for x in range(v):
                if v == new:
                    losses[v, x] = _loss(counts, left, right, shared, v, x, n, total)
                else:
                    losses[v, x] += _seen(counts, left, right, shared, v, x, new, total)
        if n <= C:
            continue
        t, s = divmod(np.argmin(losses), C + 1)  # s < t: losses are infinite elsewhere
        for v in range(n):
            for x in range(v):
                if v not in (s, t) and x not in (s, t):
                    losses[v, x] -= _seen(counts, left, right, shared, v, x, s, total)
                    losses[v, x] -= _seen(counts, left, right, shared, v, x, t, total)
        counts[s] += counts[t]
        counts[:, s] += counts[:, t]
        left[s] += left[t]
        right[s] += right[t]
        if t != C:  # the newest cluster moves to the free place
            counts[t] = counts[C]
            counts[:, t] = counts[:, C]
            left[t], right[t] = left[C], right[C]
            shared[t] = shared[C]
            shared[:, t] = shared[:, C]
            shared[t, t] = shared[C, C]
            for v in range(C):
                if v > t:
                    losses[v, t] = losses[C, v]
                elif v < t:
                    losses[t, v] = losses[C, v]
        counts[C] = 0
        counts[:, C] = 0
        for u in range(len(of_word)):
            if of_word[u] == t:
                of_word[u] = s
            elif of_word[u] == C:
                of_word[u] = t
        for d in range(C):
            shared[s, d] = shared[d, s] = _both(counts, left, right, s, d, total)
        for v in range(C):
            for x in range(v):
                if s in (v, x):
                    losses[v, x] = _loss(counts, left, right, shared, v, x, C, total)
                else:
                    losses[v, x] += _seen(counts, left, right, shared, v, x, s, total)
