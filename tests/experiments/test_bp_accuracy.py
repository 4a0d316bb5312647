"""Experiments on second-order belief propagation: enumeration and tables."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from experiments.bp_accuracy import bp_accuracy, bp_cost, candidates, enumerate_trees
from tests.oracle.second_order import enumerate_second_order
from trelliswork.models.parser.second_order import Propagation


@pytest.mark.parametrize("projective", [True, False])
def test_enumeration_equals_the_oracle(projective):
    given = candidates(3, 2, np.random.default_rng(0), strength=1.0)
    found = enumerate_trees(given, projective=projective)
    for b in range(2):
        want = enumerate_second_order(given.parts, b, *given[2:], projective=projective, single_root=True)
        arcs = slice(9 * b, 9 * b + 9)
        assert_allclose(found.log_partition[b], want.log_z, rtol=1e-12)
        assert_allclose(found.arcs[arcs], (want.probabilities @ want.arcs)[arcs], atol=1e-12)


def test_pruning_keeps_n_heads_and_a_tree():
    given = candidates(12, 3, np.random.default_rng(1), n_heads=4)
    assert len(given.arc_scores) == 3 * 12 * 4
    arcs = set(zip(given.parts.heads[:48].tolist(), given.parts.modifiers[:48].tolist(), strict=True))
    assert all((d - 1, d) in arcs for d in range(1, 13))
    assert_allclose(given.arc_scores[:48], [given.log_arc[0, h, d] for h, d in sorted(arcs)])


def test_tree_factor_alone_is_exact():
    said = []
    table = bp_accuracy(lengths=(3,), strengths=(0.0, 1.0), n_models=20, say=said.append)
    assert [row[:3] for row in table.rows] == [[3, 0.0, 5], [3, 0.0, 500], [3, 1.0, 5], [3, 1.0, 500]]
    assert all(row[5] < 1e-10 and row[7] < 1e-10 for row in table.rows[:2])
    assert all(1e-3 < row[4] < 0.3 for row in table.rows[2:])
    assert len(table.figures) == 16
    assert len(said) == 2
    assert "strength" in table.to_text()


def test_costs_are_measured():
    table = bp_cost(lengths=(4, 8), n_heads=3, n_sentences=4, n_repeats=2, n_train=30)
    assert [row[0] for row in table.rows] == [4, 8]
    assert all(row[1] > 0 and row[3] == pytest.approx(row[2] / row[1]) for row in table.rows)
    assert all(len(row) == len(table.columns) and row[-1] > 0 for row in table.rows)
    assert len(table.figures) == 8
    assert f"{Propagation.max_iter} iterations, the tree factor in every {Propagation.tree_every}" in table.notes[0]
