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
from trelliswork.compute.simd import (
    add,
    exponential,
    get,
    lanes,
    load,
    maximum,
    prefetch,
    put,
    spread,
    store,
    subtract,
)
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.compute.tiles import load_tile, square_tile, store_tile, transpose
from trelliswork.inference.chain.kernels.forward_backward import ROWS, backward, forward
from trelliswork.inference.chain.kernels.lanes import STATES, LaneSteps, forward_backward
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


class Gradient(NamedTuple):
    """Sums of expected minus observed features."""

    state: Any  # FeatureWeights
    edges: Any  # (n_edge_features,)
    counts: Any  # (S, S) or (n_entries,) float64: transitions


class Losses(NamedTuple):
    """Outputs by sentence."""

    loss: Any  # (n_sentences,)
    safe: Any  # (n_sentences,) False for sentences that underflow: they add nothing


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
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values = tokens
    wide, narrow, narrow_labels = weights
    Sw, W = wide.shape[1], lanes(wide)
    flat = out.reshape(-1)
    for i in range(start, stop):
        for k in range(Sw):
            put(flat, to + k, wide.dtype.type(0.0 if k < n_labels else -np.inf))
        first, last = wide_ptr[i], wide_ptr[i + 1]
        for k in range(0, Sw - W, 2 * W):  # two vectors at a time stay in registers
            left, right = load(flat, to + k), load(flat, to + k + W)
            for at in range(first, last):
                if k == 0:
                    _fetch(wide, wide_ids, at, Sw)
                row = np.int64(get(wide_ids, at)) * Sw + k
                if wide_values.size:
                    by = spread(wide, wide_values[at])
                    left = fma(load(wide, row), by, left)
                    right = fma(load(wide, row + W), by, right)
                else:
                    left, right = add(load(wide, row), left), add(load(wide, row + W), right)
            store(flat, to + k, left)
            store(flat, to + k + W, right)
        if (Sw // W) % 2:
            left = load(flat, to + Sw - W)
            for at in range(first, last):
                if Sw == W:
                    _fetch(wide, wide_ids, at, Sw)
                row = load(wide, np.int64(get(wide_ids, at)) * Sw + Sw - W)
                left = fma(row, spread(wide, wide_values[at]), left) if wide_values.size else add(row, left)
            store(flat, to + Sw - W, left)
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
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values = tokens
    wide, narrow, narrow_labels = gradient
    Sw, W = wide.shape[1], lanes(wide)
    flat = residual.reshape(-1)
    for i in range(start, stop):
        for at in range(wide_ptr[i], wide_ptr[i + 1]):
            _fetch(wide, wide_ids, at, Sw)
            row = np.int64(get(wide_ids, at)) * Sw
            by = spread(wide, wide_values[at] if wide_values.size else narrow.dtype.type(1))
            for k in range(0, Sw, W):
                change, old = load(flat, to + k), load(wide, row + k)
                store(wide, row + k, fma(change, by, old) if wide_values.size else add(change, old))
        for at in range(narrow_ptr[i], narrow_ptr[i + 1]):
            _fetch(narrow, narrow_ids, at, 1)
            _fetch(narrow_labels, narrow_ids, at, 1)
            f = get(narrow_ids, at)
            value = narrow_values[at] if narrow_values.size else narrow.dtype.type(1)
            put(narrow, f, get(narrow, f) + get(flat, to + get(narrow_labels, f)) * value)
        to += Sw


@helper(allocates=True, inline="always")
def score_sentence(s, sentences, tokens, weights, labels, out, r):
    """Fill out[r] with the scores (T, Sw) of the labels of sentence s."""
    offsets, extra, extra_ids = sentences.offsets, sentences.extra, sentences.extra_ids
    first, stop = offsets[s], offsets[s + 1]
    scores(first, stop, tokens, weights, len(labels.log_transition), out, r * out.shape[1] * out.shape[2])
    last = stop - first - 1
    for k in range(out.shape[2]):  # an expression of arrays takes longer than a short sentence
        out[r, 0, k] += labels.start[k]
        out[r, last, k] += labels.end[k]
    if extra_ids.size:
        for t in range(stop - first):
            out[r, t] += extra[extra_ids[first + t]]


@helper
def gold_score(s, sentences, log_unary, log_transition):
    """Return the score of the gold labels of sentence s, 0 if it has none."""
    offsets, gold = sentences.offsets, sentences.gold
    first, score = offsets[s], 0.0
    for t in range(offsets[s + 1] - first if gold[first] >= 0 else 0):
        y = gold[first + t]
        score += log_unary[t, y]
        if t > 0:
            score += log_transition[gold[first + t - 1], y]
    return score


@helper
def subtract_gold(s, sentences, residual, counts):
    """Subtract the gold labels of sentence s, if any, from its weighted expectations (T, Sw) and (S, S)."""
    offsets, gold, by_sentence = sentences.offsets, sentences.gold, sentences.weight[s]
    first = offsets[s]
    for t in range(offsets[s + 1] - first if gold[first] >= 0 else 0):
        y = gold[first + t]
        residual[t, y] -= by_sentence
        if t > 0:
            counts[gold[first + t - 1], y] -= by_sentence


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
def loss_gradient(start, stop, sentences, tokens, weights, labels, transitions, gradient, losses):
    """Add loss and gradient of the sentences ``start`` to ``stop``, longest first; mark those that underflow.

    ``labels`` are the LabelScores, ``transitions`` the exponentiated transitions of the chain kernels.
    """
    offsets, weight = sentences.offsets, sentences.weight
    loss, safe = losses
    log_transition, counts = _step_scores(labels, transitions), gradient.counts.reshape((1, *gradient.counts.shape))
    Sp, Sw, dtype = transitions.matrix.shape[0], labels.start.size, weights.wide.dtype
    longest = offsets[start + 1] - offsets[start]
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
    for group in range(start, stop, ROWS):
        n = min(ROWS, stop - group)
        for r in range(n):
            s = group + r
            lengths[r] = offsets[s + 1] - offsets[s]
            row_weight[r] = weight[s]
            score_sentence(s, sentences, tokens, weights, labels, log_unary, r)
        forward(0, n, chains, transitions, lattice, log_z)
        for r in range(n):
            good[r] = log_z[r] > -np.inf
        backward(0, n, chains, transitions, lattice, good, out)
        for r in range(n):
            s = group + r
            safe[s] = good[r]
            if good[r]:
                score = gold_score(s, sentences, log_unary[r], log_transition)
                subtract_gold(s, sentences, marginals[r], counts[0])
                scatter(offsets[s], offsets[s + 1], marginals, r * longest * Sw, tokens, gradient.state)
                loss[s] = weight[s] * (log_z[r] - score)


@helper(allocates=True)
def _begin(source, group, safe):
    """Compute the scores of the sentences of a group, and of their gold labels; -inf for one that is not safe."""
    sentences, rows = source.sentences, source.rows
    source.log_scale[:] = 0
    for r in range(group.n):
        s = group.first + r
        if safe[s]:
            score_sentence(s, sentences, source.tokens, source.state, source.labels, rows, r)
            source.score[r] = gold_score(s, sentences, rows[r], source.log_transition)
        else:
            rows[r, : sentences.offsets[s + 1] - sentences.offsets[s]] = -np.inf


@helper
def _fill_lanes(source, group, t, active, out):
    """Write e_t = exp(score - maximum), label by label; add the maxima to the logarithms of the scales."""
    rows, turned, shift, S = source.rows, source.turned, source.shift, len(source.log_transition)
    longest, Sw, Sp, L, W = rows.shape[1], rows.shape[2], out.shape[1], out.shape[2], lanes(out)
    for v in range(0, L, W):
        for k in range(0, Sw, W):
            block = load_tile(square_tile(rows), rows, (v * longest + t) * Sw + k, longest * Sw)
            store_tile(turned, k * L + v, L, transpose(block))
    for r in range(active, L):
        turned[:, r] = -np.inf
    for v in range(0, L, W):
        at = t * Sp * L + v
        top = spread(out, -1e30)  # not -inf: exp(-inf - (-inf)) would be nan
        for j in range(S):
            top = maximum(load(turned, j * L + v), top)
        for j in range(S):
            store(out, at + j * L, exponential(subtract(load(turned, j * L + v), top)))
        for j in range(S, Sp):
            store(out, at + j * L, spread(out, 0.0))
        store(shift, v, top)
    for r in range(active):
        source.log_scale[r] += shift[r]


@helper
def _absorb(source, group, t, active, marginals):
    """Replace the scores by the marginals."""
    rows, (Sp, L), W = source.rows, marginals.shape, lanes(marginals)
    longest, Sw = rows.shape[1:]
    for v in range(0, L, W):
        for k in range(0, Sp, W):
            block = load_tile(square_tile(marginals), marginals, k * L + v, L)
            store_tile(rows, (v * longest + t) * Sw + k, longest * Sw, transpose(block))


@helper
def _end(source, group, log_z, safe):
    """Add the residuals of the safe sentences of a group to the gradient, and replace log Z by the loss."""
    offsets, weight = source.sentences.offsets, source.sentences.weight
    rows, longest, Sw = source.rows, source.rows.shape[1], source.rows.shape[2]
    for r in range(group.n):
        s = group.first + r
        if safe[s]:
            subtract_gold(s, source.sentences, rows[r], source.counts)
            scatter(offsets[s], offsets[s + 1], rows, r * longest * Sw, source.tokens, source.gradient)
            log_z[s] = weight[s] * (log_z[s] - source.score[r])


class SentenceLanes(NamedTuple):
    """Sentences as a source of ``chain.kernels.lanes``."""

    offsets: Any
    weights: Any
    log_scale: Any  # (L,)
    sentences: Any  # Sentences
    tokens: Any  # TokenRows
    state: Any  # FeatureWeights
    labels: Any  # LabelScores
    log_transition: Any  # (S, S) float64
    rows: Any  # (L, T, Sw) scores, then marginals
    turned: Any  # (Sw, L) scores of a position
    shift: Any  # (L,) their maxima
    score: Any  # (L,) of the gold labels
    gradient: Any  # FeatureWeights
    counts: Any  # (S, S)
    begin = _begin
    fill_lanes = _fill_lanes
    absorb = _absorb
    end = _end


@kernel(allocates=True)
def lane_loss_gradient(start, stop, sentences, tokens, weights, labels, transitions, gradient, losses):
    """Add loss and gradient with one sentence per lane: faster for few labels and similar lengths."""
    wide, S, Sw = weights.wide, len(labels.log_transition), labels.start.size
    longest, L = sentences.offsets[start + 1] - sentences.offsets[start], 2 * lanes(wide)
    S4 = -(-S // STATES) * STATES
    source = SentenceLanes(
        sentences.offsets, sentences.weight, np.zeros(L), sentences, tokens, weights, labels,
        _step_scores(labels, transitions), aligned(L * longest * Sw, wide).reshape(L, longest, Sw),
        aligned(Sw * L, wide).reshape(Sw, L), np.zeros(L, wide.dtype), np.zeros(L), gradient.state, gradient.counts,
    )  # fmt: skip
    ones, matrix = np.ones(Sw, wide.dtype), transitions.matrix
    steps = LaneSteps(ones, ones, matrix[:S, :S].copy(), matrix[:S4, :S4].copy(), transitions.log_shift)
    forward_backward(start, stop, source, steps, gradient.counts, losses.loss, losses.safe)
