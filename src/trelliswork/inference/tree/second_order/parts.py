"""Parts of second-order dependency trees as flat arrays: arcs, consecutive children, grandparents."""

import numpy as np

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.tree.second_order.kernels.parts import fill_siblings, find_grandparents, find_sides
from trelliswork.inference.tree.second_order.kernels.records import Longs, Parts


def parts(
    n_words: object,
    arc_ptr: object,
    heads: object,
    modifiers: object,
    *,
    siblings: bool = True,
    grandparents: bool = True,
) -> Parts:
    """List the second-order parts of candidate arcs (A,), sorted by head, then modifier, in each sentence; see `Parts`.

    ``n_words`` is (B,), ``arc_ptr`` (B + 1,). Time and memory O(number of parts): with k candidate heads and c
    candidate children per word, c^2 / 2 siblings per side and k c grandparents per word.
    """
    lengths, ends = _whole("n_words", n_words), _whole("arc_ptr", arc_ptr)
    h, m = _whole("heads", heads), _whole("modifiers", modifiers)
    B, A = len(lengths), len(h)
    if B < 1 or len(ends) != B + 1 or ends[0] != 0 or ends[-1] != A or (np.diff(ends) < 0).any():
        raise ShapeError(
            f"arc_ptr must hold B+1={B + 1} increasing offsets from 0 to A={A}, one range of arcs per sentence, "
            "with B at least 1."
        )
    if len(m) != A:
        raise ShapeError(f"modifiers must have shape (A,), got {m.shape}: axis 0 should be A={A}, as heads.")
    if lengths.min() < 1:
        raise ValueRangeError(f"n_words must be positive, got {lengths.min()}: remove empty sentences from the batch.")
    sentence = np.repeat(np.arange(B), np.diff(ends))
    bad = np.flatnonzero((h < 0) | (h > lengths[sentence]) | (m < 1) | (m > lengths[sentence]) | (h == m))
    if bad.size:
        a = bad[0]
        raise ValueRangeError(
            f"arc {a} goes from {h[a]} to {m[a]}, but in a sentence of n={lengths[sentence[a]]} words arcs go from "
            "0..n to a different node in 1..n."
        )
    node_ptr = np.concatenate([[0], np.cumsum(lengths + 1)])
    key = (node_ptr[sentence] + h) * (lengths.max() + 1) + m
    bad = np.flatnonzero(key[1:] <= key[:-1])
    if bad.size:
        raise ValueRangeError(
            f"arc {bad[0] + 1} is out of order: sort the arcs of a sentence by head, then modifier, without duplicates."
        )
    n_nodes = int(node_ptr[-1])
    out_start = np.concatenate([[0], np.cumsum(np.bincount(node_ptr[sentence] + h, minlength=n_nodes))])
    into = node_ptr[sentence] + m
    in_start = np.concatenate([[0], np.cumsum(np.bincount(into, minlength=n_nodes))])
    in_arcs = np.argsort(into, kind="stable")
    side_ptr, sides = np.zeros(B + 1, np.int64), np.empty((2 * n_nodes if siblings else 0, 4), np.int64)
    sibling_ptr, grandparent_ptr = np.zeros(B + 1, np.int64), np.zeros(B + 1, np.int64)
    if siblings:
        find_sides(node_ptr, out_start, m, side_ptr, sides, sibling_ptr)
    pairs = node_ptr, out_start, in_start, in_arcs, h, m, grandparent_ptr
    if grandparents:
        find_grandparents(*pairs, np.empty(0, np.int32), np.empty(0, np.int32))
    S, G = int(sibling_ptr[-1]), int(grandparent_ptr[-1])
    previous, following, sibling_heads, sibling_sides, upper, lower = (
        np.empty(size, np.int32) for size in (S, S, S, S, G, G)
    )
    sides = sides[: side_ptr[-1]].copy()
    fill_siblings(sides, h, sibling_heads, previous, following, sibling_sides)
    if grandparents:
        find_grandparents(*pairs, upper, lower)
    return Parts(
        lengths, ends, h.astype(np.int32), m.astype(np.int32), sibling_ptr, sibling_heads, previous, following,
        sibling_sides, grandparent_ptr, upper, lower, node_ptr, out_start, in_start, in_arcs, side_ptr, sides,
    )  # fmt: skip


def _whole(name: str, values: object) -> Longs:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ShapeError(
            f"{name} must be a one-dimensional array of integers, got {array.dtype} of shape {array.shape}."
        )
    return array.astype(np.int64)
