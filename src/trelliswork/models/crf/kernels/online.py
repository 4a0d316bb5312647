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

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import add, lanes, load, maximum, multiply, spread, store
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.inference.chain.kernels import log_space
from trelliswork.inference.chain.kernels.forward_backward import ROWS, backward, forward
from trelliswork.inference.chain.kernels.records import Chains, Outputs, Pairwise, Transitions, make_lattice
from trelliswork.models.crf.kernels.objective import scores

SMALLEST = 0.1  # smallest s: c v and u of (2) grow as 1 / s, and their difference would lose digits


class Data(NamedTuple):
    """Labeled sentences."""

    offsets: Any  # (n_sentences + 1,)
    tokens: Any  # TokenRows
    gold: Any  # (n_tokens,)
    weight: Any  # (n_sentences,)


class Model(NamedTuple):
    """Learned weights, and constraints: ``forbidden`` (S, Sw), ``start`` and ``end`` (Sw,) are 0 or -inf."""

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
    counts: Any  # (S, S) zeros: workspace


class Schedule(NamedTuple):
    """Learning rates eta_k = rate / (1 + decay rate k)^0.75, k from ``step``."""

    step: Any  # int
    rate: Any  # float; 0 for the perceptron, whose steps are 1
    decay: Any  # float: lambda


@helper(allocates=True)
def _score(s, scale, data, model, log_unary, r):
    """Fill log_unary[r] with the scores of sentence s."""
    n_labels, Sw = len(model.forbidden), model.weights.wide.shape[1]
    first, stop = data.offsets[s], data.offsets[s + 1]
    scores(first, stop, data.tokens, model.weights, n_labels, log_unary, r * log_unary.shape[1] * Sw)
    if scale != 1:
        by = np.float32(scale)
        for t in range(stop - first):
            for j in range(Sw):
                log_unary[r, t, j] *= by
    log_unary[r, 0] += model.start
    log_unary[r, stop - first - 1] += model.end


