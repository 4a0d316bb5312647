"""The k best projective trees, one sentence at a time; charts as in ``eisner``."""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.kernels.merge import merge
from trelliswork.inference.tree.kernels.records import Batch


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
