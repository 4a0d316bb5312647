"""Checkpoints of parser training: a run that was interrupted in any stage ends with the same parser."""

from functools import cache

import pytest

from tests.estimators import made
from tests.models.parser.corpus import SMALL, heads_of, treebank
from trelliswork import DependencyParser
from trelliswork.errors import DataError

X, Y = treebank("train", 24)
DEV = treebank("dev", 12)
SETTINGS = {**SMALL, "hash_bits": 12, "patience": 1}
# Stage, and the number of its step at which the run is interrupted.
PLACES = [
    ("tagger 1 of 1, iteration", 3),
    ("fold 3 of 5, iteration", 2),
    ("first order", 1),
    ("first order", 2),
    ("second order", 1),
    ("second order", 2),
    ("labels", 1),
    ("labels", 2),
]


class KilledError(Exception):
    pass


@cache
def whole(tagger):
    """Return the parser of an uninterrupted run."""
    return made(DependencyParser, **SETTINGS, tagger=tagger).fit(X, Y, dev=DEV)


def tagger_for(place):
    """Return the kind of tagger: only CRFs have iterations that can be interrupted, but HMMs are faster."""
    return "crf" if "tag" in place[0] or "fold" in place[0] else "hmm"


def at(place):
    """Return a function of steps that is true once, at this place."""
    stage, n = place
    seen = []

    def reached(step):
        seen.extend([step.stage] if stage in step.stage else [])
        return stage in step.stage and len(seen) == n

    return reached


def assert_same(model, expected):
    """Compare two runs bit for bit, times aside."""
    assert len(model._learned.trees.weights) == len(expected._learned.trees.weights)
    assert all(
        (a == b).all() for a, b in zip(model._learned.trees.weights, expected._learned.trees.weights, strict=True)
    )
    assert (model._learned.labels.weights == expected._learned.labels.weights).all()
    words = [[word for word, _ in sentence] for sentence in DEV[0]]
    assert model.tag(words) == expected.tag(words)
    assert model.predict(words) == expected.predict(words)
    assert model.predict_marginals(words) == expected.predict_marginals(words)
    for field in ("iteration", "stage", "value", "dev", "n_active"):
        histories = [[getattr(step, field) for step in one.report_.history] for one in (model, expected)]
        assert histories[0] == histories[1], field
    assert model.report_.to_dict() == expected.report_.to_dict()


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_stopped_run_is_resumed_to_the_same_parser(place, tmp_path):
    path, settings = tmp_path / "checkpoint", {**SETTINGS, "tagger": tagger_for(place)}
    stopped = made(DependencyParser, **settings).fit(X, Y, dev=DEV, checkpoint=path, callback=at(place))
    assert "stopped by the caller" in stopped.report_.reason
    tagging = "tagger" in place[0] or "fold" in place[0]
    assert path.is_file() != tagging  # taggers start again
    steps = []
    resumed = made(DependencyParser, **settings).fit(X, Y, dev=DEV, checkpoint=path, callback=steps.append)
    expected = whole(settings["tagger"])
    assert_same(resumed, expected)
    resumed.save(tmp_path / "model")
    assert not path.exists()
    if not tagging:  # no finished work is repeated
        history = expected.report_.history
        done = [step.iteration for step in history if step.stage == place[0]][: place[1]]
        assert steps[0].stage == history[done[-1]].stage
        assert steps[0].iteration == 1 + done[-1]


@pytest.mark.parametrize("place", PLACES[1::2], ids=str)
def test_a_killed_run_is_resumed_to_the_same_parser(place, tmp_path, monkeypatch):
    monkeypatch.setattr("trelliswork.learning.checkpoint.Checkpoint.due", lambda self: True)
    path, reached = tmp_path / "checkpoint", at(place)

    def kill(step):
        if reached(step):
            raise KilledError

    killed = made(DependencyParser, **SETTINGS, tagger=tagger_for(place))
    with pytest.raises(KilledError):
        killed.fit(X, Y, dev=DEV, checkpoint=path, callback=kill)
    assert not hasattr(killed, "_learned")
    assert_same(killed.fit(X, Y, dev=DEV, checkpoint=path), whole(killed.tagger))
    killed.save(tmp_path / "model")
    assert not path.exists()


def test_a_run_that_is_stopped_at_every_step_ends_with_the_same_parser(tmp_path):
    path, n_runs = tmp_path / "checkpoint", 0
    while n_runs == 0 or path.exists():
        n_runs += 1
        run = made(DependencyParser, **SETTINGS, tagger="hmm")
        run.fit(X, Y, dev=DEV, checkpoint=path, callback=lambda step: step.iteration > 0)
        run.save(tmp_path / "model")
        assert n_runs <= whole("hmm").report_.n_iter + 1
    assert_same(run, whole("hmm"))


def test_a_stop_at_the_epoch_that_ends_a_stage_by_patience(tmp_path):
    settings = SETTINGS | {"order": 1, "max_iter": 30}
    model = made(DependencyParser, **settings).fit(X, Y, dev=DEV)
    n = sum(step.stage == "first order" for step in model.report_.history)
    assert n < 30
    path = tmp_path / "checkpoint"
    for place in (("first order", n), ("labels", len(model.report_.history) - n)):
        made(DependencyParser, **settings).fit(X, Y, dev=DEV, checkpoint=path, callback=at(place))
        resumed = made(DependencyParser, **settings).fit(X, Y, dev=DEV, checkpoint=path)
        resumed.save(tmp_path / "model")
        assert (resumed._learned.trees.weights[0] == model._learned.trees.weights[0]).all()
        assert (resumed._learned.labels.weights == model._learned.labels.weights).all()
        assert resumed.report_.to_dict() == model.report_.to_dict()


def test_a_longer_run_resumes_from_a_shorter_one(tmp_path):
    path = tmp_path / "checkpoint"
    short = made(DependencyParser, **SETTINGS, max_iter=1).fit(X, Y, checkpoint=path, max_minutes=1e-9)
    assert short._learned.trees.order == 1
    assert path.is_file()
    resumed = made(DependencyParser, **SETTINGS).fit(X, Y, checkpoint=path)
    direct = made(DependencyParser, **SETTINGS).fit(X, Y)
    assert all(
        (a == b).all() for a, b in zip(resumed._learned.trees.weights, direct._learned.trees.weights, strict=True)
    )
    assert resumed.report_.history[0].seconds == short.report_.history[0].seconds
    assert [step.seconds for step in resumed.report_.history] == sorted(s.seconds for s in resumed.report_.history)


def test_a_checkpoint_of_other_data_is_refused_and_kept(tmp_path):
    settings = SETTINGS | {"order": 1}
    path = tmp_path / "checkpoint"
    made(DependencyParser, **settings).fit(X, Y, checkpoint=path, callback=lambda step: True)
    before = path.read_bytes()
    others = [
        (settings | {"seed": 1}, X, Y, {}),
        (settings, X[1:], Y[1:], {}),
        (settings, X, heads_of(Y), {}),
        (settings, X, Y, {"dev": DEV}),
    ]
    for parameters, sentences, trees, options in others:
        with pytest.raises(DataError, match="other data or settings"):
            made(DependencyParser, **parameters).fit(sentences, trees, checkpoint=path, **options)
    assert path.read_bytes() == before
