"""The log-bilinear model: gradients, training, early stopping, checkpoints."""

from collections import Counter

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from trelliswork.compute import threads
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.models import LogBilinear
from trelliswork.models.baselines import log_bilinear_training
from trelliswork.models.baselines.base import read_training
from trelliswork.models.baselines.log_bilinear_training import (
    LBLParameters,
    _Pieces,
    contexts_of,
    log_likelihood,
    log_likelihoods,
    start,
)


class CrashError(Exception):
    """An interruption."""


def clone(model: LogBilinear) -> LogBilinear:
    """Return an unfitted model with the same parameters."""
    return LogBilinear(**model.get_params())


@pytest.fixture(scope="module")
def cycles() -> list[list[str]]:
    """Return sentences in which each word determines the next one."""
    rng = np.random.default_rng(0)
    return [[f"w{(start + i) % 5}" for i in range(6)] for start in rng.integers(0, 5, 200)]


@pytest.mark.parametrize("scores", [1, 1 << 22])
def test_log_likelihoods_are_those_of_a_softmax(monkeypatch, scores):
    monkeypatch.setattr(log_bilinear_training, "_SCORES", scores)
    rng = np.random.default_rng(0)
    C, D, K, n = 30, 7, 2, 250
    tensors = [torch.from_numpy(rng.normal(size=shape)) for shape in ((C, D), (K, D, D), (C, D), (C,))]
    contexts, words = rng.integers(0, 3, (n, K)), rng.integers(0, C, n)
    p = LBLParameters(*tensors)
    mixed = torch.einsum("bkd,kde->be", tensors[0][contexts], tensors[1])
    expected = -torch.nn.functional.cross_entropy(
        mixed @ tensors[2].T + tensors[3], torch.from_numpy(words), reduction="none"
    )
    assert_allclose(log_likelihoods(p, contexts, words), expected.numpy(), rtol=1e-12)
    pieces = _Pieces.of(contexts, words, rng)
    some, counts, rows, targets = next(pieces.batches(1000, rng.permutation(len(pieces.context))))
    value = log_likelihood(p, some, counts.double(), rows, targets)
    assert_allclose(value.item(), expected.sum().item(), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 30, 50, 500])
def test_every_token_is_used_once_per_epoch(size):
    rng = np.random.default_rng(0)
    contexts, words = rng.integers(0, 3, (500, 2)), rng.integers(0, 7, 500)
    seen = Counter()
    pieces = _Pieces.of(contexts, words, rng)
    for some, n, rows, targets in pieces.batches(size, rng.permutation(len(pieces.context))):
        assert n.sum() == len(targets) <= size + 16
        seen.update(zip(*some[rows].T.tolist(), targets.tolist(), strict=True))
    assert seen == Counter(zip(*contexts.T.tolist(), words.tolist(), strict=True))


def test_training_stops_early_and_keeps_the_best_epoch(cycles):
    steps = []
    model = LogBilinear(1, rank=6, max_iter=10, batch_size=50, patience=2)
    model.fit(cycles, dev=cycles[:20], callback=lambda step: steps.append(step) if step.iteration else None)
    report = model.report_
    assert model.perplexity(cycles[:20]) < 1.9  # optimum 1.85: five first words, and the end with 1/6 after any word
    assert report.history == steps
    assert report.dev == max(step.dev for step in steps)
    assert report.metric == "log-probability per token"
    assert_allclose(report.dev, model.score(cycles[:20]), rtol=1e-6)
    best = max(steps, key=lambda step: step.dev)
    assert report.value == best.value
    assert f"kept iteration {best.iteration}" in report.reason
    assert report.converged == (len(steps) < 10)


@pytest.mark.parametrize("dev", [False, True])
def test_the_rate_is_halved_after_an_epoch_without_improvement(cycles, dev):
    model = LogBilinear(1, rank=6, learning_rate=3.0, max_iter=12, batch_size=20, patience=4)
    history = model.fit(cycles, dev=cycles[:20] if dev else None).report_.history
    values = [step.dev if dev else -step.value for step in history]
    rate, best = 3.0, -np.inf
    for step, value in zip(history, values, strict=True):
        assert step.learning_rate == rate
        rate, best = (rate, value) if value > best else (rate / 2, best)
    assert history[-1].learning_rate < 3.0


