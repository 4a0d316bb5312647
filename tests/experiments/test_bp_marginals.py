"""Variants of belief propagation on a trained parser, against its exact posterior."""

import numpy as np
from numpy.testing import assert_allclose

from tests.models.parser.corpus import SMALL, treebank
from trelliswork import DependencyParser, bundled
from trelliswork.experiments import bp_marginals as module


def test_posteriors_by_enumeration_and_by_samples_agree(monkeypatch):
    parser = DependencyParser(2, **SMALL, calibrated=False).fit(*treebank("train", 60))
    sentence = next(s for s in bundled.load("test") if len(s.words) == 5)
    exact = module._sentence(parser, sentence, 1, np.random.default_rng(0))
    assert exact.exact
    assert exact.gold.sum() <= 5
    assert_allclose(exact.truth.sum(), 5)
    monkeypatch.setattr(module, "MOST_TREES", 0)
    sampled = module._sentence(parser, sentence, 20_000, np.random.default_rng(0))
    assert not sampled.exact
    assert_allclose(sampled.truth, exact.truth, atol=0.05)


def test_table_of_all_methods():
    table = module.bp_marginals(n_train=40, n_test=4, n_samples=50, longest=5)
    assert [row[0] for row in table.rows][:2] == ["posterior", "tree every 2nd iteration"]
    assert table.rows[0][2:6] == [0.0] * 4
    assert all(0 <= row[2] < 0.5 for row in table.rows)
    assert len(table.figures) == 2 * (len(table.rows) - 1)
