"""Compiled Viterbi within beams, in log space: delta_t(j) = log_unary_t(j) + max over i in I_{t-1} of delta(i) + score.

The masses exp(delta) of the best prefixes take the place of the forward masses, and the beam I_t is chosen from them by
the rules of ``select`` (Pal, Sutton and McCallum, 2006, section 4.1). Time per position as in ``forward_backward``.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import lanes
from trelliswork.compute.tiles import max_outer, store_tile, tile
from trelliswork.inference.chain.beam.kernels.dense import Matrices
from trelliswork.inference.chain.beam.kernels.select import make_selection, select
from trelliswork.inference.chain.beam.kernels.sparse import Entries


class Paths(NamedTuple):
    """Best labelings of a batch, and the sizes of the beams."""

    labels: Any  # (B, T) labels, or states if transitions are sparse
    scores: Any  # (B,) -inf if every path is lost
    sizes: Any  # (B,) sum of the sizes of the beams
    most: Any  # (B,) largest of them


@helper
def _push(matrix, base, stride, states, delta, first, n, S, out):
    """Set out[j] to the maximum over the n states from ``first`` on of delta + their row of the matrix."""
    W = lanes(out)
    flat = matrix.reshape(-1)
    whole = S - S % W
    k = 0
    while k + 4 * W <= whole:
        four = tile(out, -np.inf, 1, 4)
        for a in range(first, first + n):
            four = max_outer(four, delta, a, 0, matrix, base + states[a] * stride + k)
        store_tile(out, k, 0, four)
        k += 4 * W
    while k < whole:
        one = tile(out, -np.inf, 1, 1)
        for a in range(first, first + n):
            one = max_outer(one, delta, a, 0, matrix, base + states[a] * stride + k)
        store_tile(out, k, 0, one)
        k += W
    for j in range(whole, S):
        best = out.dtype.type(-np.inf)
        for a in range(first, first + n):
            best = max(best, delta[a] + flat[base + states[a] * stride + j])
        out[j] = best


@helper
def _choose(scores, n, values, width, rule, selection):
    """Choose the beam of log scores[:n]; return its size and the largest score."""
    top = exp_row(scores, 0, n, values, 0, width)
    count = 0
    if rule.keep >= 1:  # all that is possible, even what underflows
        for j in range(n):
            selection.chosen[count] = j
            count += scores[j] > -np.inf
        return count, top
    mass = 0.0
    for j in range(n):
        mass += values[j]
    return select(values, 0, n, width, mass, rule, -1, selection), top


@kernel(allocates=True)
def dense(start, stop, batch, matrices: Matrices, rule, paths):
    """Fill ``paths`` (a ``Paths``) for the sequences ``start`` to ``stop``; ``matrices`` are logarithms."""
    lengths, _, log_unary = batch
    labels, scores, sizes, most = paths
    T, S = log_unary.shape[1:]
    dtype, W = log_unary.dtype, lanes(log_unary)
    matrix, batch_step, time_step = matrices.rows, matrices.batch_step, matrices.time_step
    flat, width = matrix.reshape(-1), -(-S // W) * W
    ptr, states, delta = np.zeros(T + 1, np.int64), np.empty(T * S, np.int32), np.empty(T * S, dtype)
    out, values, selection = np.empty(S, dtype), np.empty(width, dtype), make_selection(S, width, log_unary)
    chosen = selection.chosen
    for b in range(start, stop):
        scores[b], sizes[b], most[b] = -np.inf, 0, 0
        first = b * batch_step * S * S
        lost = False
        for t in range(lengths[b]):
            here = ptr[t]
            out[:] = 0
            if t > 0:
                base = first + (t - 1) * time_step * S * S
                _push(matrix, base, S, states, delta, ptr[t - 1], here - ptr[t - 1], S, out)
            out += log_unary[b, t]
            n, top = _choose(out, S, values, width, rule, selection)
            for a in range(n):
                states[here + a] = chosen[a]
                delta[here + a] = out[chosen[a]] - top
            ptr[t + 1] = here + n
            sizes[b] += n
            most[b] = max(most[b], n)
            if n == 0:
                lost = True
                break
        if lost:
            continue
        score = 0.0
        following = -1
        for t in range(lengths[b] - 1, -1, -1):
            best, j = -np.inf, -1
            for a in range(ptr[t], ptr[t + 1]):
                value = np.float64(delta[a])
                if following >= 0:
                    value += flat[first + t * time_step * S * S + states[a] * S + following]
                if value > best:
                    best, j = value, states[a]
            if following >= 0:
                score += flat[first + t * time_step * S * S + j * S + following]
            score += log_unary[b, t, j]
            labels[b, t] = j
            following = j
        scores[b] = score


@kernel(allocates=True)
def sparse(start, stop, batch, entries: Entries, sets, rule, paths):
    """Fill ``paths`` for sparse transitions (``Entries`` of logarithms); labels are states.

    Other states than those of ``sets`` (a ``BeamSets``) are impossible, unless it is empty.
    """
    lengths, offsets, log_unary = batch
    labels, scores, sizes, most = paths
    emits, log_start, log_end, transition = entries.emits, entries.start, entries.end, entries.values
    indptr, targets = entries.indptr, entries.targets
    T, S = log_unary.shape[1], emits.size
    dtype, W = log_unary.dtype, lanes(log_unary)
    ptr, states, delta = np.zeros(T + 1, np.int64), np.empty(T * S, np.int32), np.empty(T * S, dtype)
    entry, source = np.empty(T * S, np.int64), np.empty(T * S, np.int64)
    from_entry, from_source = np.empty(S, np.int64), np.empty(S, np.int64)
    mark, best, reached = np.full(S, -1), np.empty(S, dtype), np.empty(S, np.int32)
    inside, given = np.full(S, -1), sets.ptr.size > 0
    out, values, selection = np.empty(S, dtype), np.empty(S + W, dtype), make_selection(S, S, log_unary)
    chosen, clock = selection.chosen, 0
    for b in range(start, stop):
        scores[b], sizes[b], most[b] = -np.inf, 0, 0
        lost = False
        for t in range(lengths[b]):
            here, n = ptr[t], 0
            clock += 1
            if given:
                for k in range(sets.ptr[offsets[b] + t], sets.ptr[offsets[b] + t + 1]):
                    inside[sets.states[k]] = clock
            if t == 0:
                for j in range(S):
                    if log_start[j] > -np.inf and log_unary[b, t, emits[j]] > -np.inf:
                        reached[n], best[j] = j, log_start[j]
                        n += 1
            else:
                for a in range(ptr[t - 1], here):
                    for k in range(indptr[states[a]], indptr[states[a] + 1]):
                        j = targets[k]
                        if not log_unary[b, t, emits[j]] > -np.inf:
                            continue
                        value = delta[a] + transition[k]
                        if mark[j] != clock:
                            mark[j] = clock
                            reached[n] = j
                            n += 1
                        elif not value > best[j]:
                            continue
                        best[j], from_entry[j], from_source[j] = value, k, a
            if n == 0:
                lost = True
                break
            for r in range(n):
                j = reached[r]
                out[r] = best[j] + log_unary[b, t, emits[j]]
                if t == lengths[b] - 1:
                    out[r] += log_end[j]
                if given and inside[j] != clock:
                    out[r] = -np.inf
            size, top = _choose(out, n, values, -(-n // W) * W, rule, selection)
            for c in range(size):
                j = reached[chosen[c]]
                states[here + c] = j
                delta[here + c] = out[chosen[c]] - top
                entry[here + c], source[here + c] = from_entry[j], from_source[j]
            ptr[t + 1] = here + size
            sizes[b] += size
            most[b] = max(most[b], size)
            if size == 0:
                lost = True
                break
        if lost:
            continue
        last = lengths[b] - 1
        a = ptr[last] + np.argmax(delta[ptr[last] : ptr[last + 1]])
        score = np.float64(log_end[states[a]])
        for t in range(last, -1, -1):
            labels[b, t] = states[a]
            score += log_unary[b, t, emits[states[a]]]
            if t == 0:
                score += log_start[states[a]]
            else:
                score += transition[entry[a]]
                a = source[a]
        scores[b] = score
