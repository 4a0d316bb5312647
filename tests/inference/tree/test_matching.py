"""Scores of arcs from marginals of trees."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from trelliswork.inference.tree import eisner, match_marginals, matrix_tree, tree_potentials


@pytest.mark.parametrize("engine", [eisner, matrix_tree], ids=["eisner", "matrix_tree"])
@pytest.mark.parametrize("single_root", [True, False])
def test_a_mixture_of_trees_has_the_marginals_of_scores(engine, single_root):
    rng = np.random.default_rng(0)
    lengths = np.array([6, 3, 1])
    log_arc = rng.normal(size=(2, 3, 7, 7)) * np.array([1.0, 4.0])[:, None, None, None]
    log_arc[:, 0, 2, 3] = -np.inf
    smooth, sharp = (tree_potentials(one, lengths, single_root=single_root) for one in log_arc)
    target = 0.7 * engine.expectations(smooth)[1] + 0.3 * engine.expectations(sharp)[1]
    scores = match_marginals(engine, smooth, target)
    found = engine.expectations(tree_potentials(scores, lengths, single_root=single_root))[1]
    assert_allclose(found, target, atol=2e-7)
    assert scores[0, 2, 3] == -np.inf
    assert np.abs(engine.expectations(smooth)[1] - target).max() > 0.01  # there was something to do


def test_its_own_marginals_leave_scores_unchanged():
    potentials = tree_potentials(np.random.default_rng(1).normal(size=(2, 5, 5)))
    scores = match_marginals(eisner, potentials, eisner.expectations(potentials)[1])
    assert_allclose(scores, potentials.log_arc)
