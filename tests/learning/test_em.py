"""EM of any model: convergence, decreasing objectives, restarts, development data and checkpoints."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from trelliswork.errors import ConvergenceWarning
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.learning.em import LikelihoodDecrease, Update, run_em
from trelliswork.learning.report import STOPPED
from trelliswork.learning.watch import Watch

HEADS = np.array([9.0, 8.0, 2.0, 7.0, 1.0, 3.0])  # of ten throws of one of two coins


class Coins:
    """A mixture of two coins that are equally probable; parameters are p(head) of each."""

    n_tokens = 60.0
    tolerated = 1e-12
    may_decrease = False

    def update(self, p):
        log_p = HEADS[:, None] * np.log(p) + (10 - HEADS[:, None]) * np.log1p(-p) + np.log(0.5)
        evidence = np.logaddexp.reduce(log_p, axis=1)
        share = np.exp(log_p - evidence[:, None])
        return Update(HEADS @ share / (10 * share.sum(axis=0)), float(evidence.sum()), float(evidence.sum()))

    def to_arrays(self, p):
        return {"p": p}

    def from_arrays(self, arrays):
        return arrays["p"]


class Distance:
    """Development metric: closeness of the first coin to a value."""

    metric = "closeness"

    def __init__(self, value):
        self.value = value

    def measure(self, parameters):
        return -abs(float(parameters["p"][0]) - self.value)


def start(k):
    return np.array([[0.6, 0.5], [0.5, 0.45], [0.9, 0.2]][k])


def test_the_objective_rises_until_it_settles():
    p, report = run_em(Coins(), start, Watch(), max_iter=100, tol=1e-9)
    values = [step.value for step in report.history]
    assert values == sorted(values)
    assert report.converged
    assert values[-1] - values[-2] < 1e-9 * abs(values[-1]) <= values[-2] - values[-3]
    assert p == pytest.approx([0.8, 0.2], abs=0.02)
    with pytest.warns(ConvergenceWarning, match="after 3 iterations"):
        assert run_em(Coins(), start, Watch(), max_iter=3, tol=1e-9)[1].reason == "3 iterations"


def test_a_decrease_is_an_error_unless_the_objective_is_a_bound():
    class Wrong(Coins):
        def update(self, p):
            return super().update(p)._replace(parameters=start(0))

    with pytest.raises(LikelihoodDecrease, match="in iteration 2"):
        run_em(Wrong(), lambda k: np.array([0.8, 0.2]), Watch(), max_iter=5, tol=0)
    Wrong.may_decrease = True
    _, report = run_em(Wrong(), lambda k: np.array([0.8, 0.2]), Watch(), max_iter=5, tol=0)
    assert (report.n_iter, report.converged) == (2, False)
    assert "fell from" in report.reason


def test_the_best_start_continues():
    stages = []
    watch = Watch(callback=lambda step: stages.append((step.stage, step.iteration)))
    p, report = run_em(Coins(), start, watch, max_iter=6, tol=0, n_starts=3, probe=2)
    values = report.details["restarts"]
    assert np.argmax(values) == 2
    assert stages[:6] == [(f"start {k} of 3", n) for k in (1, 2, 3) for n in (1, 2)]
    assert stages[6:] == [("", n) for n in (3, 4, 5, 6)]
    assert_array_equal(p, run_em(Coins(), lambda k: start(2), Watch(), max_iter=6, tol=0)[0])
    _, report = run_em(Coins(), start, Watch(), max_iter=2, tol=1e-9, n_starts=3, probe=5)
    assert (report.n_iter, report.reason) == (2, "2 iterations")


def test_the_caller_may_stop_before_the_choice():
    watch = Watch(callback=lambda step: step.stage == "start 2 of 3" and step.iteration == 1)
    _, report = run_em(Coins(), start, watch, max_iter=9, tol=0, n_starts=3, probe=3)
    assert report.reason == STOPPED
    assert len(report.details["restarts"]) == 2
    assert report.value == max(report.details["restarts"])


def test_development_data_choose_among_the_iterations_after_the_choice():
    watch = Watch(Distance(0.7), patience=2)
    p, report = run_em(Coins(), start, watch, max_iter=20, tol=0)
    measured = [step.dev for step in report.history]
    assert measured.index(max(measured)) == len(measured) - 3
    assert report.dev == max(measured) == Distance(0.7).measure({"p": p})
    _, report = run_em(Coins(), start, Watch(Distance(0.7), patience=2), max_iter=9, tol=0, n_starts=2, probe=3)
    assert [step.dev is None for step in report.history][:4] == [True, True, True, False]


@pytest.mark.parametrize("n_starts", [1, 3])
def test_a_resumed_run_equals_an_uninterrupted_one(n_starts, tmp_path):
    options = {"max_iter": 7, "tol": 0, "n_starts": n_starts, "probe": 3}
    whole, report = run_em(Coins(), start, Watch(Distance(0.7), patience=9), **options)
    for stop in range(1, 7 + 3 * (n_starts - 1)):
        steps = []
        for callback in (lambda step, s=steps, k=stop: s.append(step) or len(s) == k, steps.append):
            watch = Watch(
                Distance(0.7), patience=9, checkpoint=Checkpoint(tmp_path / "state", "run"), callback=callback
            )
            p, resumed = run_em(Coins(), start, watch, **options)
        assert_array_equal(p, whole)
        assert [step.value for step in resumed.history] == [step.value for step in report.history]
        assert (resumed.dev, resumed.details) == (report.dev, report.details)
        assert len(steps) == 7 + 3 * (n_starts - 1)
        resumed.checkpoint.remove()  # as saving the model would
        seconds = [step.seconds for step in resumed.history]
        assert seconds == sorted(seconds)
