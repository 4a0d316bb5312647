"""Records of the objectives within sets of states, what both share, and the one with sparse transitions.

    loss = log Z_I - score(gold)       gradient of a row += p_I(y_t = . | x) - [y_t = .]

The gold states are always inside the sets I.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import get, lanes, put
from trelliswork.inference.chain.beam.kernels.forward_backward import make_space, marginals, within
from trelliswork.inference.chain.beam.kernels.records import Safety, Sequence
from trelliswork.models.crf.kernels.objective import scatter, scores


class BeamSentences(NamedTuple):
    """Fully labeled sentences, longest first."""

    offsets: Any  # (n_sentences + 1,)
    gold: Any  # (n_tokens,) states
    weight: Any  # (n_sentences,)
    entry: Any  # (n_tokens,) number of the transition into each gold state, -1 at the start of a sentence


class ChainScores(NamedTuple):
    """Weights of a CRF with dense transitions."""

    state: Any  # FeatureWeights
    labels: Any  # LabelScores
    matrix: Any  # (S, Sp) scaled probabilities of the transitions
    log_shift: float  # taken out of their logarithms


class EntryScores(NamedTuple):
    """Weights of a CRF with sparse transitions."""

    state: Any  # FeatureWeights
    entries: Any  # Entries: scaled probabilities
    log_start: Any  # (S,)
    log_end: Any  # (S,)
    log_values: Any  # (n_entries,)
    n_labels: int


@helper
def add_row(i, residual, labels, first, n, tokens, gradient):
    """Add the residual (Sw,) of token i to the gradient; only labels[first : first + n] of it are not zero."""
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values = tokens
    wide, narrow, narrow_labels = gradient
    Sw, one = wide.shape[1], wide.dtype.type(1)
    if 2 * n >= Sw // lanes(wide):  # then whole rows cost less than single numbers
        scatter(i, i + 1, residual, 0, tokens, gradient)
        return
    for at in range(wide_ptr[i], wide_ptr[i + 1]):
        row, value = np.int64(wide_ids[at]) * Sw, wide_values[at] if wide_values.size else one
        for k in range(n):
            j = get(labels, first + k)
            put(wide, row + j, get(wide, row + j) + value * get(residual, j))
    for at in range(narrow_ptr[i], narrow_ptr[i + 1]):
        f = narrow_ids[at]
        narrow[f] += residual[narrow_labels[f]] * (narrow_values[at] if narrow_values.size else one)


@kernel(allocates=True)
def sparse(start, stop, sentences, tokens, weights, sets, limit, gradient, losses):
    """Add loss and gradient for sparse transitions within ``sets`` (a ``BeamSets``); mark unsafe sentences."""
    offsets, gold, weight, entry = sentences
    entries, emits, log_values, wide = weights.entries, weights.entries.emits, weights.log_values, weights.state.wide
    counts = gradient.counts
    S, L, Sw, dtype = emits.size, weights.n_labels, wide.shape[1], wide.dtype
    longest = offsets[start + 1] - offsets[start]
    log_unary = np.empty((longest, Sw), dtype)
    s = make_space(longest, S, L, False, False, True, wide)
    residual = np.zeros(Sw, dtype)
    ptr, states, alpha = s.ptr, s.states, s.alpha
    for n in range(start, stop):
        first, T = offsets[n], offsets[n + 1] - offsets[n]
        scores(first, first + T, tokens, weights.state, L, log_unary, 0)
        sequence = Sequence(0, T, L, first, log_unary, 0, Sw)
        log_z = within(sequence, entries, sets, s)
        safe = log_z > -np.inf and marginals(sequence, entries, Safety(limit, True), weight[n], counts, s)
        losses.safe[n] = safe
        if not safe:
            continue
        score = np.float64(weights.log_start[gold[first]]) + np.float64(weights.log_end[gold[first + T - 1]])
        for t in range(T):
            i, y = first + t, gold[first + t]
            for k in range(Sw):
                put(residual, k, dtype.type(0))
            for k in range(ptr[t], ptr[t + 1]):
                j = get(emits, get(states, k))
                put(residual, j, get(residual, j) + get(alpha, k))
            residual[emits[y]] -= weight[n]
            score += log_unary[t, emits[y]]
            scatter(i, i + 1, residual, 0, tokens, gradient.state)
            if t > 0:
                score += log_values[entry[i]]
                counts[entry[i]] -= weight[n]
        losses.loss[n] = weight[n] * (log_z - score)
