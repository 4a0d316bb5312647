"""Parsers with crossing arcs: a mixture of projective and all trees."""

from dataclasses import replace

import numpy as np
import pytest

from tests.estimators import made
from tests.models.parser.corpus import SMALL, heads_of, treebank
from tests.models.parser.test_gradients import check
from tests.oracle.trees import is_projective, is_tree, trees
from trelliswork import DependencyParser, SpanningTree, load
from trelliswork.distributions import NearlyProjectiveTree
from trelliswork.errors import DataError
from trelliswork.models.parser import scoring
from trelliswork.models.parser.data import TreeKind, read_arcs
from trelliswork.models.parser.features import SecondOrderFeatures, TokenCoder
from trelliswork.models.parser.scoring import TreeScorer, prune
from trelliswork.models.parser.second_order import Propagation
from trelliswork.models.parser.templates import feature_set
from trelliswork.models.parser.training import FirstOrder, Problem, ScoredParts, SecondOrder


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
    """Training, development and test sentences: the last are many, so that differences are no matter of chance."""
    X, y = crossed("train", 1000, 1)
    return (X[:300], y[:300]), crossed("test", 200, 2), (X[300:], y[300:])


@pytest.mark.parametrize("order", [1, 2])
def test_crossing_arcs_are_found(order, data, tmp_path):
    (X, y), dev, (X_test, y_test) = data
    gold = heads_of(y_test)

    def measure(parser):
        """Return the number of correct heads and of sentences with crossing arcs."""
        trees = heads_of(parser.predict(X_test))
        assert all(is_tree(tuple(tree)) for tree in trees)
        return sum(h == g for rows in zip(trees, gold, strict=True) for h, g in zip(*rows, strict=True)), n_crossing(
            trees
        )

    flat, none = measure(made(DependencyParser, order, **SMALL, calibrated=False).fit(X, y, dev=dev))
    parser = made(DependencyParser, order, **SMALL, projective=False).fit(X, y, dev=dev)
    learned, n_gold = parser._learned, n_crossing(gold)
    correct, n = measure(parser)
    assert n_gold > 60
    assert none == 0
    assert n_gold / 1.7 <= n <= 1.7 * n_gold
    assert correct > flat
    parser.save(tmp_path / "parser")
    assert load(tmp_path / "parser").predict_marginals(X_test[:50]) == parser.predict_marginals(X_test[:50])
    parser._learned = replace(learned, trees=replace(learned.trees, share=0.5))
    fewer, many = measure(parser)
    assert many > 1.7 * n_gold  # as many as if half of the sentences had them
    assert fewer < correct
    parser._learned = replace(learned, trees=replace(learned.trees, share=1e-9))
    fewer, none = measure(parser)
    assert none < 0.2 * n_gold
    assert fewer < correct  # what crossing arcs are for


SENTENCE = [("xx", "X"), ("They", "PRP"), ("saw", "VBD"), ("dogs", "NNS")]
CROSSING = [3, 4, 0, 3]


@pytest.fixture(scope="module", params=[1, 2])
def mixed(request, data):
    """A parser of each order that prunes nothing."""
    (X, y), (X_dev, y_dev), _ = data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "THRESHOLD", 0.0)
        parser = made(DependencyParser, request.param, **SMALL, projective=False)
        parser.fit(X[:150], y[:150], dev=(X_dev[:100], y_dev[:100]))
        assert 0 < parser.report_.details["crossing_share"] < 1
        yield parser


def enumerated(parser, sentence):
    """Return all trees of a sentence and their probabilities in the mixture, from the scores of the posterior."""
    scores, n = parser.posterior(sentence).log_arc[0].numpy(), len(sentence)
    every = trees(n, False, True)
    weights = np.exp(scores[every, np.arange(1, n + 1)].sum(axis=1) - scores.max() * n)
    flat = weights * [is_projective(tuple(tree)) for tree in every]
    c = parser.report_.details["crossing_share"]
    if (
        parser._learned.trees.sharp
    ):  # scores whose marginals are a mixture of temperatures have the cost of the tempered ones
        cost = parser.posterior(sentence).crossing_cost.item()
        p = np.where(flat > 0, weights, weights * np.exp(-cost))
        return every, p / p.sum()
    return every, (1 - c) * flat / flat.sum() + c * weights / weights.sum()


