"""Compiled features of two adjacent arcs: consecutive siblings and grandparents; see ``parser.features``."""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.models.parser.kernels.arcs import DIRECTION, bucket, set_word, sum_weights, template_ids
from trelliswork.models.parser.kernels.records import Drop, PartList, Tokens
from trelliswork.models.parser.templates import PART_SLOTS, Templates

N_SLOTS = len(PART_SLOTS)
SIDES, BUCKETS = 8, 16


@helper
def _part_ids(values, parts: PartList, p, tokens: Tokens, templates: Templates, shift, out):
    """Fill all ids of part p; return their number."""
    h, m, other, side = parts.heads[p], parts.modifiers[p], parts.others[p], parts.sides[p]
    codes, start = tokens.codes, tokens.starts[parts.owners[p]]
    set_word(values, 1, codes, start, h, 3)
    set_word(values, 4, codes, start, m, 3)
    set_word(values, 7, codes, start, other, 3)
    apart = bucket(abs(m - other)) if m >= 0 and other >= 0 else 0
    plain = DIRECTION * np.uint64(1 + side)
    far = DIRECTION * np.uint64((1 + side) * BUCKETS + apart)
    return template_ids(values, templates, plain, far, shift, out, 0)


@kernel(allocates=True)
def part_scores(first, last, parts: PartList, tokens: Tokens, templates: Templates, shift, weights, drop: Drop, scores):
    """Fill the scores of the parts ``first`` to ``last``; modifiers and others (siblings, grandparents) may be -1."""
    values, ids = np.zeros(N_SLOTS, np.uint64), np.empty(2 * len(templates.keys), np.uint32)
    for p in range(first, last):
        n = _part_ids(values, parts, p, tokens, templates, shift, ids)
        scores[p] = sum_weights(weights, ids, n, drop)


@kernel(allocates=True)
def part_ids(first, last, parts: PartList, tokens: Tokens, templates: Templates, shift, ids, counts):
    """Fill the ids of the same parts: ids (P, 2 templates), counts (P,)."""
    values = np.zeros(N_SLOTS, np.uint64)
    for p in range(first, last):
        counts[p] = _part_ids(values, parts, p, tokens, templates, shift, ids[p])


@kernel
def observed_siblings(on, sides, siblings):
    """Fill 1 for the sibling parts of a tree, 0 for others; ``on`` (A,) marks its arcs."""
    for s in range(len(sides)):
        arc, step, size, part = sides[s]
        for k in range(part, part + (size + 1) * (size + 2) // 2):
            siblings[k] = 0
        before = 0
        for j in range(1, size + 2):
            if j == size + 1 or on[arc + step * (j - 1)]:
                siblings[part + j * (j - 1) // 2 + before] = 1
                before = j
