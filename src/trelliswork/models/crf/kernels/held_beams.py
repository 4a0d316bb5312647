"""Compiled objective of linear-chain CRFs within given sets of states: training while beams are held.

The recursion is that of ``inference.chain.kernels.blocks``. A block of transitions is copied from the matrix once. Time
O(sum of |I_{t-1}| |I_t|) plus the features.

With a rest (``beam_rest``) each set has one more state, its last, that represents all states outside. Its scores are
fixed, except that transitions from it into a state of a set get that state's score. It has no features, so the gradient
is that of the states inside.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import get, lanes, put
from trelliswork.inference.chain.kernels.blocks import backward, forward, make_space
from trelliswork.models.crf.kernels.beams import add_row


class Rest(NamedTuple):
    """Scores of the states outside the sets, as one state per token; all empty: left out."""

    into: Any  # for each state of the sets: from it into the rest of the next token
    out_of: Any  # for each state of the sets: from the rest of the previous token into it
    stay: Any  # (n_tokens,) from rest to rest
    log_scale: Any  # (n_tokens,) score of the rest itself


class Factors(NamedTuple):
    """Factors of the scores of rests at the current weights."""

    log_state: Any  # (n_wide_rows,) logarithms, for each attribute with a dense row
    row: Any  # (S,) transitions from a state into a rest
    column: Any  # (S,) transitions from a rest into a state
    both: float  # transitions from rest to rest


class Masses(NamedTuple):
    """Weighted probability of rests, summed by what each factor multiplies."""

    state: Any  # (n_wide_rows,)
    row: Any  # (S,)
    column: Any  # (S,)
    both: Any  # (1,)


class Held(NamedTuple):
    """Sets that are held; the gold label of each token is inside."""

    sets: Any  # BeamSets
    rest: Any  # Rest
    factors: Any  # Factors


class Step(NamedTuple):
    """Indices of two neighboring positions."""

    before: int  # of the first state of the earlier set
    here: int  # of the first state of the later set
    n: int  # states of the later set
    width: int  # the same in whole vectors, with the rest
    at: int  # of the block
    earlier: int  # of the first alpha of the earlier position
    later: int  # of the first ahead of the later position


@helper
def _pick(source, first, states, at, n, width, out, to):
    """Set out[to : to + width] to source[first + state] of n states, then to zeros."""
    for k in range(n):
        put(out, to + k, get(source, first + get(states, at + k)))
    for k in range(n, width):
        put(out, to + k, out.dtype.type(0))


@helper
def _add_picked(source, states, at, n, out, to):
    """Add source[states[at : at + n]] to out[to : to + n]."""
    for k in range(n):
        put(out, to + k, get(out, to + k) + get(source, get(states, at + k)))


@helper
def _set_scores(i, tokens, weights, states, at, n, width, out, to):
    """Set out[to : to + width] to the scores of the n ascending states of token i, then to -inf."""
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values = tokens
    wide, narrow, narrow_labels = weights
    flat, Sw = wide.reshape(-1), wide.shape[1]
    for k in range(width):
        put(out, to + k, out.dtype.type(0) if k < n else out.dtype.type(-np.inf))
    for e in range(wide_ptr[i], wide_ptr[i + 1]):
        row = np.int64(get(wide_ids, e)) * Sw
        by = wide_values[e] if wide_values.size else out.dtype.type(1)
        for k in range(n):
            put(out, to + k, get(out, to + k) + get(flat, row + get(states, at + k)) * by)
    for e in range(narrow_ptr[i], narrow_ptr[i + 1]):
        f = get(narrow_ids, e)
        k = np.searchsorted(states[at : at + n], narrow_labels[f])
        if k < n and states[at + k] == narrow_labels[f]:
            by = narrow_values[e] if narrow_values.size else out.dtype.type(1)
            put(out, to + k, get(out, to + k) + get(narrow, f) * by)


@helper
def _add_transitions(step, states, block, alpha, ahead, weight, counts):
    """Add the weighted expected transitions between two sets to ``counts`` (S, S)."""
    before, here, n, width, at, earlier, later = step
    S = counts.shape[1]
    for a in range(before, here):
        row, x = np.int64(get(states, a)) * S, get(alpha, earlier + a - before) * weight
        for k in range(n):
            j = row + get(states, here + k)
            put(counts, j, get(counts, j) + x * get(block, at + k) * get(ahead, later + k))
        at += width


@helper
def _add_rests(step, states, block, alpha, ahead, weight, row_mass, column_mass):
    """Add the weighted expected transitions into and out of a rest, the last state of its set; return rest to rest."""
    before, here, n, width, at, earlier, later = step
    into = np.float64(get(ahead, later + n)) * weight
    for a in range(before, here):
        row_mass[get(states, a)] += get(alpha, earlier + a - before) * get(block, at + n) * into
        at += width
    rest = np.float64(get(alpha, earlier + here - before))
    for k in range(n):
        column_mass[get(states, here + k)] += rest * weight * get(block, at + k) * get(ahead, later + k)
    return rest * get(block, at + n) * into


@helper
def _rest_row(token, states, here, n, width, rest, factors, unshifted, block, at):
    """Fill the last row of a block: the transitions from the rest of the previous token."""
    out_of, stay, column, dtype = rest.out_of, rest.stay, factors.column, block.dtype
    for k in range(n):
        put(block, at + k, get(out_of, here + k) * (get(column, get(states, here + k)) * unshifted))
    put(block, at + n, stay[token] * dtype.type(factors.both))
    for k in range(n + 1, width):
        put(block, at + k, dtype.type(0))


@kernel(allocates=True)
def loss_gradient(start, stop, sentences, tokens, weights, held, limit, gradient, masses, losses):
    """Add loss and gradient of the sentences ``start`` to ``stop``; mark those that are not safe.

    With a rest, ``masses`` (a ``Masses``) receives the weighted probability of what each factor multiplies.
    """
    offsets, gold, weight, entry = sentences
    ptr, states = held.sets
    rest, factors = held.rest, held.factors
    into, log_scale, log_state, row_factor = rest.into, rest.log_scale, factors.log_state, factors.row
    state_mass, row_mass, column_mass, both_mass = masses
    wide_ptr, wide_ids, wide_values = tokens.wide_ptr, tokens.wide_ids, tokens.wide_values
    state, labels, matrix, log_shift = weights
    start_scores, end_scores, log_transition = labels
    state_gradient, counts = gradient.state, gradient.counts
    Sw, W, dtype = state.wide.shape[1], lanes(state.wide), state.wide.dtype
    n_rest = 1 if rest.stay.size else 0
    unshifted = dtype.type(math.exp(-log_shift))
    s = make_space(start, stop, offsets, ptr, n_rest, state.wide)
    place, block_at, block, emission, alpha, _, marginals, ahead = s
    residual = np.zeros(Sw, dtype)
    for sentence in range(start, stop):
        first, T, by_sentence = offsets[sentence], offsets[sentence + 1] - offsets[sentence], weight[sentence]
        log_z, score = (T - 1) * log_shift, 0.0
        for t in range(T):
            i = first + t
            here, n = ptr[i], ptr[i + 1] - ptr[i]
            width = -(-(n + n_rest) // W) * W
            place[t + 1] = place[t] + width
            _set_scores(i, tokens, state, states, here, n, width, emission, place[t])
            if t == 0:
                _add_picked(start_scores, states, here, n, emission, place[t])
            if t == T - 1:
                _add_picked(end_scores, states, here, n, emission, place[t])
            score += emission[place[t] + np.searchsorted(states[here : here + n], gold[i])]
            if n_rest:
                fixed = np.float64(log_scale[i]) - (log_shift if t else 0.0)
                for at in range(wide_ptr[i], wide_ptr[i + 1]):
                    by = np.float64(wide_values[at]) if wide_values.size else 1.0
                    fixed += by * log_state[wide_ids[at]]
                put(emission, place[t] + n, dtype.type(fixed))
            log_z += exp_row(emission, place[t], width, emission, place[t], width)
            if t == 0:
                block_at[1] = 0
                continue
            before, to = ptr[i - 1], block_at[t]
            block_at[t + 1] = to + (here - before + n_rest) * width
            for a in range(before, here):
                _pick(matrix, np.int64(get(states, a)) * matrix.shape[1], states, here, n, width, block, to)
                if n_rest:
                    put(block, to + n, get(into, a) * get(row_factor, get(states, a)))
                to += width
            if n_rest:
                _rest_row(i, states, here, n, width, rest, factors, unshifted, block, to)
        log_z += forward(T, s)
        safe = log_z > -np.inf and backward(T, s, limit, by_sentence)
        losses.safe[sentence] = safe
        if not safe:
            continue
        for t in range(T):
            i, y = first + t, gold[first + t]
            here, n = ptr[i], ptr[i + 1] - ptr[i]
            for k in range(n):
                put(residual, get(states, here + k), get(marginals, place[t] + k))
            residual[y] -= by_sentence
            add_row(i, residual, states, here, n, tokens, state_gradient)
            for k in range(n):
                put(residual, get(states, here + k), dtype.type(0))
            if n_rest:
                mass = np.float64(get(marginals, place[t] + n))
                for at in range(wide_ptr[i], wide_ptr[i + 1]):
                    state_mass[wide_ids[at]] += mass * wide_values[at] if wide_values.size else mass
            if t == 0:
                continue
            before, pair, width = ptr[i - 1], entry[i], place[t + 1] - place[t]
            step = Step(before, here, n, width, block_at[t], place[t - 1], place[t])
            if n_rest:
                both_mass[0] += _add_rests(step, states, block, alpha, ahead, by_sentence, row_mass, column_mass)
            _add_transitions(step, states, block, alpha, ahead, by_sentence, counts)
            put(counts, pair, get(counts, pair) - by_sentence)
            score += get(log_transition, pair)
        losses.loss[sentence] = by_sentence * (log_z - score)