def test_the_first_step_follows_the_penalized_likelihood(cycles):
    """AdaGrad's first step is the sign of the gradient times the rate; l2 * |w|^2 has the gradient 2 * l2 * w."""
    l2, rate = 0.7, 1e-3
    model = LogBilinear(1, rank=2, l2=l2, learning_rate=rate, max_iter=1, batch_size=10**6).fit(cycles)
    ids = read_training(cycles, unknown=LogBilinear().unknown)
    data = contexts_of(ids.ids, ids.offsets, 1)
    first = start(len(ids.vocabulary), 1, 2, np.bincount(data[1], minlength=len(ids.vocabulary)), 0)
    free = [t.clone().requires_grad_() for t in first]
    value = torch.nn.functional.cross_entropy(
        torch.einsum("bkd,kde->be", free[0][data[0]], free[1]) @ free[2].T + free[3],
        torch.from_numpy(data[1]), reduction="sum",
    ) + l2 * sum(t.square().sum() for t in free[:3])  # fmt: skip
    value.backward()
    for tensor, old in zip(model._parameters_, free, strict=True):
        slope = old.grad
        clear = slope.abs() > 1e-2
        assert clear.any()
        assert_allclose((tensor - old.detach())[clear].numpy(), -rate * slope[clear].sign().numpy(), rtol=1e-2)


def test_training_ends_at_limits_and_on_request(cycles):
    model = LogBilinear(1, rank=6, max_iter=10)
    assert not model.fit(cycles, callback=lambda step: step.iteration == 1).report_.converged
    assert model.report_.reason == "stopped by the caller"
    assert model.report_.n_iter == 1
    assert LogBilinear(1, rank=6, max_iter=2).fit(cycles).report_.reason == "2 epochs"
    timed = LogBilinear(1, rank=6, max_iter=10).fit(cycles, max_minutes=1e-9)
    assert (timed.report_.n_iter, timed.report_.reason) == (1, "time limit of 1e-09 minutes")
    with pytest.raises(ValueRangeError, match="learning_rate must be greater than 0"):
        LogBilinear(learning_rate=0.0).fit(cycles)


@pytest.mark.parametrize("dev", [False, True])
@pytest.mark.parametrize("at", [1, 4])
def test_a_resumed_run_equals_an_uninterrupted_one(dev, at, tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    text = [[f"w{w}" for w in words] for words in np.random.default_rng(1).integers(0, 8, (60, 6))]
    model = LogBilinear(2, rank=4, learning_rate=0.5, max_iter=6, batch_size=20, patience=6, unknown="error")
    given = {"dev": [["w1", "w2"], ["w3", "w1", "w4"]] if dev else None}
    whole = clone(model).fit(text, **given)
    rates = [step.learning_rate for step in whole.report_.history]
    assert rates == ([0.5, 0.5, 0.25, 0.25, 0.125, 0.125] if dev else [0.5] * 6)  # epochs 2 and 4 were no improvement

    def crash(step):
        if step.iteration == at:
            raise CrashError

    path = tmp_path / "run"
    with pytest.raises(CrashError):
        clone(model).fit(text, checkpoint=path, callback=crash, **given)
    again = clone(model).fit(text, checkpoint=path, **given)
    again.save(tmp_path / "model")
    assert not path.exists()
    for tensor, other in zip(again._parameters_, whole._parameters_, strict=True):
        assert torch.equal(tensor, other)
    assert [s.value for s in again.report_.history] == [s.value for s in whole.report_.history]
    assert [s.learning_rate for s in again.report_.history] == [s.learning_rate for s in whole.report_.history]
    assert (again.report_.dev, again.report_.value) == (whole.report_.dev, whole.report_.value)


def test_a_stopped_run_continues_to_more_epochs(cycles, tmp_path):
    path = tmp_path / "run"
    LogBilinear(1, rank=4, max_iter=2).fit(cycles, checkpoint=path, callback=lambda step: step.iteration == 2)
    assert path.exists()
    with pytest.raises(DataError, match="other data or settings"):
        LogBilinear(1, rank=4, l2=0.1).fit(cycles, checkpoint=path)
    again = LogBilinear(1, rank=4, max_iter=4).fit(cycles, checkpoint=path)
    assert np.array_equal(again.vectors(), LogBilinear(1, rank=4, max_iter=4).fit(cycles).vectors())


def test_training_does_not_depend_on_threads():
    rng = np.random.default_rng(0)
    text = [[f"w{w}" for w in words] for words in rng.integers(0, 3000, (300, 8))]
    models = []
    for n in (1, 3):
        with threads.num_threads(n):
            models.append(LogBilinear(2, rank=12, max_iter=1, batch_size=500).fit(text))
    assert np.array_equal(models[0].vectors(), models[1].vectors())
    assert np.array_equal(models[0].log_prob(text[:9]), models[1].log_prob(text[:9]))
