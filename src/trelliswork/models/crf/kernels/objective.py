"""Compiled objective of linear-chain CRFs with sparse features: scores, forward-backward and gradient in one pass.

Attributes seen with several labels have a dense row of weights in ``wide`` (n, Sw); those seen with few labels have
single weights in ``narrow``, whose labels are ``narrow_labels``.

    score_t(j) = sum of rows + single weights       loss = log Z - score(gold)
    gradient of a row += p(y_t = . | x) - [y_t = .]                                  (paper 1, eq. 20 and before)

Rows are padded to whole vectors, Sw labels; the padding scores -inf.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.memory import aligned
from trelliswork.compute.parts import split_at
from trelliswork.compute.simd import add, few, get, lanes, load_like, prefetch, put, spread, store
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.inference.chain.kernels import lanes as by_lane
from trelliswork.inference.chain.kernels.forward_backward import ROWS, backward, forward
from trelliswork.inference.chain.kernels.records import Chains, Outputs, make_lattice

AHEAD = 24  # entries whose weights are on their way to the caches


class TokenRows(NamedTuple):
    """Features of tokens in compressed rows.

    Token i has the dense rows ``wide_ids[wide_ptr[i] : wide_ptr[i + 1]]`` and the single weights
    ``narrow_ids[narrow_ptr[i] : narrow_ptr[i + 1]]``, multiplied by the values (empty: all 1).
    """

    wide_ptr: Any
    wide_ids: Any
    wide_values: Any
    narrow_ptr: Any
    narrow_ids: Any
    narrow_values: Any


class FeatureWeights(NamedTuple):
    """Weights of state features, or their gradient."""

    wide: Any  # (n_wide, Sw)
    narrow: Any  # (n_narrow,)
    narrow_labels: Any  # (n_narrow,)


class LabelScores(NamedTuple):
    """Scores of first labels, last labels and label pairs; -inf for those that are not allowed."""

    start: Any  # (Sw,)
    end: Any  # (Sw,)
    log_transition: Any  # (S, S)


class Sentences(NamedTuple):
    """Labeled sentences, longest first.

    ``extra[extra_ids[i]]`` (Sw,) is added to the scores of token i: label sets, label weights; ``extra_ids`` may be
    empty. A sentence whose gold label is -1 has no labeling to be compared with: its loss is log Z alone.
    """

    offsets: Any  # (n_sentences + 1,)
    gold: Any  # (n_tokens,)
    weight: Any  # (n_sentences,)
    extra: Any  # (n, Sw)
    extra_ids: Any  # (n_tokens,) or empty


class Sums(NamedTuple):
    """Outputs of an objective besides the gradient of the state features; an unsafe sentence adds nothing."""

    counts: Any  # (1, S, S) float64: receives expected minus observed transitions
    loss: Any  # (n_sentences,)
    safe: Any  # (n_sentences,) False for sentences that underflow


@helper
def _fetch(weights, ids, at, width):
    """Have the caches load what an entry needs that is ``AHEAD`` places after ``at``, or the last one."""
    k = np.int64(get(ids, min(at + AHEAD, len(ids) - 1))) * width
    prefetch(weights, k)
    if width > 16:
        prefetch(weights, k + 16)


@kernel
def scores(start, stop, tokens, weights, n_labels, out, to):
    """Store the label scores of tokens ``start`` to ``stop``, Sw numbers each, in ``out`` from flat index ``to``."""
    wide = weights.wide
    if wide.shape[1] == 4:
        _scores(few(wide, 4), start, stop, tokens, weights, n_labels, out, to)
    elif wide.shape[1] == 8:
        _scores(few(wide, 8), start, stop, tokens, weights, n_labels, out, to)
    else:
        _scores(spread(wide, 0.0), start, stop, tokens, weights, n_labels, out, to)


@helper
def _scores(zero, start, stop, tokens, weights, n_labels, out, to):
    """Do so with vectors like ``zero``: rows are one of them, or several of the widest."""
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values = tokens
    wide, narrow, narrow_labels = weights
    width, V, Sw, W = wide.shape[1], lanes(zero), out.shape[-1], lanes(wide)
    flat = out.reshape(-1)
    for i in range(start, stop):
        for k in range(0, Sw, W):
            store(flat, to + k, split_at(wide, n_labels - k, 0.0, -np.inf))
        first, last = wide_ptr[i], wide_ptr[i + 1]
        for k in range(0, width - V, 2 * V):  # two vectors at a time stay in registers
            left, right = load_like(zero, flat, to + k), load_like(zero, flat, to + k + V)
            for at in range(first, last):
                if k == 0:
                    _fetch(wide, wide_ids, at, width)
                row = np.int64(get(wide_ids, at)) * width + k
                if wide_values.size:
                    by = spread(zero, wide_values[at])
                    left = fma(load_like(zero, wide, row), by, left)
                    right = fma(load_like(zero, wide, row + V), by, right)
                else:
                    left, right = add(load_like(zero, wide, row), left), add(load_like(zero, wide, row + V), right)
            store(flat, to + k, left)
            store(flat, to + k + V, right)
        if (width // V) % 2:
            left = load_like(zero, flat, to + width - V)
            for at in range(first, last):
                if width == V:
                    _fetch(wide, wide_ids, at, width)
                row = load_like(zero, wide, np.int64(get(wide_ids, at)) * width + width - V)
                left = fma(row, spread(zero, wide_values[at]), left) if wide_values.size else add(row, left)
            store(flat, to + width - V, left)
        for at in range(narrow_ptr[i], narrow_ptr[i + 1]):
            _fetch(narrow, narrow_ids, at, 1)
            _fetch(narrow_labels, narrow_ids, at, 1)
            f = get(narrow_ids, at)
            value = narrow_values[at] if narrow_values.size else narrow.dtype.type(1)
            k = to + get(narrow_labels, f)
            put(flat, k, get(flat, k) + get(narrow, f) * value)
        to += Sw


@kernel
def scatter(start, stop, residual, to, tokens, gradient):
    """Add the residuals of tokens ``start`` to ``stop``, Sw numbers each from flat index ``to``, to the gradient."""
    wide = gradient.wide
    if wide.shape[1] == 4:
        _scatter(few(wide, 4), start, stop, residual, to, tokens, gradient)
    elif wide.shape[1] == 8:
        _scatter(few(wide, 8), start, stop, residual, to, tokens, gradient)
    else:
        _scatter(spread(wide, 0.0), start, stop, residual, to, tokens, gradient)


@helper
def _scatter(zero, start, stop, residual, to, tokens, gradient):
    """Do so with vectors like ``zero``."""
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values = tokens
    wide, narrow, narrow_labels = gradient
    width, V, Sw = wide.shape[1], lanes(zero), residual.shape[-1]
    flat = residual.reshape(-1)
    for i in range(start, stop):
        for at in range(wide_ptr[i], wide_ptr[i + 1]):
            _fetch(wide, wide_ids, at, width)
            row = np.int64(get(wide_ids, at)) * width
            by = spread(zero, wide_values[at] if wide_values.size else narrow.dtype.type(1))
            for k in range(0, width, V):
                change, old = load_like(zero, flat, to + k), load_like(zero, wide, row + k)
                store(wide, row + k, fma(change, by, old) if wide_values.size else add(change, old))
        for at in range(narrow_ptr[i], narrow_ptr[i + 1]):
            _fetch(narrow, narrow_ids, at, 1)
            _fetch(narrow_labels, narrow_ids, at, 1)
            f = get(narrow_ids, at)
            value = narrow_values[at] if narrow_values.size else narrow.dtype.type(1)
            put(narrow, f, get(narrow, f) + get(flat, to + get(narrow_labels, f)) * value)
        to += Sw


@helper(allocates=True)
def _step_scores(labels, transitions):
    """Return the scores of label pairs (S, S) in float64 as log Z has them: logarithms of rounded exponentials.

    A rounding error of one transition is multiplied by the number of its occurrences. In log Z and in the score of the
    gold labels alike, it cancels; in one of them it would make the value noisy, and line searches fail.
    """
    log_transition, matrix = labels.log_transition, transitions.matrix
    S = log_transition.shape[0]
    exact = np.empty((S, S))
    for i in range(S):
        for j in range(S):
            p = np.float64(matrix[i, j])
            exact[i, j] = math.log(p) + transitions.log_shift if p > 0 else log_transition[i, j]
    return exact


@kernel(allocates=True)
def loss_gradient(start, stop, sentences, tokens, weights, labels, transitions, check, gradient, sums):
    """Add loss and gradient of the sentences ``start`` to ``stop``, longest first; mark those that underflow.

    ``labels`` are the LabelScores, ``transitions`` the exponentiated transitions of the chain kernels. ``check`` is
    False if nothing can underflow (``Potentials.mixing``).
    """
    offsets, gold, weight, extra, extra_ids = sentences
    counts, loss, safe = sums
    log_transition = _step_scores(labels, transitions)
    S, Sp, Sw = log_transition.shape[0], transitions.matrix.shape[0], labels.start.size
    longest = offsets[start + 1] - offsets[start]
    dtype = weights.wide.dtype
    log_unary = np.empty((ROWS, longest, Sw), dtype)
    marginals = np.empty((ROWS, longest, Sw), dtype)
    lengths = np.empty(ROWS, np.int64)
    rows = np.arange(ROWS)
    slot = np.zeros(ROWS, np.int64)
    row_weight = np.empty(ROWS, dtype)
    log_z = np.empty(ROWS)
    good = np.empty(ROWS, np.bool_)
    chains = Chains(rows, lengths, log_unary)
    lattice = make_lattice(rows, ROWS, longest, Sp, log_unary)
    out = Outputs(row_weight, slot, marginals, counts)
    nothing = Outputs(row_weight, slot, np.empty((0, longest, Sw), dtype), np.empty((0, S, S)))
    for group in range(start, stop, ROWS):
        n = min(ROWS, stop - group)
        for r in range(n):
            s = group + r
            first = offsets[s]
            lengths[r] = offsets[s + 1] - first
            row_weight[r] = weight[s]
            good[r] = True
            scores(first, first + lengths[r], tokens, weights, S, log_unary, r * longest * Sw)
            log_unary[r, 0] += labels.start
            log_unary[r, lengths[r] - 1] += labels.end
            if extra_ids.size:
                for t in range(lengths[r]):
                    log_unary[r, t] += extra[extra_ids[first + t]]
        forward(0, n, chains, transitions, lattice, log_z)
        for r in range(n):
            good[r] = log_z[r] > -np.inf
        if check:  # first without outputs: an unsafe sentence must not reach the sums that sentences share
            backward(0, n, chains, transitions, lattice, good, nothing)
        backward(0, n, chains, transitions, lattice, good, out)
        for r in range(n):
            s = group + r
            safe[s] = good[r]
            if not good[r]:
                continue
            first = offsets[s]
            score = 0.0
            for t in range(lengths[r] if gold[first] >= 0 else 0):
                y = gold[first + t]
                score += log_unary[r, t, y]
                marginals[r, t, y] -= row_weight[r]
                if t > 0:
                    score += log_transition[gold[first + t - 1], y]
                    counts[0, gold[first + t - 1], y] -= row_weight[r]
            scatter(first, first + lengths[r], marginals, r * longest * Sw, tokens, gradient)
            loss[s] = weight[s] * (log_z[r] - score)


@kernel(allocates=True)
def lane_loss_gradient(start, stop, sentences, tokens, weights, labels, transitions, gradient, sums):
    """Do the same as ``loss_gradient`` with one sentence per lane: faster for few labels and similar lengths."""
    offsets, gold, weight, extra, extra_ids = sentences
    counts, loss, safe = sums
    log_transition = _step_scores(labels, transitions)
    S, Sw, L = log_transition.shape[0], labels.start.size, 2 * lanes(weights.wide)
    longest = offsets[start + 1] - offsets[start]
    rows = aligned(L * longest * Sw, weights.wide).reshape(L, longest, Sw)
    group, matrix = by_lane.make_group(longest, S, rows), transitions.matrix
    score = np.empty(L)
    for first_sentence in range(start, stop, L):
        n = min(L, stop - first_sentence)
        T = offsets[first_sentence + 1] - offsets[first_sentence]
        group.lengths[:] = 0
        for r in range(n):
            s = first_sentence + r
            first = offsets[s]
            length = offsets[s + 1] - first
            group.lengths[r] = length
            group.weight[r] = weight[s]
            scores(first, first + length, tokens, weights, S, rows, r * longest * Sw)
            rows[r, 0] += labels.start
            rows[r, length - 1] += labels.end
            if extra_ids.size:
                for t in range(length):
                    rows[r, t] += extra[extra_ids[first + t]]
            score[r] = 0
            for t in range(length if gold[first] >= 0 else 0):
                y = gold[first + t]
                score[r] += rows[r, t, y]
                if t > 0:
                    score[r] += log_transition[gold[first + t - 1], y]
        by_lane.forward(T, group, matrix, transitions.log_shift)
        by_lane.backward(T, group, matrix, counts[0])
        for r in range(n):
            s = first_sentence + r
            safe[s] = group.safe[r]
            if not safe[s]:
                continue
            first = offsets[s]
            for t in range(group.lengths[r] if gold[first] >= 0 else 0):
                y = gold[first + t]
                rows[r, t, y] -= group.weight[r]
                if t > 0:
                    counts[0, gold[first + t - 1], y] -= group.weight[r]
            scatter(first, first + group.lengths[r], rows, r * longest * Sw, tokens, gradient)
            loss[s] = weight[s] * (group.log_z[r] - score[r])
