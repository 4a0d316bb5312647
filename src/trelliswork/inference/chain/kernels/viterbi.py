"""Compiled Viterbi for linear chains: best scores forward, then the maxima of the best path alone looked up again.

    delta_t(j) = log_unary_t(j) + max_i (delta_{t-1}(i) + log_pairwise(i, j))

No back-pointers are stored: the argmax is needed on the best path alone, O(T S) look-ups against O(T S^2) stores. The
largest delta is subtracted at every position, so that float32 keeps its digits on long sequences. Layouts are those of
``forward_backward``: four sequences advance together over strips of the (shared) transition matrix.
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.products import Factor, max_product
from trelliswork.compute.simd import add, first_equal, lanes, largest, load, maximum, spread, store, subtract
from trelliswork.compute.tiles import store_tile, tile
from trelliswork.inference.chain.kernels.forward_backward import ROWS
from trelliswork.inference.chain.kernels.records import Chains


@helper
def _max_product(rows, panels, out):
    """Compute out[r, j] = max_i rows[r, i] + P[i, j]; ``panels`` (Sp/2W, S, 2W) is log P in strips two vectors wide.

    If Sp is an odd number of vectors, only the left half of the last strip is used.
    """
    _, S, wide = panels.shape
    Sp, W = rows.shape[1], lanes(rows)
    factor, whole = Factor(rows, 0, Sp, 1), Sp // wide
    for p in range(whole):
        best = max_product(tile(rows, -np.inf, ROWS, 2), factor, panels, p * S * wide, wide, S)
        store_tile(out, p * wide, Sp, best)
    if Sp % wide:
        half = max_product(tile(rows, -np.inf, ROWS, 1), factor, panels, whole * S * wide, wide, S)
        store_tile(out, Sp - W, Sp, half)


@helper
def _finish(source, at, n, prior, rows, row, delta, to):
    """Add the scores source[at : at + n] to a row of ``prior`` and subtract the maximum; -inf beyond n.

    The result goes to the same row of ``rows`` and to ``delta``, all by flat indices.
    """
    Sp, W = rows.shape[1], lanes(rows)
    whole = n - n % W
    top = spread(rows, -np.inf)
    for k in range(0, whole, W):
        value = add(load(prior, row + k), load(source, at + k))
        store(rows, row + k, value)
        top = maximum(value, top)
    for k in range(whole, n):
        rows.flat[row + k] = prior.flat[row + k] + source.flat[at + k]
    for k in range(n, Sp):
        rows.flat[row + k] = -np.inf
    for k in range(whole, Sp, W):
        top = maximum(load(rows, row + k), top)
    best = largest(top)
    by = spread(rows, best if best > -np.inf else rows.dtype.type(0))
    for k in range(0, Sp, W):
        value = subtract(load(rows, row + k), by)
        store(rows, row + k, value)
        store(delta, to + k, value)


@helper
def _best_before(delta, at, into, to, Sp):
    """Return the smallest i with the largest delta[at + i] + into[to + i], flat indices."""
    W = lanes(delta)
    top = add(load(delta, at), load(into, to))
    for k in range(W, Sp, W):
        top = maximum(add(load(delta, at + k), load(into, to + k)), top)
    best = spread(delta, largest(top))
    for k in range(0, Sp, W):
        lane = first_equal(add(load(delta, at + k), load(into, to + k)), best)
        if lane < W:
            return k + lane
    return 0


@kernel(allocates=True)
def viterbi(start, stop, chains, panels, into, labels, scores):
    """Fill labels (B, T) and scores (B,) for the sequences ``order[start:stop]``.

    ``into`` (Sp, Sp) is the transposed log P, padded with -inf: row j holds the scores of stepping into j.
    A sequence without any possible labeling gets the score -inf.
    """
    order, lengths, log_unary = chains
    T, S, Sp = log_unary.shape[1], log_unary.shape[2], into.shape[0]
    rows = np.full((ROWS, Sp), -np.inf, log_unary.dtype)
    prior = np.empty((ROWS, Sp), log_unary.dtype)
    longest = lengths[order[start]]
    delta = np.empty((ROWS, longest, Sp), log_unary.dtype)
    nowhere = np.zeros((1, Sp), log_unary.dtype)
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
                _finish(log_unary, (b * T + t) * S, S, prior, rows, r * Sp, delta, (r * longest + t) * Sp)
        # All sequences go back through their positions together: their look-ups do not depend on each other.
        for t in range(lengths[order[group]] - 1, -1, -1):
            for r in range(n):
                b = order[group + r]
                if t >= lengths[b]:
                    break
                here = (r * longest + t) * Sp
                if t == lengths[b] - 1:
                    j = _best_before(delta, here, nowhere, 0, Sp)
                    scores[b] = 0
                else:
                    following = labels[b, t + 1]
                    j = _best_before(delta, here, into, following * Sp, Sp)
                    scores[b] += into[following, j]
                scores[b] += log_unary[b, t, j]
                labels[b, t] = j


@kernel(allocates=True)
def viterbi_positions(start, stop, lengths, log_unary, pairwise, labels, scores):
    """Fill labels (B, T) and scores (B,) for transitions that change with the position."""
    log_pairwise, batch_step, time_step = pairwise
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
            delta[t] = best + log_unary[b, t]
            top = delta[t].max()
            if top > -np.inf:
                delta[t] -= top
        j = np.argmax(delta[lengths[b] - 1])
        labels[b, lengths[b] - 1] = j
        score = np.float64(log_unary[b, lengths[b] - 1, j])
        for t in range(lengths[b] - 2, -1, -1):
            matrix = log_pairwise[b * batch_step + t * time_step]
            i = np.argmax(delta[t] + matrix[:, j])
            score += matrix[i, j]
            score += log_unary[b, t, i]
            labels[b, t] = i
            j = i
        scores[b] = score


@kernel(allocates=True)
def one_sentence(lengths, log_unary, log_pairwise, width, labels, scores):
    """`viterbi` of a single short sequence: one call that prepares everything, for the least delay."""
    S, wide = log_unary.shape[2], 2 * lanes(log_unary)
    panels = np.full((-(-width // wide), S, wide), -np.inf, log_unary.dtype)
    into = np.full((width, width), -np.inf, log_unary.dtype)
    for i in range(S):
        for j in range(S):
            into[j, i] = panels[j // wide, i, j % wide] = log_pairwise[0, i, j]
    viterbi(0, 1, Chains(np.zeros(1, np.int64), lengths, log_unary), panels, into, labels, scores)
