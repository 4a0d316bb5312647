"""Training of parsers: threads, partial trees, development data, callbacks, time limit, taggers."""

import math

import numpy as np
import pytest

from tests.estimators import made
from tests.models.parser.corpus import HEADS, PARTIAL, SMALL, TAGGED, heads_of, treebank
from trelliswork import DependencyParser, load
from trelliswork.compute.threads import num_threads
from trelliswork.models.parser.data import read_sentences
from trelliswork.models.parser.tags import Tagging

X, Y = treebank("train", 80)
X_DEV, Y_DEV = treebank("test", 150)


@pytest.mark.parametrize("order", [1, 2])
def test_threads_change_nothing(order):
    results = []
    for n in (1, 2):
        with num_threads(n):
            model = made(DependencyParser, order, **SMALL).fit(X[:60], Y[:60])
            results.append((model._learned.trees.weights, model.predict_marginals(X)))
    assert all((a == b).all() for a, b in zip(results[0][0], results[1][0], strict=True))
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize("order", [1, 2])
def test_partial_trees_teach(order):
    labels = [["x", None], [None, None, "root"], [None]]
    y = [list(zip(*rows, strict=True)) for rows in zip(PARTIAL, labels, strict=True)]
    model = made(DependencyParser, order, **SMALL, max_iter=10).fit(TAGGED * 3, y * 3)
    assert heads_of(model.predict(TAGGED))[0] == [2, 0]
    assert set(model.labels_) == {"x", "root"}
    assert model.predict(TAGGED)[1][2] == (0, "root")


def test_heads_alone_and_pairs_without_labels_train_the_same_parser():
    heads = made(DependencyParser, 1, **SMALL).fit(TAGGED, HEADS)
    pairs = made(DependencyParser, 1, **SMALL).fit(TAGGED, [[(head, None) for head in row] for row in HEADS])
    assert heads.labels_ is None
    assert pairs.labels_ is None
    assert (heads._learned.trees.weights[0] == pairs._learned.trees.weights[0]).all()
    assert heads.predict(TAGGED)[2] == [(0, None)]


def test_steps_of_all_stages_and_their_development_metrics():
    steps = []
    model = made(DependencyParser, 2, **SMALL, max_iter=6, patience=1)
    model.fit(X, Y, dev=(X_DEV, Y_DEV), callback=steps.append)
    assert steps == model.report_.history
    assert [step.iteration for step in steps] == list(range(1, len(steps) + 1))
    assert list(dict.fromkeys(step.stage for step in steps)) == ["first order", "second order", "labels"]
    assert all(0.3 < step.dev < 1 and math.isfinite(step.value) for step in steps)
    best = {stage: max(step.dev for step in steps if step.stage == stage) for stage in ("second order", "labels")}
    assert model.report_.metric == "LAS"
    assert model.report_.dev == best["labels"] == model.score(X_DEV, Y_DEV)
    assert best["second order"] == model.score(X_DEV, heads_of(Y_DEV))
    assert model.report_.value == [step.value for step in steps if step.stage == "second order"][-1]
    reasons = model.report_.reason.split("; ")
    assert [reason.split(":")[0] for reason in reasons] == ["first order", "second order", "labels"]
    assert all("kept epoch" in reason for reason in reasons)
    assert model.report_.converged == ("no better" in reasons[-1])


def test_development_heads_without_labels_measure_the_trees_only():
    model = made(DependencyParser, 1, **SMALL).fit(X, Y, dev=(X_DEV, heads_of(Y_DEV)))
    assert model.report_.metric == "UAS"
    assert model.report_.dev == model.score(X_DEV, heads_of(Y_DEV))
    assert all(step.dev is None for step in model.report_.history if step.stage == "labels")


def test_development_data_keeps_the_best_epoch_of_each_stage():
    settings = {"order": 1, **SMALL, "learning_rate": 0.5, "calibrated": False}
    model = made(DependencyParser, **settings, max_iter=5, patience=9).fit(X, Y, dev=(X_DEV, Y_DEV))
    figures = {
        stage: [step.dev for step in model.report_.history if step.stage == stage]
        for stage in ("first order", "labels")
    }
    assert [len(row) for row in figures.values()] == [5, 6]
    assert any(max(row) > row[-1] for row in figures.values())
    best = 1 + figures["first order"].index(max(figures["first order"]))
    until_there = made(DependencyParser, **settings, max_iter=best).fit(X, Y)
    assert (model._learned.trees.weights[0] == until_there._learned.trees.weights[0]).all()
    assert model.score(X_DEV, Y_DEV) == max(figures["labels"])
    assert not model.report_.converged


