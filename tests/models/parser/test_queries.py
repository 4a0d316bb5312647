"""Answers of fitted parsers: trees, probabilities, evidence, scores, storage."""

import json

import numpy as np
import pytest
import torch

from tests.estimators import made
from tests.models.parser.corpus import HEADS, LABELED, SMALL, TAGGED, heads_of, treebank
from tests.oracle.trees import is_projective, is_tree
from trelliswork import Corpus, DependencyParser, evaluate, load
from trelliswork.errors import DataError, ImpossibleError, ValueRangeError

X, Y = treebank("test", 150)


def test_learns_the_bundled_corpus(parser):
    report = evaluate(parser, X, Y)
    assert report.uas > (0.79 if parser.order == 1 else 0.82)
    assert report.las > 0.73
    assert report.confidence is not None
    assert parser._learned.trees.order == parser.order
    assert parser.report_.details["dropped_heads"] > 0  # a few arcs of the bundled corpus cross
    assert parser.report_.n_iter == 3 * parser.order + 4
    for heads in heads_of(parser.predict(X)):
        assert is_tree(tuple(heads))
        assert is_projective(tuple(heads))
        assert heads.count(0) == 1


def test_score_is_las_with_labels_and_uas_without(parser):
    report = evaluate(parser, X, Y)
    assert parser.score(X, Y) == report.las
    assert parser.score(X, heads_of(Y)) == report.uas
    unlabeled = evaluate(parser, X, heads_of(Y))
    assert (unlabeled.uas, unlabeled.las) == (report.uas, None)
    tree = parser.predict(X[:1])[0]
    wrong = [(1 - min(head, 1), "x") for head, _ in tree]
    only_first = [[tree[0], *((None, label) for _, label in wrong[1:])]]
    assert parser.score(X[:1], only_first) == 1.0
    assert parser.score(X[:1], [[tree[0], *((head, None) for head, _ in tree[1:])]]) == 1.0
    assert parser.score(X[:1], [[(tree[0][0], "x"), *((None, None) for _ in tree[1:])]]) == 0.0


def test_queries_agree_with_each_other(parser):
    some = X[:20]
    parses, marginals, best = parser.predict(some), parser.predict_marginals(some), parser.predict_topk(some, 3)
    for sentence, row, tables, trees in zip(some, parses, marginals, best, strict=True):
        for (h, _), table in zip(row, tables, strict=True):
            assert sum(table.values()) == pytest.approx(1, abs=1e-3)
            assert table[h] > 0
            assert list(table.values()) == sorted(table.values(), reverse=True)
        probabilities = [p for _, p in trees]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) <= 1 + 1e-9
        posterior = parser.posterior(sentence)
        arcs = posterior.marginals()[0].numpy()
        for d, table in enumerate(tables, start=1):  # also for order 2: the distribution has the beliefs as marginals
            for h, p in table.items():
                assert arcs[h, d] == pytest.approx(p, abs=1e-8)
        tree = np.array([[h for h, _ in trees[0][0]]])
        assert posterior.log_prob(torch.from_numpy(tree)).exp().item() == pytest.approx(probabilities[0], rel=1e-6)
    labels = parser._parsing(some, None).label_probabilities(heads_of(parses))
    for row, tables in zip(parses, labels, strict=True):
        for (_, name), table in zip(row, tables, strict=True):
            assert next(iter(table)) == name
            assert sum(table.values()) == pytest.approx(1, abs=1e-5)


def test_evidence_is_kept(parser):
    some = X[:5]
    free = heads_of(parser.predict(some))
    for sentence, heads in zip(some, free, strict=True):
        other = next(h for h in range(1, len(sentence) + 1) if h not in (1, heads[0]))
        nothing = [None] * (len(sentence) - 1)
        (forced,) = heads_of(parser.predict([sentence], known=[[other, *nothing]]))
        assert forced[0] == other
        assert is_tree(tuple(forced))
        rest = set(range(len(sentence) + 1)) - {heads[0], 1}
        (without,) = heads_of(parser.predict([sentence], known=[[rest, *nothing]]))
        assert without[0] != heads[0]
        assert parser.predict_topk([sentence], 1, known=[[other, *nothing]])[0][0][0][0][0] == other
        marginals = parser.posterior(sentence, known=[other, *nothing]).marginals()[0]
        assert marginals[other, 1].item() == pytest.approx(1)
    (tables,) = parser.predict_marginals([some[0]], known=[free[0]])
    assert all(table == {h: pytest.approx(1)} for h, table in zip(free[0], tables, strict=True))
    with pytest.raises(ImpossibleError, match="no tree agrees"):
        parser.predict([some[0]], known=[[2, 1] + [None] * (len(some[0]) - 2)])
    with pytest.raises(ValueRangeError, match="known, token 0"):
        parser.predict([some[0]], known=[[99] + [None] * (len(some[0]) - 1)])


def test_evidence_may_be_numpy_integers():
    parser = made(DependencyParser, 1, **SMALL).fit(TAGGED, LABELED)
    assert heads_of(parser.predict(TAGGED[:1], known=[[np.int64(2), np.int32(-1)]])) == [[2, 0]]
    assert parser.score(TAGGED, [[np.int64(2), 0], *HEADS[1:]]) == parser.score(TAGGED, HEADS)


def test_single_words_and_empty_sentences(parser):
    assert [h for h, _ in parser.predict([[("Go", "VB")]])[0]] == [0]
    assert parser.predict([]) == []
    assert parser.predict([[], [("Go", "VB")], []])[0] == []
    assert parser.predict_topk([[], [("Go", "VB")]], 2)[1][0][1] == pytest.approx(1)
    assert parser.predict_marginals([[]]) == [[]]
    assert parser.predict_marginals(Corpus.from_sentences([[("Go", "VB")]]))[0][0] == {0: pytest.approx(1)}


@pytest.mark.parametrize("damage", [{"n_tags": 0}, {"n_tags": "1"}, {"taggers": []}, {"words": [1]}, {"tags": "NN"}])
def test_a_damaged_state_is_refused(parser, damage):
    plain, arrays = parser._content()
    type(parser)._restored("a copy", plain, arrays)
    with pytest.raises(DataError):
        type(parser)._restored("a copy", plain | damage, arrays)


def test_save_and_load(parser, tmp_path):
    parser.input_ = {"columns": ["form", "xpos"]}
    parser.save(tmp_path / "parser")
    again = load(tmp_path / "parser")
    assert isinstance(again, DependencyParser)
    assert again.predict(X) == parser.predict(X)
    assert again.predict_marginals(X[:20]) == parser.predict_marginals(X[:20])
    assert again.input_ == parser.input_
    assert again.report_.to_dict() == parser.report_.to_dict()
    assert again.get_params() == parser.get_params()
    file = tmp_path / "parser" / "model.json"
    plain = json.loads(file.read_text())
    for changed in ({"n_tags": None}, {"parameters": plain["parameters"] | {"epochs": 3}}):
        file.write_text(json.dumps(plain | changed))
        with pytest.raises(DataError, match=r"damaged.*train again"):
            load(tmp_path / "parser", verify=False)
