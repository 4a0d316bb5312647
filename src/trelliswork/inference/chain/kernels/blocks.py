"""Compiled forward-backward within given sets of states, by blocks of transitions that the caller fills.

With I_t the set at position t, P_t the block of transitions I_{t-1} x I_t, e_t the scores, and the scaling of
``inference.chain.kernels.forward_backward``:

    alpha_t = (alpha_{t-1} P_t) e_t / c_t        ahead_t = e_t beta_t / c_t        beta_{t-1} = P_t ahead_t
    expected transitions into t: alpha_{t-1}(i) P_t(i, j) ahead_t(j)

A block has rows of whole vectors. Time O(sum of |I_{t-1}| |I_t|); no sum reads a state outside the sets.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import add, get, lanes, largest, load, maximum, multiply, put, spread, store, total
from trelliswork.compute.simd import multiply_add as fma


class BlockSpace(NamedTuple):
    """Working memory for one sequence at a time; position t is place[t] : place[t + 1], whole vectors."""

    place: Any
    block_at: Any  # start of the block into position t
    block: Any
    emission: Any
    alpha: Any
    scale: Any  # (T,) c_t
    marginals: Any
    ahead: Any


@helper(allocates=True)
def make_space(start, stop, offsets, ptr, n_more, like):
    """Allocate a ``BlockSpace`` for the largest sequence, whose sets have ``n_more`` states than ``ptr`` tells.

    Its precision is that of the array ``like``.
    """
    W, dtype, longest = lanes(like), like.dtype, offsets[start + 1] - offsets[start]
    most, most_pairs = 0, 0
    for s in range(start, stop):
        numbers, pairs, before = 0, 0, 0
        for i in range(offsets[s], offsets[s + 1]):
            n = ptr[i + 1] - ptr[i] + n_more
            width = -(-n // W) * W
            numbers += width
            pairs += before * width
            before = n
        most, most_pairs = max(most, numbers), max(most_pairs, pairs)
    return BlockSpace(
        np.zeros(longest + 1, np.int64), np.zeros(longest + 1, np.int64), np.empty(most_pairs, dtype),
        np.empty(most, dtype), np.empty(most, dtype), np.empty(longest, dtype),
        np.empty(most, dtype), np.empty(most, dtype),
    )  # fmt: skip


@helper
def _advance(alpha, before, n, block, at, width, emission, here):
    """Set alpha[here : here + width] = (alpha[before : before + n] @ block) * emission; return the sum."""
    W = lanes(alpha)
    sums = spread(alpha, 0.0)
    for k in range(0, width, W):
        left, right = spread(alpha, 0.0), spread(alpha, 0.0)  # two independent sums
        row = at + k
        for a in range(0, n - 1, 2):
            left = fma(spread(alpha, get(alpha, before + a)), load(block, row), left)
            right = fma(spread(alpha, get(alpha, before + a + 1)), load(block, row + width), right)
            row += 2 * width
        if n % 2:
            left = fma(spread(alpha, get(alpha, before + n - 1)), load(block, row), left)
        product = multiply(add(left, right), load(emission, here + k))
        store(alpha, here + k, product)
        sums = add(sums, product)
    return np.float64(total(sums))


@helper
def _scale(values, at, width, by):
    """Multiply values[at : at + width] by a number."""
    W = lanes(values)
    factor = spread(values, by)
    for k in range(at, at + width, W):
        store(values, k, multiply(load(values, k), factor))


@helper(allocates=True)
def forward(T, s):
    """Fill alpha and its scales c_t; return the sum of their logarithms, -inf if no path is left."""
    place, block_at, block, emission, alpha = s.place, s.block_at, s.block, s.emission, s.alpha
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
        s.scale[t] = c
        log_c += math.log(c)
    return log_c


@helper
def backward(T, s, limit, weight):
    """Fill the weighted marginals and ahead_t; return False if the sequence is not safe."""
    place, block_at, block, emission, alpha = s.place, s.block_at, s.block, s.emission, s.alpha
    scale, marginals, ahead = s.scale, s.marginals, s.ahead
    W = lanes(alpha)
    beta = ahead  # beta_t is replaced by ahead_t
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
