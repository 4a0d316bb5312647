"""The network of an HMM language model, its objective, and training."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from trelliswork.data import Vocabulary
from trelliswork.errors import DataError
from trelliswork.inference.lowrank import Dense
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.learning.watch import Watch
from trelliswork.models.hmm_lm.data import observations
from trelliswork.models.hmm_lm.network import Drawn, NetworkShape, StateNetwork
from trelliswork.models.hmm_lm.objective import Sentences, batch_evidence
from trelliswork.models.hmm_lm.start import em_start
from trelliswork.models.hmm_lm.training import (
    TrainingSettings,
    batches,
    log_evidences,
    text_development,
    train,
)

V = 12
SHAPES = {
    "softmax": NetworkShape(6, V, 8),
    "kernel": NetworkShape(6, V, 8, 4),
    "kernel with a band": NetworkShape(6, V, 8, 4, band=1),
    "kernel with norms, fixed": NetworkShape(6, V, 8, 4, "exp-norm", "fixed"),
    "relu kernel, redrawn": NetworkShape(6, V, 8, 4, "relu", "redrawn", orthogonal=False),
}


def random_text(n=25, seed=0, n_words=V):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, n))])
    return Sentences(rng.integers(0, n_words, offsets[-1]), offsets)


def patterned_text(n=60, seed=0):
    """Words 0-3 and 4-7 alternate; 8 ends a sentence."""
    rng = np.random.default_rng(seed)
    words, offsets = [], [0]
    for _ in range(n):
        length = rng.integers(2, 7)
        words += [int(rng.integers(0, 4) + 4 * (t % 2)) for t in range(length)] + [8]
        offsets.append(len(words))
    return Sentences(np.array(words), np.array(offsets))


def plain_evidence(network, text, drawn):
    """The same by torch's autograd over the dense matrix."""
    matrix = network.transition(drawn).dense()
    start = network.spread(network.log_start(drawn), drawn, -torch.inf).exp()
    emission = network.spread(network.log_emission(drawn), drawn, -torch.inf).exp()
    total = torch.zeros((), dtype=torch.float64)
    for a, b in zip(text.offsets, text.offsets[1:], strict=False):
        alpha = start * emission[text.words[a]]
        for w in text.words[a + 1 : b]:
            alpha = (alpha @ matrix) * emission[w]
        total = total + alpha.sum().log()
    return total


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_evidence_and_gradients_are_those_of_autograd(name, blocked, dropout):
    network = StateNetwork(SHAPES[name], 0, np.arange(V) % 2 if blocked else None).double()
    drawn = network.draw(dropout, dropout, 1)
    if drawn.projection is not None:
        drawn.projection = drawn.projection.double()
    text = random_text()
    found = []
    for value in (batch_evidence(network, text, drawn), plain_evidence(network, text, drawn)):
        network.zero_grad()
        value.backward()
        found.append(
            (
                float(value.detach()),
                [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in network.parameters()],
            )
        )
    assert_allclose(found[0][0], found[1][0], rtol=1e-10)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert_allclose(one, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", SHAPES)
def test_dropout_normalizes_the_rest(name):
    network = StateNetwork(SHAPES[name], 0, np.arange(V) % 3)
    drawn = network.draw(0.5, 0.5, 3)
    assert len(drawn.states) == 3  # one of the two states of each block
    assert sorted((drawn.states // 2).tolist()) == [0, 1, 2]
    transition = network.transition(drawn)
    kept = drawn.states if SHAPES[name].band else torch.arange(3)
    matrix = transition.dense()[kept]
    assert_allclose(matrix.sum(dim=1).detach(), 1, rtol=1e-5)
    assert_allclose(matrix[:, kept].sum(dim=1).detach(), 1, rtol=1e-5)  # dropped states are never reached
    assert_allclose(network.log_start(drawn).exp().sum().detach(), 1, rtol=1e-5)
    assert_allclose(network.log_emission(drawn).exp().sum(dim=0).detach(), 1, rtol=1e-5)
    if drawn.features is not None:
        assert transition.width == 2


def test_probabilities_of_many_words_sum_to_one():
    network = StateNetwork(NetworkShape(4, 20_000, 8))
    network.start_with(np.random.default_rng(0).zipf(1.3, 20_000).clip(max=10**6))
    log_p = network.log_emission(Drawn()).detach()
    assert log_p.dtype == torch.float32
    assert_allclose(log_p.double().exp().sum(dim=0), 1, atol=2e-7)
    rows, _ = observations([[None]], Vocabulary([str(k) for k in range(19_999)]), log_p, end=False)
    assert_allclose(rows[0].double().exp() + log_p[-1].double().exp(), 1, atol=2e-7)


def test_nothing_is_dropped_without_dropout():
    network = StateNetwork(SHAPES["kernel"])
    assert network.draw(0.0, 0.0, 1) == Drawn()
    assert isinstance(StateNetwork(SHAPES["softmax"]).transition(Drawn()), Dense)


def test_blocks_emit_their_words_alone():
    clusters = np.arange(V) % 3
    p = StateNetwork(SHAPES["softmax"], 0, clusters).log_emission(Drawn()).exp().detach().numpy()
    of_state = np.arange(6) // 2
    assert ((p > 0) == (clusters[:, None] == of_state[None])).all()


def test_first_emissions_are_the_frequencies():
    network = StateNetwork(NetworkShape(50, V, 32))
    frequencies = np.arange(V) * 100
    network.start_with(frequencies)
    p = network.log_emission(Drawn()).detach().numpy()
    assert np.corrcoef(p.mean(axis=1), np.log(frequencies + 1))[0, 1] > 0.85
    assert 0.3 < p.std(axis=1).mean() < 3  # and states differ


def test_the_generator_of_torch_is_left_alone():
    before = torch.random.get_rng_state()
    StateNetwork(SHAPES["kernel"], 3).draw(0.1, 0.1, 4)
    assert torch.equal(before, torch.random.get_rng_state())


def test_batches_hold_every_sentence_once():
    text = random_text(200)
    for epoch in range(3):
        parts = batches(np.diff(text.offsets), 100, 0, epoch)
        assert sorted(np.concatenate(parts).tolist()) == list(range(200))
        sizes = [sum(np.diff(text.offsets)[part]) for part in parts]
        assert max(sizes) < 150
    first, second, other = (
        [part.tolist() for part in batches(np.diff(text.offsets), 100, seed, epoch)]
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    )
    assert first != second
    assert first != other
    assert len(batches(np.diff(text.offsets), 10**6, 0, 0)) == 1


def watched(network, dev=None, **options):
    return Watch(None if dev is None else text_development(network, dev), **{"patience": 12} | options)


SETTINGS = TrainingSettings(
    max_iter=4, batch_tokens=80, learning_rate=0.02, evaluations=2, state_dropout=0.2, feature_dropout=0.2, seed=5
)


@pytest.mark.parametrize("rank", [0, 3])
def test_training_learns(rank):
    text, dev = patterned_text(), patterned_text(20, seed=1)
    network = StateNetwork(NetworkShape(6, 9, 16, rank))
    before = np.exp(-log_evidences(network, dev).sum() / dev.n_tokens)
    settings = TrainingSettings(max_iter=15, batch_tokens=80, learning_rate=0.02, evaluations=1, state_dropout=0.0)
    report = train(network, text, settings, watched(network, dev))
    assert np.exp(-report.dev) < 6 < before
    assert report.dev == max(step.dev for step in report.history)
    assert_allclose(log_evidences(network, dev).sum() / dev.n_tokens, report.dev, rtol=1e-5)


@pytest.mark.parametrize("stop_at", [1, 3, 6])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, stop_at):
    text, dev = patterned_text(), patterned_text(20, seed=1)
    shape = NetworkShape(6, 9, 8, 3)
    whole = StateNetwork(shape)
    report = train(whole, text, SETTINGS, watched(whole, dev))
    path = tmp_path / "run"
    steps = []
    stopped = StateNetwork(shape)
    watch = watched(
        stopped,
        dev,
        checkpoint=Checkpoint(path, "x", every=0),
        callback=lambda step: steps.append(step) or len(steps) == stop_at,
    )
    train(stopped, text, SETTINGS, watch)
    assert path.exists()
    again = StateNetwork(shape, seed=99)  # its initial parameters are replaced
    resumed = train(again, text, SETTINGS, watched(again, dev, checkpoint=Checkpoint(path, "x", every=0)))
    resumed.checkpoint.remove()
    assert not path.exists()
    assert [s.dev for s in resumed.history] == [s.dev for s in report.history]
    assert [s.value for s in resumed.history] == [s.value for s in report.history]
    learned = {name for name, p in whole.named_parameters() if p.requires_grad}
    for (name, one), other in zip(whole.named_parameters(), again.parameters(), strict=True):
        if name in learned:
            assert torch.equal(one, other), name


def test_another_run_is_refused(tmp_path):
    text = patterned_text()
    network = StateNetwork(SHAPES["softmax"])
    first = watched(network, checkpoint=Checkpoint(tmp_path / "run", "x", every=0), callback=lambda step: True)
    train(network, text, SETTINGS, first)
    with pytest.raises(DataError, match="other data or settings"):
        train(network, text, SETTINGS, watched(network, checkpoint=Checkpoint(tmp_path / "run", "y")))


def test_reasons_to_stop():
    text, dev = patterned_text(), patterned_text(20, seed=1)
    network = StateNetwork(NetworkShape(3, 9, 4))
    report = train(network, text, TrainingSettings(max_iter=2), watched(network, dev, max_minutes=1e-9))
    assert "time limit" in report.reason
    assert not report.converged
    assert len(report.history) == 1
    hard = TrainingSettings(max_iter=500, learning_rate=0.1, decay_patience=1, batch_tokens=100)
    network = StateNetwork(NetworkShape(3, 9, 4))
    report = train(network, text, hard, watched(network, dev, patience=3))
    assert report.reason.startswith("no better log evidence per token on the development data for 3 iterations")
    assert report.converged
    assert report.history[-1].learning_rate < 0.1
    linear = TrainingSettings(max_iter=2, schedule="linear", evaluations=1)
    report = train(StateNetwork(NetworkShape(3, 9, 4)), text, linear, Watch())
    assert report.reason == "2 epochs"
    assert report.dev is None
    assert report.history[1].learning_rate < report.history[0].learning_rate


def test_the_rate_grows_at_first_and_a_start_counts():
    settings = TrainingSettings(max_iter=2, batch_tokens=10, evaluations=20, learning_rate=0.01)
    text = patterned_text()
    report = train(StateNetwork(NetworkShape(3, 9, 4)), text, settings, Watch(), seconds=100)
    rates = np.array([step.learning_rate for step in report.history])
    n = len(batches(np.diff(text.offsets), 10, 0, 0))
    done = np.concatenate([epoch + np.round(np.arange(1, 21) * n / 20) / n for epoch in range(2)])
    assert_allclose(rates, 0.01 * np.minimum(1, done / 0.15), rtol=1e-6)
    assert rates[0] < 0.005
    assert 100 < report.history[0].seconds < 200


def test_em_gives_a_start():
    text, dev = patterned_text(200), patterned_text(20, seed=1)
    network = StateNetwork(NetworkShape(4, 9, 16))
    counts = em_start(network, text, n_iter=20, n_steps=150, seed=1)
    assert_allclose(counts.emission.sum(), text.n_tokens, rtol=1e-4)
    assert np.exp(-log_evidences(network, dev).sum() / dev.n_tokens) < 6
