"""Compiled sparse forward-backward with beams and sparse transitions, in probability space.

The equations are those of ``forward_backward``, for state spaces such as pairs or n-grams of labels: transitions are
``Entries``, and state j emits the label ``emits[j]``. Scores are given for labels, L per position. Only states that
some state of the beam leads to are computed (*reached*), and only entries of states in the beam are read: time
O(L + sum of the entries of the beam) per position, independent of S. States with a score of -inf are never reached.
"""

import math
from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import get, lanes
from trelliswork.inference.chain.beam.kernels.records import Sequence, copy_beams, reverse_sets
from trelliswork.inference.chain.beam.kernels.select import Selection, make_selection, select


class SparseSpace(NamedTuple):
    """Working memory for one sequence at a time."""

    emission: np.ndarray  # (T, Lp)
    reached_ptr: np.ndarray  # (T + 1,)
    reached: np.ndarray  # (T S,) when refining, else (S,)
    belief: np.ndarray  # as long as ``reached``, plus one vector
    mark: np.ndarray  # (S,) value of the clock when the state was last reached
    clock: np.ndarray  # (1,) counts positions, over all sequences
    dense: np.ndarray  # (S,) sums by state
    ptr: np.ndarray  # (T + 1,)
    states: np.ndarray  # (T S,)
    alpha: np.ndarray  # (T S,) then the marginals
    scale: np.ndarray  # (T,)
    kept: np.ndarray  # (T,)
    selection: Selection
    beta: np.ndarray  # (S,)
    spare: np.ndarray  # (T S,) when refining, else (0,)


@helper(allocates=True)
def make_space(T, S, Lp, refining, like):
    """Allocate a ``SparseSpace`` in the precision of the array ``like``."""
    dtype, n = like.dtype, T * S if refining else S
    return SparseSpace(
        np.empty((T, Lp), dtype), np.zeros(T + 1, np.int64), np.empty(n, np.int32), np.zeros(n + lanes(like), dtype),
        np.zeros(S, np.int64), np.zeros(1, np.int64), np.zeros(S, dtype),
        np.zeros(T + 1, np.int64), np.empty(T * S, np.int32), np.empty(T * S, dtype), np.empty(T, dtype), np.zeros(T),
        make_selection(S, S + lanes(like), like), np.empty(S, dtype), np.empty(T * S if refining else 0, np.int32),
    )  # fmt: skip


@helper
def _spread_out(t, entries, scores, at, to, s):
    """Store the successors of beam t-1 in ``reached[to:]`` and their sums in ``dense``; return their number.

    The scores of the labels at position t start at flat index ``at``.
    """
    indptr, targets, values, emits = entries.indptr, entries.targets, entries.values, entries.emits
    clock, ptr, states, alpha, mark = s.clock, s.ptr, s.states, s.alpha, s.mark
    dense, reached = s.dense, s.reached
    clock[0] += 1
    now, n = clock[0], 0
    for a in range(ptr[t - 1], ptr[t]):
        i, x = states[a], alpha[a]
        for k in range(indptr[i], indptr[i + 1]):
            j = targets[k]
            if not get(scores, at + emits[j]) > -np.inf:
                continue
            if mark[j] != now:
                mark[j] = now
                dense[j] = 0
                reached[to + n] = j
                n += 1
            dense[j] += x * values[k]
    return n


@helper
def _end_factor(t, T, j, start, end):
    """Return the factor of the ends of the sequence for state j at position t."""
    f = start[j] if t == 0 else start.dtype.type(1)
    return f * end[j] if t == T - 1 else f


