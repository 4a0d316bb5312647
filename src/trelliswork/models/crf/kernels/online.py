r"""Compiled stochastic training of linear-chain CRFs: ranges of mini-batches, sparse updates, exact averages.

The state weights are w = s v with a scalar s, so that decay is one multiplication. Step k computes

    s_k = (1 - eta_k lambda) s_{k-1}       v_k = v_{k-1} + d_k       d_k = -(eta_k / s_k) * mean gradient        (1)

with d_k sparse. The sum of all weights so far needs no dense work either: with c_k = s_1 + ... + s_k,

    w_1 + ... + w_n = sum_k s_k v_k = c_n v_n - u_n                  u_k = u_{k-1} + c_{k-1} d_k                 (2)

because v_k lacks the updates after k (the two vectors of Xu, 2011, and Bottou, 2012). So every update is added twice,
with two factors. The perceptron is the same with s = 1. Transitions are few: they are stored and summed directly.

v and u are stored next to each other, since they are updated together: ``wide`` (3 n, Sw) has for each dense row its v,
its u and its mask (1 where the layout has a weight), ``narrow`` (2 n,) pairs of v and u. The ids of the tokens are
multiples of 3 and 2. The remaining layout is that of ``objective``. Each step depends on the one before, hence one
thread.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import add, get, lanes, load, multiply, put, spread, store
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.inference.chain.kernels.forward_backward import ROWS, backward, forward, new_transitions
from trelliswork.inference.chain.kernels.records import Chains, Outputs, make_lattice
from trelliswork.inference.chain.kernels.viterbi import viterbi
from trelliswork.inference.chain.plain import CHAINS, Sizes
from trelliswork.inference.semirings import Expectations, Lattice
from trelliswork.models.crf.kernels.objective import LabelScores, gold_score, score_sentence, subtract_gold

in_log_space = CHAINS.kernels.expectations
SMALLEST = 0.1  # smallest s: c v and u of (2) grow as 1 / s, and their difference would lose digits


class Model(NamedTuple):
    """Learned weights, and constraints: ``forbidden`` (S, S), ``start`` and ``end`` (Sw,) are 0 or -inf."""

    weights: Any  # FeatureWeights
    transition: Any  # (S, S)
    transition_sum: Any  # (S, S)
    transition_mask: Any  # (S, S)
    forbidden: Any
    start: Any
    end: Any


class Batches(NamedTuple):
    """Mini-batches of ``size`` sentences in the order of training, longest sentence first in each."""

    order: Any  # (n_sentences,)
    size: Any  # int
    longest: Any  # int: number of tokens of the longest sentence
    residual: Any  # (tokens of the largest batch, Sw): workspace
    counts: Any  # (1, S, S) zeros: workspace


class Schedule(NamedTuple):
    """Learning rates eta_k = rate / (1 + decay rate k)^0.75, k from ``step``."""

    step: Any  # int
    rate: Any  # float; 0 for the perceptron, whose steps are 1
    decay: Any  # float: lambda


class Space(NamedTuple):
    """Working memory: what the current weights score, and the expectations of some sentences."""

    labels: Any  # LabelScores
    transitions: Any  # (1, S, S) those of ``labels``
    lengths: Any  # (ROWS,)
    log_unary: Any  # (ROWS, T, Sw)
    marginals: Any  # (ROWS, T, Sw)


@helper(allocates=True)
def _in_log_space(log_unary, log_transition, weight, marginals, counts):
    """Fill weighted marginals (T, Sw) of a sentence that underflows, add to the counts (S, S), and return log Z."""
    T, S = len(log_unary), len(log_transition)
    unary, matrix = np.empty((1, T * S)), np.empty(S * S)
    for j in range(S):
        for t in range(T):
            unary[0, t * S + j] = log_unary[t, j]
        for i in range(S):
            matrix[i * S + j] = log_transition[i, j]
    lattice = Lattice(Sizes(np.full(1, T), T, S, True), np.full(1, 2 + T * S), S, T + 2)
    out = Expectations(np.empty(1), np.zeros((1, T * S)), np.zeros((1, S * S)))
    in_log_space(0, 1, lattice, unary, matrix, out)
    marginals[:] = 0
    for j in range(S):
        for t in range(T):
            marginals[t, j] = weight * out.parts[0, t * S + j]
        for i in range(S):
            counts[i, j] += weight * out.pairs[0, i * S + j]
    return out.log_z[0]


@helper
def _apply(i, place, residual, tokens, model, by, passed):
    """Add ``by`` times the residual of token i to v, ``passed`` (c) times that to u."""
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values = tokens
    wide, narrow, narrow_labels = model.weights
    Sw, W = wide.shape[1], lanes(wide)
    flat = residual.reshape(-1)
    to = place * Sw
    later = spread(wide, np.float32(passed))
    for at in range(wide_ptr[i], wide_ptr[i + 1]):
        row = np.int64(wide_ids[at]) * Sw
        factor = spread(wide, np.float32(by * wide_values[at] if wide_values.size else by))
        for k in range(row, row + Sw, W):
            change = multiply(multiply(load(flat, to + k - row), factor), load(wide, k + 2 * Sw))
            store(wide, k, add(load(wide, k), change))
            store(wide, k + Sw, fma(change, later, load(wide, k + Sw)))
    for at in range(narrow_ptr[i], narrow_ptr[i + 1]):
        f = narrow_ids[at]
        one = np.float32(by * narrow_values[at] if narrow_values.size else by)
        one *= flat[to + narrow_labels[f]]
        narrow[f] += one
        narrow[f + 1] += np.float32(passed) * one


@helper
def _move_transitions(kept, by, counts, model):
    """Multiply the transitions by ``kept``, add ``by`` times the counts, and add the result to the sum."""
    for i in range(len(counts)):
        for j in range(len(counts)):
            model.transition[i, j] = kept * model.transition[i, j] + by * counts[i, j] * model.transition_mask[i, j]
            model.transition_sum[i, j] += model.transition[i, j]


@helper(allocates=True)
def _expect(begin, end, batches, scalars, data, model, space):
    """Fill the residuals of a mini-batch, expected minus observed, and its counts; add its loss to scalars[2]."""
    (sentences, tokens), (labels, transition, lengths, log_unary, marginals) = data, space
    longest, Sw = log_unary.shape[1:]
    rows, weights = np.arange(ROWS), np.empty(ROWS, np.float32)
    log_z, good = np.empty(ROWS), np.empty(ROWS, np.bool_)
    chains = Chains(rows, lengths, log_unary)
    out = Outputs(weights, np.zeros(ROWS, np.int64), marginals, batches.counts)
    lattice = make_lattice(rows, ROWS, longest, Sw, log_unary)
    transitions = new_transitions(transition)
    place, flat = 0, log_unary.reshape(-1)
    for group in range(begin, end, ROWS):
        m = min(ROWS, end - group)
        for r in range(m):
            s = batches.order[group + r]
            lengths[r], weights[r] = sentences.offsets[s + 1] - sentences.offsets[s], sentences.weight[s]
            score_sentence(s, sentences, tokens, model.weights, labels, log_unary, r)
            for k in range(r * longest * Sw, (r * longest + lengths[r]) * Sw if scalars[0] != 1 else 0):
                put(flat, k, get(flat, k) * np.float32(scalars[0]))
        forward(0, m, chains, transitions, lattice, log_z)
        for r in range(m):
            good[r] = log_z[r] > -np.inf
        backward(0, m, chains, transitions, lattice, good, out)
        for r in range(m):
            s, T = batches.order[group + r], lengths[r]
            scores, expected = log_unary[r, :T], marginals[r, :T]
            if not good[r]:
                log_z[r] = _in_log_space(scores, labels.log_transition, weights[r], expected, batches.counts[0])
            score = gold_score(s, sentences, scores, labels.log_transition)
            subtract_gold(s, sentences, expected, batches.counts[0])
            scalars[2] += weights[r] * (log_z[r] - score)
            batches.residual[place : place + T] = expected
            place += T


@helper(allocates=True)
def _correct(begin, end, batches, scalars, data, model, space):
    """Fill the residuals of a mini-batch, predicted minus gold, and its counts; add the wrong tokens to scalars[2].

    Returns False where scores overflow.
    """
    (sentences, tokens), (labels, transition, lengths, log_unary, _) = data, space
    path, score = np.empty((1, log_unary.shape[1]), np.int64), np.empty(1)
    residual, counts, place = batches.residual, batches.counts[0], 0
    for b in range(begin, end):
        s = batches.order[b]
        first, weight = sentences.offsets[s], sentences.weight[s]
        lengths[0] = T = sentences.offsets[s + 1] - first
        score_sentence(s, sentences, tokens, model.weights, labels, log_unary, 0)
        viterbi(0, 1, Chains(np.zeros(1, np.int64), lengths, log_unary), transition, path, score)
        if not -np.inf < score[0] < np.inf:
            return False
        wrong = 0
        for t in range(T):
            wrong += sentences.gold[first + t] != path[0, t]
        residual[place : place + T] = 0
        if wrong:
            for t in range(T):
                residual[place + t, path[0, t]] += weight
                if t > 0:
                    counts[path[0, t - 1], path[0, t]] += weight
            subtract_gold(s, sentences, residual[place : place + T], counts)
        scalars[2] += wrong
        place += T
    return True


@kernel(allocates=True)
def train(first, stop, batches, schedule, data, model, scalars):
    """Run steps (1) for the mini-batches ``first`` to ``stop`` of ``data``, the sentences and their TokenRows.

    ``scalars`` has s, c and the sum of losses (of the perceptron: wrong tokens; nan where scores overflow, which ends
    training). Returns the next batch: ``stop``, or earlier when s has become too small and the caller must fold it
    into v.
    """
    order, batch_size, longest, residual, counts = batches
    step, rate, decay = schedule
    offsets, S, Sw = data[0].offsets, len(model.forbidden), model.weights.wide.shape[1]
    transitions = np.empty((1, S, S), np.float32)
    space = Space(
        LabelScores(model.start, model.end, transitions[0]), transitions, np.empty(ROWS, np.int64),
        np.empty((ROWS, longest, Sw), np.float32), np.empty((ROWS, longest, Sw), np.float32),
    )  # fmt: skip
    for batch in range(first, stop):
        if scalars[0] < SMALLEST:
            return batch
        begin, end = batch * batch_size, min(len(order), (batch + 1) * batch_size)
        counts[:] = 0
        for i in range(S):
            for j in range(S):
                transitions[0, i, j] = np.float32(model.transition[i, j]) + model.forbidden[i, j]
        kept, by = 1.0, -1.0
        if rate > 0:
            _expect(begin, end, batches, scalars, data, model, space)
            eta = rate / (1 + decay * rate * step) ** 0.75
            kept, by = 1 - eta * decay, -eta / (end - begin)
        elif not _correct(begin, end, batches, scalars, data, model, space):
            scalars[2] = np.nan
            return stop
        scalars[0] *= kept
        place = 0
        for b in range(begin, end):
            for i in range(offsets[order[b]], offsets[order[b] + 1]):
                if residual[place].any():
                    _apply(i, place, residual, data[1], model, by / scalars[0], scalars[1])
                place += 1
        scalars[1] += scalars[0]
        _move_transitions(kept, by, counts[0], model)
        step += 1
    return stop
