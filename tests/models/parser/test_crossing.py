"""Trees with crossing arcs: the cost that development data give them."""

from dataclasses import replace

import numpy as np
import pytest

from tests.models.parser.corpus import SMALL, heads_of, treebank
from tests.oracle.trees import is_projective, is_tree
from trelliswork import DependencyParser, load


def crossed(split, n, seed):
    """Return bundled sentences of which a seeded part gets a first word that depends on the last word but one.

    The new arc crosses that of the root wherever the root is between them.
    """
    rng = np.random.default_rng(seed)
    sentences, trees = [], []
    for words, tree in zip(*treebank(split, n), strict=True):
        m = len(words) - 1
        if m > 3 and rng.random() < 0.15 and 1 < [h for h, _ in tree].index(0) + 1 < m:
            words = [("xx", "X"), *words]
            tree = [(m + 1, "cross"), *((h + 1 if h else 0, label) for h, label in tree)]
        sentences.append(words)
        trees.append(tree)
    return sentences, trees


def n_crossing(trees):
    return sum(not is_projective(tuple(tree)) for tree in trees)


@pytest.fixture(scope="module")
def data():
    """Training, development and test sentences, the last two from different parts of the bundled test part."""
    X, y = crossed("test", 400, 2)
    return crossed("train", 300, 1), (X[:200], y[:200]), (X[200:], y[200:])


def test_a_fitted_cost_keeps_crossings_near_those_of_gold(data, tmp_path):
    (X, y), dev, (X_test, y_test) = data
    parser = DependencyParser(1, **SMALL, projective=False).fit(X, y, dev=dev)
    cost, gold = parser.report_.details["crossing_cost"], heads_of(y_test)
    trees = heads_of(parser.predict(X_test))
    assert all(is_tree(tuple(tree)) for tree in trees)
    assert cost > 0
    assert n_crossing(gold) > 10
    assert n_crossing(gold) / 1.5 <= n_crossing(trees) <= 1.5 * n_crossing(gold)
    parser.save(tmp_path / "parser")
    assert load(tmp_path / "parser").parse(X_test) == parser.parse(X_test)
    accuracy = parser.score(X_test, gold)
    parser._learned = replace(parser._learned, crossing_cost=0.0)
    assert n_crossing(heads_of(parser.predict(X_test))) > 1.5 * n_crossing(gold)  # what the cost is for
    assert parser.score(X_test, gold) < accuracy


def test_the_cost_gives_as_many_crossings_as_gold(data):
    (X, y), dev, _ = data
    parser = DependencyParser(1, **SMALL, projective=False, max_iter_labels=1).fit(X, y, dev=dev)
    n = n_crossing(heads_of(dev[1]))
    assert n / 1.2 <= n_crossing(heads_of(parser.predict(dev[0]))) <= 1.2 * n
    flat = [tree for words, tree in zip(*dev, strict=True) if is_projective(tuple(h for h, _ in tree))]
    words = [words for words, tree in zip(*dev, strict=True) if is_projective(tuple(h for h, _ in tree))]
    parser._calibrate_temperature(words, flat)  # gold trees without crossings
    assert n_crossing(heads_of(parser.predict(words))) == 0


def test_projective_parsers_have_no_cost():
    X, y = treebank("train", 20)
    parser = DependencyParser(1, **SMALL, max_iter_labels=1).fit(X, y, dev=(X, y))
    assert "crossing_cost" not in parser.report_.details
