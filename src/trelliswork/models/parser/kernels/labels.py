"""Compiled labels of arcs: features that see the tree around an arc, softmax over labels, stochastic gradient.

Each feature has a row of weights, one for each label.
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.models.parser.kernels.arcs import (
    CONSTANTS,
    HEAD_AT,
    MODIFIER_AT,
    SET_AT,
    bucket,
    direction_codes,
    feature_id,
    set_end,
    set_word,
    tags_between,
)
from trelliswork.models.parser.templates import LABEL_SLOTS

APART, ABOVE, LEFT, RIGHT, N_LEFT, CHILD, SIDE = (
    LABEL_SLOTS.index(name) for name in ("apart", "g.w", "left.w", "right.w", "n.left", "c.w", "side")
)
N_SLOTS = len(LABEL_SLOTS)


@kernel
def _ids(values, slots, keys, direction, shift, out, at):
    for k in range(len(keys)):
        key = keys[k] + values[slots[k, 0]] + values[slots[k, 1]] + values[slots[k, 2]] + values[slots[k, 3]]
        out[at] = feature_id(key + direction, shift)
        at += 1
    return at


@kernel
def _arc_ids(values, heads, n, m, codes, bits, start, slots, keys, child_slots, child_keys, shift, out):
    """The ids of the arc into word m of a sentence with the heads (n,); returns their number."""
    h = heads[m - 1]
    set_end(values, HEAD_AT, codes, start + h, h == 0)
    set_end(values, MODIFIER_AT, codes, start + m, False)
    values[SET_AT] = tags_between(bits, start, h, m) * CONSTANTS[SET_AT]
    values[APART] = np.uint64(bucket(abs(h - m))) * CONSTANTS[APART]
    set_word(values, ABOVE, codes, start, heads[h - 1] if h > 0 else -1, 2)
    left, right, n_left, n_right = -1, -1, 0, 0
    for w in range(1, n + 1):
        if heads[w - 1] == h and w != m:
            if w < m:
                left = w
            elif right < 0:
                right = w
        elif heads[w - 1] == m:
            n_left += w < m
            n_right += w > m
    set_word(values, LEFT, codes, start, left, 2)
    set_word(values, RIGHT, codes, start, right, 2)
    values[N_LEFT] = np.uint64(min(n_left, 3) + 1) * CONSTANTS[N_LEFT]
    values[N_LEFT + 1] = np.uint64(min(n_right, 3) + 1) * CONSTANTS[N_LEFT + 1]
    direction, _ = direction_codes(h, m)
    at = _ids(values, slots, keys, direction, shift, out, 0)
    for w in range(1, n + 1):
        if heads[w - 1] == m:
            set_word(values, CHILD, codes, start, w, 2)
            values[SIDE] = np.uint64(1 + (w < m)) * CONSTANTS[SIDE]
            at = _ids(values, child_slots, child_keys, direction, shift, out, at)
    return at


@kernel(fast=True)
def _softmax(ids, n_ids, weights, probabilities):
    """Fill the probabilities (L,) of labels: the exponentials of the sums of their weights, over their total."""
    L = weights.shape[1]
    for j in range(L):
        probabilities[j] = 0
    for k in range(n_ids):
        row = weights[ids[k]]
        for j in range(L):
            probabilities[j] += row[j]
    top = probabilities[0]
    for j in range(1, L):
        top = max(top, probabilities[j])
    total = np.float32(0)
    for j in range(L):
        probabilities[j] = np.exp(probabilities[j] - top)
        total += probabilities[j]
    for j in range(L):
        probabilities[j] /= total


@helper
def label_ids(heads, codes, bits, start, n, m, slots, keys, child_slots, child_keys, shift, ids):
    """The ids of one arc, for tests and for looking inside; returns their number."""
    values = np.zeros(N_SLOTS, np.uint64)
    return _arc_ids(values, heads, n, m, codes, bits, start, slots, keys, child_slots, child_keys, shift, ids)


@kernel
def probabilities(
    first, last, heads, offsets, codes, bits, starts, lengths, slots, keys, child_slots, child_keys, shift, weights, out
):
    """Fill out (n_tokens, L) for the sentences number ``first`` to ``last``; heads are flat, cut by offsets."""
    values = np.zeros(N_SLOTS, np.uint64)
    for b in range(first, last):
        n = lengths[b]
        ids = np.empty(len(keys) + len(child_keys) * n, np.uint32)
        tree = heads[offsets[b] : offsets[b + 1]]
        for m in range(1, n + 1):
            n_ids = _arc_ids(
                values, tree, n, m, codes, bits, starts[b], slots, keys, child_slots, child_keys, shift, ids
            )
            _softmax(ids, n_ids, weights, out[offsets[b] + m - 1])


@kernel(fast=True)
def train(
    order, heads, labels, offsets, codes, bits, starts, lengths, slots, keys, child_slots, child_keys, shift, weights,
    squares, changes, rate, step,
):  # fmt: skip
    """One pass of AdaGrad over sentences in this order, a step for each arc with a label; returns steps and loss.

    A label of -1 is unknown, and so is a head of -1: such sentences have arcs without features.
    """
    L = weights.shape[1]
    values, p = np.zeros(N_SLOTS, np.uint64), np.empty(L, np.float32)
    loss = 0.0
    for b in order:
        n = lengths[b]
        ids = np.empty(len(keys) + len(child_keys) * n, np.uint32)
        tree = heads[offsets[b] : offsets[b + 1]]
        for m in range(1, n + 1):
            label = labels[offsets[b] + m - 1]
            if label < 0 or tree[m - 1] < 0:
                continue
            n_ids = _arc_ids(
                values, tree, n, m, codes, bits, starts[b], slots, keys, child_slots, child_keys, shift, ids
            )
            _softmax(ids, n_ids, weights, p)
            loss -= np.log(max(p[label], np.float32(1e-30)))
            step += 1
            if p[label] > 0.999:
                continue  # nothing to learn here, and most arcs are like this in the end
            p[label] -= 1
            for k in range(n_ids):
                w, s, u = weights[ids[k]], squares[ids[k]], changes[ids[k]]
                for j in range(L):
                    s[j] += p[j] * p[j]
                    change = -rate * p[j] / (np.float32(1e-6) + np.sqrt(s[j]))
                    w[j] += change
                    u[j] += np.float32(step) * change
    return step, loss
