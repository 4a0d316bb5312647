"""Trees whose arcs cross, one change of a head away from others (McDonald and Pereira, 2006)."""

import numpy as np

from trelliswork.compute import threads
from trelliswork.inference.tree.kernels import crossing
from trelliswork.inference.tree.potentials import Doubles, Integers, Potentials


def crossing_moves(potentials: Potentials, heads: Integers) -> tuple[Integers, Doubles]:
    """Return the best trees (B, n) that differ from others in one head, by an arc that crosses some of the others.

    Return also how much their scores gain (B,), which may be negative: -inf if there is no such tree, and the tree then
    is that of ``heads`` (B, n). With a single root, the root stays. Time O(n^2), and O(n) more for each better change.
    """
    B = len(heads)
    words, targets, gains = np.empty(B, np.int64), np.empty(B, np.int64), np.empty(B)
    heads = np.ascontiguousarray(heads, np.int64)
    threads.run(crossing.moves, potentials.ranges(1, 0.2), potentials.batch, heads, words, targets, gains)
    moved, which = heads.copy(), np.flatnonzero(words > 0)
    moved[which, words[which] - 1] = targets[which]
    return moved, gains


def with_crossings(potentials: Potentials, heads: Integers, cost: float) -> Integers:
    """Return the trees (B, n) after all changes of `crossing_moves`, one after the other, that gain more than a cost.

    The cost must not be negative; each change then is an improvement, so that they come to an end.
    """
    heads = np.array(heads, np.int64)
    which = np.arange(len(heads))
    while which.size:
        moved, gains = crossing_moves(potentials.take(which), heads[which])
        which, moved = which[gains > cost], moved[gains > cost]
        heads[which] = moved
    return heads
