"""Contenders of the lifted benchmark compute the same results."""

from benchmarks.contenders.lifted import _text, plain_torch, sub_gradient, trelliswork, twenty_times
from benchmarks.harness import differ
from benchmarks.lifted import BENCHMARK


def test_contenders_agree():
    for case, peer in zip(BENCHMARK.cases, (sub_gradient, plain_torch, twenty_times), strict=True):
        digests = []
        for contender in (trelliswork, peer):
            task = contender(case.check)
            digests.append(task.digest(task.call()))
        assert differ(*digests, BENCHMARK.rtol, 1e-2 if case.name == "tighten" else BENCHMARK.atol) is None


def test_numbers_of_passes_are_not_compared():
    assert differ({"value": 1.0, "only_passes": 3}, {"value": 1.0, "only_passes": 300}, 0, 0) is None
    assert differ({"value": 1.0, "only_passes": 3}, {"value": 2.0, "only_passes": 3}, 0, 0) is not None


def test_twenty_times_is_the_text_repeated():
    """Multiplied counts equal those of the repeated text."""
    from trelliswork.data.moments import count_moments

    params = BENCHMARK.cases[2].check
    text = _text(params)
    once, often = count_moments(text, 2), count_moments(text * 20, 2)
    assert (20 * once.unary == often.unary).all()
    assert all((20 * a != b).nnz == 0 for a, b in zip(once.pairs, often.pairs, strict=True))
    tasks = [make(params) for make in (trelliswork, twenty_times)]
    digests = [task.digest(task.call()) for task in tasks]
    assert [d["only_positions"] for d in digests] == [once.n_positions, often.n_positions]
    assert abs(digests[0]["value"] - digests[1]["value"]) < 1e-6
