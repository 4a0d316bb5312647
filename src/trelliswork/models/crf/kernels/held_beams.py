"""Compiled objective of linear-chain CRFs within sets of states that are given: training while beams are held.

With I_t the set at token t, P_t the block of transitions I_{t-1} x I_t, e_t the scores and the rest as in ``kernels``:

    alpha_t = (alpha_{t-1} P_t) e_t / c_t        ahead_t = e_t beta_t / c_t        beta_{t-1} = P_t ahead_t
    expected transitions into t: alpha_{t-1}(i) P_t(i, j) ahead_t(j)

A block is picked out of the matrix once (or made of edge features), with rows of whole vectors, and serves all three.
Time O(sum of |I_{t-1}| |I_t|) and the features; no sum touches a state outside the sets.

If a rest is given (``beam_rest_kernels``), each set has one more state, its last, that stands for all states outside:
what it scores is fixed, but for transitions out of it into a state of a set, which have that state's score. It has no
features, so the gradient is that of the states inside.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import (
    add,
    exponential,
    get,
    lanes,
    largest,
    load,
    maximum,
    multiply,
    put,
    spread,
    spread_at,
    store,
    subtract,
    total,
)
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.inference.chain.beam.kernels.space import Edges, edge_row
from trelliswork.models.crf.kernels.residuals import add_pairs, add_row


@helper
def _pick(source, first, states, at, n, width, out, to, padding):
    """out[to : to + width] = source[first + state] of n states, then the padding."""
    for k in range(n):
        put(out, to + k, get(source, first + get(states, at + k)))
    for k in range(n, width):
        put(out, to + k, padding)


@helper
def _add_picked(source, states, at, n, out, to):
    """out[to : to + n] += source[states[at : at + n]]."""
    for k in range(n):
        put(out, to + k, get(out, to + k) + get(source, get(states, at + k)))


@helper
def _set_scores(
    i, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values, wide, narrow, narrow_labels,
    states, at, n, width, out, to,
):  # fmt: skip
    """out[to : to + width] = scores of the n states of token i's set, which ascend, then -inf."""
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
def _exponentiate(values, at, n):
    """values[at : at + n] = exp(values - top), n whole vectors; return the top (0 if all are -inf)."""
    W = lanes(values)
    tops = spread(values, -np.inf)
    for k in range(at, at + n, W):
        tops = maximum(load(values, k), tops)
    top = largest(tops)
    if top == -np.inf:
        top = values.dtype.type(0)
    by = spread(values, top)
    for k in range(at, at + n, W):
        store(values, k, exponential(subtract(load(values, k), by)))
    return np.float64(top)


@helper
def _edge_block(edges, token, S, states, before, here, n, width, block, at, row):
    """The block of transitions into a token whose scores are made of edge features; return what was taken out."""
    complete = True
    for e in range(edges.token_ptr[token], edges.token_ptr[token + 1]):
        complete &= edges.ptr[edges.ids[e] + 1] - edges.ptr[edges.ids[e]] == S * S
    to = at
    for a in range(before, here):
        i = np.int64(get(states, a))
        if complete:  # weights lie in order: only those of pairs in the block are read
            _pick(edges.log_transition, i * S, states, here, n, width, block, to, -np.inf)
            for e in range(edges.token_ptr[token], edges.token_ptr[token + 1]):
                begin = edges.ptr[edges.ids[e]] + i * S
                for k in range(n):
                    put(block, to + k, get(block, to + k) + get(edges.weights, begin + get(states, here + k)))
        else:
            edge_row(edges, token, i, S, row, 0)
            _pick(row, 0, states, here, n, width, block, to, -np.inf)
        to += width
    return _exponentiate(block, at, to - at)


