"""Interrupted training of Markov random field language models, resumed from a checkpoint."""

import numpy as np
import pytest

from tests.estimators import made
from tests.models.mrf.cases import TEXT
from trelliswork.errors import DataError
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.models import MRFLanguageModel

pytestmark = pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")


class CrashError(Exception):
    """An interruption."""


def crash_at(iteration):
    def callback(step):
        if step.iteration == iteration:
            raise CrashError

    return callback


def assert_same(model: MRFLanguageModel, other: MRFLanguageModel) -> None:
    """Assert that two models and the histories of their training are equal bit for bit."""
    (_, arrays), (_, others) = model._field.state(), other._field.state()
    assert set(arrays) == set(others)
    for name, array in arrays.items():
        assert np.array_equal(array, others[name]), name
    for history in zip(model.report_.history, other.report_.history, strict=True):
        assert history[0].iteration == history[1].iteration
        assert (history[0].value, history[0].dev) == (history[1].value, history[1].dev)
    assert (model.report_.value, model.report_.dev) == (other.report_.value, other.report_.dev)
    assert model.report_.reason == other.report_.reason


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": 1},
        {"bound": "star"},
        {"form": "URW"},
        {"form": "full", "rank": 30},
        {"unary": False},
        {"unary": False, "bound": "star"},
    ],
)
@pytest.mark.parametrize("dev", [None, TEXT[:4]])
def test_a_resumed_lifted_run_equals_an_uninterrupted_one(options, dev, tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    options = {"window": 2, "rank": 3, "l2": 0.05, "max_iter": 12, "tol": 0} | options
    whole = made(MRFLanguageModel, **options).fit(TEXT, dev=dev)
    path = tmp_path / "run"
    with pytest.raises(CrashError):
        made(MRFLanguageModel, **options).fit(TEXT, dev=dev, checkpoint=path, callback=crash_at(5))
    assert path.exists()
    again = made(MRFLanguageModel, **options).fit(TEXT, dev=dev, checkpoint=path)
    again.save(tmp_path / "model")
    assert not path.exists()
    assert_same(again, whole)


def test_a_stopped_lifted_run_keeps_its_checkpoint(tmp_path):
    options = {"rank": 3, "l2": 0.05, "tol": 0}
    whole = made(MRFLanguageModel, 2, max_iter=12, **options).fit(TEXT, dev=TEXT[:4])
    path = tmp_path / "run"
    first = made(MRFLanguageModel, 2, max_iter=9, **options)
    first.fit(TEXT, dev=TEXT[:4], checkpoint=path, callback=lambda step: step.iteration == 5)
    assert first.report_.reason.startswith("stopped by the caller; kept iteration")
    assert (first.report_.n_iter, first.report_.converged) == (5, False)
    assert path.exists()
    again = made(MRFLanguageModel, 2, max_iter=12, **options).fit(TEXT, dev=TEXT[:4], checkpoint=path)
    again.save(tmp_path / "model")
    assert not path.exists()
    assert_same(again, whole)
    first.fit(TEXT, dev=TEXT[:4], checkpoint=path, callback=lambda step: step.iteration == 5)
    for other in ({"l2": 0.1}, {"unary": False}):
        with pytest.raises(DataError, match="other data or settings"):
            made(MRFLanguageModel, 2, max_iter=12, **(options | other)).fit(TEXT, dev=TEXT[:4], checkpoint=path)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("dev", [None, TEXT[:4]])
@pytest.mark.parametrize("stopped", [True, False])
def test_a_resumed_pseudo_likelihood_run_equals_an_uninterrupted_one(at, dev, stopped, tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "due", lambda self: not stopped)
    options = {"algorithm": "pseudo-likelihood", "max_iter": 3, "learning_rate": 0.05, "batch_size": 4, "rank": 3}
    whole = made(MRFLanguageModel, 2, patience=99, **options).fit(TEXT, dev=dev)
    path = tmp_path / "run"
    first = made(MRFLanguageModel, 2, patience=99, **options)
    if stopped:
        first.fit(TEXT, dev=dev, checkpoint=path, callback=lambda step: step.iteration == at)
        assert first.report_.reason.startswith("stopped by the caller")
    else:
        with pytest.raises(CrashError):
            first.fit(TEXT, dev=dev, checkpoint=path, callback=crash_at(at))
    assert path.exists()
    for other in ({"l2": 1.0}, {"max_iter": 4}):  # the schedule of the rate depends on the number of epochs
        with pytest.raises(DataError, match="other data or settings"):
            made(MRFLanguageModel, 2, patience=99, **(options | other)).fit(TEXT, dev=dev, checkpoint=path)
    again = made(MRFLanguageModel, 2, patience=99, **options).fit(TEXT, dev=dev, checkpoint=path)
    again.save(tmp_path / "model")
    assert not path.exists()
    assert_same(again, whole)
