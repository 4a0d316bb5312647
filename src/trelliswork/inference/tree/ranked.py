"""The k best spanning trees (Lawler, 1972): each tree leaves smaller problems, of which the best one has the next tree.

A tree leaves n problems. In the d-th, the words before d keep their arcs, and d must not have its current one. Together
they contain every other tree exactly once. Arcs have labels, of which a word takes the best one that is left.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference.tree.kernels import mst
from trelliswork.inference.tree.kernels.records import Batch
from trelliswork.inference.tree.potentials import Doubles, Integers


class _Tree(NamedTuple):
    """The best tree of a problem; they are compared by their scores, then by their numbers."""

    cost: float  # minus its score
    number: int
    heads: Integers  # (n,)
    ranks: Integers  # (n,) of its labels
    first: int  # place of the first word without a given arc
    barred: NDArray[np.bool_]  # (n+1, R) arcs and labels that this word must not have


def topk(start: int, stop: int, batch: Batch, heads: Integers, ranks: Integers, scores: Doubles) -> None:
    """Fill heads (B, k, n), ranks of labels (B, k, n) and scores (B, k) of the k best trees; then -1 and -inf.

    ``log_arc`` (B, n+1, n+1, R) holds the scores of the R best labels of each arc, sorted. Time O(k n^3).
    """
    for b in batch.order[start:stop].tolist():
        n = int(batch.lengths[b])
        arc = batch.log_arc[b, : n + 1, : n + 1]
        for k, tree in enumerate(islice(_best_first(arc, batch.single_root), scores.shape[1])):
            heads[b, k, :n], ranks[b, k, :n], scores[b, k] = tree.heads, tree.ranks, -tree.cost


def _best_first(arc: Doubles, single_root: bool) -> Iterator[_Tree]:
    """Yield the trees of one sentence, best first."""
    n, R = len(arc) - 1, arc.shape[2]
    words, numbers = np.arange(1, n + 1), count()
    heads, ranks, first = np.zeros(n, np.int64), np.zeros(n, np.int64), 0
    barred = np.zeros((1, n + 1, R), np.bool_)  # at first there is one problem, without any rule
    waiting: list[_Tree] = []
    while True:
        m = len(barred)
        free = words[first : first + m]  # the first free word of each problem
        allowed, label = np.repeat(arc[None, :, :, 0], m, axis=0), np.zeros((m, n + 1, n + 1), np.int64)
        problem, place = np.nonzero(words < free[:, None])
        allowed[problem, :, words[place]] = -np.inf
        allowed[problem, heads[place], words[place]] = arc[heads[place], words[place], ranks[place]]
        label[problem, heads[place], words[place]] = ranks[place]
        rank = barred.argmin(axis=2)
        label[np.arange(m), :, free] = rank
        own = arc[np.arange(n + 1), free[:, None], rank]
        allowed[np.arange(m), :, free] = np.where(barred.all(axis=2), -np.inf, own)
        found, values = np.empty((m, n), np.int64), np.empty(m)
        mst.best(0, m, Batch(np.arange(m), np.full(m, n), allowed, single_root), found, values)
        for row in np.flatnonzero(values > -np.inf).tolist():
            own_ranks = label[row, found[row], words]
            heappush(waiting, _Tree(-values[row], next(numbers), found[row], own_ranks, first + row, barred[row]))
        if not waiting:
            return
        tree = heappop(waiting)
        yield tree
        heads, ranks, first = tree.heads, tree.ranks, tree.first
        barred = np.zeros((n - first, n + 1, R), np.bool_)
        barred[0] = tree.barred
        barred[np.arange(n - first), heads[first:], ranks[first:]] = True
