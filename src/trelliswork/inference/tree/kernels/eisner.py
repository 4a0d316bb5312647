r"""Projective trees in probability space: Eisner's recursions, sentences in the lanes of SIMD vectors.

Weights are :math:`w_{hd} = \exp(s_{hd} - c_d)`: a word has one head, so one shift :math:`c_d` per column loses nothing.
For nodes i < j, :math:`C_{he}` is the sum over trees with head h that reach from h to e (all its words on that side),
and :math:`I_{hd}` the sum over those whose outermost arc is h -> d and that are open at d:

.. math::
    S_{ij} &= \sum_{i \le r < j} C_{ir} C_{j,r+1}, \quad I_{ij} = w_{ij} S_{ij}, \quad I_{ji} = w_{ji} S_{ij} \\
    C_{ij} &= \sum_{i < r \le j} I_{ir} C_{rj}, \quad C_{ji} = \sum_{i \le r < j} I_{jr} C_{ri}, \quad Z = C_{0n}

With a single root, node 0 has one arc: :math:`C_{0j} = 0` for 0 < j < n. The outside pass is the derivative of log Z;
each entry is one dot product, so nothing is updated in place. Matrices whose columns are summed are also stored
transposed: all sums run over contiguous memory.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import add, exponential, get, lanes, load, multiply, multiply_add, put, spread, store
from trelliswork.inference.tree.kernels.records import LIMIT, Batch


class Inside(NamedTuple):
    """Weights and inside charts, flat (M, M, W); ``CT`` and ``IT`` are transposes, ``IT`` is filled for `_outside`."""

    w: Any
    C: Any
    CT: Any
    I: Any  # noqa: E741
    IT: Any
    S: Any


class Outside(NamedTuple):
    """Derivatives of log Z by C, I and S (symmetric), flat (M, M, W); ``OCT`` is the transpose of ``OC``."""

    OC: Any
    OCT: Any
    OI: Any
    OS: Any


@helper(inline="always")
def _dot(a, at, b, bt, n, zero):
    """Return the sum over k < n of a[at + k] * b[bt + k], counted in vectors; two independent chains of additions."""
    W = lanes(a)
    first, second = zero, zero
    p, q = at * W, bt * W
    for _ in range(n // 2):
        first = multiply_add(load(a, p), load(b, q), first)
        second = multiply_add(load(a, p + W), load(b, q + W), second)
        p += 2 * W
        q += 2 * W
    if n % 2:
        first = multiply_add(load(a, p), load(b, q), first)
    return add(first, second)


@helper
def column_shifts(log_arc, n, tops):
    """Fill tops (n+1,), the largest score of an arc into each word, 0 if it has none; return the sum of the scores."""
    for d in range(n + 1):
        tops[d] = -np.inf
    for h in range(n + 1):
        for d in range(n + 1):
            tops[d] = max(tops[d], log_arc[h, d] if h != d else -np.inf)
    total = 0.0
    for d in range(1, n + 1):
        total += tops[d]
        if tops[d] == -np.inf:
            tops[d] = 0.0
    return total


@helper
def _weigh(log_arc, b, n, M, tops, lane, W, w):
    """Fill lane ``lane`` of the log weights w (M, M, W), -inf outside the sentence; return the sum of the shifts."""
    total = column_shifts(log_arc[b], n, tops)
    for h in range(M):
        put(w, h * M * W + lane, -np.inf)
        for d in range(1, M):
            value = log_arc[b, h, d] - tops[d] if h <= n and d <= n and h != d else -np.inf
            put(w, (h * M + d) * W + lane, value)
    return total


@helper
def _inside(M, single_root, charts: Inside, Z, zero, one):
    """Fill the charts; Z[e] (M, W) is C[0, e], which a single root then removes from the chart."""
    w, C, CT, I, _, S = charts  # noqa: E741
    W = lanes(w)
    for i in range(M):
        store(C, (i * M + i) * W, one)
        store(CT, (i * M + i) * W, one)
        store(I, (i * M + i) * W, zero)
        store(S, (i * M + i) * W, zero)
    for width in range(1, M):
        for i in range(M - width):
            j = i + width
            s = _dot(C, i * M + i, C, j * M + i + 1, width, zero)
            store(S, (i * M + j) * W, s)
            store(I, (i * M + j) * W, multiply(s, load(w, (i * M + j) * W)))
            store(I, (j * M + i) * W, multiply(s, load(w, (j * M + i) * W)))
            right = _dot(I, i * M + i + 1, CT, j * M + i + 1, width, zero)
            left = _dot(I, j * M + i, CT, i * M + i, width, zero)
            if i == 0:
                store(Z, j * W, right)
                if single_root:
                    right = zero
            store(C, (i * M + j) * W, right)
            store(CT, (j * M + i) * W, right)
            store(C, (j * M + i) * W, left)
            store(CT, (i * M + j) * W, left)


@helper
def _outside(M, single_root, charts: Inside, seed, derivatives: Outside, zero):
    """Fill the derivatives of log Z; seed[e] (M, W) is the one by C[0, e]."""
    w, C, CT, _, IT, _ = charts
    OC, OCT, OI, OS = derivatives
    W = lanes(w)
    for i in range(M):
        for array in (OC, OCT, OI, OS):
            store(array, (i * M + i) * W, zero)
    for width in range(M - 1, 0, -1):
        for i in range(M - width):
            j = i + width
            right = zero
            if i > 0 or not single_root:
                right = add(
                    _dot(OCT, j * M, IT, i * M, i, zero),
                    _dot(OS, i * M + j + 1, CT, (j + 1) * M + j + 1, M - 1 - j, zero) if j + 1 < M else zero,
                )
            if i == 0:
                right = add(right, load(seed, j * W))
            left = add(
                _dot(OCT, i * M + j + 1, IT, j * M + j + 1, M - 1 - j, zero),
                _dot(OS, j * M, CT, (i - 1) * M, i, zero) if i > 0 else zero,
            )
            store(OC, (i * M + j) * W, right)
            store(OCT, (j * M + i) * W, right)
            store(OC, (j * M + i) * W, left)
            store(OCT, (i * M + j) * W, left)
        for i in range(M - width):
            j = i + width
            right = _dot(OC, i * M + j, C, j * M + j, M - j, zero)
            left = _dot(OC, j * M, C, i * M, i + 1, zero)
            store(OI, (i * M + j) * W, right)
            store(OI, (j * M + i) * W, left)
            s = multiply_add(right, load(w, (i * M + j) * W), multiply(left, load(w, (j * M + i) * W)))
            store(OS, (i * M + j) * W, s)
            store(OS, (j * M + i) * W, s)


@helper
def _transpose(M, source, target):
    """Copy the transpose of a chart (M, M, W)."""
    W = lanes(source)
    for i in range(M):
        for j in range(M):
            store(target, (j * M + i) * W, load(source, (i * M + j) * W))


@helper
def _sum(M, chart, total):
    """Add all entries of a chart (M, M, W) to a vector."""
    W = lanes(chart)
    for p in range(0, M * M * W, W):
        total = add(total, load(chart, p))
    return total


@kernel(allocates=True)
def expectations(start, stop, batch: Batch, log_z, safe, marginals):
    """Fill log_z (B,) and marginals (B, n+1, n+1) of sentences ``order[start:stop]``, zeros in the padding.

    ``safe`` (B,) becomes False where underflow may have lost significant mass: a product below the smallest normal
    number loses at most that number times the derivative of log Z, which must not exceed ``LIMIT``. If axis 0 of
    ``marginals`` is empty, only log Z is computed, and safety is not checked.
    """
    order, lengths, log_arc, single_root = batch
    W = lanes(log_arc)
    N = log_arc.shape[1]
    M = 0
    for at in range(start, stop):
        M = max(M, lengths[order[at]] + 1)
    wanted = marginals.shape[0] > 0
    size = M * M * W
    w, C, CT, I, S = np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size)  # noqa: E741
    size = size if wanted else 0
    IT, OC, OCT, OI, OS = np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    charts, derivatives = Inside(w, C, CT, I, IT, S), Outside(OC, OCT, OI, OS)
    Z, seed, tops = np.empty(M * W), np.empty(M * W), np.empty(M)
    shifts, inner, outer = np.empty(W), np.empty(W), np.empty(W)
    zero, one = spread(w, 0.0), spread(w, 1.0)
    for first in range(start, stop, W):
        count = min(W, stop - first)
        M = lengths[order[first]] + 1
        for lane in range(W):
            b = order[first + min(lane, count - 1)]  # lanes without a sentence repeat the last one
            shifts[lane] = _weigh(log_arc, b, lengths[b], M, tops, lane, W, w)
        for p in range(0, M * M * W, W):
            store(w, p, exponential(load(w, p)))
        _inside(M, single_root, charts, Z, zero, one)
        for k in range(M * W):
            seed[k] = 0.0
        for lane in range(count):
            b = order[first + lane]
            z = Z[lengths[b] * W + lane]
            log_z[b] = math.log(z) + shifts[lane] if z > 0 and z < np.inf else -np.inf
            safe[b] = z > 1e-290 and z < 1e290
            if safe[b]:
                seed[lengths[b] * W + lane] = 1 / z
        if not wanted:
            continue
        _transpose(M, I, IT)
        _outside(M, single_root, charts, seed, derivatives, zero)
        # Sums of all entries that must stay below the limit; nan if one of them is nan.
        store(inner, 0, _sum(M, C, _sum(M, I, zero)))
        store(outer, 0, _sum(M, OC, _sum(M, OI, _sum(M, OS, zero))))
        for p in range(0, M * M * W, W):
            store(OI, p, multiply(load(OI, p), load(I, p)))
        for lane in range(count):
            b = order[first + lane]
            n = lengths[b]
            if not safe[b]:
                continue
            safe[b] = inner[lane] / Z[n * W + lane] < LIMIT and outer[lane] < LIMIT
            if n + 1 < N:
                marginals[b] = 0.0
            for h in range(n + 1):
                for d in range(n + 1):
                    marginals[b, h, d] = min(get(OI, (h * M + d) * W + lane), 1.0)
