"""Compiled product chain of factorial chains, float64: exact, without building its transition matrix.

A state is one label of every layer; the labels of the last layer are padded to whole vectors. Transitions factor over
the layers, so a step multiplies by one small matrix after the other, along the axis of each layer: N (S_1 + ... + S_D)
products instead of N^2, where N is the number of states. The recursions are those of ``chain.kernels``.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import add, lanes, largest, load, maximum, multiply, spread, spread_at, store, total
from trelliswork.compute.simd import multiply_add as fma

LIMIT = 1e280  # times the smallest normal number, still far below the precision


class Layout(NamedTuple):
    """Layers of the product chain, and the places of their arrays."""

    sizes: Any  # (D,) labels S_d of each layer
    places: Any  # (D,) first column of each layer's unary scores
    starts: Any  # (D,) first element of each layer's matrix
    width: Any  # int: labels of the last layer, padded to whole vectors


class Factors(NamedTuple):
    """Potentials of the product chain in probability space."""

    matrices: Any  # transitions of all layers, concatenated; the last matrix has padded rows
    transposed: Any  # the same of their transposes
    log_shift: Any  # float: subtracted from the scores of a transition
    ties: Any  # (N,) scores of label combinations
    tie_shift: Any  # float: subtracted from them


class Outputs(NamedTuple):
    """Outputs of ``forward_backward``."""

    weight: Any  # (B,) weights of sequences in the counts
    log_z: Any  # (B,)
    safe: Any  # (B,) False for impossible sequences and those that may have underflowed
    marginals: Any  # (B, T, sum of S_d)
    states: Any  # (N,) weighted counts of states, added to
    steps: Any  # like ``matrices``: counts of transitions divided by them, added to; empty if not required


@helper
def _join(a, b, total, maximize):
    """Return total + a * b, or the maximum of total and a + b."""
    return maximum(add(a, b), total) if maximize else fma(a, b, total)


@helper
def _along(x, out, left, S, right, matrices, at, maximize):
    """Compute out[l, j, r] = sum_i x[l, i, r] M[i, j], or the max-plus product; ``right`` is whole vectors."""
    W, zero = lanes(x), -np.inf if maximize else 0.0
    for block in range(left):
        base = block * S * right
        for j in range(S):
            for k in range(0, right, W):
                mass = spread(x, zero)
                for i in range(S):
                    mass = _join(spread_at(matrices, at + i * S + j), load(x, base + i * right + k), mass, maximize)
                store(out, base + j * right + k, mass)


@helper
def _along_last(x, out, rows, S, Sp, matrices, at, maximize):
    """Compute out[l, j] = sum_i x[l, i] M[i, j], or the max-plus product, rows of Sp."""
    W, zero = lanes(x), -np.inf if maximize else 0.0
    for row in range(rows):
        base = row * Sp
        for k in range(0, Sp, W):
            mass = spread(x, zero)
            for i in range(S):
                mass = _join(spread_at(x, base + i), load(matrices, at + i * Sp + k), mass, maximize)
            store(out, base + k, mass)


@helper
def _step(x, scratch, out, layout, matrices, without, maximize):
    """Multiply x by the matrices of all layers except ``without`` (-1: none); overwrites ``scratch``.

    With ``maximize`` the products are those of the max-plus semiring.
    """
    sizes, _, starts, Sp = layout
    D, N = sizes.size, x.size
    source, target = scratch, out
    for k in range(N):
        source[k] = x[k]
    left = 1
    for d in range(D):
        S = sizes[d]
        width = Sp if d == D - 1 else S
        if d != without:
            if d == D - 1:
                _along_last(source, target, N // Sp, S, Sp, matrices, starts[d], maximize)
            else:
                _along(source, target, left, S, N // (left * S), matrices, starts[d], maximize)
            source, target = target, source
        left *= width
    for k in range(N):
        value = source[k]
        out[k] = value


@helper
def _emissions(scores, layout, ties, row, out):
    """Fill out (N,) with exp(unary - shift) of one token times the ties; return the shift, -inf if impossible.

    ``scores`` (sum of S_d,) are the unary scores of all layers.
    """
    sizes, places, _, Sp = layout
    D, N = sizes.size, out.size
    shift = 0.0
    for k in range(N):
        out[k] = ties[k]
    left = 1
    for d in range(D):
        S = sizes[d]
        top = -np.inf
        for i in range(S):
            top = max(top, scores[places[d] + i])
        if top == -np.inf:
            return top
        shift += top
        for i in range(S):
            row[i] = math.exp(scores[places[d] + i] - top)
        width = Sp if d == D - 1 else S
        right = N // (left * width)
        for block in range(left):
            for i in range(S):
                here = (block * width + i) * right
                for k in range(here, here + right):
                    out[k] *= row[i]
        left *= width
    return shift


@helper
def _spread_marginals(posterior, layout, out):
    """Fill out (sum of S_d,) with the marginals of all layers of a posterior (N,)."""
    sizes, places, _, Sp = layout
    D, N = sizes.size, posterior.size
    out[:] = 0
    left = 1
    for d in range(D):
        S = sizes[d]
        width = Sp if d == D - 1 else S
        right = N // (left * width)
        for block in range(left):
            for i in range(S):
                here = (block * width + i) * right
                mass = 0.0
                for k in range(here, here + right):
                    mass += posterior[k]
                out[places[d] + i] += mass
        left *= width


@helper
def _add_transitions(before, after, left, S, right, weight, sums, at):
    """Add weight * sum over the other layers of before[l, i, r] after[l, j, r] to sums[i, j]."""
    for block in range(left):
        for i in range(S):
            x = before[(block * S + i) * right : (block * S + i + 1) * right]
            for j in range(S):
                y = after[(block * S + j) * right : (block * S + j + 1) * right]
                W = lanes(x)
                mass = spread(x, 0.0)
                for k in range(0, right, W):
                    mass = fma(load(x, k), load(y, k), mass)
                sums[at + i * S + j] += weight * total(mass)


@helper
def _add_last(before, after, rows, S, Sp, weight, sums, at):
    """Add the transitions of the last layer, whose labels are contiguous."""
    W = lanes(before)
    for row in range(rows):
        base = row * Sp
        for i in range(S):
            by = spread(before, weight * before[base + i])
            for k in range(0, Sp, W):
                to = at + i * Sp + k
                store(sums, to, fma(by, load(after, base + k), load(sums, to)))


@kernel(allocates=True)
def forward_backward(start, stop, lengths, scores, layout, factors, out):
    """Fill log_z and marginals of sequences ``start`` to ``stop``, and add weighted counts of states and transitions.

    ``scores`` (B, T, sum of S_d) are the unary scores of all layers. A sequence that is impossible or may have
    underflowed (beta / c beyond LIMIT) is marked as not ``safe`` and adds no counts.
    """
    sizes, _, starts, Sp = layout
    matrices, matrices_t, log_shift, ties, tie_shift = factors
    weight, log_z, safe, marginals, joint, sums = out
    N, D = ties.size, sizes.size
    states, steps = np.zeros(joint.size), np.zeros(sums.size)
    longest = 0
    for b in range(start, stop):
        longest = max(longest, lengths[b])
    emission, alpha = np.empty((longest, N)), np.empty((longest, N))
    scale = np.empty(longest)
    one, two, three = np.zeros(N), np.zeros(N), np.zeros(N)
    row = np.empty(sizes.max())
    W = lanes(one)
    for b in range(start, stop):
        n = lengths[b]
        log_z[b] = (n - 1) * log_shift + n * tie_shift
        for t in range(n):
            log_z[b] += _emissions(scores[b, t], layout, ties, row, emission[t])
            if log_z[b] == -np.inf:
                break
            if t > 0:
                _step(alpha[t - 1], two, one, layout, matrices, -1, False)
            else:
                one[:] = 1
            sums_here = spread(one, 0.0)
            for k in range(0, N, W):
                value = multiply(load(one, k), load(emission, t * N + k))
                store(one, k, value)
                sums_here = add(sums_here, value)
            c = total(sums_here)
            scale[t] = c
            log_z[b] += math.log(c) if c * LIMIT >= 1 else -np.inf  # a smaller number has lost its digits
            if log_z[b] == -np.inf:
                break
            by = spread(one, 1 / c)
            for k in range(0, N, W):
                store(alpha, t * N + k, multiply(load(one, k), by))
        safe[b] = log_z[b] > -np.inf
        if not safe[b]:
            continue
        one[:] = 1  # beta
        states[:], steps[:] = 0, 0
        for t in range(n - 1, -1, -1):
            mass = spread(one, 0.0)
            for k in range(0, N, W):
                value = multiply(load(alpha, t * N + k), load(one, k))
                store(two, k, value)
                mass = add(mass, value)
            m = total(mass)  # 1 except for rounding
            by = 1 / m if m > 0 else 0.0
            top, ahead = spread(one, 0.0), spread(one, by / scale[t])
            for k in range(0, N, W):
                value = multiply(load(one, k), ahead)
                top = maximum(value, top)
                store(three, k, multiply(load(emission, t * N + k), value))  # w
            if not (m > 0 and largest(top) <= LIMIT):
                safe[b] = False
                break
            for k in range(N):
                two[k] *= by
            _spread_marginals(two, layout, marginals[b, t])
            if sums.size:
                for k in range(N):
                    states[k] += weight[b] * two[k]
            if t == 0:
                break
            if sums.size:
                left = 1
                for d in range(D):
                    S = sizes[d]
                    _step(alpha[t - 1], two, one, layout, matrices, d, False)
                    if d == D - 1:
                        _add_last(one, three, N // Sp, S, Sp, weight[b], steps, starts[d])
                    else:
                        _add_transitions(one, three, left, S, N // (left * S), weight[b], steps, starts[d])
                        left *= S
            _step(three, two, one, layout, matrices_t, -1, False)
        if safe[b] and sums.size:
            joint += states
            sums += steps


@kernel(allocates=True)
def viterbi(start, stop, lengths, scores, layout, digits, log_matrices, log_ties, states, best):
    """Fill the best states (B, T), numbers below N, and their scores (B,); -inf if all are impossible.

    ``digits`` (N, D) are the labels of each state (0 for padding, whose ``log_ties`` (N,) are -inf).
    """
    sizes, places, starts, Sp = layout
    N, D = log_ties.size, sizes.size
    longest = 0
    for b in range(start, stop):
        longest = max(longest, lengths[b])
    delta = np.empty((longest, N))
    prior, scratch = np.empty(N), np.empty(N)
    for b in range(start, stop):
        n = lengths[b]
        for t in range(n):
            if t > 0:
                _step(delta[t - 1], scratch, prior, layout, log_matrices, -1, True)
            else:
                prior[:] = 0
            for k in range(N):
                value = prior[k] + log_ties[k]
                for d in range(D):
                    value += scores[b, t, places[d] + digits[k, d]]
                delta[t, k] = value
        k = np.argmax(delta[n - 1])
        best[b] = delta[n - 1, k]
        states[b, n - 1] = k
        for t in range(n - 2, -1, -1):
            after = digits[states[b, t + 1]]
            top, winner = -np.inf, 0
            for k in range(N):
                value = delta[t, k]
                for d in range(D):
                    width = Sp if d == D - 1 else sizes[d]
                    value += log_matrices[starts[d] + digits[k, d] * width + after[d]]
                if value > top:
                    top, winner = value, k
            states[b, t] = winner
