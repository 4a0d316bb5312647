"""Compiled scores of many parts at a time: template by template, so that ids are computed in vectors.

A sum of weights takes as long as the loads of weights that are in no cache. They are requested as soon as their ids are
known, those of one template for all parts of a block, and overlap.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import add, get, lanes, load, prefetch, put, spread, store_hashes
from trelliswork.models.parser.templates import Templates

SIZE = 512  # parts
PADDED = SIZE + 8  # the last vector may be incomplete
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Block(NamedTuple):
    """Slots and scores of up to ``SIZE`` parts."""

    slots: Any  # (n_slots * PADDED,) uint64: contents of each slot for all parts; slot 0 is 0
    near: Any  # (PADDED,) uint64: codes of direction
    far: Any  # (PADDED,) uint64: codes of direction and distance
    near_ids: Any  # (PADDED,) scratch
    far_ids: Any  # (PADDED,) scratch
    sums: Any  # (PADDED,) of weights


@helper(inline="always")
def feature_id(key, shift):
    """Return the upper bits of a mixed key."""
    key ^= key >> np.uint64(32)
    return np.uint32((key * MULTIPLIER) >> shift)


@helper(allocates=True)
def new_block(n_slots, weights):
    """Return an empty block for parts with this number of slots."""
    return Block(
        np.zeros(n_slots * PADDED, np.uint64),
        np.zeros(PADDED, np.uint64),
        np.zeros(PADDED, np.uint64),
        np.zeros(PADDED, np.uint32),
        np.zeros(PADDED, np.uint32),
        np.zeros(PADDED, weights.dtype),
    )


@helper
def set_part(block: Block, p, values, near, far):
    """Set the slots and codes of part p."""
    for s in range(len(values)):
        put(block.slots, s * PADDED + p, values[s])
    put(block.near, p, near)
    put(block.far, p, far)


@helper
def score_block(block: Block, n, templates: Templates, shift, weights):
    """Fill the sums of the weights of the first n parts, in the order of ``arcs.template_ids``."""
    slots, near, far, near_ids, far_ids, sums = block
    for p in range(n):
        sums[p] = 0
    for k in range(len(templates.keys)):
        first, second, third, fourth = (
            templates.slots[k, 0] * PADDED,
            templates.slots[k, 1] * PADDED,
            templates.slots[k, 2] * PADDED,
            templates.slots[k, 3] * PADDED,
        )
        key = spread(slots, templates.keys[k])
        for p in range(0, n, lanes(slots)):
            left = add(load(slots, first + p), load(slots, second + p))
            keys = add(key, add(left, add(load(slots, third + p), load(slots, fourth + p))))
            store_hashes(near_ids, p, add(keys, load(near, p)), MULTIPLIER, shift)
            store_hashes(far_ids, p, add(keys, load(far, p)), MULTIPLIER, shift)
        for p in range(n):
            prefetch(weights, np.int64(get(near_ids, p)))
            prefetch(weights, np.int64(get(far_ids, p)))
        for p in range(n):
            total = get(sums, p) + get(weights, np.int64(get(near_ids, p)))
            put(sums, p, total + get(weights, np.int64(get(far_ids, p))))
