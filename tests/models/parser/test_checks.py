"""Errors of the parser: parameters, heads and labels, evidence, sentences."""

from functools import partial

import numpy as np
import pytest

from tests.estimators import made
from tests.models.parser.corpus import HEADS, LABELED, SMALL, TAGGED, heads_of
from trelliswork import DependencyParser, evaluate
from trelliswork.errors import NotFittedError, ShapeError, ValueRangeError

WRONG = {
    "max_iter": (0, 1.5, True),
    "learning_rate": (0, float("nan"), float("inf"), "x"),
    "seed": (-1, 0.5, None),
    "projective": (1, "yes"),
    "single_root": (None,),
    "order": (3, 1.0, True),
    "hash_bits": (40, 16.5),
    "patience": (0,),
    "tagger": ("x", 1),
    "batch_size": (0,),
    "min_count": (0,),
}


@pytest.mark.parametrize("name", WRONG)
def test_parameters_are_checked_before_training(name):
    for value in WRONG[name]:
        steps = []
        model = made(DependencyParser, **({"order": 1, "tagger": "crf"} | {name: value}))
        with pytest.raises(ValueRangeError, match=f"^{name} "):
            model.fit(TAGGED, HEADS, callback=steps.append)
        assert not steps


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_time_limit_is_positive(limit):
    with pytest.raises(ValueRangeError, match="max_minutes must be a positive number"):
        DependencyParser(1).fit(TAGGED, HEADS, max_minutes=limit)


def test_heads_and_labels_are_checked_before_training():
    new = made(DependencyParser, **SMALL)
    cases = [
        (TAGGED, HEADS[:2], ShapeError, "y must have an entry for each of the 3 sentences"),
        (TAGGED, [[2], [2, 3, 0], [0]], ShapeError, r"y\[0\] must have an entry"),
        (TAGGED, [[2, 0], [2, 3, 9], [0]], ValueRangeError, "sentence 1, word 3"),
        (TAGGED, [[2, 1], [2, 3, 0], [0]], ValueRangeError, "form a cycle"),
        (TAGGED, [["a", 0], [2, 3, 0], [0]], ValueRangeError, "integers for heads"),
        (TAGGED, [[(2, "a", 1), 0], [2, 3, 0], [0]], ValueRangeError, "pairs .head, label.*got .2, 'a', 1."),
        (TAGGED, [*LABELED[:2], [(0, 1)]], ValueRangeError, "labels must be strings"),
        (TAGGED, [[None, None], [None] * 3, [-1]], ValueRangeError, "at least one head to learn from"),
        (TAGGED, [[None, (None, "a")], [None] * 3, [-1]], ValueRangeError, "at least one head to learn from"),
        ([["dogs", "bark"]], [[2, 0]], ShapeError, "must have tags"),
        ([], [], ShapeError, "must have tags"),
        ("dogs bark", HEADS, ShapeError, "list of sentences"),
    ]
    for X, y, kind, message in cases:
        with pytest.raises(kind, match=message):
            new.fit(X, y)
    with pytest.raises(ValueRangeError, match="y of dev must have at least one head"):
        new.fit(TAGGED, HEADS, dev=(TAGGED[:1], [[None, None]]))
    with pytest.raises(ValueRangeError, match="sentence 0, word 1"):
        new.fit(TAGGED, HEADS, dev=(TAGGED[:1], [[99, 0]]))
    with pytest.raises(NotFittedError):
        new.predict(TAGGED)


def test_gold_trees_and_evidence_are_checked():
    parser = made(DependencyParser, 1, **SMALL).fit(TAGGED, LABELED)
    for wrong in (2.7, "2", True, np.float64(2)):
        with pytest.raises(ValueRangeError, match="integers for heads"):
            parser.score(TAGGED, [[wrong, 0], *HEADS[1:]])
        with pytest.raises(ValueRangeError, match="known, token 0"):
            parser.predict(TAGGED[:1], known=[[wrong, None]])
    for wrong in ("12", {1.0}, {True}, set(), b"1"):
        with pytest.raises(ValueRangeError, match="known, token 0"):
            parser.predict(TAGGED[:1], known=[[wrong, None]])
    for ask in (parser.score, partial(evaluate, parser)):
        with pytest.raises(ValueRangeError, match="sentence 0, word 1: its head must be"):
            ask(TAGGED, [[99, 0], *HEADS[1:]])
    heads = heads_of(parser.predict(TAGGED))
    assert parser.score(TAGGED, [[None, heads[0][1]], [None] * 3, [-1]]) == 1.0
    assert parser.score(TAGGED, [[None, 1 - heads[0][1]], [None] * 3, [None]]) == 0.0
    with pytest.raises(ValueRangeError, match="at least one head to compare"):
        parser.score(TAGGED, [[None, None], [None] * 3, [None]])
    with pytest.raises(ValueRangeError, match="sentence 1, word 2: its head is unknown"):
        evaluate(parser, TAGGED, [[2, 0], [2, None, 0], [0]])
    with pytest.raises(ValueRangeError, match="sentence 1, word 2: its label is unknown"):
        evaluate(parser, TAGGED, [LABELED[0], [(2, "b"), (3, None), (0, "r")], LABELED[2]])
    assert (parser.log_prob(TAGGED, [[None] * 2, [None] * 3, [None]]) == 0).all()
    every = [[h, 3, 0] for h in (2, 3)]
    p = [np.exp(parser.log_prob(TAGGED[1:2], [tree])[0]) for tree in [*every, [None, 3, 0]]]
    assert sum(p[:2]) == pytest.approx(p[2], rel=1e-12)


def test_a_failed_fit_keeps_the_learned_parser():
    fitted = made(DependencyParser, 1, **SMALL).fit(TAGGED, HEADS)
    before = fitted._learned.trees.weights[0].copy()
    with pytest.raises(ShapeError, match="1 columns of tags"):
        fitted.predict([["dogs"]])
    with pytest.raises(ValueRangeError, match="cycle"):
        fitted.fit(TAGGED, [[2, 1], [2, 3, 0], [0]])
    assert (fitted._learned.trees.weights[0] == before).all()
    with pytest.raises(ValueRangeError, match="k must be"):
        fitted.predict_topk(TAGGED, 0)
    assert evaluate(fitted, TAGGED, LABELED).las is None
    assert fitted.score(TAGGED, LABELED) == evaluate(fitted, TAGGED, HEADS).uas