@helper
def forward(sequence, entries, gold, rule, s):
    """Choose the beams of a sequence and fill its alpha; return log Z of the chain restricted to them, -inf if lost.

    ``gold[sequence.first + t]`` is always in the beam of position t, unless ``gold`` is empty.
    """
    T, emits, start, end = sequence.n_positions, entries.emits, entries.start, entries.end
    emission, ptr, reached_ptr, belief, reached = s.emission, s.ptr, s.reached_ptr, s.belief, s.reached
    dense = s.dense
    S, Lp, W = emits.size, emission.shape[1], lanes(emission)
    log_z = (T - 1) * entries.log_shift + entries.log_ends
    ptr[0], reached_ptr[0] = 0, 0
    for t in range(T):
        at = sequence.at + t * sequence.stride
        log_z += exp_row(sequence.log_unary, at, sequence.n_labels, emission, t * Lp, Lp)
        to = reached_ptr[t] if belief.size > S + W else 0
        if t == 0:
            n = 0
            for j in range(S):
                if start[j] > 0 and get(sequence.log_unary, at + emits[j]) > -np.inf:
                    reached[n], dense[j] = j, 1
                    n += 1
        else:
            n = _spread_out(t, entries, sequence.log_unary, at, to, s)
        if n == 0:
            return -np.inf
        reached_ptr[t + 1] = to + n
        mass, place = 0.0, -1
        wanted = gold[sequence.first + t] if gold.size else -1
        ends = t == 0 or t == T - 1
        for r in range(to, to + n):
            j = reached[r]
            v = dense[j] * emission[t, emits[j]]
            if ends:
                v *= _end_factor(t, T, j, start, end)
            belief[r] = v
            mass += v
            place = r - to if j == wanted else place
        width = -(-n // W) * W
        for r in range(to + n, to + width):
            belief[r] = 0
        size = select(belief, to, n, width, mass, rule, place, s.selection)
        log_z += _keep(t, size, mass, to, s)
        if not log_z > -np.inf:
            return -np.inf
    return log_z


@helper
def _keep(t, n, mass, to, s):
    """Store the states and alpha of position t from ``chosen``; return the logarithm of c_t."""
    ptr, chosen, states, reached, alpha = s.ptr, s.selection.chosen, s.states, s.reached, s.alpha
    belief, scale, kept = s.belief, s.scale, s.kept
    first, c = ptr[t], 0.0
    for a in range(n):
        r = to + chosen[a]
        states[first + a] = reached[r]
        alpha[first + a] = belief[r]
        c += belief[r]
    ptr[t + 1] = first + n
    scale[t] = c
    inverse = alpha.dtype.type(1 / c if c > 0 else 0.0)
    for a in range(n):
        alpha[first + a] *= inverse
    kept[t] = min(1.0, c / mass) if c > 0 else 1.0
    return math.log(c) if c > 0 else -np.inf


@helper
def _inside(sequence, entries, s):
    """Run the forward pass inside the sets in ``s``; ``emission`` is filled. Return log Z, -inf if no path is left."""
    T, emits, start, end = sequence.n_positions, entries.emits, entries.start, entries.end
    indptr, targets, values = entries.indptr, entries.targets, entries.values
    ptr, dense, states, alpha, emission = s.ptr, s.dense, s.states, s.alpha, s.emission
    log_z = (T - 1) * entries.log_shift + entries.log_ends
    scores = sequence.log_unary.reshape(-1)
    for t in range(T):
        top = -np.inf
        for j in range(sequence.n_labels):
            top = max(top, np.float64(scores[sequence.at + t * sequence.stride + j]))
        log_z += top
        here, c = ptr[t], 0.0
        if t > 0:
            for a in range(here, ptr[t + 1]):
                dense[states[a]] = 0
            for a in range(ptr[t - 1], here):
                i = states[a]
                for k in range(indptr[i], indptr[i + 1]):
                    dense[targets[k]] += alpha[a] * values[k]
        for a in range(here, ptr[t + 1]):
            j = states[a]
            v = dense[j] if t > 0 else dense.dtype.type(1)
            alpha[a] = v * emission[t, emits[j]] * _end_factor(t, T, j, start, end)
            c += alpha[a]
        s.scale[t] = c
        log_z += math.log(c) if c > 0 else -np.inf
        if not log_z > -np.inf:
            return -np.inf
        inverse = alpha.dtype.type(1 / c)
        for a in range(here, ptr[t + 1]):
            alpha[a] *= inverse
    return log_z


@helper(allocates=True)
def within(sequence, entries, sets, s):
    """Run the forward pass inside given ``sets`` (a ``BeamSets``); return log Z, -inf if no path is left."""
    Lp = s.emission.shape[1]
    begin = sets.ptr[sequence.first]
    for t in range(sequence.n_positions):
        at = sequence.at + t * sequence.stride
        exp_row(sequence.log_unary, at, sequence.n_labels, s.emission, t * Lp, Lp)
        s.ptr[t + 1] = sets.ptr[sequence.first + t + 1] - begin
    s.ptr[0] = 0
    n = s.ptr[sequence.n_positions]
    s.states[:n] = sets.states[begin : begin + n]
    return _inside(sequence, entries, s)


@helper(allocates=True)
def _refine(sequence, entries, gold, rule, s):
    """Choose the sets again from the end by belief times beta, among the states reached; return the new log Z.

    Return nan if this underflows, -inf if no path is left.
    """
    T, emits, start, end = sequence.n_positions, entries.emits, entries.start, entries.end
    indptr, targets, transition = entries.indptr, entries.targets, entries.values
    emission, dense, reached_ptr, reached, beta = s.emission, s.dense, s.reached_ptr, s.reached, s.beta
    belief, chosen, spare = s.belief, s.selection.chosen, s.spare
    W = lanes(emission)
    sizes = np.empty(T, np.int64)
    used = 0  # of ``spare``, which takes the new states, last position first
    dense[:] = 0
    for t in range(T - 1, -1, -1):
        to, n = reached_ptr[t], reached_ptr[t + 1] - reached_ptr[t]
        wanted = gold[sequence.first + t] if gold.size else -1
        mass, place, highest = 0.0, -1, 0.0
        for r in range(n):
            j = reached[to + r]
            b = beta.dtype.type(1 if t == T - 1 else 0)
            if t < T - 1:
                for k in range(indptr[j], indptr[j + 1]):
                    b += transition[k] * dense[targets[k]]
            beta[r] = b
            highest = max(highest, np.float64(b))
            place = r if j == wanted else place
        if not 0 < highest < np.inf:
            return np.nan
        for a in range(used - sizes[t + 1] if t < T - 1 else used, used):
            dense[spare[a]] = 0
        width = -(-n // W) * W
        values = np.zeros(width, beta.dtype)
        for r in range(n):
            beta[r] /= beta.dtype.type(highest)
            values[r] = belief[to + r] * beta[r]
            mass += values[r]
        size = select(values, 0, n, width, mass, rule, place, s.selection)
        mass_kept = 0.0
        for a in range(size):
            j = reached[to + chosen[a]]
            spare[used + size - 1 - a] = j
            mass_kept += values[chosen[a]]
            dense[j] = beta[chosen[a]] * emission[t, emits[j]] * _end_factor(t, T, j, start, end)
        if not mass_kept > 0:
            return np.nan
        s.kept[t] = min(1.0, mass_kept / mass)
        used += size
        sizes[t] = size
    reverse_sets(sizes, used, s)
    return _inside(sequence, entries, s)


@helper
def _backward(T, entries, limit, weight, final, counts, s):
    """Compute beta inside the beams; if ``final``, produce the outputs of ``marginals``. Return False if not safe."""
    emits, end, indptr, targets, values = entries.emits, entries.end, entries.indptr, entries.targets, entries.values
    beta, ptr, dense, alpha, scale = s.beta, s.ptr, s.dense, s.alpha, s.scale
    states, emission = s.states, s.emission
    beta[: ptr[T] - ptr[T - 1]] = 1
    dense[:] = 0
    for t in range(T - 1, -1, -1):
        here, n = ptr[t], ptr[t + 1] - ptr[t]
        m = alpha.dtype.type(0)
        for k in range(n):
            m += alpha[here + k] * beta[k]
        if not m > 0:
            return False
        correction = 1 / m
        if final:
            for k in range(n):
                alpha[here + k] *= beta[k] * correction * weight
        if t == 0:
            return True
        by = correction / scale[t]
        top = alpha.dtype.type(0)
        for k in range(n):
            b = beta[k] * by
            top = max(top, b)
            j = states[here + k]
            dense[j] = b * emission[t, emits[j]]
            if t == T - 1:
                dense[j] *= end[j]
        if not top <= limit:
            return False
        before = ptr[t - 1]
        for a in range(before, here):
            i = states[a]
            b = alpha.dtype.type(0)
            x = alpha[a] * weight
            for k in range(indptr[i], indptr[i + 1]):
                w = dense[targets[k]]
                if w != 0:
                    p = values[k] * w
                    b += p
                    if final and counts.size:
                        counts[k] += x * p
            beta[a - before] = b
        for k in range(n):
            dense[states[here + k]] = 0
    return True


@helper
def marginals(T, entries, limit, weight, counts, s):
    """Turn ``s.alpha`` into the weighted marginals; return False if the sequence is not safe: then nothing is added.

    ``counts`` (n_entries,) grows by the weighted expected transitions, unless empty.
    """
    # With few transitions nothing is safe beforehand, so there is a first pass without outputs.
    return _backward(T, entries, limit, weight, False, counts, s) and _backward(
        T, entries, limit, weight, True, counts, s
    )


@kernel(allocates=True)
def sparse(start, stop, batch, entries, choice, limit, counts, results, buffer):
    """Run sparse forward-backward on the sequences ``start`` to ``stop``, with the outputs of ``dense``."""
    lengths, offsets, log_unary = batch
    T, L = log_unary.shape[1:]
    S, W = entries.emits.size, lanes(log_unary)
    s = make_space(T, S, -(-L // W) * W, choice.refine, log_unary)
    one = log_unary.dtype.type(1)
    used = 0
    for b in range(start, stop):
        n = lengths[b]
        if used + n * S > len(buffer.states):
            return b, used
        sequence = Sequence(n, L, offsets[b], log_unary, b * T * L, L)
        log_z = forward(sequence, entries, choice.gold, choice.rule, s)
        if choice.refine and log_z > -np.inf:
            log_z = _refine(sequence, entries, choice.gold, choice.rule, s)
        if log_z > -np.inf and marginals(n, entries, limit, one, counts, s):
            results.log_z[b] = log_z
            used += copy_beams(sequence, used, s, results, buffer)
        else:
            results.log_z[b] = np.nan
    return stop, used
