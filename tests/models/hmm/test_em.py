"""EM of HMMs: its laws, variational Bayes by definition, restarts, stepwise EM, and hmmlearn as a judge."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma, gammaln

from tests.models.hmm.sequences import drawn_from_a_model, random_sequences, sequences_of
from trelliswork.errors import ConvergenceWarning
from trelliswork.learning.em import LikelihoodDecrease
from trelliswork.learning.watch import Watch
from trelliswork.models.hmm import em as em_module
from trelliswork.models.hmm.em import Posterior, Priors, Stepwise, em
from trelliswork.models.hmm.objective import HMMParameters, Sequences, expected_counts
from trelliswork.models.hmm.updates import random_parameters


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(
    seed=st.integers(0, 1000),
    end=st.booleans(),
    pseudo=st.sampled_from([0.0, 0.1, 2.0]),
    known=st.sampled_from([0.0, 0.3, 1.0]),
    algorithm=st.sampled_from(["em", "vb"]),
)
def test_the_objective_never_falls(dtype, seed, end, pseudo, known, algorithm):
    rng = np.random.default_rng(seed)
    sequences = random_sequences(12, 8, 5, seed=seed)
    labels = np.where(rng.random(len(sequences.symbols)) < known, rng.integers(0, 3, len(sequences.symbols)), -1)
    sequences = Sequences(sequences.offsets, sequences.symbols, labels.astype(np.int32))
    prior = pseudo or 0.5 if algorithm == "vb" else pseudo
    start = random_parameters(3, 5, seed=seed, concentration=0.5, mean_length=4 if end else None)
    learned, report = em(
        start,
        sequences,
        priors=Priors(prior, prior, prior, prior),
        algorithm=algorithm,
        max_iter=15,
        tol=0,
        dtype=dtype,
    )
    values = np.array([step.value for step in report.history])
    assert (np.diff(values) >= -1e-11 * np.abs(values[1:]) if dtype == np.float64 else np.diff(values) >= -1e-4).all()
    rows = np.exp(learned.log_transition).sum(axis=1) + (0 if learned.log_end is None else np.exp(learned.log_end))
    assert_allclose(rows, 1, rtol=1e-9)
    assert_allclose(np.exp(learned.log_emission).sum(axis=1), 1, rtol=1e-9)
    assert_allclose(np.exp(learned.log_start).sum(), 1, rtol=1e-9)


@pytest.mark.parametrize("end", [False, True])
def test_the_m_step_reaches_a_stationary_point(end):
    """After many iterations, moving probability between any two outcomes of a row does not help."""
    sequences = drawn_from_a_model(30, 12, seed=1)
    pseudo = Priors(0.5, 0.5, 0.5, 0.5)
    start = random_parameters(3, 8, seed=1, mean_length=12 if end else None)
    p, _ = em(start, sequences, priors=pseudo, max_iter=3000, tol=1e-15)

    def objective(q):
        from trelliswork.models.hmm.updates import log_prior

        return expected_counts(q, sequences).total + log_prior(q, pseudo)

    best, h = objective(p), 1e-4
    for name in ("log_start", "log_transition", "log_emission"):
        for i, j in ((0, 1), (1, 2), (2, 0)):
            values = np.exp(getattr(p, name))
            row = values if values.ndim == 1 else values[0]
            for sign in (1, -1):
                moved = row.copy()
                by = sign * h * min(row[i], row[j])
                moved[i] += by
                moved[j] -= by
                changed = values.copy()
                changed[... if values.ndim == 1 else 0] = moved
                q = HMMParameters(**{**vars(p), name: np.log(changed)})
                assert objective(q) <= best + 1e-9 * abs(best)


def test_a_state_that_never_occurs_keeps_its_rows():
    p = HMMParameters(
        np.array([0.0, -np.inf]), np.array([[0.0, -np.inf], [np.log(0.3), np.log(0.7)]]), None, np.log([[0.5, 0.5]] * 2)
    )
    learned, _ = em(p, sequences_of([[0, 0, 1], [0]]), max_iter=2, tol=0)
    assert_allclose(np.exp(learned.log_transition), [[1, 0], [0.3, 0.7]])
    assert_allclose(np.exp(learned.log_emission), [[0.75, 0.25], [0.5, 0.5]])


def test_the_lower_bound_of_variational_bayes():
    """F = E_q[log p(x, y | theta)] + H(q(y)) - KL(q(theta) || p(theta)), term by term over all paths."""
    lists = [[0, 1, 1], [1, 0]]
    a = {"start": 0.3, "transition": 0.7, "end": 1.2, "emission": 0.4}
    q = Posterior(
        np.array([1.3, 0.6]),
        np.array([[1.0, 2.0], [0.4, 3.0]]),
        np.array([0.8, 1.5]),
        np.array([[2.0, 0.7], [1.1, 1.9]]),
    )
    _, report = em(q, sequences_of(lists), priors=Priors(**a), algorithm="vb", max_iter=1, tol=0)

    def expect(row):
        return digamma(row) - digamma(row.sum())

    def divergence(row, prior):
        log_norm = [gammaln(r.sum()) - gammaln(r).sum() for r in (row, prior)]
        return log_norm[0] - log_norm[1] + ((row - prior) * expect(row)).sum()

    nexts = np.column_stack([q.transition, q.end])
    prior_next = np.array([a["transition"], a["transition"], a["end"]])
    value = -divergence(q.start, np.full(2, a["start"]))
    for i in range(2):
        value -= divergence(nexts[i], prior_next) + divergence(q.emission[i], np.full(2, a["emission"]))
    log_start, log_next = expect(q.start), np.array([expect(r) for r in nexts])
    log_emission = np.array([expect(r) for r in q.emission])
    for x in lists:
        paths = np.array(np.meshgrid(*[[0, 1]] * len(x))).reshape(len(x), -1).T
        scores = []
        for y in paths:
            score = log_start[y[0]] + log_emission[y, x].sum() + log_next[y[-1], 2]
            scores.append(score + sum(log_next[i, j] for i, j in pairwise(y)))
        p = np.exp(scores) / np.exp(scores).sum()
        value += (p * scores).sum() - (p * np.log(p)).sum()
    assert_allclose(report.value, value, rtol=1e-12)
    mass = report.details["posterior"].emission.sum() - 4 * a["emission"]
    assert_allclose(mass, 5)


def test_variational_bayes_with_a_sparse_prior_prunes_states():
    sequences = drawn_from_a_model(60, 15, n_states=2, seed=4)
    start = random_parameters(6, 8, seed=4)
    learned, report = em(
        start, sequences, priors=Priors(0.01, 0.01, 0.01, 0.1), algorithm="vb", max_iter=400, tol=1e-7, dtype=np.float64
    )
    assert report.converged
    used = report.details["posterior"].emission.sum(axis=1) > 5
    assert used.sum() < 6
    plain = report.details["posterior"].expected_log()
    assert np.exp(plain.log_emission).sum(axis=1).max() < 1
    assert_allclose(np.exp(learned.log_emission).sum(axis=1), 1)


def test_a_decrease_is_an_error(monkeypatch):
    """A wrong M-step is detected."""
    sequences, start = random_sequences(9, 6, 4, seed=1), random_parameters(2, 4, seed=1)
    monkeypatch.setattr(em_module, "maximize", lambda counts, priors, old: random_parameters(2, 4, seed=77))
    better, _ = em_module.em(start, sequences, max_iter=1, tol=0)
    monkeypatch.undo()
    better, _ = em(start, sequences, max_iter=20, tol=0)
    monkeypatch.setattr(em_module, "maximize", lambda counts, priors, old: start)
    with pytest.raises(LikelihoodDecrease, match=r"fell from -.* to -.* in iteration 2"):
        em(better, sequences, max_iter=3, tol=0)


def test_stopping():
    sequences, start = random_sequences(9, 6, 4, seed=1), random_parameters(2, 4, seed=1)
    with pytest.warns(ConvergenceWarning, match="EM stopped after 2 iterations before reaching tol=1e-09"):
        _, report = em(start, sequences, max_iter=2, tol=1e-9)
    assert (report.converged, report.reason, report.n_iter) == (False, "2 iterations", 2)
    seen = []
    _, report = em(
        start, sequences, tol=0, watch=Watch(callback=lambda step: seen.append(step.value) or len(seen) == 3)
    )
    assert report.reason == "stopped by the caller"
    assert [step.iteration for step in report.history] == [1, 2, 3]
    assert seen == [step.value for step in report.history]


@pytest.mark.parametrize("algorithm", ["em", "vb"])
def test_the_best_restart_continues(algorithm):
    sequences = drawn_from_a_model(40, 10, seed=2)
    priors = Priors(0.1, 0.1, 0.1, 0.1)
    options = {"priors": priors, "algorithm": algorithm, "tol": 0}
    starts = [random_parameters(3, 8, seed=seed, mean_length=11) for seed in range(4)]
    p, report = em(starts.__getitem__, sequences, n_starts=4, probe=3, max_iter=10, **options)
    assert len(report.details["restarts"]) == 4
    assert [s.iteration for s in report.history] == list(range(1, 11))
    values = [s.value for s in report.history]
    assert values[2] == max(report.details["restarts"])
    assert all(after >= before - 1e-8 for before, after in pairwise(values))
    again, same = em(starts.__getitem__, sequences, n_starts=4, probe=3, max_iter=10, **options)
    assert_array_equal(again.log_emission, p.log_emission)
    assert same.details["restarts"] == report.details["restarts"]
    own = starts[np.argmax(report.details["restarts"])]
    _, alone = em(own, sequences, max_iter=10, **options)
    assert_allclose(values, [s.value for s in alone.history], rtol=1e-12)  # probing lost nothing
    short, _ = em(starts.__getitem__, sequences, n_starts=2, probe=9, max_iter=2, **options)
    assert short.n_states == 3


def in_steps(start, batches, priors=None):
    """Return stepwise EM after some batches, which are the whole text."""
    state = Stepwise(start, sum(len(batch.symbols) for batch in batches))
    for k, batch in enumerate(batches, start=1):
        state, step = state.after(batch, priors or Priors())
        assert step.iteration == k
    return state


def test_stepwise_learns_in_few_passes():
    sequences = drawn_from_a_model(400, 10, seed=3)
    lists = np.split(sequences.symbols, sequences.offsets[1:-1])
    batches = [sequences_of(lists[k : k + 20]) for k in range(0, 400, 20)]
    start = random_parameters(3, 8, seed=9)
    begin = expected_counts(start, sequences).total
    state = in_steps(start, batches * 2, Priors(0.1, 0.1, 0.1, 0.1))
    p = state.parameters
    end = expected_counts(p, sequences).total
    two, _ = em(start, sequences, priors=Priors(0.1, 0.1, 0.1, 0.1), max_iter=2, tol=0)
    assert end > expected_counts(two, sequences).total > begin
    assert state.n_batches == 40
    assert_allclose(np.exp(p.log_emission).sum(axis=1), 1)
    plain = in_steps(start, batches).parameters  # without priors, though some batches lack a symbol
    assert expected_counts(plain, sequences).total > begin


def test_stepwise_running_mean():
    """Two batches by hand: s_0 predicted by the start, then s = (1 - eta_k) s + eta_k N/n c_k, eta_k = (k + 2)^-0.7."""
    batches = [random_sequences(4, 6, 3, seed=1), random_sequences(6, 6, 3, seed=2)]
    p = start = random_parameters(2, 3, seed=0, mean_length=4)
    n_tokens = sum(len(batch.symbols) for batch in batches)
    for k, batch in enumerate(batches):
        c, larger = expected_counts(p, batch), n_tokens / len(batch.symbols)
        nexts = np.column_stack([c.transition, c.end])
        if k == 0:
            emission = larger * c.emission.sum(axis=1, keepdims=True) * np.exp(p.log_emission)
            outcomes = np.exp(np.column_stack([p.log_transition, p.log_end]))
            after = larger * nexts.sum(axis=1, keepdims=True) * outcomes
            begin = larger * batch.n_sequences * np.exp(p.log_start)
        eta = (k + 2) ** -0.7
        emission = (1 - eta) * emission + eta * larger * c.emission
        after = (1 - eta) * after + eta * larger * nexts
        begin = (1 - eta) * begin + eta * larger * c.start
        rows = np.log(after / after.sum(axis=1, keepdims=True))
        log_emission = np.log(emission / emission.sum(axis=1, keepdims=True))
        p = HMMParameters(np.log(begin / begin.sum()), rows[:, :2], rows[:, 2], log_emission)
    learned = in_steps(start, batches).parameters
    for name in ("log_start", "log_transition", "log_end", "log_emission"):
        assert_allclose(getattr(learned, name), getattr(p, name), rtol=1e-9, err_msg=name)


def test_same_trajectory_as_hmmlearn():
    hmm = pytest.importorskip("hmmlearn.hmm")
    sequences = drawn_from_a_model(20, 15, seed=6)
    start = random_parameters(3, 8, seed=6)
    for implementation in ("scaling", "log"):
        theirs = hmm.CategoricalHMM(3, n_iter=15, tol=-np.inf, init_params="", implementation=implementation)
        theirs.n_features = 8
        theirs.startprob_, theirs.transmat_ = np.exp(start.log_start), np.exp(start.log_transition)
        theirs.emissionprob_ = np.exp(start.log_emission)
        theirs.fit(sequences.symbols[:, None], np.diff(sequences.offsets))
        ours, report = em(start, sequences, max_iter=15, tol=0)
        assert_allclose([s.value for s in report.history], list(theirs.monitor_.history), rtol=1e-8)
        assert_allclose(np.exp(ours.log_transition), theirs.transmat_, rtol=1e-8, atol=1e-12)
        assert_allclose(np.exp(ours.log_emission), theirs.emissionprob_, rtol=1e-8, atol=1e-12)


def test_random_parameters():
    p = random_parameters(4, 6, seed=1, concentration=0.01, mean_length=5)
    assert np.isfinite(p.log_emission).all()
    assert_allclose(np.exp(p.log_transition).sum(axis=1) + np.exp(p.log_end), 1)
    assert_allclose(np.exp(p.log_end), 0.2)
    assert_array_equal(p.log_emission, random_parameters(4, 6, seed=1, concentration=0.01, mean_length=5).log_emission)
    assert (random_parameters(4, 6, seed=2).log_emission != random_parameters(4, 6, seed=3).log_emission).all()
    assert np.ptp(random_parameters(4, 6, concentration=1e6).log_emission) < 0.01
