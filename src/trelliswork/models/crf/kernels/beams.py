"""Compiled objective of linear-chain CRFs within beams: as ``objective`` and ``edges``, on few states per token.

    loss = log Z_I - score(gold)       gradient of a row += p_I(y_t = . | x) - [y_t = .]

The beams I are chosen as in ``inference.chain.beam.kernels``, with the gold states always inside.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import add, get, lanes, load, put, spread, store
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.inference.chain.beam.kernels.dense import Matrices
from trelliswork.inference.chain.beam.kernels.forward_backward import (
    finish_forward,
    forward,
    make_space,
    marginals,
    start_forward,
    within,
)
from trelliswork.inference.chain.beam.kernels.records import Safety, Sequence
from trelliswork.models.crf.kernels.objective import scores


class BeamSentences(NamedTuple):
    """Fully labeled sentences, longest first."""

    offsets: Any  # (n_sentences + 1,)
    gold: Any  # (n_tokens,) states
    weight: Any  # (n_sentences,)
    entry: Any  # (n_tokens,) sparse transition into each gold state, -1 at the start of a sentence; else empty


class ChainScores(NamedTuple):
    """Weights of a CRF with dense transitions."""

    state: Any  # FeatureWeights
    labels: Any  # LabelScores
    matrix: Any  # (S, Sp) scaled probabilities of the transitions
    log_shift: float  # taken out of their logarithms; 0 with edge features
    edges: Any  # EdgeFeatures
    use_edges: bool


class EntryScores(NamedTuple):
    """Weights of a CRF with sparse transitions."""

    state: Any  # FeatureWeights
    entries: Any  # Entries: scaled probabilities
    log_start: Any  # (S,)
    log_end: Any  # (S,)
    log_values: Any  # (n_entries,)
    n_labels: int


class BeamGradient(NamedTuple):
    """Sums of expected minus observed features."""

    state: Any  # FeatureWeights
    edges: Any  # (n_edge_features,)
    counts: Any  # (S, S) or (n_entries,) float64: transitions


class BeamSums(NamedTuple):
    """Outputs besides the gradient."""

    loss: Any  # (n_sentences,)
    safe: Any  # (n_sentences,) False for sentences that underflow: they add nothing
    sizes: Any  # (n_tokens,) of the beams
    kept: Any  # (n_tokens,) share of the mass that was kept
    rows: Any  # BeamRows: the beams and their weighted marginals, unless empty; those of token i start at ptr[i]


class PairBlock(NamedTuple):
    """Expected pairs of the states of two neighboring tokens.

    ``states[before:here]`` are those of the earlier token, ``states[here:end]`` those of the later one; their pairs
    start at ``pairs[at]``, one row of ``width`` numbers per earlier state.
    """

    states: Any
    before: Any
    here: Any
    end: Any
    pairs: Any
    at: Any
    width: Any


@helper
def add_row(i, residual, labels, first, n, tokens, gradient):
    """Add the residual (Sw,) of token i to the gradient; only labels[first : first + n] of it are not zero."""
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values = tokens
    wide, narrow, narrow_labels = gradient
    Sw, W = wide.shape[1], lanes(wide)
    few = 2 * n < Sw // W  # then single numbers cost less than whole rows
    for at in range(wide_ptr[i], wide_ptr[i + 1]):
        row = np.int64(wide_ids[at]) * Sw
        value = wide_values[at] if wide_values.size else wide.dtype.type(1)
        if few:
            for k in range(n):
                j = get(labels, first + k)
                put(wide, row + j, get(wide, row + j) + value * get(residual, j))
        elif wide_values.size:
            by = spread(wide, value)
            for k in range(0, Sw, W):
                store(wide, row + k, fma(load(residual, k), by, load(wide, row + k)))
        else:
            for k in range(0, Sw, W):
                store(wide, row + k, add(load(residual, k), load(wide, row + k)))
    for at in range(narrow_ptr[i], narrow_ptr[i + 1]):
        f = narrow_ids[at]
        value = narrow_values[at] if narrow_values.size else narrow.dtype.type(1)
        narrow[f] += residual[narrow_labels[f]] * value


@helper
def add_pairs(i, S, block, gold, weight, square, edges, edge_gradient, counts):
    """Add the expected pairs of states into token i, less the observed one ``gold``, to the gradients.

    ``square`` (S S) must be zero and is zero again on return.
    """
    states, before, here, end, pairs, at, width = block
    first, last = edges.token_ptr[i], edges.token_ptr[i + 1]
    complete = True
    for e in range(first, last):
        complete &= edges.ptr[edges.ids[e] + 1] - edges.ptr[edges.ids[e]] == S * S
    if complete:  # a weight for every pair, stored in order
        for a in range(before, here):
            row, from_ = np.int64(get(states, a)) * S, at + (a - before) * width - here
            for k in range(here, end):
                j, p = row + get(states, k), get(pairs, from_ + k)
                put(counts, j, get(counts, j) + p)
                for e in range(first, last):
                    f = edges.ptr[edges.ids[e]] + j
                    put(edge_gradient, f, get(edge_gradient, f) + p)
        put(counts, gold, get(counts, gold) - weight)
        for e in range(first, last):
            edge_gradient[edges.ptr[edges.ids[e]] + gold] -= weight
        return
    for a in range(before, here):
        for k in range(here, end):
            square[states[a] * S + states[k]] = pairs[at + (a - before) * width + k - here]
    square[gold] -= weight
    for e in range(first, last):
        for f in range(edges.ptr[edges.ids[e]], edges.ptr[edges.ids[e] + 1]):
            edge_gradient[f] += square[edges.pairs[f]]
    for a in range(before, here):
        for k in range(here, end):
            j = states[a] * S + states[k]
            counts[states[a], states[k]] += square[j]
            square[j] = 0


@helper
def edge_row(edges, log_transition, token, i, matrix, to):
    """Set matrix[to : to + S] to the scores of the transitions from state i into a token, flat."""
    S = log_transition.shape[0]
    for j in range(S):
        put(matrix, to + j, get(log_transition, i * S + j))
    for at in range(edges.token_ptr[token], edges.token_ptr[token + 1]):
        begin, end = edges.ptr[edges.ids[at]], edges.ptr[edges.ids[at] + 1]
        if end - begin == S * S:  # a weight for every pair, stored in order
            for j in range(S):
                put(matrix, to + j, get(matrix, to + j) + get(edges.weights, begin + i * S + j))
            continue
        while begin < end:  # the first feature of row i; pairs are sorted
            middle = (begin + end) // 2
            if edges.pairs[middle] < i * S:
                begin = middle + 1
            else:
                end = middle
        while begin < edges.ptr[edges.ids[at] + 1] and edges.pairs[begin] < (i + 1) * S:
            matrix_at = to + edges.pairs[begin] - i * S
            put(matrix, matrix_at, get(matrix, matrix_at) + edges.weights[begin])
            begin += 1


@helper
def _choose_beams(sequence, steps, weights, gold, rule, s):
    """Choose the beams of a sentence and fill its alpha; return log Z of the restricted chain, -inf if it is lost.

    With edge features only the rows of states in the beam are computed.
    """
    T, ptr, states, matrix = sequence.n_positions, s.ptr, s.states, steps.rows
    edges, log_transition = weights.edges, weights.labels.log_transition
    start_forward(T, steps, s)
    if not weights.use_edges:
        return finish_forward(s) if forward(0, T, sequence, steps, gold, rule, s) else -np.inf
    for t in range(T):
        if t > 0:
            S = sequence.n_labels
            for a in range(ptr[t - 1], ptr[t]):
                to = ((t - 1) * S + states[a]) * S
                edge_row(edges, log_transition, sequence.first + t, states[a], matrix, to)
        if not forward(t, t + 1, sequence, steps, gold, rule, s):
            return -np.inf
    return finish_forward(s)


@helper
def _copy_beams(first, T, s, sums):
    """Copy the beams of a sentence, whose tokens start at ``first``, to the outputs."""
    ptr, rows = s.ptr, sums.rows
    for t in range(T):
        sums.sizes[first + t], sums.kept[first + t] = ptr[t + 1] - ptr[t], s.kept[t]
        if rows.ptr.size:
            to = rows.ptr[first + t]
            for k in range(ptr[t], ptr[t + 1]):
                rows.states[to + k - ptr[t]] = s.states[k]
                rows.masses[to + k - ptr[t]] = s.alpha[k]


@kernel(allocates=True)
def dense(start, stop, sentences, tokens, weights, rule, safety, gradient, sums):
    """Add loss and gradient of the sentences ``start`` to ``stop``; mark those that are not safe."""
    offsets, gold, weight, _ = sentences
    labels, edges, use_edges = weights.labels, weights.edges, weights.use_edges
    state_gradient, edge_gradient, counts = gradient
    log_transition, wide = labels.log_transition, weights.state.wide
    S, Sw, dtype = log_transition.shape[0], wide.shape[1], wide.dtype
    longest = offsets[start + 1] - offsets[start]
    log_unary = np.empty((longest, Sw), dtype)
    s = make_space(longest, S, S, False, use_edges, False, wide)
    n_steps = longest - 1 if use_edges else 0
    log_pairwise = np.empty((n_steps * S, S), dtype)
    matrix = log_pairwise if use_edges else weights.matrix
    steps = Matrices(matrix, 0, 1 if use_edges else 0, use_edges, weights.log_shift, 0.0)
    pairs = np.empty(n_steps * S * S, dtype)
    residual, square = np.zeros(Sw, dtype), np.zeros(S * S if use_edges else 0, dtype)
    pass_counts = np.empty((0, S)) if use_edges else counts
    ptr, states, alpha = s.ptr, s.states, s.alpha
    for n in range(start, stop):
        first, T = offsets[n], offsets[n + 1] - offsets[n]
        scores(first, first + T, tokens, weights.state, S, log_unary, 0)
        log_unary[0] += labels.start
        log_unary[T - 1] += labels.end
        sequence = Sequence(0, T, S, first, log_unary, 0, Sw)
        log_z = _choose_beams(sequence, steps, weights, gold, rule, s)
        safe = log_z > -np.inf and marginals(sequence, steps, safety, weight[n], pass_counts, pairs, s)
        sums.safe[n] = safe
        if not safe:
            continue
        score, at_pair = 0.0, 0
        for t in range(T):
            i, y = first + t, gold[first + t]
            here, size = ptr[t], ptr[t + 1] - ptr[t]
            for k in range(here, here + size):
                put(residual, get(states, k), get(alpha, k))
            residual[y] -= weight[n]
            score += log_unary[t, y]
            add_row(i, residual, states, here, size, tokens, state_gradient)
            for k in range(here, here + size):
                put(residual, get(states, k), dtype.type(0))
            if t == 0:
                continue
            before = gold[i - 1]
            if not use_edges:
                score += log_transition[before, y]
                counts[before, y] -= weight[n]
                continue
            score += log_pairwise[(t - 1) * S + before, y]
            block = PairBlock(states, ptr[t - 1], here, ptr[t + 1], pairs, at_pair, size)
            add_pairs(i, S, block, before * S + y, weight[n], square, edges, edge_gradient, counts)
            at_pair += (here - ptr[t - 1]) * size
        _copy_beams(first, T, s, sums)
        sums.loss[n] = weight[n] * (log_z - score)


@kernel(allocates=True)
def sparse(start, stop, sentences, tokens, weights, sets, rule, limit, gradient, sums):
    """Add loss and gradient for sparse transitions, within ``sets`` (a ``BeamSets``) unless it is empty."""
    offsets, gold, weight, entry = sentences
    entries, emits, log_values, wide = weights.entries, weights.entries.emits, weights.log_values, weights.state.wide
    state_gradient, _, counts = gradient
    S, L, Sw, dtype = emits.size, weights.n_labels, wide.shape[1], wide.dtype
    longest = offsets[start + 1] - offsets[start]
    log_unary = np.empty((longest, Sw), dtype)
    s, no_pairs = make_space(longest, S, L, False, False, True, wide), np.empty(0, dtype)
    residual, labels = np.zeros(Sw, dtype), np.arange(L, dtype=np.int32)
    ptr, states, alpha = s.ptr, s.states, s.alpha
    for n in range(start, stop):
        first, T = offsets[n], offsets[n + 1] - offsets[n]
        scores(first, first + T, tokens, weights.state, L, log_unary, 0)
        sequence = Sequence(0, T, L, first, log_unary, 0, Sw)
        if sets.ptr.size:
            log_z = within(sequence, entries, sets, s)
        else:
            start_forward(T, entries, s)
            log_z = finish_forward(s) if forward(0, T, sequence, entries, gold, rule, s) else -np.inf
        safe = log_z > -np.inf and marginals(sequence, entries, Safety(limit, True), weight[n], counts, no_pairs, s)
        sums.safe[n] = safe
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
            add_row(i, residual, labels, 0, L, tokens, state_gradient)
            if t > 0:
                score += log_values[entry[i]]
                counts[entry[i]] -= weight[n]
        _copy_beams(first, T, s, sums)
        sums.loss[n] = weight[n] * (log_z - score)
