"""Parts of second-order dependency trees as flat arrays: arcs, consecutive children, grandparents."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.tree.second_order.kernels.parts import (
    count_grandparents,
    fill_grandparents,
    fill_siblings,
    find_sides,
)

Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Integers = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of B sentences, one sentence after the other; made by `parts`.

    Attributes
    ----------
    n_words : ndarray of int (B,)
    arc_ptr : ndarray of int (B + 1,)
        The candidate arcs of sentence b are ``arc_ptr[b]:arc_ptr[b + 1]``.
    heads, modifiers : ndarray of int (A,)
        Sorted by head, then modifier. Head 0 is the root, words are 1..n.
    sibling_ptr : ndarray of int (B + 1,)
    sibling_heads : ndarray of int (S,)
        A word (or 0).
    sibling_previous, sibling_next : ndarray of int (S,)
        Arcs to two consecutive children of the head on one side, in outward order; ``previous`` is -1 before the
        first child, ``next`` -1 after the last. Both -1: no children on this side.
    sibling_sides : ndarray of int (S,)
        -1 left of the head, 1 right of it.
    grandparent_ptr : ndarray of int (B + 1,)
    grandparent_upper, grandparent_lower : ndarray of int (G,)
        Arcs g -> h and h -> m, m != g.
    node_ptr : ndarray of int (B + 1,)
        Nodes 0..n of sentence b are ``node_ptr[b]:node_ptr[b + 1]`` in the following arrays.
    out_start : ndarray of int (nodes + 1,)
        The arcs out of a node are ``out_start[node]:out_start[node + 1]``.
    in_start : ndarray of int (nodes + 1,)
    in_arcs : ndarray of int (A,)
        The arcs into a node, by head: ``in_arcs[in_start[node]:in_start[node + 1]]``.
    side_ptr : ndarray of int (B + 1,)
    sides : ndarray of int (sides, 4)
        Candidate children of a head on one side: the first arc, the step to the next (1 or -1), their number, and the
        first part. Child i (0: none before) followed by child j (1 to the number of children + 1: none after) is part
        ``j (j - 1) / 2 + i``. A side without candidates has no parts.
    """

    n_words: Longs
    arc_ptr: Longs
    heads: Integers
    modifiers: Integers
    sibling_ptr: Longs
    sibling_heads: Integers
    sibling_previous: Integers
    sibling_next: Integers
    sibling_sides: Integers
    grandparent_ptr: Longs
    grandparent_upper: Integers
    grandparent_lower: Integers
    node_ptr: Longs
    out_start: Longs
    in_start: Longs
    in_arcs: Longs
    side_ptr: Longs
    sides: Longs

    @property
    def n_sentences(self) -> int:
        """Number of sentences B."""
        return len(self.n_words)


def parts(
    n_words: object,
    arc_ptr: object,
    heads: object,
    modifiers: object,
    *,
    siblings: bool = True,
    grandparents: bool = True,
) -> Parts:
    """List the second-order parts of candidate arcs.

    Parameters
    ----------
    n_words : array of int (B,)
    arc_ptr : array of int (B + 1,)
    heads, modifiers : array of int (A,)
        Candidate arcs of each sentence, sorted by head, then modifier; see `Parts`.
    siblings, grandparents : bool
        Whether to list parts of that kind.

    Notes
    -----
    Time and memory O(number of parts): with k candidate heads and c candidate children per word, c^2 / 2 siblings per
    side and k c grandparents per word.
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
    if grandparents:
        count_grandparents(node_ptr, out_start, in_start, in_arcs, h, m, grandparent_ptr)
    S, G = int(sibling_ptr[-1]), int(grandparent_ptr[-1])
    previous, following, sibling_heads, sibling_sides, upper, lower = (
        np.empty(size, np.int32) for size in (S, S, S, S, G, G)
    )
    sides = sides[: side_ptr[-1]].copy()
    fill_siblings(sides, h, sibling_heads, previous, following, sibling_sides)
    if grandparents:
        fill_grandparents(node_ptr, out_start, in_start, in_arcs, h, m, upper, lower)
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
