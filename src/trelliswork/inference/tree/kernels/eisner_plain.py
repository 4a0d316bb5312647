"""Projective trees with logarithms, one sentence at a time: the plain recursion, by log sums or by maxima.

Names are those of ``eisner``. Used where probability space underflows, for the best tree, samples and tree factors.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_add, log_dot
from trelliswork.compute.kernels.random import draw
from trelliswork.inference.tree.kernels.records import Batch


@helper
def fold(a, b, n, maximize):
    """Return the log sum (or the maximum) over k < n of exp(a[k] + b[k])."""
    if not maximize:
        return log_dot(a, b, n)
    top = -np.inf
    for k in range(n):
        top = max(top, a[k] + b[k])
    return top


@helper
def either(a, b, maximize):
    """Return the log sum (or the maximum) of two numbers."""
    return max(a, b) if maximize else log_add(a, b)


@helper
def inside(log_arc, n, single_root, maximize, C, S, I):  # noqa: E741
    """Fill the charts (n+1, n+1) of one sentence; return log Z. A single root leaves -inf in C[0, j], 0 < j < n."""
    for i in range(n + 1):
        C[i, i], I[i, i] = 0.0, -np.inf
    for width in range(1, n + 1):
        for i in range(n + 1 - width):
            j = i + width
            S[i, j] = fold(C[i, i:], C[j, i + 1 :], width, maximize)
            I[i, j] = S[i, j] + log_arc[i, j]
            I[j, i] = S[i, j] + log_arc[j, i] if i > 0 else -np.inf
            C[i, j] = fold(I[i, i + 1 :], C[i + 1 :, j], width, maximize)
            C[j, i] = fold(I[j, i:], C[i:, i], width, maximize)
            if i == 0 and single_root and j < n:
                C[i, j] = -np.inf
    return C[0, n]


@helper
def outside(log_arc, n, single_root, maximize, C, I, OC, OI, OS):  # noqa: E741
    """Fill the logarithms of the derivatives of Z by C, I and S (OS, symmetric)."""
    for i in range(n + 1):
        OC[i, i], OI[i, i], OS[i, i] = -np.inf, -np.inf, -np.inf
    for width in range(n, 0, -1):
        for i in range(n + 1 - width):
            j = i + width
            OC[i, j] = -np.inf
            if i > 0 or not single_root:
                OC[i, j] = fold(OC[:i, j], I[:i, i], i, maximize)
                if j < n:
                    OC[i, j] = either(OC[i, j], fold(OS[i, j + 1 :], C[j + 1 :, j + 1], n - j, maximize), maximize)
            if width == n:
                OC[i, j] = 0.0
            OC[j, i] = fold(OC[j + 1 :, i], I[j + 1 :, j], n - j, maximize)
            if i > 0:
                OC[j, i] = either(OC[j, i], fold(OS[j], C[:, i - 1], i, maximize), maximize)
        for i in range(n + 1 - width):
            j = i + width
            OI[i, j] = fold(OC[i, j:], C[j, j:], n + 1 - j, maximize)
            OI[j, i] = fold(OC[j], C[i], i + 1, maximize)
            OS[i, j] = OI[i, j] + log_arc[i, j]
            if i > 0:
                OS[i, j] = either(OS[i, j], OI[j, i] + log_arc[j, i], maximize)
            OS[j, i] = OS[i, j]


@kernel(allocates=True)
def expectations(start, stop, batch: Batch, log_z, marginals):
    """Fill log_z (B,) and marginals (B, n+1, n+1), zeros where no tree is possible; log Z alone if axis 0 is empty."""
    order, lengths, log_arc, single_root = batch
    N = log_arc.shape[1]
    C, S, I = np.empty((N, N)), np.empty((N, N)), np.empty((N, N))  # noqa: E741
    OC, OI, OS = np.empty((N, N)), np.empty((N, N)), np.empty((N, N))
    for at in range(start, stop):
        b = order[at]
        n = lengths[b]
        z = inside(log_arc[b], n, single_root, False, C, S, I)
        log_z[b] = z
        if marginals.shape[0] == 0:
            continue
        marginals[b] = 0.0
        if z == -np.inf:
            continue
        outside(log_arc[b], n, single_root, False, C, I, OC, OI, OS)
        for h in range(n + 1):
            for d in range(1, n + 1):
                if h != d:
                    marginals[b, h, d] = min(math.exp(OI[h, d] + I[h, d] - z), 1.0)


@helper
def _choose(a, b, n, maximize, state):
    """Return k < n with probability proportional to exp(a[k] + b[k]), or the first best k."""
    if not maximize:
        return draw(a, b, n, log_dot(a, b, n), state)
    best, top = 0, -np.inf
    for k in range(n):
        if a[k] + b[k] > top:
            best, top = k, a[k] + b[k]
    return best


@helper
def _top_down(n, maximize, C, I, stack, state, heads):  # noqa: E741
    """Fill the heads (n,) of a tree from the whole to its parts: the best one, or a random one."""
    stack[0] = 0, n, 1
    top = 1
    while top > 0:
        top -= 1
        h, e, closed = stack[top]
        i, j = min(h, e), max(h, e)
        if h == e:
            continue
        if not closed:
            heads[e - 1] = h
            r = i + _choose(C[i, i:], C[j, i + 1 :], j - i, maximize, state)
            stack[top] = i, r, 1
            stack[top + 1] = j, r + 1, 1
        else:
            if h < e:
                r = i + 1 + _choose(I[i, i + 1 :], C[i + 1 :, j], j - i, maximize, state)
            else:
                r = i + _choose(I[j, i:], C[i:, i], j - i, maximize, state)
            stack[top] = h, r, 0
            stack[top + 1] = r, e, 1
        top += 2


@kernel(allocates=True)
def best(start, stop, batch: Batch, heads, scores):
    """Fill heads (B, n) and scores (B,): Eisner's algorithm; -inf and unchanged heads where no tree is possible."""
    order, lengths, log_arc, single_root = batch
    N = log_arc.shape[1]
    C, S, I = np.empty((N, N)), np.empty((N, N)), np.empty((N, N))  # noqa: E741
    stack, state = np.empty((2 * N, 3), np.int64), np.zeros(1, np.uint64)
    for at in range(start, stop):
        b = order[at]
        scores[b] = inside(log_arc[b], lengths[b], single_root, True, C, S, I)
        if scores[b] > -np.inf:
            _top_down(lengths[b], True, C, I, stack, state, heads[b])


@kernel(allocates=True)
def sample(start, stop, batch: Batch, seeds, log_z, heads):
    """Draw heads (k, B, n); one seed (k, B) per tree."""
    order, lengths, log_arc, single_root = batch
    N = log_arc.shape[1]
    C, S, I = np.empty((N, N)), np.empty((N, N)), np.empty((N, N))  # noqa: E741
    stack, state = np.empty((2 * N, 3), np.int64), np.empty(1, np.uint64)
    for at in range(start, stop):
        b = order[at]
        log_z[b] = inside(log_arc[b], lengths[b], single_root, False, C, S, I)
        if log_z[b] == -np.inf:
            continue
        for k in range(heads.shape[0]):
            state[0] = seeds[k, b]
            _top_down(lengths[b], False, C, I, stack, state, heads[k, b])
