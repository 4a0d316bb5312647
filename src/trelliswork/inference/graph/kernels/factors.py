"""Dynamic program of a factor that scores the number of variables that are on."""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.inference.graph.kernels.log_space import join


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
                    value = join(value, before[b, i, c - 1] + scores[b, i, 1], maximize)
                before[b, i + 1, c] = value
        after[b, k] = -np.inf
        for c in range(K + 1):
            after[b, k, c] = row[c]
        for i in range(k - 1, -1, -1):
            after[b, i, K + 1] = -np.inf  # more than K cannot be on
            for c in range(K + 1):
                after[b, i, c] = join(
                    after[b, i + 1, c] + scores[b, i, 0], after[b, i + 1, c + 1] + scores[b, i, 1], maximize
                )
        for i in range(k):
            off = on = -np.inf
            for c in range(K + 1):
                off = join(off, before[b, i, c] + after[b, i + 1, c], maximize)
                on = join(on, before[b, i, c] + after[b, i + 1, c + 1], maximize)
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
