"""Choice between the first and the second order on development data."""

import pytest

from tests.estimators import made
from tests.models.parser.corpus import SMALL, freely_ordered, heads_of, treebank
from trelliswork import DependencyParser, load

ORDERS = "first", "second"
X, Y = freely_ordered(100, 1)
DEV = freely_ordered(150, 2)
ENGLISH = (*treebank("train", 100), treebank("test", 60))


def uas(model, dev):
    return model.score(dev[0], heads_of(dev[1]))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("data", "kept"), [((X, Y, DEV), "first order"), (ENGLISH, "second order")])
def test_the_better_order_on_development_data_is_kept(data, kept, seed):
    X, Y, dev = data
    settings = {**SMALL, "seed": seed}
    model, first = (made(DependencyParser, order, **settings).fit(X, Y, dev=dev) for order in (2, 1))
    assert uas(model, dev) >= uas(first, dev)
    report = model.report_
    assert report.details["kept_stage"] == kept
    assert model._learned.trees.order == (1 if kept == "first order" else 2)
    assert report.value == [step.value for step in report.history if step.stage == kept][-1]
    assert ("kept the first order, since" in report.reason) == (kept == "first order")
    if kept == "first order":
        assert model.predict(dev[0]) == first.predict(dev[0])
        assert f"UAS on the development data from {uas(first, dev):.4f} to 0." in report.reason


def test_the_metric_of_a_parser_without_labels_is_that_of_the_kept_order():
    model = made(DependencyParser, 2, **SMALL).fit(X, heads_of(Y), dev=(DEV[0], heads_of(DEV[1])))
    best = [max(step.dev for step in model.report_.history if step.stage == f"{name} order") for name in ORDERS]
    assert best[0] > best[1]
    assert (model.report_.metric, model.report_.dev) == ("UAS", best[0])
    assert uas(model, DEV) == best[0]


def test_without_development_data_the_second_order_is_kept():
    model = made(DependencyParser, 2, **SMALL).fit(X[:30], Y[:30])
    assert (model._learned.trees.order, model.report_.details["kept_stage"]) == (2, "second order")
    assert "kept the" not in model.report_.reason
    assert made(DependencyParser, 1, **SMALL).fit(X[:30], Y[:30]).report_.details["kept_stage"] == "first order"


@pytest.mark.parametrize("stage", ["second order", "labels"])
def test_a_resumed_run_keeps_the_same_order(stage, tmp_path):
    whole = made(DependencyParser, 2, **SMALL).fit(X, Y, dev=DEV)
    path = tmp_path / "checkpoint"
    made(DependencyParser, 2, **SMALL).fit(X, Y, dev=DEV, checkpoint=path, callback=lambda step: step.stage == stage)
    resumed = made(DependencyParser, 2, **SMALL).fit(X, Y, dev=DEV, checkpoint=path)
    resumed.save(tmp_path / "model")
    for model in (resumed, load(tmp_path / "model")):
        assert model.report_.reason == whole.report_.reason
        assert model.report_.dev == whole.report_.dev
        assert model.report_.details["kept_stage"] == "first order"
        assert model.predict(DEV[0]) == whole.predict(DEV[0])
