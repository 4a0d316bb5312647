"""Callbacks, time limit, development data and checkpoints of HMM training."""

import tracemalloc

import numpy as np
import pytest

from tests.estimators import made
from tests.models.hmm.cases import HALF, TAGS, WORDS, corpus
from trelliswork import HMM
from trelliswork.errors import DataError, ShapeError, ValueRangeError
from trelliswork.learning.checkpoint import Checkpoint


def assert_same(one, other):
    """Assert that two models are equal bit for bit."""
    (plain, arrays), (other_plain, others) = one._state(), other._state()
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)
    assert plain["emissions"] == other_plain["emissions"]
    assert [step.value for step in one.report_.history] == [step.value for step in other.report_.history]
    assert [step.dev for step in one.report_.history] == [step.dev for step in other.report_.history]
    assert (one.report_.reason, one.report_.dev) == (other.report_.reason, other.report_.dev)


@pytest.mark.parametrize("y", [None, HALF])
@pytest.mark.parametrize("algorithm", ["em", "vb"])
def test_a_stopped_fit_leaves_a_model(algorithm, y):
    seen = []

    def stop(step):
        seen.append(step)
        return len(seen) == 2

    hmm = HMM(3, algorithm=algorithm, options={"probe": 1}).fit(WORDS, y, callback=stop)
    assert len(seen) == 2
    assert not hmm.report_.converged
    assert hmm.report_.reason == "stopped by the caller"
    assert hmm.report_.history[-1] == seen[-1]
    assert np.isfinite(hmm.score(WORDS))
    assert hmm.predict(WORDS)


