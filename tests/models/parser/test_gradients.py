"""Training objectives of the parser against finite differences, and heads that no tree can have."""

import numpy as np
import pytest

from tests.estimators import made
from tests.models.parser.corpus import HEADS, PARTIAL, SMALL, TAGGED, heads_of
from trelliswork import DependencyParser
from trelliswork.models.parser.data import Gold, TreeKind, read_arcs
from trelliswork.models.parser.features import SecondOrderFeatures, TokenCoder
from trelliswork.models.parser.scoring import TreeScorer
from trelliswork.models.parser.second_order import Propagation
from trelliswork.models.parser.templates import feature_set
from trelliswork.models.parser.training import FirstOrder, Problem, SecondOrder

BITS = 10


def problem(heads, bits=BITS):
    """Return three sentences as input of a trainer, and random weights."""
    words = [w for s in TAGGED for w, _ in s]
    tags = [t for s in TAGGED for _, t in s]
    offsets = np.array([0, 2, 5, 6])
    coder = TokenCoder.from_columns(words, tags, 1)
    tokens = coder.code(words, tags, tags, offsets)
    rng = np.random.default_rng(0)
    weights = [0.1 * rng.normal(size=1 << bits) for _ in range(4)]
    return tokens, read_arcs(heads, offsets), SecondOrderFeatures.of(feature_set(False), bits), weights


@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("heads", [HEADS, PARTIAL, [[None, None], [2, None, None], [0]]])
def test_gradient_of_the_first_order(heads, projective):
    tokens, gold, features, (weights, *_) = problem(heads)
    kind = TreeKind(projective, True)
    trainer = FirstOrder(Problem(tokens, gold, gold, kind), TreeScorer.of(features, kind, None), rate=0.1, active=0.0)
    batch = np.array([2, 0, 1])
    loss, (arcs,), (values,) = trainer.gradient(batch, [weights])
    ids, counts = features.arcs.ids(tokens, arcs)
    gradient = np.zeros(len(weights))
    for row, n, value in zip(ids, counts, values, strict=True):
        np.add.at(gradient, row[:n], -value)
    assert loss > 0
    check(lambda w: trainer.gradient(batch, [w])[0], weights, gradient, 1e-6)


@pytest.mark.parametrize("heads", [HEADS, PARTIAL])
def test_gradient_of_the_second_order_at_convergence(heads):
    check_second_order(heads, Propagation(TreeKind(True, True), max_iter=300, tolerance=1e-12), 1e-4)


def check_second_order(heads, propagation, tolerance):
    """Compare the gradient with central differences, for the weights of each kind of part."""
    tokens, gold, features, weights = problem(heads)
    scorer = TreeScorer(features, propagation, (weights[0],))
    trainer = SecondOrder(Problem(tokens, gold, gold, propagation.kind), scorer, rate=0.1, active=0.0)
    batch, model = np.array([2, 0, 1]), weights[1:]
    loss, lists, values = trainer.gradient(batch, tuple(model))
    assert loss > 0
    for k, (one, parts) in enumerate(zip(features, lists, strict=True)):
        ids, counts = one.ids(tokens, parts)
        gradient = np.zeros(1 << BITS)
        for row, n, value in zip(ids, counts, values[k], strict=True):
            np.add.at(gradient, row[:n], -value)

        def at(w, k=k):
            return trainer.gradient(batch, tuple(w if j == k else model[j] for j in range(3)))[0]

        check(at, model[k], gradient, tolerance)


def check(function, weights, gradient, tolerance):
    """Compare with central differences along some axes and a random direction."""
    rng, step = np.random.default_rng(1), 1e-4
    directions = [np.eye(len(weights))[i] for i in np.argsort(-np.abs(gradient))[:5]]
    directions += [rng.normal(size=len(weights)) / 10]
    for direction in directions:
        slope = (function(weights + step * direction) - function(weights - step * direction)) / (2 * step)
        assert slope == pytest.approx(gradient @ direction, rel=tolerance, abs=tolerance)


def test_heads_that_no_tree_can_have_are_treated_as_unknown():
    crossing = Gold(np.array([3, 4, 0, 3]), np.array([0, 4]))  # 3 -> 1 and 4 -> 2 cross
    possible = crossing.possible(TreeKind(True, True))
    assert possible.n_dropped == 1
    assert (possible.heads == crossing.heads).sum() == 3
    assert crossing.possible(TreeKind(False, True)).n_dropped == 0
    roots = Gold(np.array([0, 0]), np.array([0, 2]))
    assert roots.possible(TreeKind(True, True)).n_dropped == 1
    assert roots.possible(TreeKind(True, False)).n_dropped == 0


def test_crossing_arcs_and_several_roots_are_learned_where_they_are_allowed():
    X = [[("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]]
    crossing = made(DependencyParser, 2, **SMALL, projective=False).fit(X, [[3, 4, 0, 3]])
    assert heads_of(crossing.predict(X)) == [[3, 4, 0, 3]]
    several = made(DependencyParser, 1, **SMALL, single_root=False, max_iter=10).fit([X[0][:2]], [[0, 0]])
    assert heads_of(several.predict([X[0][:2]])) == [[0, 0]]
    assert made(DependencyParser, 1, **SMALL).fit(X, [[3, 4, 0, 3]]).report_.details["dropped_heads"] == 1
