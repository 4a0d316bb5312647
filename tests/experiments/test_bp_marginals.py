"""Variants of belief propagation on a trained parser, against its exact posterior."""

import numpy as np
from numpy.testing import assert_allclose

from experiments import bp_marginals as module
from tests.estimators import made
from tests.models.parser.corpus import SMALL, treebank
from trelliswork import DependencyParser, bundled


def test_posteriors_by_enumeration_and_by_chains_agree(monkeypatch):
    parser = made(DependencyParser, 2, **SMALL, calibrated=False).fit(*treebank("train", 60))
    sentence = next(s for s in bundled.load("test") if len(s.words) == 5)
    exact = module._sentence(parser, sentence, 1, 0)
    assert exact.exact
    assert exact.gold.sum() <= 5
    assert_allclose(exact.truth.sum(), 5)
    monkeypatch.setattr(module, "MOST_TREES", 0)
    sampled = module._sentence(parser, sentence, 5000, 0)
    assert not sampled.exact
    assert 0 < sampled.chains.errors.max() < 0.01
    assert (np.abs(sampled.truth - exact.truth) <= 4 * sampled.chains.errors + 1e-3).all()


def test_table_of_all_methods():
    table = module.bp_marginals(n_train=40, n_test=4, n_sweeps=50, longest=5)
    assert [row[0] for row in table.rows][:2] == ["posterior", "tree every 2nd iteration"]
    assert table.rows[0][3:7] == [0.0] * 4
    assert [row[2] for row in table.rows] == ["exact, sampled"] + ["estimate"] * (len(table.rows) - 1)
    assert all(0 <= row[3] < 0.5 for row in table.rows)
    assert len(table.figures) == 2 * (len(table.rows) - 1)


def test_the_score_of_a_tree_is_log_z_of_that_tree_alone():
    parser = made(DependencyParser, 2, **SMALL, calibrated=False).fit(*treebank("train", 60))
    sentence = next(s for s in bundled.load("test") if len(s.words) == 5)
    one = module._sentence(parser, sentence, 1, 0)
    (a, b, c), parts = one.scores, one.parts
    heads = parser.posterior(list(zip(sentence.words, sentence.tags, strict=True))).argmax().value[0].tolist()
    on = [k for k, (h, m) in enumerate(zip(parts.heads, parts.modifiers, strict=True)) if heads[m - 1] == h]
    alone = np.full(len(a), -np.inf)
    alone[on] = a[on]
    result = module.second_order.infer(parts, alone, b, c)
    assert_allclose(module._score(parts, on, a, b, c), result.log_partition[0], rtol=1e-6)


def test_the_common_error_of_all_variants_is_of_first_order():
    parser = made(DependencyParser, 2, **SMALL, calibrated=False).fit(*treebank("train", 60))
    sentence = next(s for s in bundled.load("test") if len(s.words) == 5)
    one = module._sentence(parser, sentence, 1, 0)
    a, b, c = one.scores
    small = one._replace(scores=(a, 0.05 * b, 0.05 * c))
    loopy, weighted = module._loopy(small, max_iter=50), module._fractional(small, weight=0.5, max_iter=50, damping=0.3)
    change = np.abs(loopy - module._loopy(one._replace(scores=(a, 0 * b, 0 * c)), max_iter=50)).max()
    assert np.abs(loopy - weighted).max() < 0.05 * change
