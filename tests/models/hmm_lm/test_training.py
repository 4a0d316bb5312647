"""The parameters of an HMM language model, their objective, and training."""

import time

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from trelliswork.data import Vocabulary
from trelliswork.errors import DataError
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.learning.watch import Watch
from trelliswork.models.hmm_lm.data import observed
from trelliswork.models.hmm_lm.fitting import n_blocks_of, settings_for, word_clusters
from trelliswork.models.hmm_lm.network import BlockNetwork, NetworkShape, StateNetwork
from trelliswork.models.hmm_lm.objective import Sentences, batch_evidence
from trelliswork.models.hmm_lm.training import (
    TrainingSettings,
    batches,
    epochs_until,
    log_evidences,
    schedule,
    text_development,
    train,
)

V = 12
SHAPES = {
    "softmax": NetworkShape(6, V, 8),
    "kernel": NetworkShape(6, V, 8, 4),
    "kernel with norms, fixed": NetworkShape(6, V, 8, 4, "exp-norm", "fixed"),
    "relu kernel": NetworkShape(6, V, 8, 4, "relu"),
}
CLUSTERS = np.append(np.arange(V - 1) % 3, 3)


def network_of(shape, blocked, seed=0):
    return BlockNetwork(shape, CLUSTERS, seed) if blocked else StateNetwork(shape, seed)


def random_text(n=25, seed=0, n_words=V):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, n))])
    return Sentences(rng.integers(0, n_words, offsets[-1]), offsets)


def sentences_with_ends(text=None):
    """The same sentences with an end, the last word."""
    text = text or random_text(n_words=V - 1)
    words = np.where(text.words == V - 1, 0, text.words)
    parts = [[*words[a:b], V - 1] for a, b in zip(text.offsets, text.offsets[1:], strict=False)]
    return Sentences(np.concatenate(parts), np.concatenate([[0], np.cumsum([len(part) for part in parts])]))


def patterned_text(n=60, seed=0):
    """Words 0-3 and 4-7 alternate; 8 ends a sentence."""
    rng = np.random.default_rng(seed)
    words, offsets = [], [0]
    for _ in range(n):
        length = rng.integers(2, 7)
        words += [int(rng.integers(0, 4) + 4 * (t % 2)) for t in range(length)] + [8]
        offsets.append(len(words))
    return Sentences(np.array(words), np.array(offsets))


def plain_evidence(log_start, matrix, log_emission, text):
    """The same by torch's autograd over the matrix of all states."""
    total = torch.zeros((), dtype=torch.float64)
    start, emission = log_start.exp(), log_emission.exp()
    for a, b in zip(text.offsets, text.offsets[1:], strict=False):
        alpha = start * emission[text.words[a]]
        for w in text.words[a + 1 : b]:
            alpha = (alpha @ matrix) * emission[w]
        total = total + alpha.sum().log()
    return total