def test_all_answers_are_those_of_the_mixture(mixed):
    every, p = enumerated(mixed, SENTENCE)
    posterior = mixed.posterior(SENTENCE)
    assert isinstance(posterior, NearlyProjectiveTree)
    tables = mixed.predict_marginals([SENTENCE])[0]
    for d, table in enumerate(tables):
        for h, value in table.items():
            assert value == pytest.approx(p[every[:, d] == h].sum(), abs=1e-6)
    np.testing.assert_allclose(mixed.log_prob([SENTENCE] * len(every), every.tolist()), np.log(p), rtol=1e-4)
    best = mixed.predict_topk([SENTENCE], 10)[0]
    np.testing.assert_allclose([q for _, q in best], np.sort(p)[::-1][:10], rtol=1e-4)
    assert len({tuple(tree) for tree in heads_of([tree for tree, _ in best])}) == 10
    assert heads_of(mixed.predict([SENTENCE], decoding="viterbi")) == [every[p.argmax()].tolist()]
    assert posterior.crossing_probability().item() == pytest.approx(
        p[[not is_projective(tuple(tree)) for tree in every]].sum(), rel=1e-4
    )
    root = CROSSING.index(0)
    whole = mixed._subtree_probabilities([SENTENCE], [CROSSING])[0][root]
    assert whole == pytest.approx(p[(every == CROSSING).all(axis=1)][0], rel=1e-4)


def test_evidence_conditions_the_mixture(mixed):
    for known in ([None, None, 0, None], [4, None, None, None], CROSSING[:2] + [None] * 2):
        answers = mixed.predict_marginals([SENTENCE], known=[known])[0]
        assert all(table[h] == pytest.approx(1) for table, h in zip(answers, known, strict=True) if h is not None)
        assert all(sum(table.values()) == pytest.approx(1, abs=1e-6) for table in answers)
        tree = heads_of(mixed.predict([SENTENCE], known=[known]))[0]
        assert is_tree(tuple(tree))
        assert all(h is None or h == g for g, h in zip(tree, known, strict=True))
        if mixed.order == 1:  # with order 2, messages depend on the evidence
            every, p = enumerated(mixed, SENTENCE)
            fits = np.array([all(h is None or h == g for g, h in zip(one, known, strict=True)) for one in every])
            for d, table in enumerate(answers):
                for h, value in table.items():
                    assert value == pytest.approx(p[fits & (every[:, d] == h)].sum() / p[fits].sum(), abs=1e-6)
    assert type(mixed.posterior(SENTENCE, known=[*CROSSING[:2], None, None])) is SpanningTree


@pytest.mark.parametrize("heads", [CROSSING, [3, 4, None, None], [2, 3, 0, 3], [None, 3, None, None]])
def test_gradient_and_value_of_the_objective(heads):
    words, tags, offsets = (list(column) for column in (*zip(*SENTENCE, strict=True), (0, 4)))
    tokens = TokenCoder.from_columns(words, tags, 1).code(words, tags, tags, np.array(offsets))
    kind, all_features = TreeKind(False, True), SecondOrderFeatures.of(feature_set(False), 10)
    features = all_features.arcs
    gold = read_arcs([heads], np.array(offsets))
    without = gold.possible(replace(kind, projective=True))
    scorer = TreeScorer.of(all_features, kind, 0.5)
    trainer = FirstOrder(Problem(tokens, gold, gold, kind, without), scorer, rate=0.1, active=0.0)
    weights, batch = 0.3 * np.random.default_rng(0).normal(size=1 << 10), np.array([0])
    loss, (arcs,), (values,) = trainer.gradient(batch, [weights])
    gradient = np.zeros(len(weights))
    for row, n, value in zip(*features.ids(tokens, arcs), values, strict=True):
        np.add.at(gradient, row[:n], -value)
    check(lambda w: trainer.gradient(batch, [w])[0], weights, gradient, 1e-6)
    every, log_arc = trees(4, False, True), features.log_arcs(tokens, batch, weights)[0]
    w = np.exp(log_arc[every, np.arange(1, 5)].sum(axis=1))
    flat = np.array([is_projective(tuple(tree)) for tree in every])
    known, kept = (np.array([all(h < 0 or h == g for g, h in zip(tree, one.heads, strict=True)) for tree in every])
                   for one in (gold, without))  # fmt: skip
    value = np.log(w[flat & kept].sum() / w[flat].sum() * w[known].sum() / w[kept].sum())
    assert loss == pytest.approx(-value)