@helper
def _advance(alpha, before, n, block, at, width, emission, here):
    """alpha[here : here + width] = (alpha[before : before + n] @ block) * emission; return the sum."""
    W = lanes(alpha)
    sums = spread(alpha, 0.0)
    for k in range(0, width, W):
        left, right = spread(alpha, 0.0), spread(alpha, 0.0)  # two sums that do not wait for each other
        row = at + k
        for a in range(0, n - 1, 2):
            left = fma(spread_at(alpha, before + a), load(block, row), left)
            right = fma(spread_at(alpha, before + a + 1), load(block, row + width), right)
            row += 2 * width
        if n % 2:
            left = fma(spread_at(alpha, before + n - 1), load(block, row), left)
        product = multiply(add(left, right), load(emission, here + k))
        store(alpha, here + k, product)
        sums = add(sums, product)
    return np.float64(total(sums))


@helper
def _scale(values, at, width, by):
    """values[at : at + width] *= by."""
    W = lanes(values)
    factor = spread(values, by)
    for k in range(at, at + width, W):
        store(values, k, multiply(load(values, k), factor))


@helper
def _forward(T, place, block_at, block, emission, alpha, scale):
    """Fill alpha and its scales c_t; return the sum of their logarithms, -inf if no path is left.

    Position t lies at place[t] : place[t + 1], whole vectors; the block into it at ``block_at[t]``.
    """
    log_c = 0.0
    for t in range(T):
        here, width = place[t], place[t + 1] - place[t]
        if t == 0:
            alpha[:width] = emission[:width]
            c = np.float64(alpha[:width].sum())
        else:
            n = (block_at[t + 1] - block_at[t]) // width
            c = _advance(alpha, place[t - 1], n, block, block_at[t], width, emission, here)
        if not 0 < c < np.inf:
            return -np.inf
        _scale(alpha, here, width, alpha.dtype.type(1 / c))
        scale[t] = c
        log_c += math.log(c)
    return log_c


@helper
def _backward(T, place, block_at, block, emission, alpha, scale, limit, weight, marginals, ahead):
    """Fill the weighted marginals and ahead_t; False if it is not safe (see ``kernels``)."""
    W = lanes(alpha)
    beta = ahead  # beta_t stands where ahead_t will
    for k in range(place[T - 1], place[T]):
        beta[k] = 1
    for t in range(T - 1, -1, -1):
        here, end = place[t], place[t + 1]
        mass = spread(alpha, 0.0)
        for k in range(here, end, W):
            product = multiply(load(alpha, k), load(beta, k))
            store(marginals, k, product)
            mass = add(mass, product)
        m = total(mass)
        if not m > 0:
            return False
        _scale(marginals, here, end - here, weight / m)
        if t == 0:
            return True
        by = spread(alpha, alpha.dtype.type(1) / (m * scale[t]))
        tops = spread(alpha, 0.0)
        for k in range(here, end, W):
            b = multiply(load(beta, k), by)
            tops = maximum(b, tops)
            store(ahead, k, multiply(b, load(emission, k)))
        if not largest(tops) <= limit:
            return False
        row, before = block_at[t], place[t - 1]
        n = (block_at[t + 1] - row) // (end - here)
        for a in range(n):
            sums = spread(alpha, 0.0)
            for k in range(here, end, W):
                sums = fma(load(block, row), load(ahead, k), sums)
                row += W
            put(beta, before + a, total(sums))
        for k in range(before + n, here):
            put(beta, k, alpha.dtype.type(0))
    return True


@helper
def _pair_score(edges, token, S, pair):
    """The score of one pair of labels into a token."""
    score = np.float64(get(edges.log_transition, pair))
    for e in range(edges.token_ptr[token], edges.token_ptr[token + 1]):
        begin, end = edges.ptr[edges.ids[e]], edges.ptr[edges.ids[e] + 1]
        if end - begin == S * S:
            score += edges.weights[begin + pair]
            continue
        k = begin + np.searchsorted(edges.pairs[begin:end], pair)
        if k < end and edges.pairs[k] == pair:
            score += edges.weights[k]
    return score


@helper
def _add_transitions(states, before, here, n, width, block, at, alpha, first, ahead, ahead_at, weight, S, counts):
    """counts (S, S) += weighted expected transitions between two sets."""
    for a in range(before, here):
        row, x = np.int64(get(states, a)) * S, get(alpha, first + a - before) * weight
        for k in range(n):
            j = row + get(states, here + k)
            put(counts, j, get(counts, j) + x * get(block, at + k) * get(ahead, ahead_at + k))
        at += width


