"""Compiled product chain of factorial chains, float64: exact, without ever building its transition matrix.

A state is one label of every layer; the last layer's labels are padded to whole vectors. Transitions factor over the
layers, so a step multiplies by one small matrix after the other, along the axis of each layer: N (S_1 + ... + S_D)
products instead of N^2, N being the number of states. The recursions are those of ``chain.kernels``.

``matrices`` holds the layers' exp transitions one behind the other, the last one with padded rows (S, Sp); ``sizes``
(D,) are the S_d, ``starts`` (D,) where each begins.
"""

import math

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import add, lanes, largest, load, maximum, multiply, spread, spread_at, store, total
from trelliswork.compute.simd import multiply_add as fma

LIMIT = 1e280  # times the smallest normal number that is still far below the precision


@kernel
def _along(x, out, left, S, right, matrices, at):
    """out[l, j, r] = sum_i x[l, i, r] M[i, j]; ``right`` is a whole number of vectors."""
    W = lanes(x)
    for block in range(left):
        base = block * S * right
        for j in range(S):
            for k in range(0, right, W):
                mass = spread(x, 0.0)
                for i in range(S):
                    mass = fma(spread_at(matrices, at + i * S + j), load(x, base + i * right + k), mass)
                store(out, base + j * right + k, mass)


@kernel
def _along_last(x, out, rows, S, Sp, matrices, at):
    """out[l, j] = sum_i x[l, i] M[i, j], rows of Sp."""
    W = lanes(x)
    for row in range(rows):
        base = row * Sp
        for k in range(0, Sp, W):
            mass = spread(x, 0.0)
            for i in range(S):
                mass = fma(spread_at(x, base + i), load(matrices, at + i * Sp + k), mass)
            store(out, base + k, mass)