def test_patience_is_convergence():
    model = made(DependencyParser, 1, **SMALL, max_iter=50, patience=1).fit(TAGGED, HEADS, dev=(TAGGED, HEADS))
    assert model.report_.converged
    assert "no better UAS" in model.report_.reason
    assert model.report_.dev == 1.0
    assert model.report_.n_iter < 50
    assert not made(DependencyParser, 1, **SMALL).fit(TAGGED, HEADS).report_.converged


def test_a_stopped_parser_has_one_epoch_of_trees_and_one_of_labels():
    stopped = made(DependencyParser, 2, **SMALL, max_iter=6).fit(X, Y, callback=lambda step: True)
    assert stopped._learned.trees.order == 1
    assert [step.stage for step in stopped.report_.history] == ["first order", "labels"]
    assert not stopped.report_.converged
    assert stopped.report_.dev is None
    assert stopped.score(X_DEV, heads_of(Y_DEV)) > 0.3
    labels = made(DependencyParser, 2, **SMALL).fit(X, Y, callback=lambda step: step.stage == "second order")
    assert labels._learned.trees.order == 2
    assert [step.stage for step in labels.report_.history[-3:]] == ["first order", "second order", "labels"]


def test_the_time_limit_stops_each_stage():
    steps = []
    model = made(DependencyParser, 2, **SMALL, tagger="crf")
    model.fit(X[:30], Y[:30], callback=steps.append, max_minutes=1e-9)
    assert not any("iteration 2" in step.stage for step in steps)
    assert [step.stage for step in model.report_.history] == ["first order", "labels"]
    assert model.report_.reason.split("; ") == [
        f"{stage}: time limit of 1e-09 minutes" for stage in ("tagger", "first order", "labels")
    ]
    assert not model.report_.converged


@pytest.mark.parametrize("tagger", ["hmm", "crf"])
@pytest.mark.parametrize("word", ["tagger 1", "fold 2"])
def test_a_stop_is_heeded_while_taggers_are_trained(tagger, word):
    seen = []

    def stop(step):
        seen.append(step.stage)
        return word in step.stage

    model = made(DependencyParser, 2, **SMALL, tagger=tagger).fit(X[:60], Y[:60], callback=stop)
    at = next(n for n, stage in enumerate(seen) if word in stage)
    assert all("tagger 1" not in stage or n <= at + 1 for n, stage in enumerate(seen))
    assert sum("iteration" in stage for stage in seen[at + 1 :]) <= 2  # a tagger that had started
    assert seen[-2:] == ["first order", "labels"]
    assert model._learned.trees.order == 1
    assert "stopped by the caller" in model.report_.reason
    assert model.score(X_DEV, heads_of(Y_DEV)) > 0.2


@pytest.mark.parametrize("tagger", ["hmm", "crf"])
def test_parsers_with_taggers_need_words_only(tagger, tmp_path):
    model = made(DependencyParser, 1, **SMALL, tagger=tagger).fit(X[:60], Y[:60])
    words = [[word for word, _ in sentence] for sentence in X_DEV]
    model.save(tmp_path / "parser")
    again = load(tmp_path / "parser")
    assert again.predict(words) == model.predict(words) == model.predict(X_DEV)
    (tags,) = model.tag(words)
    gold = [tag for sentence in X_DEV for _, tag in sentence]
    assert sum(a == b for a, b in zip(tags, gold, strict=True)) > 0.7 * len(gold)


def test_training_sentences_are_tagged_by_taggers_that_have_not_seen_them():
    columns, announced = read_sentences(X[:20]), []
    taggers, tagged = Tagging("crf", columns, 0).run(announced.append)
    assert sum("iteration" not in text for text in announced) == 6
    (tags,), (gold,) = tagged.tags, columns.tags
    seen = taggers.tag(columns).tags[0]
    correct = [np.mean([a == b for a, b in zip(column, gold, strict=True)]) for column in (tags, seen)]
    assert correct[0] < correct[1]
    assert correct[1] > 0.95
    assert Tagging("crf", read_sentences(X[:1]), 0).fold_of_sentences().tolist() == [0]
    many = Tagging("crf", read_sentences(X[:1] * 100), 0).fold_of_sentences().tolist()
    assert sorted(set(many)) == [0, 1, 2, 3, 4]
    assert many[::2] == many[1::2]  # neighbors are in the same fold
