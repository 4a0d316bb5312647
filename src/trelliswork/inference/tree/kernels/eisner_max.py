"""The best and the k best projective trees, one sentence at a time; charts as in ``eisner``."""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.kernels.merge import merge
from trelliswork.inference.tree.kernels.records import Batch


@kernel(allocates=True)
def best(start, stop, batch: Batch, heads, scores):
    """Fill heads (B, n) and scores (B,): Eisner's algorithm; -inf and unchanged heads where no tree is possible."""
    order, lengths, log_arc, single_root = batch
    N = log_arc.shape[1]
    C, I = np.empty((N, N)), np.empty((N, N))  # noqa: E741
    split_c, split_i = np.empty((N, N), np.int64), np.empty((N, N), np.int64)
    stack = np.empty((2 * N, 3), np.int64)
    for at in range(start, stop):
        b = order[at]
        n, arc = lengths[b], log_arc[b]
        for i in range(n + 1):
            C[i, i], I[i, i] = 0.0, -np.inf
        for width in range(1, n + 1):
            for i in range(n + 1 - width):
                j = i + width
                value, where = -np.inf, i
                for r in range(i, j):
                    if C[i, r] + C[j, r + 1] > value:
                        value, where = C[i, r] + C[j, r + 1], r
                I[i, j], split_i[i, j] = value + arc[i, j], where
                I[j, i], split_i[j, i] = value + arc[j, i] if i > 0 else -np.inf, where
                value, where = -np.inf, j
                for r in range(i + 1, j + 1):
                    if I[i, r] + C[r, j] > value:
                        value, where = I[i, r] + C[r, j], r
                if i == 0 and single_root and j < n:
                    value = -np.inf
                C[i, j], split_c[i, j] = value, where
                value, where = -np.inf, i
                for r in range(i, j):
                    if I[j, r] + C[r, i] > value:
                        value, where = I[j, r] + C[r, i], r
                C[j, i], split_c[j, i] = value, where
        scores[b] = C[0, n]
        if scores[b] == -np.inf:
            continue
        stack[0] = 0, n, 1
        top = 1
        while top > 0:
            top -= 1
            h, e, closed = stack[top]
            if h == e:
                continue
            if closed:
                r = split_c[h, e]
                stack[top] = h, r, 0
                stack[top + 1] = r, e, 1
            else:
                heads[b, e - 1] = h
                r = split_i[h, e]
                stack[top] = min(h, e), r, 1
                stack[top + 1] = max(h, e), r + 1, 1
            top += 2


@kernel(allocates=True)
def topk(start, stop, batch: Batch, heads, ranks, scores):
    """Fill heads (B, k, n) and scores (B, k) of the k best trees, best first; -1 and -inf if there are fewer.

    ``log_arc`` (B, n+1, n+1, R) holds the scores of the R best labels of each arc, sorted; ``ranks`` (B, k, n) are the
    indices of the chosen ones. Every tree has one derivation, so all trees differ. Time O(n^3 k log k) at worst.
    """
    order, lengths, log_arc, single_root = batch
    N, K = log_arc.shape[1], scores.shape[1]
    S, C, I = np.empty((N, N, K)), np.empty((N, N, K)), np.empty((N, N, K))  # noqa: E741
    to_s, to_c = np.empty((N, N, K, 3), np.int64), np.empty((N, N, K, 3), np.int64)
    to_i = np.empty((N, N, K, 3), np.int64)
    stack = np.empty((2 * N, 4), np.int64)
    for at in range(start, stop):
        b = order[at]
        n, arc = lengths[b], log_arc[b]
        S[:] = -np.inf
        C[:] = -np.inf
        I[:] = -np.inf
        for i in range(n + 1):
            C[i, i, 0] = 0.0
        for width in range(1, n + 1):
            for i in range(n + 1 - width):
                j = i + width
                for r in range(i, j):
                    merge(C[i, r], C[j, r + 1], r, S[i, j], to_s[i, j])
                merge(S[i, j], arc[i, j], 0, I[i, j], to_i[i, j])
                if i > 0:
                    merge(S[i, j], arc[j, i], 0, I[j, i], to_i[j, i])
                if i > 0 or not single_root or j == n:
                    for r in range(i + 1, j + 1):
                        merge(I[i, r], C[r, j], r, C[i, j], to_c[i, j])
                for r in range(i, j):
                    merge(I[j, r], C[r, i], r, C[j, i], to_c[j, i])
        for k in range(K):
            scores[b, k] = C[0, n, k]
            if scores[b, k] == -np.inf:
                break
            stack[0] = 0, n, 1, k
            top = 1
            while top > 0:
                top -= 1
                h, e, closed, rank = stack[top]
                if h == e:
                    continue
                if closed:
                    r, first, second = to_c[h, e, rank]
                    stack[top] = h, r, 0, first
                    stack[top + 1] = r, e, 1, second
                else:
                    i, j = min(h, e), max(h, e)
                    heads[b, k, e - 1], ranks[b, k, e - 1] = h, to_i[h, e, rank, 2]
                    r, first, second = to_s[i, j, to_i[h, e, rank, 1]]
                    stack[top] = i, r, 1, first
                    stack[top + 1] = j, r + 1, 1, second
                top += 2