@helper
def _exponentiate(log_transition, transition, panels, panels_t):
    """Fill the exponentials of transition scores relative to the maximum, and strips of them; return the maximum."""
    S, wide = len(log_transition), panels.shape[2]
    shift = np.float32(-np.inf)
    for i in range(S):
        for j in range(S):
            shift = max(shift, log_transition[i, j])
    if not shift > -np.inf:
        shift = np.float32(0)
    for i in range(S):
        for j in range(S):
            value = np.float32(math.exp(log_transition[i, j] - shift))
            transition[i, j] = value
            panels[j // wide, i, j % wide] = value
            panels_t[i // wide, j, i % wide] = value
    return shift


@helper(allocates=True)
def _in_log_space(log_unary, log_transition, weight, marginals, counts):
    """Fill weighted marginals (T, Sw) and counts (S, S) of a sentence that underflows; return log Z."""
    T, S = len(log_unary), len(log_transition)
    unary = np.empty((1, T, S))
    unary[0] = log_unary[:, :S]
    matrix = np.empty((1, S, S))
    matrix[0] = log_transition[:, :S]
    pairwise = Pairwise(matrix, 0, 0)
    lengths, log_z = np.full(1, T), np.empty(1)
    passed = log_space.Messages(np.empty((1, T, S)), np.empty((1, T, S)), log_z)
    nodes, no_edges, sums = np.zeros((1, T, S)), np.empty((0, T, S, S)), np.zeros((1, S, S))
    log_space.messages(0, 1, lengths, unary, pairwise, passed)
    log_space.expectations(0, 1, lengths, unary, pairwise, passed, nodes, no_edges, sums)
    marginals[:] = 0
    for t in range(T):
        for j in range(S):
            marginals[t, j] = weight * nodes[0, t, j]
    counts[:] = weight * sums[0]
    return log_z[0]


@helper
def _subtract_gold(s, place, data, log_unary, log_transition, residual, counts):
    """Subtract the gold labels of a sentence from the expectations; return their score."""
    first, weight, score = data.offsets[s], data.weight[s], 0.0
    for t in range(data.offsets[s + 1] - first):
        y = data.gold[first + t]
        score += log_unary[t, y]
        residual[place + t, y] -= weight
        if t > 0:
            before = data.gold[first + t - 1]
            score += log_transition[before, y]
            counts[before, y] -= weight
    return score


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


@kernel(allocates=True)
def best_path(log_unary, log_transition, delta, path):
    """Fill ``path`` (T,) with the best labels; return False, the path unfilled, if none is possible or scores are nan.

    ``log_unary`` and the workspace ``delta`` are (., Sw), ``log_transition`` (S, Sw), padded with -inf. Of labels with
    equal scores the smallest is chosen, from the last position to the first.
    """
    T, (S, Sw), W = len(path), log_transition.shape, lanes(delta)
    delta[0] = log_unary[0]
    for t in range(1, T):
        before = delta[t - 1]
        top = before.max()
        if not top > -np.inf:
            return False
        before -= top  # keeps the digits of long sentences; the argmax does not change
        for k in range(0, Sw, W):
            best = spread(delta, -np.inf)
            for i in range(S):
                best = maximum(add(spread(delta, before[i]), load(log_transition, i * Sw + k)), best)
            store(delta, t * Sw + k, add(best, load(log_unary, t * Sw + k)))
    path[T - 1] = np.argmax(delta[T - 1, :S])
    if not delta[T - 1, path[T - 1]] > -np.inf:
        return False
    for t in range(T - 2, -1, -1):
        label, highest = 0, np.float32(-np.inf)
        for i in range(S):
            value = delta[t, i] + log_transition[i, path[t + 1]]
            if value > highest:
                label, highest = i, value
        path[t] = label
    return True


class Space(NamedTuple):
    """Working memory."""

    log_transition: Any  # (S, Sw)
    transition: Any  # (Sw, Sw) its exponentials
    panels: Any  # strips, as ``Transitions`` has them
    panels_t: Any
    log_unary: Any  # (ROWS, T, Sw)
    marginals: Any  # (ROWS, T, Sw)
    counts: Any  # (ROWS, S, S) by row: unsafe counts must not reach the sum
    delta: Any  # (T, Sw)
    path: Any  # (T,)


@helper(allocates=True)
def _expect(begin, end, batches, scalars, data, model, space):
    """Add the residuals and counts of a mini-batch, expected minus observed; add its loss to scalars[2]."""
    order, residual, counts = batches.order, batches.residual, batches.counts
    log_transition, log_unary, marginals, row_counts = (
        space.log_transition, space.log_unary, space.marginals, space.counts,
    )  # fmt: skip
    longest, Sw = log_unary.shape[1:]
    rows, lengths, weights = np.arange(ROWS), np.empty(ROWS, np.int64), np.empty(ROWS, np.float32)
    log_z, good = np.empty(ROWS), np.empty(ROWS, np.bool_)
    chains, out = Chains(rows, lengths, log_unary), Outputs(weights, rows, marginals, row_counts)
    lattice = make_lattice(rows, ROWS, longest, Sw, log_unary)
    shift = _exponentiate(log_transition, space.transition, space.panels, space.panels_t)
    transitions = Transitions(space.transition, space.panels, space.panels_t, shift)
    place = 0
    for group in range(begin, end, ROWS):
        m = min(ROWS, end - group)
        for r in range(m):
            s = order[group + r]
            lengths[r], weights[r] = data.offsets[s + 1] - data.offsets[s], data.weight[s]
            _score(s, scalars[0], data, model, log_unary, r)
        forward(0, m, chains, transitions, lattice, log_z)
        for r in range(m):
            good[r] = log_z[r] > -np.inf
        row_counts[:m] = 0
        backward(0, m, chains, transitions, lattice, good, out)
        for r in range(m):
            T = lengths[r]
            if not good[r]:
                log_z[r] = _in_log_space(log_unary[r, :T], log_transition, weights[r], marginals[r, :T], row_counts[r])
            for t in range(T):
                for j in range(Sw):
                    residual[place + t, j] += marginals[r, t, j]
            counts += row_counts[r]
            score = _subtract_gold(order[group + r], place, data, log_unary[r], log_transition, residual, counts)
            scalars[2] += weights[r] * log_z[r]
            scalars[2] -= weights[r] * score
            place += T


@helper(allocates=True)
def _correct(begin, end, batches, scalars, data, model, space):
    """Add the residuals and counts of a mini-batch, predicted minus gold; add the wrong tokens to scalars[2].

    Returns False where scores overflow.
    """
    order, residual, counts, path = batches.order, batches.residual, batches.counts, space.path
    place = 0
    for b in range(begin, end):
        s = order[b]
        gold, weight = data.gold[data.offsets[s] : data.offsets[s + 1]], data.weight[s]
        T, wrong = len(gold), 0
        _score(s, 1.0, data, model, space.log_unary, 0)
        if not best_path(space.log_unary[0], space.log_transition, space.delta, path[:T]):
            return False
        for t in range(T):
            wrong += gold[t] != path[t]
        for t in range(T if wrong else 0):
            residual[place + t, path[t]] += weight
            residual[place + t, gold[t]] -= weight
            if t > 0:
                counts[path[t - 1], path[t]] += weight
                counts[gold[t - 1], gold[t]] -= weight
        scalars[2] += wrong
        place += T
    return True


@kernel(allocates=True)
def train(first, stop, batches, schedule, data, model, scalars):
    """Run steps (1) for the mini-batches ``first`` to ``stop``.

    ``scalars`` has s, c and the sum of losses (of the perceptron: wrong tokens; nan where scores overflow, which ends
    training). Returns the next batch: ``stop``, or earlier when s has become too small and the caller must fold it
    into v.
    """
    order, batch_size, longest, residual, counts = batches
    step, rate, decay = schedule
    S, Sw, wide = len(model.forbidden), model.weights.wide.shape[1], 2 * lanes(model.weights.wide)
    n_rows = ROWS if rate > 0 else 1
    strips = -(-Sw // wide), S, wide
    space = Space(
        np.empty((S, Sw), np.float32), np.zeros((Sw, Sw), np.float32),
        np.zeros(strips, np.float32), np.zeros(strips, np.float32),
        np.empty((n_rows, longest, Sw), np.float32), np.empty((n_rows, longest, Sw), np.float32),
        np.empty((n_rows, S, S)), np.empty((longest, Sw), np.float32),
        np.empty(longest, np.int32),
    )  # fmt: skip
    for batch in range(first, stop):
        if scalars[0] < SMALLEST:
            return batch
        begin, end = batch * batch_size, min(len(order), (batch + 1) * batch_size)
        n_tokens = 0
        for b in range(begin, end):
            n_tokens += data.offsets[order[b] + 1] - data.offsets[order[b]]
        residual[:n_tokens] = 0
        counts[:] = 0
        for i in range(S):
            for j in range(Sw):
                value = np.float32(model.transition[i, j]) if j < S else np.float32(0)
                space.log_transition[i, j] = value + model.forbidden[i, j]
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
            for i in range(data.offsets[order[b]], data.offsets[order[b] + 1]):
                if residual[place].any():
                    _apply(i, place, residual, data.tokens, model, by / scalars[0], scalars[1])
                place += 1
        scalars[1] += scalars[0]
        _move_transitions(kept, by, counts, model)
        step += 1
    return stop
