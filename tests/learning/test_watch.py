"""One watch for every optimizer: best parameters, patience, time limit, checkpoints, callbacks."""

import math
import time

import numpy as np
import pytest

from trelliswork.errors import DataError
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.learning.report import STOPPED, FitReport, Step
from trelliswork.learning.watch import Watch, timed_from


class Figures:
    """Development data whose metric follows a list."""

    metric = "accuracy"

    def __init__(self, values):
        self.values = iter(values)

    def measure(self, parameters):
        return next(self.values)


def run(watch, n=10, state=lambda: ({"n": 1}, {"x": np.ones(2)})):
    """Iterate like an optimizer; return the parameters and the report."""
    report = FitReport(False, f"{n} iterations", math.nan)
    for k in range(1, n + 1):
        report.add(Step(k, -float(k), seconds=60.0 * k))
        reason = watch.after(report.history[-1], {"w": np.array([k])}, state)
        if reason is not None:
            report.reason = reason
            break
    return watch.finish({"w": np.array([report.n_iter])}, report)


def test_without_development_data_the_last_parameters_are_returned():
    parameters, report = run(Watch())
    assert parameters["w"].tolist() == [10]
    assert (report.dev, report.reason, report.n_iter, report.value) == (None, "10 iterations", 10, -10.0)


def test_the_best_parameters_are_kept_and_patience_stops():
    parameters, report = run(Watch(Figures([0.1, 0.5, 0.4, 0.5, 0.3]), patience=3))
    assert parameters["w"].tolist() == [2]
    assert report.n_iter == 5
    assert (report.dev, report.metric) == (0.5, "accuracy")
    assert report.reason == (
        "no better accuracy on the development data for 3 iterations; kept iteration 2 with accuracy 0.5000"
    )
    assert [step.dev for step in report.history] == [0.1, 0.5, 0.4, 0.5, 0.3]


def test_kept_parameters_are_copies():
    w = np.array([1.0])
    watch = Watch(Figures([0.9, 0.1]))
    watch.after(Step(1, 0.0), {"w": w}, dict)
    w[:] = 7
    assert watch.best_parameters["w"].tolist() == [1.0]


def test_a_callback_and_a_time_limit_stop():
    seen = []
    _, report = run(Watch(callback=lambda step: seen.append(step.iteration) or step.iteration == 4))
    assert seen == [1, 2, 3, 4]
    assert report.reason == STOPPED
    _, report = run(Watch(max_minutes=3))
    assert report.n_iter == 3
    assert report.reason == "time limit of 3 minutes"


def test_an_iteration_that_would_exceed_the_time_limit_is_not_started():
    _, report = run(Watch(max_minutes=3.5))
    assert report.n_iter == 3
    _, report = run(Watch(max_minutes=1.5))
    assert report.n_iter == 2  # how long an iteration takes is known after two
    watch = Watch(max_minutes=3.5)
    watch.after(Step(1, 0.0, seconds=100.0), {}, dict)
    watch.start_stage("next", None)  # whose iterations may be shorter
    assert watch.after(Step(2, 0.0, seconds=130.0), {}, dict) is None
    assert watch.after(Step(3, 0.0, seconds=180.0), {}, dict) == "time limit of 3.5 minutes"


def test_time_before_training_counts():
    with timed_from(time.perf_counter() - 90):
        watch = Watch(max_minutes=3)
        assert watch.time_is_up(80) is None
        assert watch.time_is_up(95) == "time limit of 3 minutes"
        _, report = run(watch)
    assert report.n_iter == 2
    assert Watch(max_minutes=3).time_is_up(95) is None


def test_the_report_of_a_finished_run_removes_the_checkpoint(tmp_path):
    path = tmp_path / "checkpoint"
    _, report = run(Watch(checkpoint=Checkpoint(path, "x", every=0)))
    assert path.exists()
    report.checkpoint.remove()
    assert not path.exists()
    for options in ({"callback": lambda step: step.iteration == 2}, {"max_minutes": 2}):
        _, report = run(Watch(checkpoint=Checkpoint(path, "x"), **options))
        assert path.exists()
        assert report.checkpoint is None  # it was interrupted
        path.unlink()


