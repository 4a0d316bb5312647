"""Compiled Viterbi for linear chains: best scores forward, then the maxima of the best path alone looked up again.

    delta_t(j) = log_unary_t(j) + max_i (delta_{t-1}(i) + log_pairwise(i, j))

No back-pointers are stored: the argmax is needed on the best path alone. The maxima are kept, so that the walk back
compares one row per position with one number, and searches for nothing. The largest delta of a position is subtracted
at the next one, where nothing waits for it, so that float32 keeps its digits on long sequences. Layouts are those of
``forward_backward``: four sequences advance together over strips of the (shared) transition matrix.
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.products import Factor, max_product
from trelliswork.compute.simd import (
    add,
    first_equal,
    get,
    lanes,
    largest,
    load,
    load_part,
    maximum,
    put,
    spread,
    store,
    subtract,
)
from trelliswork.compute.tiles import store_tile, tile
from trelliswork.inference.chain.kernels.forward_backward import ROWS
from trelliswork.inference.chain.kernels.records import Chains


@helper
def _lay(log_pairwise, panels, into):
    """Fill ``panels`` (Sp/2W, S, 2W), strips two vectors wide, of the scores (1, S, S), and ``into`` (S + 1, Sp).

    Row j of ``into`` holds the scores of stepping into j, -inf in the padding; the last row those of ending, 0.
    """
    n_strips, S, wide = panels.shape
    Sp, W = into.shape[1], lanes(into)
    for i in range(S):
        for p in range(n_strips):
            left = p * wide
            for k in range(0, wide, W):
                part = load_part(log_pairwise, i * S + left + k, S - left - k, -np.inf)
                store(panels, left * S + i * wide + k, part)
        for j in range(S):
            put(into, j * Sp + i, get(log_pairwise, i * S + j))
    for j in range(S):
        for i in range(S, Sp):
            put(into, j * Sp + i, -np.inf)
    into[S] = 0


@helper(forceinline=True)
def _step(delta, at, row, panels, best, to, alone):
    """best[to + r * row + j] = max_i delta[at + r * row + i] + P[i, j] of four sequences r, or of the first, ``alone``.

    Flat indices; ``panels`` (Sp/2W, S, 2W) is log P in strips two vectors wide. If Sp is an odd number of vectors, only
    the left half of the last strip is used.
    """
    _, S, wide = panels.shape
    Sp, factor = delta.shape[2], Factor(delta, at, row, 1)
    for p in range(Sp // wide):
        here, strip = to + p * wide, p * S * wide
        if alone:
            store_tile(best, here, row, max_product(tile(delta, -np.inf, 1, 2), factor, panels, strip, wide, S))
        else:
            store_tile(best, here, row, max_product(tile(delta, -np.inf, ROWS, 2), factor, panels, strip, wide, S))
    if Sp % wide:
        here, strip = to + Sp // wide * wide, Sp // wide * S * wide
        if alone:
            store_tile(best, here, row, max_product(tile(delta, -np.inf, 1, 1), factor, panels, strip, wide, S))
        else:
            store_tile(best, here, row, max_product(tile(delta, -np.inf, ROWS, 1), factor, panels, strip, wide, S))


@helper(forceinline=True)
def _finish(source, at, n, best, delta, to, shift):
    """delta = best - shift + the scores source[at : at + n], -inf beyond n: a row at flat index ``to``.

    Return its largest number, or 0 if nothing is possible.
    """
    W, by = lanes(delta), spread(delta, shift)
    top = spread(delta, -np.inf)
    for k in range(0, delta.shape[2], W):
        value = subtract(add(load(best, to + k), load_part(source, at + k, n - k, -np.inf)), by)
        store(delta, to + k, value)
        top = maximum(value, top)
    highest = largest(top)
    return highest if highest > -np.inf else delta.dtype.type(0)


@helper(forceinline=True)
def _label_before(delta, at, into, to, wanted):
    """Return the smallest i with delta[at + i] + into[to + i] = wanted, flat indices."""
    W, wanted_everywhere = lanes(delta), spread(delta, wanted)
    for k in range(0, delta.shape[2], W):
        lane = first_equal(add(load(delta, at + k), load(into, to + k)), wanted_everywhere)
        if lane < W:
            return k + lane
    return 0


@kernel(allocates=True)
def viterbi(start, stop, chains, log_pairwise, labels, scores):
    """Fill labels (B, T), -1 in the padding, and scores (B,) for the sequences ``order[start:stop]``.

    ``log_pairwise`` (1, S, S). A sequence without any possible labeling gets the score -inf.
    """
    order, lengths, log_unary = chains
    T, width, W, S, dtype = *log_unary.shape[1:], lanes(log_unary), log_pairwise.shape[1], log_unary.dtype
    Sp = -(-S // W) * W
    panels, into = np.empty((-(-S // (2 * W)), S, 2 * W), dtype), np.empty((S + 1, Sp), dtype)
    _lay(log_pairwise, panels, into)
    longest = lengths[order[start]]
    rows, row = 1 if stop - start == 1 else ROWS, longest * Sp
    both = np.empty((2, rows, longest, Sp), dtype)
    delta, best = both[0], both[1]  # with and without the scores of the position
    best[:, 0] = 0
    top = np.empty(ROWS, dtype)  # the largest delta of the position before
    for group in range(start, stop, ROWS):
        n = min(ROWS, stop - group)
        top[:] = 0
        for t in range(lengths[order[group]]):
            if t > 0:
                _step(delta, (t - 1) * Sp, row, panels, best, t * Sp, n == 1)
            for r in range(n):
                b = order[group + r]
                if t >= lengths[b]:
                    break  # sorted by length: the others have ended too
                top[r] = _finish(log_unary, (b * T + t) * width, S, best, delta, r * row + t * Sp, top[r])
        # All sequences go back through their positions together: their look-ups do not depend on each other.
        for r in range(n):
            b = order[group + r]
            scores[b] = 0
            labels[b, lengths[b] :] = -1
        for t in range(lengths[order[group]] - 1, -1, -1):
            for r in range(n):
                b = order[group + r]
                if t >= lengths[b]:
                    break
                here, following, wanted = r * row + t * Sp, S, top[r]
                if t < lengths[b] - 1:
                    following = get(labels, b * T + t + 1)
                    wanted = get(best, here + Sp + following)
                j = _label_before(delta, here, into, following * Sp, wanted)
                scores[b] += get(into, following * Sp + j)
                scores[b] += get(log_unary, (b * T + t) * width + j)
                put(labels, b * T + t, j)


@kernel(allocates=True)
def viterbi_positions(start, stop, lengths, log_unary, pairwise, labels, scores):
    """Fill labels (B, T), -1 in the padding, and scores (B,) for transitions that change with the position."""
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
        labels[b, lengths[b] :] = -1
        scores[b] = score


@kernel(allocates=True)
def one_sentence(length, log_unary, log_pairwise, labels, scores):
    """`viterbi` of a single sequence, for the least delay: records take longer to pass than arrays."""
    viterbi(0, 1, Chains(np.zeros(1, np.int64), np.full(1, length), log_unary), log_pairwise, labels, scores)
    return scores[0] > -np.inf
