"""Brown clustering: the merging of clusters, compiled.

``counts`` (C + 1, C + 1) are bigrams of clusters, ``left`` and ``right`` (C + 1,) how often a cluster stands first and
second in any bigram of the corpus. The loss of a merge is how much the mutual information of neighbours falls.
"""

import numpy as np

from trelliswork.compute.jit import kernel


@kernel
def _part(n, a, b, total):
    """What one pair of clusters adds to the mutual information."""
    return n / total * np.log(n * total / (a * b)) if n > 0 else 0.0


@kernel
def _both(counts, left, right, i, j, total):
    """Both directions of a pair; a cluster with itself once."""
    found = _part(counts[i, j], left[i], right[j], total)
    return found if i == j else found + _part(counts[j, i], left[j], right[i], total)


@kernel
def _seen(counts, left, right, shared, v, w, d, total):
    """The part of the loss of merging v and w that their bigrams with d make."""
    merged = _part(counts[v, d] + counts[w, d], left[v] + left[w], right[d], total)
    merged += _part(counts[d, v] + counts[d, w], left[d], right[v] + right[w], total)
    return shared[v, d] + shared[w, d] - merged


@kernel
def _loss(counts, left, right, shared, v, w, n, total):
    """The loss of merging v and w among the first n clusters."""
    found = shared[v, v] + shared[w, w] + shared[v, w]
    inside = counts[v, v] + counts[v, w] + counts[w, v] + counts[w, w]
    found -= _part(inside, left[v] + left[w], right[v] + right[w], total)
    for d in range(n):
        if d not in (v, w):
            found += _seen(counts, left, right, shared, v, w, d, total)
    return found


@kernel
def cluster(order, first_out, out, n_out, first_in, inward, n_in, left_words, right_words, n_clusters, total, of_word):
    """Fill ``of_word``: the cluster of each word, -1 for words that are not in ``order``.

    ``order`` are words, most frequent first; ``out[first_out[w] : first_out[w + 1]]`` the words behind w and ``n_out``
    how often; ``inward`` and ``n_in`` those before it.
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
        for at in range(first_out[w], first_out[w + 1]):
            if of_word[out[at]] >= 0:
                counts[new, of_word[out[at]]] += n_out[at]
        for at in range(first_in[w], first_in[w + 1]):
            if of_word[inward[at]] >= 0 and inward[at] != w:
                counts[of_word[inward[at]], new] += n_in[at]
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
        s, t = 0, 1
        least = np.inf
        for v in range(n):
            for x in range(v):
                if losses[v, x] < least:
                    least, s, t = losses[v, x], x, v
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
