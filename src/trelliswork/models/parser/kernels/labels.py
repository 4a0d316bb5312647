"""Compiled labels of arcs: features of the tree around an arc, softmax over labels, stochastic gradient.

Each feature has a row of weights, one per label.
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import add, lanes, load, prefetch, spread, store
from trelliswork.models.parser.kernels.arcs import (
    CONSTANTS,
    HEAD_AT,
    MODIFIER_AT,
    SET_AT,
    bucket,
    direction_codes,
    set_clusters,
    set_end,
    set_word,
    tags_between,
)
from trelliswork.models.parser.kernels.blocks import feature_id
from trelliswork.models.parser.kernels.records import AdaGrad, ArcList, Tokens, Trees
from trelliswork.models.parser.templates import LABEL_SLOTS, FeatureSet, Templates

APART, ABOVE, LEFT, RIGHT, N_LEFT, CHILD, SIDE = (
    LABEL_SLOTS.index(name) for name in ("apart", "g.w", "left.w", "right.w", "n.left", "c.w", "side")
)
N_SLOTS = len(LABEL_SLOTS)
LINE = 16  # numbers of a cache line


@helper
def _ids(values, templates: Templates, direction, shift, out, at):
    slots, keys = templates
    for k in range(len(keys)):
        key = keys[k] + values[slots[k, 0]] + values[slots[k, 1]] + values[slots[k, 2]] + values[slots[k, 3]]
        out[at] = feature_id(key + direction, shift)
        at += 1
    return at


@helper
def label_ids(values, heads, m, tokens: Tokens, start, features: FeatureSet, shift, out):
    """Fill the ids of the arc into word m of a sentence with the given heads (n,); return their number."""
    codes, bits, n = tokens.codes, tokens.bits, len(heads)
    h = heads[m - 1]
    set_end(values, HEAD_AT, codes, start + h, h == 0)
    set_end(values, MODIFIER_AT, codes, start + m, False)
    set_clusters(values, codes, start + h, start + m)
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
    at = _ids(values, features.label, direction, shift, out, 0)
    for w in range(1, n + 1):
        if heads[w - 1] == m:
            set_word(values, CHILD, codes, start, w, 2)
            values[SIDE] = np.uint64(1 + (w < m)) * CONSTANTS[SIDE]
            at = _ids(values, features.child, direction, shift, out, at)
    return at


@helper(fast=True)
def _softmax(ids, n_ids, weights, probabilities):
    """Fill the probabilities (L,) of labels: the exponentials of the sums of their weights, normalized."""
    L, W = weights.shape[1], lanes(weights)
    for k in range(n_ids):
        for j in range(0, L, LINE):
            prefetch(weights, np.int64(ids[k]) * L + j)
    if L < W:
        for j in range(L):
            probabilities[j] = 0
            for k in range(n_ids):
                probabilities[j] += weights[ids[k], j]
    else:
        for j in range(0, L, W):
            at = min(j, L - W)  # the last vector may overlap the one before
            sums = spread(weights, np.float32(0))
            for k in range(n_ids):
                sums = add(sums, load(weights, np.int64(ids[k]) * L + at))
            store(probabilities, at, sums)
    top = probabilities[0]
    for j in range(1, L):
        top = max(top, probabilities[j])
    total = np.float32(0)
    for j in range(L):
        probabilities[j] = np.exp(probabilities[j] - top)
        total += probabilities[j]
    for j in range(L):
        probabilities[j] /= total


@kernel(allocates=True)
def arc_probabilities(
    first, last, arcs: ArcList, trees: Trees, tokens: Tokens, features: FeatureSet, shift, weights, out
):
    """Fill out (A, L) for the arcs ``first`` to ``last``, each in its sentence's tree with its modifier moved to it."""
    owners, heads, modifiers = arcs
    values, ids, tree = np.zeros(N_SLOTS, np.uint64), np.empty(0, np.uint32), np.empty(0, np.int64)
    before = -1
    for a in range(first, last):
        b, m = owners[a], modifiers[a]
        if b != before:
            before = b
            tree = trees.heads[trees.offsets[b] : trees.offsets[b + 1]].copy()
            ids = np.empty(len(features.label.keys) + len(features.child.keys) * len(tree), np.uint32)
        kept = tree[m - 1]
        tree[m - 1] = heads[a]
        n_ids = label_ids(values, tree, m, tokens, tokens.starts[b], features, shift, ids)
        tree[m - 1] = kept
        _softmax(ids, n_ids, weights, out[a])


@kernel(fast=True, allocates=True)
def train(order, trees: Trees, labels, tokens: Tokens, features: FeatureSet, shift, state: AdaGrad, rate, step):
    """Run one epoch of AdaGrad over sentences in this order, a step per labeled arc; return step number and loss.

    Labels and heads of -1 are unknown; arcs with an unknown label or head are skipped.
    """
    heads, offsets = trees
    weights, squares, changes = state
    L = weights.shape[1]
    values, p = np.zeros(N_SLOTS, np.uint64), np.empty(L, np.float32)
    loss = 0.0
    for b in order:
        n, start = tokens.lengths[b], tokens.starts[b]
        ids = np.empty(len(features.label.keys) + len(features.child.keys) * n, np.uint32)
        tree = heads[offsets[b] : offsets[b + 1]]
        for m in range(1, n + 1):
            label = labels[offsets[b] + m - 1]
            if label < 0 or tree[m - 1] < 0:
                continue
            n_ids = label_ids(values, tree, m, tokens, start, features, shift, ids)
            _softmax(ids, n_ids, weights, p)
            loss -= np.log(max(p[label], np.float32(1e-30)))
            step += 1
            if p[label] > 0.999:
                continue  # nothing to learn; most arcs are like this in later epochs
            p[label] -= 1
            for k in range(n_ids):
                for j in range(0, L, LINE):
                    prefetch(squares, np.int64(ids[k]) * L + j)
                    prefetch(changes, np.int64(ids[k]) * L + j)
            for k in range(n_ids):
                w, s, u = weights[ids[k]], squares[ids[k]], changes[ids[k]]
                for j in range(L):
                    s[j] += p[j] * p[j]
                    change = -rate * p[j] / (np.float32(1e-6) + np.sqrt(s[j]))
                    w[j] += change
                    u[j] += np.float32(step) * change
    return step, loss