@pytest.mark.parametrize("heads", [CROSSING, [3, 4, None, None], [2, 3, 0, 3]])
def test_gradient_and_value_of_the_second_order(heads):
    words, tags, offsets = (list(column) for column in (*zip(*SENTENCE, strict=True), (0, 4)))
    tokens = TokenCoder.from_columns(words, tags, 1).code(words, tags, tags, np.array(offsets))
    features, every = SecondOrderFeatures.of(feature_set(False), 10), read_arcs([heads], np.array(offsets))
    gold = every.possible(TreeKind(True, True))
    start, rng, batch = np.zeros(1 << 10, np.float32), np.random.default_rng(0), np.array([0])
    model = [0.1 * rng.normal(size=1 << 10) for _ in range(3)]
    propagation = Propagation(TreeKind(True, True), max_iter=300, tolerance=1e-12)
    scorer = TreeScorer(features, propagation, (start,))
    pruned = prune(scorer, tokens, gold, every)
    settings = {"rate": 0.1, "active": 0.0}
    trainer = SecondOrder(Problem(tokens, every, every, TreeKind(False, True), gold), scorer, **settings)
    without = SecondOrder(Problem(tokens, gold, gold, propagation.kind), scorer, **settings)
    without.arcs = pruned
    loss, lists, values = trainer.gradient(batch, tuple(model))
    for k, (one, parts) in enumerate(zip(features, lists, strict=True)):
        gradient = np.zeros(1 << 10)
        for row, n, value in zip(*one.ids(tokens, parts), values[k], strict=True):
            np.add.at(gradient, row[:n], -value)
        check(lambda w, k=k: trainer.gradient(batch, (*model[:k], w, *model[k + 1 :]))[0], model[k], gradient, 1e-4)
    more = loss - without.gradient(batch, tuple(model))[0]
    assert (more == 0) == (gold.heads == every.heads).all()
    if heads == CROSSING:  # one head is free given the others, so that belief propagation is exact
        candidates = trainer.arcs.candidates(tokens, batch)
        scores = candidates.scores(features, tokens, tuple(model))
        free = gold.heads < 0
        rivals = [tree for tree in trees(4, False, True) if (tree == every.heads)[~free].all()]
        parts = [ScoredParts(candidates, scores, propagation).of_trees(tree[None])[1] for tree in rivals]
        totals = np.array([sum(s @ o for s, o in zip(scores, own, strict=True)) for own in parts])
        right = [bool((tree == every.heads).all()) for tree in rivals].index(True)
        assert more == pytest.approx(np.log(np.exp(totals - totals[right]).sum()), abs=1e-5)


def test_parsers_without_a_share_have_all_trees(tmp_path):
    X, y = [SENTENCE], [CROSSING]
    parser = made(DependencyParser, 1, **SMALL, projective=False).fit(X, y)  # all sentences cross
    assert parser.report_.details["crossing_share"] is None
    assert type(parser.posterior(SENTENCE)) is SpanningTree
    again = DependencyParser._restored("a copy", *parser._content())
    assert again.predict_marginals(X) == parser.predict_marginals(X)


def test_a_damaged_share(mixed):
    plain, arrays = mixed._content()
    assert plain["crossing_share"] == mixed.report_.details["crossing_share"]
    with pytest.raises(DataError, match="crossing_share must be between 0 and 1"):
        DependencyParser._restored("a copy", plain | {"crossing_share": -1.0}, arrays)


def test_projective_parsers_have_no_share():
    X, y = treebank("train", 20)
    parser = made(DependencyParser, 1, **SMALL).fit(X, y, dev=(X, y))
    assert "crossing_share" not in parser.report_.details
