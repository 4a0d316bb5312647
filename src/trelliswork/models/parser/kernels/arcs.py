"""Compiled features of arcs: ids computed on the fly, the same for scores and gradients; see ``parser.features``."""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.models.parser.kernels.blocks import (
    PADDED,
    SIZE,
    Block,
    feature_id,
    new_block,
    score_block,
    set_part,
)
from trelliswork.models.parser.kernels.records import ArcList, Tokens
from trelliswork.models.parser.templates import ARC_SLOTS, Templates, slot_constants

CONSTANTS = slot_constants(64)
CLUSTER_CONSTANTS = CONSTANTS[-4:]  # whatever the number of slots
BETWEEN = np.uint64(0x8CB92BA72F3D8DD7)
DIRECTION = np.uint64(0xD6E8FEB86659FD93)
HEAD_AT, MODIFIER_AT, SET_AT, PLACE_AT = (ARC_SLOTS.index(slot) for slot in ("h.w", "m.w", "between", "verbs"))
N_SLOTS = len(ARC_SLOTS)
NOBODY = np.uint64(0xA0761D6478BD642F)  # code of a missing word


@helper(inline="always")
def bucket(distance):
    """Return the bucket, 1 to 8, of a distance: 1 to 5, up to 10, up to 20, more."""
    if distance <= 5:
        return distance
    return 6 if distance <= 10 else 7 if distance <= 20 else 8


@helper(inline="always")
def direction_codes(h, m):
    """Return the codes of the direction, and of direction and distance."""
    right = 1 if h < m else 0
    return DIRECTION * np.uint64(1 + right), DIRECTION * np.uint64(4 + 2 * bucket(abs(h - m)) + right)


@helper
def set_end(values, at, codes, row, first):
    """Fill the eleven slots of a head or modifier; ``first`` if it has no left neighbor."""
    for k in range(5):
        values[at + k] = codes[row, k] * CONSTANTS[at + k]
    for k in range(3):
        values[at + 5 + k] = np.uint64(0) if first else codes[row - 1, k] * CONSTANTS[at + 5 + k]
    last = row == len(codes) - 1
    for k in range(3):
        values[at + 8 + k] = np.uint64(0) if last else codes[row + 1, k] * CONSTANTS[at + 8 + k]


@helper
def set_word(values, at, codes, start, word, n):
    """Fill n slots with the first codes of a word; -1 is a missing word."""
    for k in range(n):
        values[at + k] = (NOBODY if word < 0 else codes[start + word, k]) * CONSTANTS[at + k]


@helper
def set_places(values, places, start, h, m):
    """Fill the three slots of an arc's place: verbs and marks between its ends, and the modifier's brackets.

    ``places`` (n_rows, 5): verbs and marks before the word, innermost pair of brackets, its depth, and the partner of a
    bracket (its position; -1: none).
    """
    low, high, head, modifier = start + min(h, m) + 1, start + max(h, m), start + h, start + m
    for k in range(2):
        values[PLACE_AT + k] = np.uint64(1 + min(places[high, k] - places[low, k], 3)) * CONSTANTS[PLACE_AT + k]
    apart = 0
    if places[head, 2] != places[modifier, 2]:
        apart = 1 if places[head, 3] > places[modifier, 3] else 2
    partner = places[modifier, 4]
    if partner >= 0:
        apart += 6 if min(partner, m) < h < max(partner, m) else 3
    values[PLACE_AT + 2] = np.uint64(1 + apart) * CONSTANTS[PLACE_AT + 2]


@helper
def set_clusters(values, codes, head, modifier):
    """Fill the last four slots, if there are clusters: 6 bits and all bits of those of head and modifier."""
    for k in range(codes.shape[1] - 6):
        at = len(values) - 4 + k
        values[at] = codes[head, 6 + k] * CLUSTER_CONSTANTS[k]
        values[at + 2] = codes[modifier, 6 + k] * CLUSTER_CONSTANTS[k + 2]


@helper
def template_ids(values, templates: Templates, plain, far, shift, out, at):
    """Fill two ids for each template, with the codes ``plain`` and ``far``, from index ``at`` on; return their end."""
    slots, keys = templates
    for k in range(len(keys)):
        key = keys[k] + values[slots[k, 0]] + values[slots[k, 1]] + values[slots[k, 2]] + values[slots[k, 3]]
        out[at] = feature_id(key + plain, shift)
        out[at + 1] = feature_id(key + far, shift)
        at += 2
    return at


@helper
def _arc_ids(values, h, m, between, templates: Templates, shift, out):
    """Fill all ids of an arc whose ends are set; return their number."""
    plain, far = direction_codes(h, m)
    values[SET_AT] = between * CONSTANTS[SET_AT]
    n = template_ids(values, templates, plain, far, shift, out, 0)
    key = BETWEEN + values[HEAD_AT + 1] + values[MODIFIER_AT + 1] + plain
    while between:
        low = between & (~between + np.uint64(1))
        out[n] = feature_id(key + low * BETWEEN, shift)
        between ^= low
        n += 1
    return n


