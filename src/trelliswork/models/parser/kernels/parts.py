"""Compiled features of two adjacent arcs: consecutive siblings and grandparents; see ``parser.features``."""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.models.parser.kernels.arcs import (
    CONSTANTS,
    DIRECTION,
    NOBODY,
    bucket,
    set_word,
    template_ids,
)
from trelliswork.models.parser.kernels.blocks import SIZE, new_block, score_block, set_part
from trelliswork.models.parser.kernels.records import PartList, Tokens
from trelliswork.models.parser.templates import PART_SLOTS, Templates

N_SLOTS = len(PART_SLOTS)
SIDES, BUCKETS = 8, 16


@helper
def _set_part(values, parts: PartList, p, tokens: Tokens):
    """Fill the slots of part p; return the codes of its direction, and of direction and distance."""
    h, m, other, side = parts.heads[p], parts.modifiers[p], parts.others[p], parts.sides[p]
    codes, start = tokens.codes, tokens.starts[parts.owners[p]]
    set_word(values, 1, codes, start, h, 3)
    set_word(values, 4, codes, start, m, 3)
    set_word(values, 7, codes, start, other, 3)
    for k in range(5, codes.shape[1]):  # clusters, if any
        for at, word in ((5, h), (8, m), (11, other)):
            values[at + k] = (NOBODY if word < 0 else codes[start + word, k]) * CONSTANTS[at + k]
    apart = bucket(abs(m - other)) if m >= 0 and other >= 0 else 0
    return DIRECTION * np.uint64(1 + side), DIRECTION * np.uint64((1 + side) * BUCKETS + apart)


@kernel(allocates=True)
def part_scores(first, last, parts: PartList, tokens: Tokens, templates: Templates, shift, weights, scores):
    """Fill the scores of the parts ``first`` to ``last``; modifiers and others (siblings, grandparents) may be -1."""
    values, block = np.zeros(N_SLOTS, np.uint64), new_block(N_SLOTS, weights)
    for begin in range(first, last, SIZE):
        n = min(SIZE, last - begin)
        for p in range(n):
            near, far = _set_part(values, parts, begin + p, tokens)
            set_part(block, p, values, near, far)
        score_block(block, n, templates, shift, weights)
        for p in range(n):
            scores[begin + p] = block.sums[p]


@kernel(allocates=True)
def part_ids(first, last, parts: PartList, tokens: Tokens, templates: Templates, shift, ids, counts):
    """Fill the ids of the same parts: ids (P, 2 templates), counts (P,)."""
    values = np.zeros(N_SLOTS, np.uint64)
    for p in range(first, last):
        near, far = _set_part(values, parts, p, tokens)
        counts[p] = template_ids(values, templates, near, far, shift, ids[p], 0)


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
