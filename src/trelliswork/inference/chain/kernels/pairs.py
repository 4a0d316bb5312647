"""Compiled second-order chains: states are pairs of neighboring labels, and only pairs of active labels are visited.

Position t of a sentence has the states (i, j): active label i of token t-1 (label S, the start, at t = 0) and active
label j of token t. They are stored row by row from ``base[t]`` on in the sentence's own arrays.

Sums are computed in probability space relative to the best state; a sum smaller than ``TINY`` is computed again in log
space, so that nothing underflows.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel

TINY = 1e-200  # a sum this large has lost terms below 1e-300 at most: too small to change a float64


class Active(NamedTuple):
    """Active (possible) labels: those of token i are ``tags[ptr[i] : ptr[i + 1]]``, with log-scores ``emission``."""

    ptr: Any  # (n_tokens + 1,)
    tags: Any
    emission: Any


class Trigrams(NamedTuple):
    """Scores of label triples, and ``linear`` = exp(log - shift)."""

    log: Any  # (S + 1, S + 1, S + 1)
    linear: Any
    shift: Any  # float


class Space(NamedTuple):
    """Working memory for one sentence at a time."""

    base: Any  # (T + 1,) index of the first state of each position
    log_alpha: Any  # (states of the sentence,)
    log_beta: Any  # (states of a position,)
    ahead: Any  # (states of a position,)
    weights: Any  # (states of a position,)
    mass: Any  # (labels of a token,)
    terms: Any  # (labels of a token,)


@helper
def _lay_out(first, T, ptr, base):
    """Fill base (T + 1,), the index of the first state of each position."""
    base[0] = 0
    before = 1
    for t in range(T):
        here = ptr[first + t + 1] - ptr[first + t]
        base[t + 1] = base[t] + before * here
        before = here


@helper
def _sizes(start, stop, offsets, ptr):
    """Return the maximum number of positions, states per sentence, states per position and active labels per token."""
    longest, most, widest, labels = 0, 0, 0, 0
    for n in range(start, stop):
        total, before = 0, 1
        for i in range(offsets[n], offsets[n + 1]):
            here = ptr[i + 1] - ptr[i]
            total += before * here
            widest = max(widest, before * here)
            labels = max(labels, here)
            before = here
        longest, most = max(longest, offsets[n + 1] - offsets[n]), max(most, total)
    return longest, most, widest, labels


@helper
def _label(t, i, first, active, start):
    """Return the label of active label i of position t; position -1 has the start."""
    return start if t < 0 else active.tags[active.ptr[first + t] + i]


@helper
def _best_path(first, T, active, log_trigram, base, scores, back, labels):
    """Fill the labels of one sentence; return its best score, -inf if no labeling is possible."""
    ptr, tags, emission = active
    S = log_trigram.shape[0] - 1
    if T == 0:
        return log_trigram[S, S, S]
    for k in range(base[1]):
        scores[k] = log_trigram[S, S, tags[ptr[first] + k]] + emission[ptr[first] + k]
    for t in range(1, T):
        J, p = ptr[first + t] - ptr[first + t - 1], ptr[first + t]
        K, n_before = ptr[first + t + 1] - p, (base[t] - base[t - 1]) // max(J, 1)
        scores[base[t] : base[t + 1]] = -np.inf
        for j in range(J):
            b, out = _label(t - 1, j, first, active, S), base[t] + j * K
            for i in range(n_before):
                score = scores[base[t - 1] + i * J + j]
                if score == -np.inf:
                    continue
                row = log_trigram[_label(t - 2, i, first, active, S), b]
                for k in range(K):
                    value = score + row[tags[p + k]]
                    if value > scores[out + k]:
                        scores[out + k] = value
                        back[out + k] = i
            for k in range(K):
                scores[out + k] += emission[p + k]
    J, best, state = ptr[first + T] - ptr[first + T - 1], -np.inf, -1
    for s in range(base[T - 1], base[T]):
        i, j = (s - base[T - 1]) // J, (s - base[T - 1]) % J
        a, b = _label(T - 2, i, first, active, S), _label(T - 1, j, first, active, S)
        value = scores[s] + log_trigram[a, b, S]
        if value > best:
            best, state = value, s
    if state < 0:
        return best
    for t in range(T - 1, -1, -1):
        J = ptr[first + t + 1] - ptr[first + t]
        i, j = (state - base[t]) // J, (state - base[t]) % J
        labels[first + t] = _label(t, j, first, active, S)
        if t > 0:
            state = base[t - 1] + back[state] * (ptr[first + t] - ptr[first + t - 1]) + i
    return best


@kernel(allocates=True)
def viterbi(start, stop, offsets, active, log_trigram, labels, best):
    """Fill labels (n_tokens,) and best (N,) of the sentences of a range."""
    longest, most, _, _ = _sizes(start, stop, offsets, active.ptr)
    base, scores, back = np.empty(longest + 1, np.int64), np.empty(most), np.empty(most, np.int32)
    for n in range(start, stop):
        first, T = offsets[n], offsets[n + 1] - offsets[n]
        _lay_out(first, T, active.ptr, base)
        best[n] = _best_path(first, T, active, log_trigram, base, scores, back, labels)


@helper
def _relative(log_values, start, stop, values):
    """Compute values = exp(log_values - their maximum), from index 0 on; return the maximum."""
    top = -np.inf
    for s in range(start, stop):
        top = max(top, log_values[s])
    for s in range(start, stop):
        values[s - start] = math.exp(log_values[s] - top) if top > -np.inf else 0.0
    return top


@helper
def _log_sum_of_sums(left, left_step, right, right_step, n):
    """Return log sum_i exp(left[i * left_step] + right[i * right_step]) over n terms."""
    top = -np.inf
    for i in range(n):
        top = max(top, left[i * left_step] + right[i * right_step])
    if top == -np.inf:
        return top
    mass = 0.0
    for i in range(n):
        mass += math.exp(left[i * left_step] + right[i * right_step] - top)
    return top + math.log(mass)


@helper
def _forward(first, T, active, trigrams, space):
    """Fill log_alpha of one sentence; return its log evidence."""
    ptr, tags, emission = active
    log_trigram, trigram, shift = trigrams
    base, log_alpha, _, _, weights, mass, terms = space
    S = log_trigram.shape[0] - 1
    if T == 0:
        return log_trigram[S, S, S]
    for k in range(base[1]):
        log_alpha[k] = log_trigram[S, S, tags[ptr[first] + k]] + emission[ptr[first] + k]
    for t in range(1, T):
        J, p = ptr[first + t] - ptr[first + t - 1], ptr[first + t]
        K, n_before = ptr[first + t + 1] - p, (base[t] - base[t - 1]) // max(J, 1)
        top = _relative(log_alpha, base[t - 1], base[t], weights)
        for j in range(J):
            b, out = _label(t - 1, j, first, active, S), base[t] + j * K
            mass[:K] = 0
            for i in range(n_before):
                weight = weights[i * J + j]
                if weight > 0:
                    row = trigram[_label(t - 2, i, first, active, S), b]
                    for k in range(K):
                        mass[k] += weight * row[tags[p + k]]
            for k in range(K):
                if mass[k] >= TINY:
                    value = math.log(mass[k]) + top + shift
                else:
                    for i in range(n_before):
                        terms[i] = log_trigram[_label(t - 2, i, first, active, S), b, tags[p + k]]
                    value = _log_sum_of_sums(log_alpha[base[t - 1] + j :], J, terms, 1, n_before)
                log_alpha[out + k] = value + emission[p + k]
    J = ptr[first + T] - ptr[first + T - 1]
    n_states = base[T] - base[T - 1]
    _ends(first, T, active, log_trigram, n_states, J, weights)
    return _log_sum_of_sums(log_alpha[base[T - 1] :], 1, weights, 1, n_states)


@helper
def _ends(first, T, active, log_trigram, n_states, J, out):
    """Fill the log-probability of the end after each state of the last position."""
    S = log_trigram.shape[0] - 1
    for s in range(n_states):
        a, b = _label(T - 2, s // J, first, active, S), _label(T - 1, s % J, first, active, S)
        out[s] = log_trigram[a, b, S]


@helper
def _backward(first, T, active, trigrams, log_z, space, marginals):
    """Add the marginals of one possible sentence to marginals (n_tokens, S)."""
    ptr, tags, emission = active
    log_trigram, trigram, shift = trigrams
    base, log_alpha, log_beta, ahead, weights, _, terms = space
    S = log_trigram.shape[0] - 1
    J = ptr[first + T] - ptr[first + T - 1]
    _ends(first, T, active, log_trigram, base[T] - base[T - 1], J, log_beta)
    for t in range(T - 1, -1, -1):
        p, K = ptr[first + t], ptr[first + t + 1] - ptr[first + t]
        n_states = base[t + 1] - base[t]
        for s in range(n_states):
            if log_alpha[base[t] + s] > -np.inf:
                marginals[first + t, tags[p + s % K]] += math.exp(log_alpha[base[t] + s] + log_beta[s] - log_z)
                ahead[s] = log_beta[s] + emission[p + s % K]
            else:
                ahead[s] = -np.inf
        if t == 0:
            break
        top = _relative(ahead, 0, n_states, weights)
        J = p - ptr[first + t - 1]
        for s in range(base[t] - base[t - 1]):
            log_beta[s] = -np.inf
            if log_alpha[base[t - 1] + s] == -np.inf:
                continue
            j = s % J
            a, b = _label(t - 2, s // J, first, active, S), _label(t - 1, j, first, active, S)
            mass = 0.0
            for k in range(K):
                mass += trigram[a, b, tags[p + k]] * weights[j * K + k]
            if mass >= TINY:
                log_beta[s] = math.log(mass) + top + shift
            else:
                for k in range(K):
                    terms[k] = log_trigram[a, b, tags[p + k]]
                log_beta[s] = _log_sum_of_sums(ahead[j * K :], 1, terms, 1, K)


@kernel(allocates=True)
def forward_backward(start, stop, offsets, active, trigrams, log_evidence, marginals):
    """Fill log_evidence (N,) and, unless its axis 0 is empty, marginals (n_tokens, S) from zero, over a range.

    The marginals of impossible sentences stay 0.
    """
    longest, most, widest, labels = _sizes(start, stop, offsets, active.ptr)
    space = Space(
        np.empty(longest + 1, np.int64), np.empty(most), np.empty(widest), np.empty(widest), np.empty(widest),
        np.empty(labels), np.empty(max(labels, 1)),
    )  # fmt: skip
    for n in range(start, stop):
        first, T = offsets[n], offsets[n + 1] - offsets[n]
        _lay_out(first, T, active.ptr, space.base)
        log_z = _forward(first, T, active, trigrams, space)
        log_evidence[n] = log_z
        if log_z > -np.inf and T > 0 and marginals.shape[0]:
            _backward(first, T, active, trigrams, log_z, space, marginals)