def test_only_the_own_checkpoint_is_removed(tmp_path):
    path = tmp_path / "checkpoint"
    Checkpoint(path, "other").write({}, {})
    Checkpoint(path, "x").remove()
    assert path.exists()
    path.write_text("no checkpoint")
    Checkpoint(path, "x").remove()
    assert path.exists()
    Checkpoint(tmp_path / "nothing", "x").remove()


def test_no_checkpoint_is_written_when_patience_ends(tmp_path):
    """A run that is killed afterwards resumes before the end, so that it ends there again."""
    path = tmp_path / "checkpoint"
    counter = iter(range(1, 20))
    watch = Watch(Figures([0.5, 0.4, 0.3]), patience=2, checkpoint=Checkpoint(path, "x", every=0))
    _, report = run(watch, state=lambda: ({"k": next(counter)}, {}))
    assert report.n_iter == 3
    assert Checkpoint(path, "x").read()[0]["k"] == 2


def test_a_checkpoint_replaces_leftovers_of_killed_ones(tmp_path):
    path = tmp_path / "checkpoint"
    leftover, other = tmp_path / ".checkpoint.0123abcd.tmp", tmp_path / ".checkpoint-2.0123abcd.tmp"
    leftover.touch()
    other.touch()
    Checkpoint(path, "x").write({}, {})
    assert sorted(tmp_path.iterdir()) == [other, path]


def test_every_flipped_bit_of_a_checkpoint_is_noticed(tmp_path):
    path, good = tmp_path / "checkpoint", {"x": np.arange(3.0), "n": np.array(7), "none": np.empty((0, 2))}
    Checkpoint(path, "x").write({"k": 1}, good)
    plain, arrays = Checkpoint(path, "x").read()
    data = path.read_bytes()
    for bit in range(0, 8 * len(data), 11):  # all bits of a byte, in turn
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found_plain, found = Checkpoint(path, "x").read()
        except DataError:
            continue
        assert found_plain == plain
        assert all(np.array_equal(found[name], arrays[name]) for name in arrays), bit


def test_a_callback_that_fails_leaves_the_checkpoint_of_its_iteration(tmp_path):
    path, counter = tmp_path / "checkpoint", iter(range(1, 20))

    def fail(step):
        if step.iteration == 3:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        run(Watch(checkpoint=Checkpoint(path, "x", every=0), callback=fail), state=lambda: ({"k": next(counter)}, {}))
    plain, _ = Checkpoint(path, "x").read()
    assert plain["k"] == 3


def test_resuming_restores_the_best_parameters(tmp_path):
    path = tmp_path / "checkpoint"
    first = Watch(
        Figures([0.1, 0.5, 0.4]), patience=5, checkpoint=Checkpoint(path, "x"), callback=lambda s: s.iteration == 3
    )
    run(first)
    again = Watch(Figures([]), patience=5, checkpoint=Checkpoint(path, "x"))
    plain, arrays = again.resume()
    assert plain["n"] == 1
    assert set(arrays) == {"x"}
    assert (again.best, again.best_iteration) == (0.5, 2)
    assert again.best_parameters["w"].tolist() == [2]
    assert Watch().resume() is None


def test_a_stage_has_its_own_best():
    watch = Watch(Figures([0.9]))
    watch.after(Step(1, 0.0), {"w": np.ones(1)}, dict)
    watch.start_stage("second", Figures([0.2]))
    step = Step(1, 0.0)
    watch.after(step, {"w": np.zeros(1)}, dict)
    assert (watch.best, step.stage) == (0.2, "second")


def test_announcements_reach_the_callback_and_may_stop():
    seen = []
    watch = Watch(callback=lambda step: seen.append((step.stage, math.isnan(step.value))) or len(seen) == 2)
    assert not watch.announce("counting")
    assert watch.announce("still counting")
    assert watch.interrupted
    assert seen == [("counting", True), ("still counting", True)]


def test_a_report_survives_storage():
    report = FitReport(True, "done", 1.5, [Step(1, 1.5)], 0.5, "F1", details={"restarts": [1.0], "array": np.ones(2)})
    again = FitReport.from_dict(report.to_dict())
    assert (again.converged, again.reason, again.value, again.dev, again.metric, again.n_iter) == (
        True, "done", 1.5, 0.5, "F1", 1,
    )  # fmt: skip
    assert again.details == {"restarts": [1.0]}
    assert again.history == []
