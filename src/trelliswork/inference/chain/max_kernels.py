"""Compiled Viterbi for linear chains: best scores forward, then only the path's own maxima looked up again.

    delta_t(j) = log_unary_t(j) + max_i (delta_{t-1}(i) + log_pairwise(i, j))

No back-pointers are stored: the argmax is needed on the best path alone, O(T S) look-ups against O(T S^2) stores. The
largest delta is taken out at every position, so that float32 keeps its digits on long sequences. Layouts are those of
``kernels``: four sequences advance together over strips of the (shared) transition matrix.
"""

import numpy as np
from numba import njit

from trelliswork.inference.simd import add, lanes, load, maximum, spread, store

ROWS = 4


@njit(cache=True, nogil=True)
def _max_product(rows, panels, out):
    """out[r, j] = max_i rows[r, i] + P[i, j]; ``panels`` (Sp/2W, Sp, 2W) is log P in strips two vectors wide."""
    n_panels, Sp, wide = panels.shape
    W = lanes(rows)
    for p in range(n_panels):
        at = p * Sp * wide
        low = spread(rows, -np.inf)
        a0, a1, b0, b1, c0, c1, d0, d1 = low, low, low, low, low, low, low, low
        for i in range(Sp):
            left, right = load(panels, at), load(panels, at + W)
            at += wide
            x = spread(rows, rows[0, i])
            a0, a1 = maximum(a0, add(x, left)), maximum(a1, add(x, right))
            x = spread(rows, rows[1, i])
            b0, b1 = maximum(b0, add(x, left)), maximum(b1, add(x, right))
            x = spread(rows, rows[2, i])
            c0, c1 = maximum(c0, add(x, left)), maximum(c1, add(x, right))
            x = spread(rows, rows[3, i])
            d0, d1 = maximum(d0, add(x, left)), maximum(d1, add(x, right))
        k = p * wide
        store(out, k, a0)
        store(out, k + W, a1)
        store(out, k + Sp, b0)
        store(out, k + Sp + W, b1)
        store(out, k + 2 * Sp, c0)
        store(out, k + 2 * Sp + W, c1)
        store(out, k + 3 * Sp, d0)
        store(out, k + 3 * Sp + W, d1)


@njit(cache=True, nogil=True)
def _finish(row, scores, delta):
    """delta (Sp) = row + scores, less its maximum; -inf in the padding."""
    S = scores.size
    top = row.dtype.type(-np.inf)
    for j in range(S):
        delta[j] = row[j] + scores[j]
        top = max(top, delta[j])
    if top > -np.inf:
        for j in range(S):
            delta[j] -= top
    for j in range(S, delta.size):
        delta[j] = -np.inf


@njit(cache=True, nogil=True)
def _trace(log_pairwise_t, delta, labels):
    """Labels (T,) of the best path; ``log_pairwise_t`` (S, S) is transposed: the previous label is its axis 1."""
    T, S = labels.size, log_pairwise_t.shape[0]
    j = np.argmax(delta[T - 1, :S])
    labels[T - 1] = j
    for t in range(T - 2, -1, -1):
        into, here = log_pairwise_t[j], delta[t]
        j, top = 0, here[0] + into[0]
        for i in range(1, S):
            value = here[i] + into[i]
            if value > top:
                j, top = i, value
        labels[t] = j


@njit(cache=True, nogil=True)
def viterbi(start, stop, order, lengths, log_unary, panels, log_pairwise_t, labels):
    """Fill labels (B, T) for ``order[start:stop]``, longest first.

    A sequence without any possible labelling gets labels of score -inf.
    """
    Sp = panels.shape[1]
    rows = np.full((ROWS, Sp), -np.inf, log_unary.dtype)
    prior = np.empty((ROWS, Sp), log_unary.dtype)
    delta = np.empty((ROWS, lengths[order[start]], Sp), log_unary.dtype)
    for group in range(start, stop, ROWS):
        n = min(ROWS, stop - group)
        prior[:] = 0
        for t in range(lengths[order[group]]):
            if t > 0:
                _max_product(rows, panels, prior)
            for r in range(n):
                b = order[group + r]
                if t >= lengths[b]:
                    break
                _finish(prior[r], log_unary[b, t], rows[r])
                delta[r, t] = rows[r]
        for r in range(n):
            b = order[group + r]
            _trace(log_pairwise_t, delta[r], labels[b, : lengths[b]])


@njit(cache=True, nogil=True)
def viterbi_positions(start, stop, lengths, log_unary, log_pairwise, batch_step, time_step, labels):
    """The same for transitions that change with the position (see ``position_kernels``)."""
    T, S = log_unary.shape[1:]
    delta = np.empty((T, S), log_unary.dtype)
    best = np.empty(S, log_unary.dtype)
    for b in range(start, stop):
        best[:] = 0
        for t in range(lengths[b]):
            if t > 0:
                best[:] = -np.inf
                matrix = log_pairwise[b * batch_step + (t - 1) * time_step]
                for i in range(S):
                    before = delta[t - 1, i]
                    for j in range(S):
                        value = before + matrix[i, j]
                        best[j] = value if value > best[j] else best[j]
            _finish(best, log_unary[b, t], delta[t])
        j = np.argmax(delta[lengths[b] - 1])
        labels[b, lengths[b] - 1] = j
        for t in range(lengths[b] - 2, -1, -1):
            j = np.argmax(delta[t] + log_pairwise[b * batch_step + t * time_step, :, j])
            labels[b, t] = j
