"""Changes of one head by which arcs cross, against enumeration."""

import numpy as np
import pytest

from tests.oracle.trees import is_projective, trees
from trelliswork.compute import threads
from trelliswork.inference.tree import crossing_moves, eisner, tree_potentials, with_crossings


def cross(heads, word):
    """Return True if the arc of a word crosses another."""
    arcs = [(min(h, d), max(h, d)) for d, h in enumerate(heads, 1)]
    a, b = arcs[word - 1]
    return any(a < c < b < d or c < a < d < b for c, d in arcs)


def neighbors(heads, single_root):
    """Return the trees that differ in one head, whose arc crosses another."""
    every = trees(len(heads), False, single_root)
    near = every[(every != heads).sum(axis=1) == 1]
    return [tree for tree in near if cross(tree.tolist(), int(np.flatnonzero(tree != heads)[0]) + 1)]


def total(log_arc, heads):
    return log_arc[heads, np.arange(1, len(heads) + 1)].sum()


@pytest.mark.parametrize("single_root", [True, False])
def test_the_best_change_is_that_of_enumeration(single_root):
    rng, lengths = np.random.default_rng(0), np.array([5, 3, 4, 1, 5, 5, 2, 4])
    log_arc = rng.normal(size=(len(lengths), 6, 6))
    log_arc[4, 2:, 1:3] = -np.inf
    potentials = tree_potentials(log_arc, lengths, single_root=single_root)
    heads = eisner.best(potentials)[0]
    moved, gains = crossing_moves(potentials, heads)
    for b, n in enumerate(lengths.tolist()):
        start, one = heads[b, :n], log_arc[b, : n + 1, : n + 1]
        others = neighbors(start, single_root)
        scores = [total(one, tree) - total(one, start) for tree in others]
        if max(scores, default=-np.inf) == -np.inf:
            assert gains[b] == -np.inf
            assert (moved[b] == heads[b]).all()
        else:
            assert gains[b] == pytest.approx(max(scores))
            assert moved[b, :n].tolist() == others[int(np.argmax(scores))].tolist()
            assert not is_projective(tuple(moved[b, :n].tolist()))
        assert (moved[b, n:] == -1).all()


def test_changes_end_where_none_gains_more_than_the_cost():
    log_arc = 3 * np.random.default_rng(1).normal(size=(20, 6, 6))
    potentials = tree_potentials(log_arc)
    heads = eisner.best(potentials)[0]
    for cost in (0.0, 0.5):
        with threads.num_threads(1):
            result = with_crossings(potentials, heads, cost)
        assert (result == with_crossings(potentials, heads, cost)).all()
        assert (crossing_moves(potentials, result)[1] <= cost).all()
        n_changed = (result != heads).sum(axis=1)
        gained = np.array([total(*rows) for rows in zip(log_arc, result, strict=True)]) - [
            total(*rows) for rows in zip(log_arc, heads, strict=True)
        ]
        assert n_changed.max() > 0
        assert (gained >= n_changed * cost).all()
    assert (with_crossings(potentials, heads, np.inf) == heads).all()