@helper
def tags_between(bits, start, h, m):
    """Return the set of tags of the words between two words."""
    tags = np.uint64(0)
    for i in range(start + min(h, m) + 1, start + max(h, m)):
        tags |= bits[i]
    return tags


@helper
def _score_arcs(block: Block, tags, n, templates: Templates, shift, weights, out, places):
    """Fill ``out`` at the given places with the scores of the first n arcs of a block; ``tags`` between their ends."""
    score_block(block, n, templates, shift, weights)
    head_tags, modifier_tags = (HEAD_AT + 1) * PADDED, (MODIFIER_AT + 1) * PADDED
    for p in range(n):
        key = BETWEEN + block.slots[head_tags + p] + block.slots[modifier_tags + p] + block.near[p]
        between, total = tags[p], block.sums[p]
        while between:
            low = between & (~between + np.uint64(1))
            total += weights[feature_id(key + low * BETWEEN, shift)]
            between ^= low
        out[places[p]] = total


@kernel(allocates=True)
def score_all(first, last, sentences, tokens: Tokens, templates: Templates, shift, weights, log_arc):
    """Fill log_arc (B, n+1, n+1) for ``sentences[first:last]``."""
    codes, bits, places, starts, lengths = tokens
    values, tags, at = np.zeros(N_SLOTS, np.uint64), np.zeros(SIZE, np.uint64), np.zeros(SIZE, np.int64)
    block, N, scores, p = new_block(N_SLOTS, weights), log_arc.shape[1], log_arc.reshape(-1), 0
    for b in range(first, last):
        start, n = starts[sentences[b]], lengths[sentences[b]]
        for h in range(n + 1):
            set_end(values, HEAD_AT, codes, start + h, h == 0)
            for side in range(2):
                between = np.uint64(0)
                m = h + 1 if side else h - 1
                while 0 < m <= n:
                    set_end(values, MODIFIER_AT, codes, start + m, False)
                    set_places(values, places, start, h, m)
                    set_clusters(values, codes, start + h, start + m)
                    values[SET_AT] = between * CONSTANTS[SET_AT]
                    near, far = direction_codes(h, m)
                    set_part(block, p, values, near, far)
                    tags[p], at[p] = between, (b * N + h) * N + m
                    p += 1
                    if p == SIZE:
                        _score_arcs(block, tags, p, templates, shift, weights, scores, at)
                        p = 0
                    between |= bits[start + m]
                    m += 1 if side else -1
    _score_arcs(block, tags, p, templates, shift, weights, scores, at)


@kernel(allocates=True)
def arc_scores(first, last, arcs: ArcList, tokens: Tokens, templates: Templates, shift, weights, scores):
    """Fill the scores of the arcs ``first`` to ``last`` of a list."""
    owners, heads, modifiers = arcs
    codes, bits, places, starts, _ = tokens
    values, tags, at = np.zeros(N_SLOTS, np.uint64), np.zeros(SIZE, np.uint64), np.zeros(SIZE, np.int64)
    block = new_block(N_SLOTS, weights)
    for begin in range(first, last, SIZE):
        n = min(SIZE, last - begin)
        for p in range(n):
            a = begin + p
            start, h, m = starts[owners[a]], heads[a], modifiers[a]
            set_end(values, HEAD_AT, codes, start + h, h == 0)
            set_end(values, MODIFIER_AT, codes, start + m, False)
            set_places(values, places, start, h, m)
            set_clusters(values, codes, start + h, start + m)
            tags[p], at[p] = tags_between(bits, start, h, m), a
            values[SET_AT] = tags[p] * CONSTANTS[SET_AT]
            near, far = direction_codes(h, m)
            set_part(block, p, values, near, far)
        _score_arcs(block, tags, n, templates, shift, weights, scores, at)


@kernel(allocates=True)
def arc_ids(first, last, arcs: ArcList, tokens: Tokens, templates: Templates, shift, ids, counts):
    """Fill the ids of the same arcs: ids (A, 2 templates + 64), counts (A,) of those in use."""
    owners, heads, modifiers = arcs
    codes, bits, places, starts, _ = tokens
    values = np.zeros(N_SLOTS, np.uint64)
    for a in range(first, last):
        start, h, m = starts[owners[a]], heads[a], modifiers[a]
        set_end(values, HEAD_AT, codes, start + h, h == 0)
        set_end(values, MODIFIER_AT, codes, start + m, False)
        set_places(values, places, start, h, m)
        set_clusters(values, codes, start + h, start + m)
        counts[a] = _arc_ids(values, h, m, tags_between(bits, start, h, m), templates, shift, ids[a])