@helper
def _add_rests(
    states, before, here, n, width, block, at, alpha, first, ahead, ahead_at, weight, row_mass, column_mass
):  # fmt: skip
    """Weighted expected transitions into and out of a rest, the last of its set; return those from rest to rest."""
    into = np.float64(get(ahead, ahead_at + n)) * weight
    for a in range(before, here):
        row_mass[get(states, a)] += get(alpha, first + a - before) * get(block, at + n) * into
        at += width
    rest = np.float64(get(alpha, first + here - before))
    for k in range(n):
        column_mass[get(states, here + k)] += rest * weight * get(block, at + k) * get(ahead, ahead_at + k)
    return rest * get(block, at + n) * into


@helper
def _weigh(n_rows, n, width, block, at, alpha, first, ahead, ahead_at, weight):
    """The block becomes the weighted expected transitions themselves."""
    for a in range(n_rows):
        x = get(alpha, first + a) * weight
        for k in range(n):
            put(block, at + k, x * get(block, at + k) * get(ahead, ahead_at + k))
        at += width


@kernel
def loss_gradient(
    start, stop, offsets, gold, weight, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
    wide, narrow, narrow_labels, start_scores, end_scores, n_labels,
    edge_token_ptr, edge_ids, edge_ptr, edge_pairs, edge, use_edges, matrix, log_shift, log_transition,
    set_ptr, states, into_rest, out_of_rest, stay, log_rest, log_state, rest_row, rest_column, rest_both, limit,
    wide_gradient, narrow_gradient, edge_gradient, counts, state_mass, row_mass, column_mass, both_mass, loss, safe,
):  # fmt: skip
    """Add loss and gradient of the sentences ``start`` to ``stop``, longest first; mark those that are not safe.

    The states of token i are states[set_ptr[i] : set_ptr[i + 1]], its label ``gold[i]`` among them. ``counts`` (S, S)
    float64 receives expected minus observed transitions. ``matrix`` has the scaled probabilities, if ``use_edges`` is
    False. Of the rest (all empty: none): ``into_rest`` and ``out_of_rest`` for each of ``states``, from it into the
    rest of the next token, and from the rest of the token before into it; ``stay`` and ``log_rest``, its score, of
    tokens; factors of these by dense row, by the state before and the state after, and of ``stay``. The masses receive
    the weighted probability of what each factor multiplies.
    """
    S, Sw, W = n_labels, wide.shape[1], lanes(wide)
    longest, dtype = offsets[start + 1] - offsets[start], wide.dtype
    n_rest = 1 if stay.size else 0
    unshifted = dtype.type(math.exp(-log_shift))
    most, most_pairs = _room(start, stop, offsets, set_ptr, n_rest, W)
    place, block_at = np.zeros(longest + 1, np.int64), np.zeros(longest + 1, np.int64)
    emission, alpha, marginals, ahead = (
        np.empty(most, dtype),
        np.empty(most, dtype),
        np.empty(most, dtype),
        np.empty(most, dtype),
    )
    block, scale = np.empty(most_pairs, dtype), np.empty(longest, dtype)
    residual, square, row = np.zeros(Sw, dtype), np.zeros(S * S if use_edges else 0, dtype), np.empty(Sw, dtype)
    edges = Edges(use_edges, edge_token_ptr, edge_ids, edge_ptr, edge_pairs, edge, log_transition)
    for s in range(start, stop):
        first, T = offsets[s], offsets[s + 1] - offsets[s]
        log_z, score = (T - 1) * log_shift, 0.0
        for t in range(T):
            here, n = set_ptr[first + t], set_ptr[first + t + 1] - set_ptr[first + t]
            width = -(-(n + n_rest) // W) * W
            place[t + 1] = place[t] + width
            _set_scores(
                first + t, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
                wide, narrow, narrow_labels, states, here, n, width, emission, place[t],
            )  # fmt: skip
            if t == 0:
                _add_picked(start_scores, states, here, n, emission, place[t])
            if t == T - 1:
                _add_picked(end_scores, states, here, n, emission, place[t])
            score += emission[place[t] + np.searchsorted(states[here : here + n], gold[first + t])]
            if n_rest:
                fixed = np.float64(log_rest[first + t]) - (log_shift if t else 0.0)
                for at in range(wide_ptr[first + t], wide_ptr[first + t + 1]):
                    by = np.float64(wide_values[at]) if wide_values.size else 1.0
                    fixed += by * log_state[wide_ids[at]]
                put(emission, place[t] + n, dtype.type(fixed))
            log_z += _exponentiate(emission, place[t], width)
            if t == 0:
                block_at[1] = 0
                continue
            before, to = set_ptr[first + t - 1], block_at[t]
            block_at[t + 1] = to + (here - before + n_rest) * width
            if use_edges:
                log_z += _edge_block(edges, first + t, S, states, before, here, n, width, block, to, row)
                continue
            for a in range(before, here):
                _pick(matrix, np.int64(get(states, a)) * matrix.shape[1], states, here, n, width, block, to, 0)
                if n_rest:
                    put(block, to + n, get(into_rest, a) * get(rest_row, get(states, a)))
                to += width
            if n_rest:
                for k in range(n):
                    by = get(rest_column, get(states, here + k)) * unshifted
                    put(block, to + k, get(out_of_rest, here + k) * by)
                put(block, to + n, stay[first + t] * dtype.type(rest_both))
                for k in range(n + 1, width):
                    put(block, to + k, dtype.type(0))
        log_z += _forward(T, place, block_at, block, emission, alpha, scale)
        safe[s] = log_z > -np.inf and _backward(
            T, place, block_at, block, emission, alpha, scale, limit, weight[s], marginals, ahead
        )
        if not safe[s]:
            continue
        for t in range(T):
            i, y = first + t, gold[first + t]
            here, n = set_ptr[i], set_ptr[i + 1] - set_ptr[i]
            for k in range(n):
                put(residual, get(states, here + k), get(marginals, place[t] + k))
            residual[y] -= weight[s]
            add_row(
                i, residual, states, here, n, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
                narrow_labels, wide_gradient, narrow_gradient,
            )  # fmt: skip
            for k in range(n):
                put(residual, get(states, here + k), dtype.type(0))
            if n_rest:
                mass = np.float64(get(marginals, place[t] + n))
                for at in range(wide_ptr[i], wide_ptr[i + 1]):
                    state_mass[wide_ids[at]] += mass * wide_values[at] if wide_values.size else mass
            if t == 0:
                continue
            before, pair, width = set_ptr[i - 1], gold[i - 1] * S + y, place[t + 1] - place[t]
            at, earlier = block_at[t], place[t - 1]
            if n_rest:
                both_mass[0] += _add_rests(
                    states, before, here, n, width, block, at, alpha, earlier, ahead, place[t], weight[s],
                    row_mass, column_mass,
                )  # fmt: skip
            if use_edges:
                score += _pair_score(edges, i, S, pair)
                _weigh(here - before, n, width, block, at, alpha, earlier, ahead, place[t], weight[s])
                add_pairs(
                    i, S, states, before, here, here + n, block, at, width, pair, weight[s], square, edges,
                    edge_gradient, counts,
                )  # fmt: skip
                continue
            score += get(log_transition, pair)
            put(counts, pair, get(counts, pair) - weight[s])
            _add_transitions(
                states, before, here, n, width, block, at, alpha, earlier, ahead, place[t], weight[s], S, counts
            )
        loss[s] = weight[s] * (log_z - score)


@helper
def _room(start, stop, offsets, set_ptr, n_rest, W):
    """The most numbers that the sets of one sentence take in whole vectors, and the most that its blocks take."""
    most, most_pairs = 0, 0
    for s in range(start, stop):
        numbers, pairs, before = 0, 0, 0
        for i in range(offsets[s], offsets[s + 1]):
            n = set_ptr[i + 1] - set_ptr[i] + n_rest
            width = -(-n // W) * W
            numbers += width
            pairs += before * width
            before = n
        most, most_pairs = max(most, numbers), max(most_pairs, pairs)
    return most, most_pairs
