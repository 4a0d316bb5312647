"""Compiled features of two arcs that meet: consecutive siblings, and grandparents; see ``parsing``."""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.models.parser.kernels.arcs import DIRECTION, bucket, set_word, template_ids
from trelliswork.models.parser.templates import PART_SLOTS

N_SLOTS = len(PART_SLOTS)
SIDES, BUCKETS = 8, 16


@kernel
def _part_ids(values, h, m, other, side, codes, start, slots, keys, shift, out):
    """All ids of one part; returns their number."""
    set_word(values, 1, codes, start, h, 3)
    set_word(values, 4, codes, start, m, 3)
    set_word(values, 7, codes, start, other, 3)
    apart = bucket(abs(m - other)) if m >= 0 and other >= 0 else 0
    plain = DIRECTION * np.uint64(1 + side)
    far = DIRECTION * np.uint64((1 + side) * BUCKETS + apart)
    return template_ids(values, slots, keys, plain, far, shift, out, 0)


@kernel
def part_scores(
    first, last, owners, heads, modifiers, others, sides, codes, starts, slots, keys, shift, weights, scores
):
    """Scores of the parts number ``first`` to ``last``; modifiers and others (siblings, grandparents) may be -1."""
    values, ids = np.zeros(N_SLOTS, np.uint64), np.empty(2 * len(keys), np.uint32)
    for p in range(first, last):
        n = _part_ids(
            values, heads[p], modifiers[p], others[p], sides[p], codes, starts[owners[p]], slots, keys, shift, ids
        )
        total = np.float32(0)
        for k in range(n):
            total += weights[ids[k]]
        scores[p] = total


@kernel
def part_ids(first, last, owners, heads, modifiers, others, sides, codes, starts, slots, keys, shift, ids, counts):
    """The ids of the same parts: ids (P, 2 templates), counts (P,)."""
    values = np.zeros(N_SLOTS, np.uint64)
    for p in range(first, last):
        counts[p] = _part_ids(
            values, heads[p], modifiers[p], others[p], sides[p], codes, starts[owners[p]], slots, keys, shift, ids[p]
        )


@kernel
def observed_siblings(on, sides, siblings):
    """Fill 1 for the sibling parts of a tree, 0 for others; ``on`` (A,) says which arcs are in it."""
    for s in range(len(sides)):
        arc, step, size, part = sides[s]
        for k in range(part, part + (size + 1) * (size + 2) // 2):
            siblings[k] = 0
        before = 0
        for j in range(1, size + 2):
            if j == size + 1 or on[arc + step * (j - 1)]:
                siblings[part + j * (j - 1) // 2 + before] = 1
                before = j
