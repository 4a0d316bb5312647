"""The contenders of the lifted benchmark do the same work."""

from benchmarks.contenders.lifted import plain_torch, sub_gradient, trelliswork
from benchmarks.harness import differ
from benchmarks.lifted import BENCHMARK


def test_contenders_agree():
    for case, peer in ((BENCHMARK.cases[0], sub_gradient), (BENCHMARK.cases[1], plain_torch)):
        digests = []
        for contender in (trelliswork, peer):
            task = contender(case.check)
            digests.append(task.digest(task.call()))
        assert differ(*digests, BENCHMARK.rtol, 1e-2 if case.name == "tighten" else BENCHMARK.atol) is None


def test_how_a_contender_got_there_is_not_compared():
    assert differ({"value": 1.0, "only_passes": 3}, {"value": 1.0, "only_passes": 300}, 0, 0) is None
    assert differ({"value": 1.0, "only_passes": 3}, {"value": 2.0, "only_passes": 3}, 0, 0) is not None


def test_a_step_costs_the_same_for_more_text():
    once, often = (trelliswork({"task": "step", "times": n, "C": 50, "D": 3, "seed": 0}) for n in (1, 2))
    values = [task.digest(task.call())["value"] for task in (once, often)]
    assert abs(values[0] - values[1]) < 0.01  # the penalty's part of a position differs
