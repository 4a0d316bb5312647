"""Projective trees in log space, float64, one sentence at a time: accurate for every input.

Recursions and names are those of ``eisner``. Used where probability space underflows, and for samples.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_add
from trelliswork.compute.kernels.random import uniform
from trelliswork.inference.tree.kernels.records import Batch


@helper(inline="always")
def _log_dot(a, b, n):
    """Return the log of the sum over k < n of exp(a[k] + b[k])."""
    top = -np.inf
    for k in range(n):
        top = max(top, a[k] + b[k])
    if top == -np.inf:
        return top
    mass = 0.0
    for k in range(n):
        mass += math.exp(a[k] + b[k] - top)
    return top + math.log(mass)


@helper
def _inside(log_arc, n, single_root, C, I):  # noqa: E741
    """Fill the charts (n+1, n+1) of one sentence; return log Z. A single root leaves -inf in C[0, j], 0 < j < n."""
    for i in range(n + 1):
        C[i, i], I[i, i] = 0.0, -np.inf
    for width in range(1, n + 1):
        for i in range(n + 1 - width):
            j = i + width
            s = _log_dot(C[i, i:], C[j, i + 1 :], width)
            I[i, j] = s + log_arc[i, j]
            I[j, i] = s + log_arc[j, i] if i > 0 else -np.inf
            C[i, j] = _log_dot(I[i, i + 1 :], C[i + 1 :, j], width)
            C[j, i] = _log_dot(I[j, i:], C[i:, i], width)
            if i == 0 and single_root and j < n:
                C[i, j] = -np.inf
    return C[0, n]


@helper
def _outside(log_arc, n, single_root, C, I, OC, OI, OS):  # noqa: E741
    """Fill the logarithms of the derivatives of Z by C, I and S (OS, symmetric)."""
    for i in range(n + 1):
        OC[i, i], OI[i, i], OS[i, i] = -np.inf, -np.inf, -np.inf
    for width in range(n, 0, -1):
        for i in range(n + 1 - width):
            j = i + width
            OC[i, j] = -np.inf
            if i > 0 or not single_root:
                OC[i, j] = _log_dot(OC[:i, j], I[:i, i], i)
                if j < n:
                    OC[i, j] = log_add(OC[i, j], _log_dot(OS[i, j + 1 :], C[j + 1 :, j + 1], n - j))
            if width == n:
                OC[i, j] = 0.0
            OC[j, i] = _log_dot(OC[j + 1 :, i], I[j + 1 :, j], n - j)
            if i > 0:
                OC[j, i] = log_add(OC[j, i], _log_dot(OS[j], C[:, i - 1], i))
        for i in range(n + 1 - width):
            j = i + width
            OI[i, j] = _log_dot(OC[i, j:], C[j, j:], n + 1 - j)
            OI[j, i] = _log_dot(OC[j], C[i], i + 1)
            OS[i, j] = OI[i, j] + log_arc[i, j]
            if i > 0:
                OS[i, j] = log_add(OS[i, j], OI[j, i] + log_arc[j, i])
            OS[j, i] = OS[i, j]


@kernel
def expectations(start, stop, batch: Batch, log_z, marginals):
    """Fill log_z (B,) and marginals (B, n+1, n+1), zeros where no tree is possible; log Z alone if axis 0 is empty."""
    order, lengths, log_arc, single_root = batch
    N = log_arc.shape[1]
    C, I, OC = np.empty((N, N)), np.empty((N, N)), np.empty((N, N))  # noqa: E741
    OI, OS = np.empty((N, N)), np.empty((N, N))
    for at in range(start, stop):
        b = order[at]
        n = lengths[b]
        z = _inside(log_arc[b], n, single_root, C, I)
        log_z[b] = z
        if marginals.shape[0] == 0:
            continue
        marginals[b] = 0.0
        if z == -np.inf:
            continue
        _outside(log_arc[b], n, single_root, C, I, OC, OI, OS)
        for h in range(n + 1):
            for d in range(1, n + 1):
                if h != d:
                    marginals[b, h, d] = min(math.exp(OI[h, d] + I[h, d] - z), 1.0)


@helper(inline="always")
def _draw(a, b, n, state):
    """Return k < n with probability proportional to exp(a[k] + b[k]); ``state`` belongs to the random generator."""
    total = _log_dot(a, b, n)
    left = uniform(state)
    chosen = -1
    for k in range(n):
        p = math.exp(a[k] + b[k] - total)
        if p > 0:
            chosen = k  # the last possible one absorbs rounding errors
            left -= p
            if left < 0:
                break
    return chosen


@kernel
def sample(start, stop, batch: Batch, seeds, log_z, heads):
    """Draw heads (k, B, n) top down, from the whole to its parts; one seed (k, B) per tree."""
    order, lengths, log_arc, single_root = batch
    N = log_arc.shape[1]
    C, I = np.empty((N, N)), np.empty((N, N))  # noqa: E741
    stack = np.empty((2 * N, 3), np.int64)
    state = np.empty(1, np.uint64)
    for at in range(start, stop):
        b = order[at]
        n = lengths[b]
        log_z[b] = _inside(log_arc[b], n, single_root, C, I)
        if log_z[b] == -np.inf:
            continue
        for k in range(heads.shape[0]):
            state[0] = seeds[k, b]
            stack[0] = 0, n, 1
            top = 1
            while top > 0:
                top -= 1
                h, e, closed = stack[top]
                i, j = min(h, e), max(h, e)
                if h == e:
                    continue
                if closed:
                    if h < e:
                        r = i + 1 + _draw(I[i, i + 1 :], C[i + 1 :, j], j - i, state)
                    else:
                        r = i + _draw(I[j, i:], C[i:, i], j - i, state)
                    stack[top] = h, r, 0
                    stack[top + 1] = r, e, 1
                else:
                    heads[k, b, e - 1] = h
                    r = i + _draw(C[i, i:], C[j, i + 1 :], j - i, state)
                    stack[top] = i, r, 1
                    stack[top + 1] = j, r + 1, 1
                top += 2