@kernel
def _step(x, scratch, out, sizes, starts, Sp, matrices, without):
    """out = x times the matrices of all layers but ``without`` (-1: of all); scratch is spoiled."""
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
                _along_last(source, target, N // Sp, S, Sp, matrices, starts[d])
            else:
                _along(source, target, left, S, N // (left * S), matrices, starts[d])
            source, target = target, source
        left *= width
    for k in range(N):
        value = source[k]
        out[k] = value


@kernel
def _emissions(t, scores, places, sizes, Sp, ties, row, out):
    """Fill out (N,) with exp(unary) of token t times the ties; return the logarithm taken out, -inf if impossible.

    ``scores`` (T, sum of S_d) holds the layers' unary scores side by side, layer d from ``places[d]``.
    """
    D, N = sizes.size, out.size
    shift = 0.0
    for k in range(N):
        out[k] = ties[k]
    left = 1
    for d in range(D):
        S = sizes[d]
        top = -np.inf
        for i in range(S):
            top = max(top, scores[t, places[d] + i])
        if top == -np.inf:
            return top
        shift += top
        for i in range(S):
            row[i] = math.exp(scores[t, places[d] + i] - top)
        width = Sp if d == D - 1 else S
        right = N // (left * width)
        for block in range(left):
            for i in range(S):
                here = (block * width + i) * right
                for k in range(here, here + right):
                    out[k] *= row[i]
        left *= width
    return shift


@kernel
def _spread_marginals(posterior, sizes, places, Sp, out):
    """Out (sum of S_d,) = the layers' marginals of a posterior (N,)."""
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


@kernel
def _add_transitions(before, after, left, S, right, weight, sums, at):
    """sums[i, j] += weight * sum over the other layers of before[l, i, r] after[l, j, r]."""
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


@kernel
def _add_last(before, after, rows, S, Sp, weight, sums, at):
    """The same for the last layer, whose labels lie side by side."""
    W = lanes(before)
    for row in range(rows):
        base = row * Sp
        for i in range(S):
            by = spread(before, weight * before[base + i])
            for k in range(0, Sp, W):
                to = at + i * Sp + k
                store(sums, to, fma(by, load(after, base + k), load(sums, to)))


@kernel
def forward_backward(
    start, stop, lengths, scores, places, sizes, starts, Sp, matrices, matrices_t, log_shift, ties, log_ties, weight,
    log_z, safe, marginals, joint, sums,
):  # fmt: skip
    """Fill log_z (B,) and marginals (B, T, sum of S_d) of sequences ``start`` to ``stop``.

    ``joint`` (N,) and ``sums`` (like ``matrices``; to be multiplied by them) receive weighted counts of states and of
    transitions, unless ``sums`` is empty. ``log_ties`` is what was taken out of ``ties`` (N,). A sequence that is
    impossible or may have lost something to underflow (beta / c beyond LIMIT) is marked not ``safe`` and adds nothing.
    """
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
        log_z[b] = (n - 1) * log_shift + n * log_ties
        for t in range(n):
            log_z[b] += _emissions(t, scores[b], places, sizes, Sp, ties, row, emission[t])
            if log_z[b] == -np.inf:
                break
            if t > 0:
                _step(alpha[t - 1], two, one, sizes, starts, Sp, matrices, -1)
            else:
                one[:] = 1
            sums_here = spread(one, 0.0)
            for k in range(0, N, W):
                value = multiply(load(one, k), load(emission, t * N + k))
                store(one, k, value)
                sums_here = add(sums_here, value)
            c = total(sums_here)
            scale[t] = c
            log_z[b] += math.log(c) if c * LIMIT >= 1 else -np.inf  # too small a number has lost its digits
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
            m = total(mass)  # 1 but for rounding
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
            _spread_marginals(two, sizes, places, Sp, marginals[b, t])
            if sums.size:
                for k in range(N):
                    states[k] += weight[b] * two[k]
            if t == 0:
                break
            if sums.size:
                left = 1
                for d in range(D):
                    S = sizes[d]
                    _step(alpha[t - 1], two, one, sizes, starts, Sp, matrices, d)
                    if d == D - 1:
                        _add_last(one, three, N // Sp, S, Sp, weight[b], steps, starts[d])
                    else:
                        _add_transitions(one, three, left, S, N // (left * S), weight[b], steps, starts[d])
                        left *= S
            _step(three, two, one, sizes, starts, Sp, matrices_t, -1)
        if safe[b] and sums.size:
            joint += states
            sums += steps


@kernel
def _best_step(x, scratch, out, sizes, starts, Sp, matrices):
    """The same as ``_step`` with maxima of sums of logarithms."""
    D, N, W = sizes.size, x.size, lanes(x)
    source, target = scratch, out
    for k in range(N):
        source[k] = x[k]
    left = 1
    for d in range(D):
        S = sizes[d]
        at = starts[d]
        if d == D - 1:
            for base in range(0, N, Sp):
                for k in range(0, Sp, W):
                    top = spread(x, -np.inf)
                    for i in range(S):
                        top = maximum(add(spread_at(source, base + i), load(matrices, at + i * Sp + k)), top)
                    store(target, base + k, top)
        else:
            right = N // (left * S)
            for block in range(left):
                base = block * S * right
                for j in range(S):
                    for k in range(0, right, W):
                        top = spread(x, -np.inf)
                        for i in range(S):
                            score = spread_at(matrices, at + i * S + j)
                            top = maximum(add(score, load(source, base + i * right + k)), top)
                        store(target, base + j * right + k, top)
            left *= S
        source, target = target, source
    for k in range(N):
        value = source[k]
        out[k] = value


@kernel
def viterbi(start, stop, lengths, scores, digits, places, sizes, starts, Sp, log_matrices, log_ties, states, best):
    """Fill the best states (B, T), numbers below N, and their scores (B,); -inf if all are impossible.

    ``digits`` (N, D) are the labels of each state (0 for padding, whose ``log_ties`` (N,) are -inf).
    """
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
                _best_step(delta[t - 1], scratch, prior, sizes, starts, Sp, log_matrices)
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
