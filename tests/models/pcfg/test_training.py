"""Learning grammars: counts, EM that never falls, gradients, checkpoints."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from trelliswork import PCFG
from trelliswork.errors import ConvergenceWarning, DataError, ValueRangeError
from trelliswork.inference.span import grammar
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.learning.em import run_em
from trelliswork.learning.watch import Watch
from trelliswork.models.pcfg.neural import GrammarModule, train
from trelliswork.models.pcfg.neural import log_evidence as neural_evidence
from trelliswork.models.pcfg.objective import (
    GrammarParameters,
    expected_counts,
    log_evidence,
    random_grammar,
    text_batches,
)
from trelliswork.models.pcfg.training import GrammarPriors, GrammarUpdates, log_prior

N, P, V = 3, 4, 6


def text(n=30, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, V, rng.integers(1, 8)).tolist() for _ in range(n)]


def with_dense_rules(p):
    return GrammarParameters(log_root=p.log_root, log_rules=p.dense_rules(), log_emission=p.log_emission)


@pytest.mark.parametrize("rank", [None, 2])
def test_random_grammars_are_normalized_and_lean(rank):
    p = random_grammar(N, P, V, rank, seed=0)
    assert_allclose(np.exp(p.dense_rules()).sum(axis=(1, 2)), 1, rtol=1e-12)
    assert_allclose(np.exp(p.log_emission).sum(axis=1), 1, rtol=1e-12)
    leaning = random_grammar(N, P, V, rank, seed=0, right_bias=3.0)
    assert (np.exp(leaning.dense_rules())[:, :N].sum(axis=(1, 2)) < 0.15).all()
    own = random_grammar(N, V, V, rank, seed=0, identity=True)
    assert_allclose(np.exp(own.log_emission), np.eye(V))


def em(start, batches, *, priors=None, watch=None, **options):
    """Run EM from given parameters, or from those of each start."""
    updates = GrammarUpdates(batches, priors or GrammarPriors())
    return run_em(updates, start if callable(start) else lambda k: start, watch or Watch(), **options)


@pytest.mark.parametrize("rank", [None, 2])
def test_counts_are_the_gradient_and_low_rank_is_dense(rank):
    p = random_grammar(N, P, V, rank, seed=1)
    batches = text_batches(text(), size=8)
    found, evidence = expected_counts(p, batches)
    if rank is not None:
        dense, same = expected_counts(with_dense_rules(p), batches)
        assert_allclose(evidence, same, rtol=1e-10)
        assert_allclose(found["emission"], dense["emission"], atol=1e-9)
        assert_allclose(found["up"].sum(axis=1), dense["rules"].sum(axis=(1, 2)), atol=1e-9)
    arrays = p.named()
    for name, counts in found.items():
        at = (0,) * counts.ndim
        values = []
        for step in (1e-5, -1e-5):
            moved = arrays[f"log_{name}"].copy()
            moved[at] += step
            new = GrammarParameters(**(dict.fromkeys(p.__dataclass_fields__) | arrays | {f"log_{name}": moved}))
            values.append(expected_counts(new, batches)[1])
        assert_allclose(counts[at], (values[0] - values[1]) / 2e-5, rtol=1e-5, atol=1e-6)


def test_batches_leave_out_single_words():
    sentences = [[1], [1, 2], [3, 4, 5], [0, 0]]
    batches = text_batches(sentences, size=2)
    assert [b.places.tolist() for b in batches] == [[1, 3], [2]]
    found = log_evidence(random_grammar(N, P, V, 2, seed=0), batches, 4)
    assert np.isneginf(found).tolist() == [True, False, False, False]


@pytest.mark.parametrize("rank", [None, 3])
@pytest.mark.parametrize("prior", [0.0, 0.1])
def test_em_never_falls_and_counts_every_iteration(rank, prior):
    batches = text_batches(text())
    priors = GrammarPriors(prior, prior, prior)
    start = random_grammar(N, P, V, rank, seed=2)
    end, report = em(start, batches, priors=priors, max_iter=25, tol=0)
    values = [step.value for step in report.history]
    assert len(values) == 25
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(values))
    assert values[-1] > values[0] + 1
    assert_allclose(values[0], expected_counts(start, batches)[1] + log_prior(start.named(), priors), rtol=1e-12)
    assert_allclose(np.exp(end.dense_rules()).sum(axis=(1, 2)), 1, rtol=1e-9)
    again, _ = em(start, batches, priors=priors, max_iter=25, tol=0)
    assert_allclose(again.log_emission, end.log_emission, rtol=0)


def test_em_reaches_what_the_dense_kernel_says():
    batches = text_batches(text())
    end, report = em(random_grammar(N, P, V, None, seed=3), batches, max_iter=400, tol=1e-5)
    assert report.converged
    total = sum(grammar.expectations(end.grammar(b.ids, b.lengths)).log_z.sum() for b in batches)
    assert total >= report.value - 1e-6
    with pytest.warns(ConvergenceWarning, match="3 iterations"):
        em(end, batches, max_iter=3, tol=1e-12)


def test_restarts_keep_the_best(tmp_path):
    batches = text_batches(text())
    _, report = em(lambda k: random_grammar(N, P, V, 2, seed=k), batches, n_starts=3, probe=4, max_iter=10, tol=0)
    assert len(report.details["restarts"]) == 3
    assert report.n_iter == 10
    assert report.history[3].value == max(report.details["restarts"])


@pytest.mark.parametrize("rank", [None, 2])
def test_em_goes_on_from_a_checkpoint(tmp_path, rank):
    batches = text_batches(text())
    start = random_grammar(N, P, V, rank, seed=4)
    whole, _ = em(start, batches, max_iter=9, tol=0)

    def kept():
        return Checkpoint(tmp_path / "state", "same", every=0)

    stop = Watch(checkpoint=kept(), callback=lambda step: step.iteration == 4)
    _, half = em(start, batches, max_iter=9, tol=0, watch=stop)
    assert half.n_iter == 4
    found, report = em(start, batches, max_iter=9, tol=0, watch=Watch(checkpoint=kept()))
    assert report.n_iter == 9
    for name, array in whole.named().items():
        np.testing.assert_array_equal(array, found.named()[name])
    report.checkpoint.remove()
    assert not (tmp_path / "state").exists()


def test_what_is_never_used_stays():
    # Word 5 does not occur, and each word is its own symbol: the emissions remain those of the start.
    sentences = [[w for w in s if w < 5] for s in text()]
    start = random_grammar(N, V, V, 2, seed=5, identity=True)
    found, _ = em(start, text_batches(sentences), priors=GrammarPriors(0.1, 0.1, 0.0), max_iter=3, tol=0)
    np.testing.assert_array_equal(np.exp(found.log_emission), np.eye(V))


def test_impossible_sentences_are_told():
    p = random_grammar(N, P, V, None, seed=0)
    p.log_emission[:, 3] = -np.inf
    with pytest.raises(ValueRangeError, match="sentence 1 is impossible"):
        expected_counts(p, text_batches([[0, 1], [0, 3]]))


def module(rank, identity=False):
    return GrammarModule(N, V if identity else P, V, rank, size=8, identity=identity, seed=0)


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("identity", [False, True])
def test_modules_are_grammars_and_learn(rank, identity):
    sentences = [s for s in text(20) if len(s) > 1]
    made = module(rank, identity)
    before = made.arrays()
    assert_allclose(np.exp(before.dense_rules()).sum(axis=(1, 2)), 1, rtol=1e-9)
    batches = text_batches(sentences)
    first = expected_counts(before, batches)[1]
    assert_allclose(sum(neural_evidence(made(), b).sum().item() for b in batches), first, rtol=1e-5)
    settings = {"learning_rate": 0.02, "batch_size": 8, "priors": GrammarPriors()}
    found, report = train(made, sentences, max_iter=6, tol=0, watch=Watch(), **settings)
    assert expected_counts(found, batches)[1] > first + 1
    assert report.n_iter == 6


def test_training_goes_on_from_a_checkpoint(tmp_path):
    sentences = [s for s in text(20) if len(s) > 1]
    priors = GrammarPriors(0.1, 0.1, 0.1)
    options = {"batch_size": 8, "priors": priors, "max_iter": 6, "tol": 0}
    whole, _ = train(module(2), sentences, watch=Watch(), **options)

    def kept():
        return Checkpoint(tmp_path / "state", "same", every=0)

    watch = Watch(checkpoint=kept(), callback=lambda step: step.iteration == 3)
    stop = train(module(2), sentences, watch=watch, **options)
    assert stop[1].n_iter == 3
    found, report = train(module(2), sentences, watch=Watch(checkpoint=kept()), **options)
    assert [step.iteration for step in report.history] == [1, 2, 3, 4, 5, 6]
    for name, array in whole.named().items():
        np.testing.assert_array_equal(array, found.named()[name])
    other = Checkpoint(tmp_path / "other", "a", every=0)
    other.write({}, {"x": np.zeros(1)})
    with pytest.raises(DataError, match="other data or settings"):
        Checkpoint(tmp_path / "other", "b").read()


def test_training_ends_when_nothing_is_gained():
    sentences = [[0, 1]] * 8
    options = {"priors": GrammarPriors(), "watch": Watch()}
    _, report = train(module(2), sentences, learning_rate=1e-6, max_iter=50, tol=1e-3, **options)
    assert report.converged
    assert report.n_iter < 10


def test_priors_must_not_be_negative():
    with pytest.raises(ValueRangeError, match="at least 0"):
        PCFG(2, rule_prior=-1.0).fit([["a", "b"]])
