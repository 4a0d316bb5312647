"""Input of the tree passes: checked arc scores of a ragged batch of sentences."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_lengths, check_scores, check_shape
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.tree.kernels.records import Batch

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Potentials:
    """Arc scores of a ragged batch of sentences.

    ``log_arc[b, h, d]`` scores the arc from head h to word d; node 0 is the root. The diagonal, column 0 and nodes
    after ``lengths[b]`` are never read.
    """

    log_arc: Doubles  # (B, n+1, n+1) C-contiguous
    lengths: Integers  # (B,) words of each sentence, 1 to n
    single_root: bool  # exactly one word depends on node 0

    @cached_property
    def order(self) -> Integers:
        """Sentences by decreasing length, so that those computed together have similar lengths."""
        return np.argsort(-self.lengths, kind="stable")

    @cached_property
    def batch(self) -> Batch:
        """Argument record of the kernels."""
        return Batch(self.order, self.lengths, self.log_arc, self.single_root)

    def ranges(self, multiple: int, cost: float = 1.0) -> list[tuple[int, int]]:
        """Return ranges of ``order`` of equal work, in groups of ``multiple``; ``cost`` n^3 operations per sentence."""
        costs = ((self.lengths[self.order] + 1) ** 3 * cost).astype(np.int64)
        return threads.cut(costs, multiple=multiple, least=threads.LEAST_WORK)

    def take(self, which: NDArray[np.integer]) -> "Potentials":
        """Return the potentials of the sentences ``which``."""
        return Potentials(self.log_arc[which], self.lengths[which], self.single_root)


def tree_potentials(log_arc: object, lengths: object = None, *, single_root: bool = True) -> Potentials:
    """Check arc scores and convert them for the kernels; the input arrays are left unchanged.

    ``log_arc[b, h, d]`` (B, n+1, n+1) scores the arc from h to d, node 0 the root; -inf forbids it. ``lengths`` (B,), 1
    to n, are all n by default. With ``single_root`` exactly one word depends on node 0.
    """
    array = np.asarray(log_arc)
    if array.dtype.kind not in "iubf":
        raise ValueRangeError(f"log_arc must hold real numbers, got dtype {array.dtype}.")
    B, n = check_arcs("log_arc", array.shape)
    checked = check_lengths(lengths, B, n)
    scores = np.ascontiguousarray(array, np.float64)
    check_scores("log_arc", scores, arcs(checked, n))
    return Potentials(scores, checked, bool(single_root))


def check_arcs(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return ``(B, n)`` of a batch of arc scores (B, n+1, n+1); raise an error if the shape differs."""
    sizes = check_shape(name, shape, "B N N")
    B, N = sizes["B"], sizes["N"]
    if B < 1 or N < 2:
        raise ShapeError(f"{name} must have shape (B, n+1, n+1) with B and n at least 1, got {tuple(shape)}.")
    return B, N - 1


def arcs(lengths: Integers, n: int) -> NDArray[np.bool_]:
    """Return the mask of arcs (B, n+1, n+1): between different nodes of the sentence, and not into the root."""
    node = np.arange(n + 1)
    inside = node <= lengths[:, None]
    mask = inside[:, :, None] & (inside & (node > 0))[:, None, :]
    return mask & (node[:, None] != node)


def are_trees(
    heads: NDArray[np.integer], lengths: Integers, *, projective: bool, single_root: bool
) -> NDArray[np.bool_]:
    """Return True (B,) where heads (B, n) form a tree of this kind; those of a word are 0 to its sentence's length."""
    n = heads.shape[1]
    word = np.arange(1, n + 1)
    inside = word <= lengths[:, None]
    above = np.pad(np.where(inside, heads, 0), ((0, 0), (1, 0)))  # (B, n+1), the root above itself
    for _ in range(n.bit_length()):
        above = np.take_along_axis(above, above, axis=1)
    good: NDArray[np.bool_] = above.max(axis=1) == 0
    if single_root:
        good &= ((heads == 0) & inside).sum(axis=1) == 1
    if projective:
        low, high = np.minimum(heads, word), np.maximum(heads, word)
        first, last = low[:, :, None], high[:, :, None]
        crossing = (first < low[:, None]) & (low[:, None] < last) & (last < high[:, None])
        good &= ~(crossing & inside[:, :, None] & inside[:, None]).any(axis=(1, 2))
    return good


def is_tree(heads: NDArray[np.integer], *, projective: bool, single_root: bool) -> bool:
    """Return True if the heads (n,) of words 1 to n, each from 0 to n, form a tree of this kind."""
    lengths = np.array([len(heads)])
    return bool(are_trees(heads[None], lengths, projective=projective, single_root=single_root)[0])