def tables_of(network, kept):
    """Return the start, the transition matrix and the emissions over all states, differentiable."""
    if isinstance(network, StateNetwork):
        hidden = network.emitting(kept)
        scores = torch.addmm(network.word_output.bias[:, None], network.word_output.weight, hidden.T)
        return network.log_start(kept), network.transition(kept).dense()[0], torch.log_softmax(scores, dim=0)
    start, blocks = network.log_start(kept), network.transition(kept)
    C, k = start.shape
    pairs = np.stack([np.repeat(np.arange(C), C), np.tile(np.arange(C), C)], axis=1)
    matrix = blocks.between(pairs).dense(pairs).reshape(C, C, k, k).transpose(1, 2).reshape(C * k, C * k)
    rows = network.log_emission(kept)[torch.from_numpy(network.row)]
    emission = torch.full((V, C, k), -torch.inf, dtype=rows.dtype)
    emission = emission.index_put((torch.arange(V), torch.from_numpy(network.clusters)), rows)
    return start.reshape(-1), matrix, emission.reshape(V, C * k)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_evidence_and_gradients_are_those_of_autograd(name, blocked, dropout):
    network = network_of(SHAPES[name], blocked).double()
    text = sentences_with_ends()
    drawn = network.draw(dropout, 1, dropout / 2) if blocked else network.draw(dropout, 1)
    found = []
    options = {"state_dropout": dropout, "dropout": dropout / 2, "seed": 1}
    for n in range(2):
        network.zero_grad()
        value = plain_evidence(*tables_of(network, drawn), text) if n else batch_evidence(network, text, **options)
        value.backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in network.parameters()]
        found.append((float(value.detach()), grads))
    assert_allclose(found[0][0], found[1][0], rtol=1e-10)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert_allclose(one, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_dropout_normalizes_the_rest(name, blocked):
    network = network_of(SHAPES[name], blocked)
    drawn = network.draw(0.5, 3)
    with torch.no_grad():
        start, matrix, emission = tables_of(network, drawn)
        every = tables_of(network, network.draw(0.0, 3))[0]
    if blocked:
        assert (drawn.states // 2)[:, 0].tolist() == [0, 1, 2]  # one of the two states of each block
        assert (len(start), len(every)) == (4, 8)
        matrix = matrix[:-1]  # nothing follows the end
    else:
        assert (len(start), len(every)) == (3, 6)
    assert_allclose(matrix.sum(dim=1), 1, rtol=1e-5)
    assert_allclose(start.exp().sum(), 1, rtol=1e-5)
    assert_allclose(emission.exp().sum(dim=0), 1, rtol=1e-5)


def test_zeroed_numbers_of_vectors_leave_their_mean():
    network = BlockNetwork(NetworkShape(3000, V, 8), CLUSTERS)
    masks = network.draw(0.0, 3, 0.25).masks
    assert sorted(masks.unique().tolist()) == pytest.approx([0, 4 / 3])
    assert_allclose(float(masks.mean()), 1, atol=0.02)
    assert not torch.equal(masks[0], masks[1])


def test_probabilities_of_many_words_sum_to_one():
    network = StateNetwork(NetworkShape(4, 20_000, 8))
    network.start_with(np.random.default_rng(0).zipf(1.3, 10**6).clip(max=20_000) - 1, np.array([0, 10**6]))
    tables = network.tables()
    assert tables.log_emission.dtype == torch.float32
    assert_allclose(tables.log_emission.double().exp().sum(dim=0), 1, atol=2e-7)
    words = Vocabulary([str(k) for k in range(19_999)])
    [every] = observed([None], words, tables, end=False)
    assert_allclose(every.log_emission[0].double().exp() + tables.log_emission[-1].double().exp(), 1, atol=2e-7)


def test_blocks_start_with_the_counts_of_their_words():
    text = random_text(2000)
    network = BlockNetwork(NetworkShape(30, V, 8), CLUSTERS)
    counted = sentences_with_ends(text)
    network.start_with(counted.words, counted.offsets)
    with torch.no_grad():
        for vectors in (network.left, network.words, network.start):
            vectors.zero_()
        start, matrix, emission = (x.double() for x in tables_of(network, network.draw(0.0, 0)))
    words = np.bincount(counted.words, minlength=V)[:-1]
    for c in range(3):
        own = np.flatnonzero(c == CLUSTERS)
        assert_allclose(emission[own, 10 * c].exp(), words[own] / words[own].sum(), rtol=2e-3)
    before, after = CLUSTERS[counted.words[:-1]], CLUSTERS[counted.words[1:]]
    inner = before < 3
    pairs = np.zeros((3, 4))
    np.add.at(pairs, (before[inner], after[inner]), 1)
    found = matrix.reshape(4, 10, 4, 10)[:3, 0].sum(dim=2)
    assert_allclose(found, pairs / pairs.sum(axis=1, keepdims=True), atol=5e-3)
    first = np.bincount(CLUSTERS[counted.words[counted.offsets[:-1]]], minlength=4) / len(counted)
    assert_allclose(start.exp().reshape(4, 10).sum(dim=1), first, atol=5e-3)


def test_first_emissions_are_the_frequencies():
    network = StateNetwork(NetworkShape(50, V, 32))
    frequencies = np.arange(V) * 100
    network.start_with(np.repeat(np.arange(V), frequencies), np.array([0, frequencies.sum()]))
    p = network.tables().log_emission.numpy()
    assert np.corrcoef(p.mean(axis=1), np.log(frequencies + 1))[0, 1] > 0.85
    assert 0.3 < p.std(axis=1).mean() < 3  # and states differ


def test_the_generator_of_torch_is_left_alone():
    before = torch.random.get_rng_state()
    StateNetwork(SHAPES["kernel"], 3).draw(0.1, 4)
    BlockNetwork(SHAPES["kernel"], CLUSTERS).draw(0.5, 4, 0.1)
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


SETTINGS = TrainingSettings(7, 80, 0.02, 0.3, 0.1, seed=5)


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("blocked", [False, True])
def test_training_learns(blocked, rank):
    text, dev = patterned_text(), patterned_text(20, seed=1)
    shape, clusters = NetworkShape(6, 9, 16, rank), np.array([0, 0, 1, 1, 2, 2, 2, 2, 3])
    network = BlockNetwork(shape, clusters) if blocked else StateNetwork(shape)
    before = np.exp(-log_evidences(network, dev).sum() / dev.n_tokens)
    settings = TrainingSettings(15, 80, 0.02, 0.0)
    report = train(network, text, settings, watched(network, dev))
    assert np.exp(-report.dev) < 6 < before
    assert report.dev == max(step.dev for step in report.history)
    assert_allclose(log_evidences(network, dev).sum() / dev.n_tokens, report.dev, rtol=1e-5)


@pytest.mark.parametrize("stop_at", [1, 3, 6])
@pytest.mark.parametrize("blocked", [False, True])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, blocked, stop_at):
    text, dev = patterned_text(), patterned_text(20, seed=1)
    shape, clusters = NetworkShape(6, 9, 8, 3), np.array([0, 0, 1, 1, 2, 2, 2, 2, 3])

    def new(seed=0):
        return BlockNetwork(shape, clusters, seed) if blocked else StateNetwork(shape, seed)

    whole = new()
    report = train(whole, text, SETTINGS, watched(whole, dev))
    path = tmp_path / "run"
    steps = []
    stopped = new()
    watch = watched(
        stopped,
        dev,
        checkpoint=Checkpoint(path, "x", every=0),
        callback=lambda step: steps.append(step) or len(steps) == stop_at,
    )
    train(stopped, text, SETTINGS, watch)
    assert path.exists()
    again = new(99)  # its initial parameters are replaced
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
    report = train(network, text, TrainingSettings(2), watched(network, dev, max_minutes=1e-9))
    assert "time limit" in report.reason
    assert not report.converged
    assert len(report.history) == 1
    hard = TrainingSettings(500, 100, 0.1)
    network = StateNetwork(NetworkShape(3, 9, 4))
    report = train(network, text, hard, watched(network, dev, patience=3))
    assert report.reason.startswith("no better log-probability per token on the development data for 3 iterations")
    assert report.converged
    report = train(StateNetwork(NetworkShape(3, 9, 4)), text, TrainingSettings(2), Watch())
    assert report.reason == "2 epochs"
    assert report.dev is None


def test_the_rate_grows_at_first_then_falls_and_a_start_counts():
    settings = TrainingSettings(8, 10**6, 0.01)
    report = train(StateNetwork(NetworkShape(3, 9, 4)), patterned_text(), settings, Watch(), seconds=100)
    rates = [step.learning_rate for step in report.history]
    assert_allclose(rates, 0.005 * (1 + np.cos(np.pi * np.arange(8) / 8)), rtol=1e-6)
    factors = [schedule(n / 100, 1 / 100, 1) for n in range(4)]
    assert_allclose(np.diff(factors), factors[0], rtol=0.01)  # in equal steps
    assert 100 < report.history[0].seconds < 200


def test_the_time_limit_chooses_the_number_of_epochs():
    watch, now = Watch(max_minutes=1.0), time.perf_counter()
    assert [epochs_until(watch, seconds, now, 40) for seconds in (60 / 1.05 / 4.5, 1000.0, 1e-9)] == [4, 1, 40]
    settings = TrainingSettings(40, 10, 0.01, fit_time=True)
    report = train(StateNetwork(NetworkShape(3, 9, 4)), patterned_text(), settings, Watch(max_minutes=1e-6))
    assert report.reason == "1 epochs" or "time limit" in report.reason


def test_the_recipe():
    given = dict.fromkeys(("max_iter", "batch_tokens", "learning_rate", "state_dropout", "dropout"))
    large = settings_for(given, 929_589, blocked=True, timed=False)
    assert (large.max_iter, large.state_dropout, large.dropout, large.fit_time) == (16, 0.5, 0.1, False)
    assert settings_for(given, 10_000, blocked=True, timed=False).dropout == 0.15
    assert settings_for(given, 10**9, blocked=True, timed=False).max_iter == 5
    assert settings_for(given, 929_589, blocked=True, timed=True).fit_time
    assert not settings_for(given | {"max_iter": 3}, 929_589, blocked=True, timed=True).fit_time
    assert settings_for(given, 929_589, blocked=False, timed=False) == TrainingSettings(20)
    sizes = {S: n_blocks_of(None, S, None, 10_000) for S in (512, 1000, 1024, 4096, 2**14, 2**15, 2**16)}
    assert sizes == {512: 1, 1000: 1, 1024: 32, 4096: 64, 2**14: 128, 2**15: 128, 2**16: 256}
    assert n_blocks_of(None, 4096, 64, 10_000) == 1
    assert n_blocks_of(None, 4096, None, 40) == 16


def test_every_word_has_a_cluster_and_every_cluster_a_word():
    text = patterned_text()
    words = Vocabulary([*(str(w) for w in range(8)), "<unk>"])  # <unk> does not occur
    data = Sentences(np.where(text.words == 8, 9, text.words), text.offsets)
    for n_blocks in (2, 5, 9):
        clusters = word_clusters(n_blocks, words, data)
        assert clusters.shape == (10,)
        assert set(clusters[:-1]) == set(range(n_blocks))
        assert clusters[-1] == n_blocks