def test_a_failed_fit_leaves_the_model_unchanged():
    hmm = HMM(3).fit(WORDS)
    before = hmm.log_prob(WORDS)

    def interrupt(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hmm.fit(WORDS[:3], callback=interrupt)
    assert (hmm.log_prob(WORDS) == before).all()


@pytest.mark.parametrize("n_restarts", [1, 2])
def test_the_callback_sees_each_iteration(n_restarts):
    seen = []
    hmm = HMM(3, n_restarts=n_restarts).fit(WORDS, callback=seen.append)
    assert [step.value for step in hmm.report_.history if step not in seen] == []
    assert seen[-1] == hmm.report_.history[-1]
    assert len(seen) == len(hmm.report_.history) + (n_restarts - 1) * hmm.probe


def test_the_time_limit_stops_after_an_iteration():
    report = HMM(3, tol=0).fit(WORDS, max_minutes=1e-9).report_
    assert report.n_iter == 1
    assert report.reason.startswith("time limit")


@pytest.mark.parametrize("algorithm", ["em", "vb"])
def test_development_sentences_choose_the_iteration(algorithm):
    """Without priors EM overfits few sentences: the kept iteration has the best evidence of others."""
    X, dev = corpus("train", 40)[0], corpus("test", 30)[0]
    options = {"algorithm": algorithm, "tol": 0, "seed": 2, "unknown": "symbol", "transition_prior": 0.01}
    if algorithm == "em":
        options["emission_prior"] = 0.001
    hmm = made(HMM, 6, max_iter=40, patience=3, **options).fit(X, dev=dev)
    measured = [step.dev for step in hmm.report_.history]
    best = int(np.argmax(measured))
    assert 0 < best < len(measured) - 1
    assert len(measured) == best + 1 + 3
    assert hmm.report_.dev == max(measured) == hmm.score(dev)
    assert hmm.report_.metric == "log-probability per token"
    assert f"kept iteration {best + 1} with" in hmm.report_.reason
    same = made(HMM, 6, max_iter=best + 1, **options).fit(X)
    np.testing.assert_array_equal(hmm.transitions(), same.transitions())
    np.testing.assert_array_equal(hmm.log_prob(dev), same.log_prob(dev))


def test_labeled_development_sentences_measure_the_accuracy():
    X, y = corpus("train", 120)
    dev = corpus("test", 40)
    hmm = HMM(max_iter=8, tol=0, patience=8).fit(X, y[:40] + [None] * 80, dev=dev)
    measured = [step.dev for step in hmm.report_.history]
    assert hmm.report_.metric == "accuracy"
    assert hmm.report_.dev == max(measured) == hmm.score(*dev)
    assert measured[-1] < max(measured)  # more iterations lead away from the tags
    partly = (dev[0], [None if n % 2 else tags for n, tags in enumerate(dev[1])])
    assert HMM(max_iter=1, tol=0).fit(X, y[:40] + [None] * 80, dev=partly).report_.dev > 0.5


def test_counted_taggers_are_measured_once():
    dev = corpus("test", 40)
    hmm = HMM(order=2).fit(*corpus("train", 120), dev=dev)
    assert (hmm.report_.metric, hmm.report_.dev) == ("accuracy", hmm.score(*dev))
    hmm = HMM().fit(*corpus("train", 120), dev=(dev[0], None))
    assert (hmm.report_.metric, hmm.report_.dev) == ("log-probability per token", hmm.score(dev[0]))
    assert hmm.report_.reason == "counted"


RUNS = {
    "em": ({"n_states": 5, "tol": 0, "max_iter": 9}, None),
    "em, float32": ({"n_states": 5, "tol": 1e-3, "dtype": "float32"}, None),
    "partly labeled": ({"tol": 0, "max_iter": 7}, "half"),
    "vb": ({"n_states": 5, "algorithm": "vb", "tol": 0, "max_iter": 9}, None),
    "restarts": ({"n_states": 5, "n_restarts": 3, "probe": 3, "tol": 0, "max_iter": 8}, None),
    "vb, restarts": ({"n_states": 4, "algorithm": "vb", "n_restarts": 2, "probe": 2, "tol": 1e-3}, None),
    "beam": ({"n_states": 9, "beam": "size=4", "tol": 0, "max_iter": 6}, None),
}


@pytest.mark.parametrize("with_dev", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_equals_an_uninterrupted_one(name, with_dev, tmp_path):
    options, y = RUNS[name]
    X, tags = corpus("train", 80)
    y = None if y is None else [t if n < 30 else None for n, t in enumerate(tags)]
    dev = corpus("test", 10)[0] if with_dev else None
    hmm = made(HMM, **{"seed": 1, "unknown": "symbol", "patience": 3, **options})
    path, steps = tmp_path / "checkpoint", []
    whole = HMM(**hmm.get_params()).fit(X, y, dev=dev, callback=steps.append)
    n = len(steps)
    assert n >= 4
    for stop in sorted({1, 2, n // 2, n - 2, n - 1, n if dev is None and not hmm.beam else 1}):
        seen = []
        hmm.fit(X, y, dev=dev, checkpoint=path, callback=lambda step, s=seen, k=stop: s.append(step) or len(s) == k)
        assert path.exists()
        more = []
        resumed = HMM(**hmm.get_params()).fit(X, y, dev=dev, checkpoint=path, callback=more.append)
        assert_same(resumed, whole)
        assert resumed.report_.details.get("restarts") == whole.report_.details.get("restarts")
        assert len(more) == n - stop
        resumed.save(tmp_path / "model")
        assert not path.exists()


def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path, monkeypatch):
    """Each iteration writes a checkpoint; an error in the third and the seventh kills the run."""
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    X, path = corpus("train", 80)[0], tmp_path / "checkpoint"
    options = {"n_restarts": 2, "probe": 3, "max_iter": 8, "tol": 0}
    whole = made(HMM, 5, **options).fit(X)
    for killed in (3, 7):
        seen = []

        def kill(step, seen=seen, killed=killed):
            seen.append(step)
            if len(seen) == killed:
                raise RuntimeError("killed")

        with pytest.raises(RuntimeError, match="killed"):
            made(HMM, 5, **options).fit(X, checkpoint=path, callback=kill)
        resumed = []
        again = made(HMM, 5, **options).fit(X, checkpoint=path, callback=resumed.append)
        assert_same(again, whole)
        assert len(resumed) == 3 + 8 - killed
        again.save(tmp_path / "model")
        assert not path.exists()


def peak(n):
    """Return the memory that training on a text of n batches takes."""
    words = {f"w{k}": 12 * n for k in range(50)}
    tracemalloc.start()
    try:
        hmm = HMM(2, unknown="symbol")
        for k in range(n):
            hmm.partial_fit([[f"w{(7 * k + t * t) % 50}" for t in range(30)] for _ in range(20)], words=words)
        return hmm.report_, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_number_of_batches():
    peak(20)  # what is loaded once
    _, few = peak(20)
    report, many = peak(120)
    assert many < few + 200_000  # 100 batches have 800,000 bytes
    assert (report.n_iter, report.reason, len(report.history)) == (120, "120 batches", 1)


def test_a_longer_run_resumes_from_a_shorter_one(tmp_path):
    X, path = corpus("train", 80)[0], tmp_path / "checkpoint"
    HMM(5, tol=0, max_iter=6).fit(X, checkpoint=path, callback=lambda step: step.iteration == 4)
    longer = HMM(5, tol=0, max_iter=9).fit(X, checkpoint=path, max_minutes=99)
    assert_same(longer, HMM(5, tol=0, max_iter=9).fit(X))


def test_a_checkpoint_of_another_run_is_an_error(tmp_path):
    path = tmp_path / "checkpoint"
    HMM(3).fit(WORDS, checkpoint=path, callback=lambda step: True)
    for fit in (
        lambda: HMM(4).fit(WORDS, checkpoint=path),
        lambda: HMM(3, seed=2).fit(WORDS, checkpoint=path),
        lambda: HMM(3).fit(WORDS[:3], checkpoint=path),
        lambda: HMM(3).fit(WORDS, HALF, checkpoint=path),
        lambda: HMM(3).fit(WORDS, dev=WORDS, checkpoint=path),
        lambda: HMM(3).fit([[word.upper() for word in x] for x in WORDS], checkpoint=path),
    ):
        with pytest.raises(DataError, match="other data or settings"):
            fit()
    assert path.exists()


def test_development_data_that_does_not_apply():
    with pytest.raises(ValueRangeError, match="dev has labels"):
        HMM(3).fit(WORDS, dev=(WORDS, TAGS))
    with pytest.raises(ShapeError):
        HMM(3).fit(WORDS, HALF, dev=(WORDS, TAGS[:2]))
    with pytest.raises(ValueRangeError, match="probe"):
        HMM(3, n_restarts=2, options={"probe": 5}, max_iter=5).fit(WORDS, dev=WORDS)
