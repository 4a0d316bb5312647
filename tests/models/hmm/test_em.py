"""The E-step against enumeration, EM's laws, and the roads of inference against each other."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma, gammaln

from tests.oracle.hmm import enumerate_counts, joint
from trelliswork.compute import threads
from trelliswork.errors import ConvergenceWarning, ImpossibleError, ShapeError, ValueRangeError
from trelliswork.models.hmm import em as em_module
from trelliswork.models.hmm import objective as hmm_counts
from trelliswork.models.hmm.em import LikelihoodDecrease, Posterior, Priors, em, random_parameters, restarts, stepwise
from trelliswork.models.hmm.objective import HMMParameters, Sequences, expected_counts, posterior_states

PRECISION = {np.float32: 2e-5, np.float64: 1e-10}


def sequences_of(lists, **known):
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in lists])]).astype(np.int64)
    return Sequences(offsets, np.concatenate(lists).astype(np.int32), **known)


def random_sequences(n, length, n_symbols, seed=0, **known):
    rng = np.random.default_rng(seed)
    return sequences_of([rng.integers(0, n_symbols, rng.integers(1, length + 1)) for _ in range(n)], **known)


def drawn_from_a_model(n, length, n_states=3, n_symbols=8, seed=0):
    """Sequences with structure to be found."""
    rng = np.random.default_rng(seed)
    p = random_parameters(n_states, n_symbols, seed=seed, concentration=0.2)
    lists = []
    for _ in range(n):
        y, x = rng.choice(n_states, p=np.exp(p.log_start)), []
        for _ in range(length):
            x.append(rng.choice(n_symbols, p=np.exp(p.log_emission[y])))
            y = rng.choice(n_states, p=np.exp(p.log_transition[y]))
        lists.append(np.array(x))
    return sequences_of(lists)


def assert_counts(counts, want, **tolerance):
    for name, value in zip(("start", "transition", "end", "emission", "log_evidence"), want, strict=True):
        assert_allclose(getattr(counts, name), value, err_msg=name, **tolerance)


@st.composite
def problems(draw):
    """Parameters with and without zeros and an end event, ragged sequences, known states, weights."""
    S, V, N = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    end = draw(st.booleans())
    p = random_parameters(S, V, seed=draw(st.integers(0, 99)), mean_length=3.0 if end else None)
    if draw(st.booleans()):  # far apart, and some impossible; state 0 always remains
        scale = draw(st.sampled_from([1.0, 30.0, 300.0]))
        parts = [p.log_start, p.log_transition, p.log_end, p.log_emission]
        parts = [None if a is None else a * scale for a in parts]
        for a in parts:
            if a is not None:
                a.reshape(S, -1)[1:][rng.random(a.reshape(S, -1)[1:].shape) < 0.2] = -np.inf
        p = HMMParameters(*parts)
    lists = [rng.integers(0, V, rng.integers(1, 6)) for _ in range(N)]
    labels = [np.where(rng.random(len(x)) < draw(st.sampled_from([0.5, 1.0])), -1, 0) for x in lists]
    weights = rng.uniform(0.1, 3, N) if draw(st.booleans()) else None
    return p, lists, labels if draw(st.booleans()) else None, weights


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(problem=problems())
def test_counts_are_those_of_enumeration(dtype, problem):
    p, lists, labels, weights = problem
    sequences = sequences_of(lists, labels=None if labels is None else np.concatenate(labels), weights=weights)
    want = enumerate_counts(p.log_start, p.log_transition, p.log_end, p.log_emission, lists, labels, weights)
    found = expected_counts(p, sequences, dtype=dtype)
    assert_counts(found, want, rtol=PRECISION[dtype], atol=PRECISION[dtype])
    assert_allclose(
        found.total, (want[-1] * (1 if weights is None else weights)).sum(), rtol=PRECISION[dtype], atol=1e-6
    )


@pytest.mark.parametrize("n_states", [1, 5, 8, 16, 17, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_sizes_agree_with_log_space(n_states, dtype):
    """Widths that do and do not fill vectors and register blocks; many sequences, ragged, half labelled, weighted."""
    rng = np.random.default_rng(n_states)
    sequences = random_sequences(70, 30, 11, seed=1)
    labels = np.where(rng.random(len(sequences.symbols)) < 0.8, -1, rng.integers(0, n_states, len(sequences.symbols)))
    weights = rng.uniform(0.5, 2, 70)
    sequences = Sequences(sequences.offsets, sequences.symbols, labels.astype(np.int32), weights)
    p = random_parameters(n_states, 11, seed=2, mean_length=10)
    found, want = expected_counts(p, sequences, dtype=dtype), in_log_space(p, sequences)
    names = ("start", "transition", "end", "emission", "log_evidence")
    assert_counts(found, [getattr(want, n) for n in names], rtol=PRECISION[dtype], atol=10 * PRECISION[dtype])


def in_log_space(p, sequences):
    counts = hmm_counts.Counts.zeros(p.n_states, p.n_symbols, sequences.n_sequences)
    for s in range(sequences.n_sequences):
        visit = hmm_counts._adder(counts, sequences, s)
        counts.log_evidence[s] = hmm_counts._in_log_space(p, sequences, s, counts.transition, visit)
    return counts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_states", [2, 19])
def test_long_sequences_in_blocks(monkeypatch, dtype, n_states):
    """Small limits send everything along the roads for long sequences, scaled and in log space."""
    rng = np.random.default_rng(0)
    sequences = random_sequences(5, 90, 7, seed=3)
    labels = np.where(rng.random(len(sequences.symbols)) < 0.9, -1, 1).astype(np.int32)
    weights = np.array([1, 0.5, 2, 1, 3.0])
    sequences = Sequences(sequences.offsets, sequences.symbols, labels, weights)
    p = random_parameters(n_states, 7, seed=4, mean_length=20)
    want = expected_counts(p, sequences)
    want = [getattr(want, n) for n in ("start", "transition", "end", "emission", "log_evidence")]
    monkeypatch.setattr(hmm_counts, "CHUNK_BYTES", 8)
    roads = []
    monkeypatch.setattr(hmm_counts, "_in_blocks", spy(hmm_counts._in_blocks, roads))
    found = expected_counts(p, sequences, dtype=dtype)
    assert len(roads) == 5
    assert all(safe for _, safe in roads)
    assert_counts(found, want, rtol=PRECISION[dtype], atol=PRECISION[dtype])
    logs = in_log_space(p, sequences)
    assert_counts(logs, want, rtol=1e-9, atol=1e-10)


def spy(function, answers):
    def called(*args, **kwargs):
        answers.append(function(*args, **kwargs))
        return answers[-1]

    return called


def test_chunks_do_not_matter(monkeypatch):
    sequences, p = random_sequences(200, 40, 9, seed=5), random_parameters(6, 9, seed=5)
    want = expected_counts(p, sequences)
    monkeypatch.setattr(hmm_counts, "CHUNK_BYTES", 1 << 15)
    found = expected_counts(p, sequences)
    for name in ("start", "transition", "end", "emission", "log_evidence"):
        assert_allclose(getattr(found, name), getattr(want, name), rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_matter(dtype):
    sequences, p = random_sequences(300, 60, 50, seed=6), random_parameters(30, 50, seed=6)
    results = []
    for n in (1, 2, 3):
        with threads.num_threads(n):
            results.append(expected_counts(p, sequences, dtype=dtype))
    for other in results[1:]:
        for name in ("start", "transition", "end", "emission", "log_evidence"):
            assert_array_equal(getattr(other, name), getattr(results[0], name), err_msg=name)


@pytest.mark.parametrize("chunk_bytes", [hmm_counts.CHUNK_BYTES, 8])
def test_what_underflows_is_mended(monkeypatch, chunk_bytes):
    """Evidence that contradicts what the prefix made all but impossible: float32, float64, then log space must help."""
    monkeypatch.setattr(hmm_counts, "CHUNK_BYTES", chunk_bytes)  # 8: each sequence is a long one
    for size in (40.0, 200.0, 2000.0):
        log_transition = np.array([[np.log1p(-np.exp(-size)) if size < 700 else 0.0, -size], [-size, 0.0]])
        log_emission = np.array([[0.0, -size, -size], [-size, 0.0, -np.inf]])
        p = HMMParameters(np.array([0.0, -size]), log_transition, None, log_emission)
        lists = [[0, 0, 0, 1, 1, 1], [0, 1, 0, 1], [1, 0, 1], [0, 0], [1, 1, 2, 1]]
        labels = [[-1] * 6, [-1, 0, 1, -1], [-1] * 3, [1, -1], [-1] * 4]
        sequences = sequences_of(lists, labels=np.concatenate(labels).astype(np.int32))
        want = enumerate_counts(p.log_start, p.log_transition, None, log_emission, lists, labels)
        for dtype in (np.float32, np.float64):
            assert_counts(expected_counts(p, sequences, dtype=dtype), want, rtol=1e-5, atol=1e-6)


def test_an_unsafe_sequence_leaves_its_neighbours_alone():
    """It is found out only at its beginning, when its counts are already among those of its group."""
    p = random_parameters(2, 3, seed=0)
    log_emission = np.array([[-100.0, np.log(0.5), np.log(0.5)], [0.0, -np.inf, -np.inf]])
    log_transition = np.array([[np.log(0.5), np.log(0.5)], [-np.inf, 0.0]])
    p = HMMParameters(p.log_start, log_transition, None, log_emission)
    lists = [[1, 2, 1, 1], [0, 0, 0, 1], [1, 2, 0, 0], [2, 2, 2, 2]]  # the second must have begun in state 0
    want = enumerate_counts(p.log_start, log_transition, None, log_emission, lists)
    safe = []
    for dtype in (np.float32, np.float64):
        found = expected_counts(p, sequences_of(lists), dtype=dtype)
        assert_counts(found, want, rtol=1e-5, atol=1e-6)
        tables = hmm_counts._Tables(p, sequences_of(lists), np.dtype(dtype))
        scratch = hmm_counts.Counts.zeros(2, 3, 4)
        safe.append(hmm_counts._scaled(tables, sequences_of(lists).hidden, scratch))
    assert_array_equal(safe[0], [True, False, True, True])
    assert_array_equal(safe[1], [True, True, True, True])


def test_the_limit_of_safety():
    """No way between two states: after "0 0" the second has 1e-40, too little for float32; "1 1" favours it by 1e30."""
    log_emission, stay = np.log(np.array([[1.0, 1e-15], [1e-20, 1.0]])), np.where(np.eye(2), 0.0, -np.inf)
    p = HMMParameters(np.log([0.5, 0.5]), stay, None, log_emission)
    for dtype, want in ((np.float32, [True, False]), (np.float64, [True, True])):
        sequences = sequences_of([[0, 0, 1], [0, 0, 1, 1]])
        tables = hmm_counts._Tables(p, sequences, np.dtype(dtype))
        safe = hmm_counts._scaled(tables, sequences.hidden, hmm_counts.Counts.zeros(2, 2, 2))
        assert_array_equal(safe[np.argsort(sequences.hidden.which)], want)


def test_an_end_that_underflows():
    log_end = np.array([-100.0, 0.0])  # state 1 may end, but cannot be reached
    p = HMMParameters(np.array([0.0, -np.inf]), np.array([[0.0, -np.inf], [0.0, 0.0]]), log_end, np.zeros((2, 1)))
    for dtype in (np.float32, np.float64):
        found = expected_counts(p, sequences_of([[0, 0], [0]]), dtype=dtype)
        assert_allclose(found.log_evidence, [-100, -100], rtol=1e-6)
        assert_allclose(found.transition, [[1, 0], [0, 0]])


def test_fully_labelled_sequences_are_counted():
    lists, labels = [[0, 1, 1], [2, 0], [1]], [[0, 1, 0], [1, 1], [0]]
    sequences = sequences_of(lists, labels=np.concatenate(labels).astype(np.int32), weights=np.array([1, 2, 1.0]))
    p = random_parameters(2, 3, seed=1, mean_length=4)
    counts = expected_counts(p, sequences)
    assert_array_equal(counts.start, [2, 2])
    assert_array_equal(counts.end, [2, 2])
    assert_array_equal(counts.transition, [[0, 1], [1, 2]])
    assert_array_equal(counts.emission, [[1, 2, 0], [2, 1, 2]])
    scores = [
        joint(p.log_start, p.log_transition, p.log_end, p.log_emission, x, y)
        for x, y in zip(lists, labels, strict=True)
    ]
    assert_allclose(counts.log_evidence, scores, rtol=1e-12)
    learned, report = em(p, sequences, max_iter=3, tol=1e-9)
    assert report.converged
    assert_allclose(np.exp(learned.log_transition), [[0, 1 / 3], [1 / 5, 2 / 5]], atol=1e-12)
    assert_allclose(np.exp(learned.log_end), [2 / 3, 2 / 5], atol=1e-12)


@pytest.mark.parametrize("labels", [None, [-1, 0, -1, 1, 1, 0]])
def test_unknown_symbols_bring_their_own_scores(labels):
    p = random_parameters(2, 2, seed=3)
    extra = np.log(np.array([[0.2, 0.9], [0.5, 0.1]]))
    wider = HMMParameters(p.log_start, p.log_transition, None, np.column_stack([p.log_emission, extra.T]))
    known = {"labels": None if labels is None else np.array(labels, np.int32)}
    found = expected_counts(p, sequences_of([[0, -1, 1], [1, 0, -1]], **known, extra_log_emission=extra))
    want = expected_counts(wider, sequences_of([[0, 2, 1], [1, 0, 3]], **known))
    assert_allclose(found.log_evidence, want.log_evidence, rtol=1e-12)
    assert_allclose(found.emission, want.emission[:, :2], rtol=1e-12)
    assert_allclose(found.transition, want.transition, rtol=1e-12)
    sequences = sequences_of([[0, -1, 1], [1, 0, -1]], **known, extra_log_emission=extra)
    assert_allclose(in_log_space(p, sequences).emission, found.emission, rtol=1e-9)


def test_impossible_sequences_are_named():
    p = HMMParameters(np.zeros(1), np.zeros((1, 1)), None, np.log([[1.0, 1e-300]]) * [[1, np.inf]])
    with pytest.raises(ImpossibleError, match=r"sequence 1 has probability zero \(and 1 more\)"):
        expected_counts(p, sequences_of([[0], [0, 1], [1]]))
    with pytest.raises(ImpossibleError, match="sequence 1"):
        posterior_states(p, sequences_of([[0], [0, 1], [1]]), 1)
    labelled = sequences_of([[0], [1]], labels=np.zeros(2, np.int32))
    with pytest.raises(ImpossibleError, match="sequence 1"):
        expected_counts(p, labelled)


def test_posterior_states_of_one_sequence():
    sequences, p = random_sequences(3, 50, 6, seed=8), random_parameters(3, 6, seed=8, concentration=0.3)
    sequences = Sequences(sequences.offsets, sequences.symbols, None, np.array([1, 2.5, 1]))
    seen = []
    hmm_counts._in_log_space(p, sequences, 1, np.zeros((3, 3)), lambda t, m: seen.append(m / 2.5))
    for dtype in (np.float32, np.float64):
        states, probability, log_evidence = posterior_states(p, sequences, 1, dtype=dtype)
        assert_array_equal(states, seen[0].argmax(axis=1))
        assert_allclose(probability, seen[0].max(axis=1), rtol=1e-5)
        assert_allclose(log_evidence, expected_counts(p, sequences).log_evidence[1], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(
    seed=st.integers(0, 1000),
    end=st.booleans(),
    pseudo=st.sampled_from([0.0, 0.1, 2.0]),
    known=st.sampled_from([0.0, 0.3, 1.0]),
    method=st.sampled_from(["em", "vb"]),
)
def test_the_objective_never_falls(dtype, seed, end, pseudo, known, method):
    rng = np.random.default_rng(seed)
    sequences = random_sequences(12, 8, 5, seed=seed)
    labels = np.where(rng.random(len(sequences.symbols)) < known, rng.integers(0, 3, len(sequences.symbols)), -1)
    sequences = Sequences(sequences.offsets, sequences.symbols, labels.astype(np.int32), rng.uniform(0.5, 2, 12))
    prior = pseudo or 0.5 if method == "vb" else pseudo
    start = random_parameters(3, 5, seed=seed, concentration=0.5, mean_length=4 if end else None)
    learned, report = em(
        start, sequences, priors=Priors(prior, prior, prior, prior), method=method, max_iter=15, tol=0, dtype=dtype
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
    _, report = em(q, sequences_of(lists), priors=Priors(**a), method="vb", max_iter=1, tol=0)

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
    assert report.posterior is not None
    mass = report.posterior.emission.sum() - 4 * a["emission"]
    assert_allclose(mass, 5)


def test_variational_bayes_prunes_what_a_sparse_prior_does_not_need():
    sequences = drawn_from_a_model(60, 15, n_states=2, seed=4)
    start = random_parameters(6, 8, seed=4)
    learned, report = em(
        start, sequences, priors=Priors(0.01, 0.01, 0.01, 0.1), method="vb", max_iter=400, tol=1e-7, dtype=np.float64
    )
    assert report.converged
    assert report.posterior is not None
    used = report.posterior.emission.sum(axis=1) > 5
    assert used.sum() < 6
    plain = report.posterior.expected_log()
    assert np.exp(plain.log_emission).sum(axis=1).max() < 1
    assert_allclose(np.exp(learned.log_emission).sum(axis=1), 1)


def test_a_decrease_is_an_error(monkeypatch):
    """A wrong M-step is found out."""
    sequences, start = random_sequences(9, 6, 4, seed=1), random_parameters(2, 4, seed=1)
    monkeypatch.setattr(em_module, "maximise", lambda counts, priors, old: random_parameters(2, 4, seed=77))
    better, _ = em_module.em(start, sequences, max_iter=1, tol=0)
    monkeypatch.undo()
    better, _ = em(start, sequences, max_iter=20, tol=0)
    monkeypatch.setattr(em_module, "maximise", lambda counts, priors, old: start)
    with pytest.raises(LikelihoodDecrease, match=r"fell from -.* to -.* in iteration 2"):
        em(better, sequences, max_iter=3, tol=0)


def test_stopping():
    sequences, start = random_sequences(9, 6, 4, seed=1), random_parameters(2, 4, seed=1)
    with pytest.warns(ConvergenceWarning, match="EM stopped after 2 iterations before reaching tol=1e-09"):
        _, report = em(start, sequences, max_iter=2, tol=1e-9)
    assert (report.converged, report.reason, report.n_iter) == (False, "2 iterations", 2)
    seen = []
    _, report = em(start, sequences, tol=0, callback=lambda step: seen.append(step.value) or len(seen) == 3)
    assert report.reason == "stopped by the caller"
    assert [step.iteration for step in report.history] == [1, 2, 3]
    assert seen == [step.value for step in report.history]


@pytest.mark.parametrize("method", ["em", "vb"])
def test_restarts_follow_the_best(method):
    sequences = drawn_from_a_model(40, 10, seed=2)
    priors = Priors(0.1, 0.1, 0.1, 0.1)
    options = {"priors": priors, "method": method, "tol": 0}
    p, report = restarts(4, 3, 8, sequences, seed=5, probe=3, max_iter=10, mean_length=11, **options)
    assert len(report.probes) == 4
    assert [s.iteration for s in report.history] == list(range(1, 11))
    values = [s.value for s in report.history]
    assert values[2] == max(report.probes)
    assert all(after >= before - 1e-8 for before, after in pairwise(values))
    again, same = restarts(4, 3, 8, sequences, seed=5, probe=3, max_iter=10, mean_length=11, **options)
    assert_array_equal(again.log_emission, p.log_emission)
    assert same.probes == report.probes
    own = random_parameters(3, 8, seed=np.random.SeedSequence(5).spawn(4)[np.argmax(report.probes)], mean_length=11)
    _, alone = em(own, sequences, max_iter=10, **options)
    assert_allclose(values, [s.value for s in alone.history], rtol=1e-12)  # probing lost nothing
    short, _ = restarts(2, 3, 8, sequences, probe=9, max_iter=2, **options)
    assert short.n_states == 3


def test_stepwise_learns_in_few_passes():
    sequences = drawn_from_a_model(400, 10, seed=3)
    lists = np.split(sequences.symbols, sequences.offsets[1:-1])
    batches = [sequences_of(lists[k : k + 20]) for k in range(0, 400, 20)]
    start = random_parameters(3, 8, seed=9)
    begin = expected_counts(start, sequences).total
    p, report = stepwise(start, batches, 400, priors=Priors(0.1, 0.1, 0.1, 0.1), n_passes=2)
    end = expected_counts(p, sequences).total
    two, _ = em(start, sequences, priors=Priors(0.1, 0.1, 0.1, 0.1), max_iter=2, tol=0)
    assert end > expected_counts(two, sequences).total > begin
    assert report.n_iter == 40
    assert_allclose(np.exp(p.log_emission).sum(axis=1), 1)
    plain, _ = stepwise(start, batches, 400)  # without priors, though some batches lack a symbol
    assert expected_counts(plain, sequences).total > begin
    _, stopped = stepwise(start, batches, 400, callback=lambda step: step.iteration == 3)
    assert (stopped.n_iter, stopped.reason) == (3, "stopped by the caller")


def test_stepwise_running_mean():
    """Two batches by hand: s_0 foretold by the start, then s = (1 - eta_k) s + eta_k N/n c_k, eta_k = (k + 2)^-0.7."""
    batches = [random_sequences(4, 6, 3, seed=1), random_sequences(6, 6, 3, seed=2)]
    p = start = random_parameters(2, 3, seed=0, mean_length=4)
    for k, batch in enumerate(batches):
        c, larger = expected_counts(p, batch), 10 / batch.n_sequences
        nexts = np.column_stack([c.transition, c.end])
        if k == 0:
            emission = larger * c.emission.sum(axis=1, keepdims=True) * np.exp(p.log_emission)
            outcomes = np.exp(np.column_stack([p.log_transition, p.log_end]))
            after = larger * nexts.sum(axis=1, keepdims=True) * outcomes
            begin = 10 * np.exp(p.log_start)
        eta = (k + 2) ** -0.7
        emission = (1 - eta) * emission + eta * larger * c.emission
        after = (1 - eta) * after + eta * larger * nexts
        begin = (1 - eta) * begin + eta * larger * c.start
        rows = np.log(after / after.sum(axis=1, keepdims=True))
        log_emission = np.log(emission / emission.sum(axis=1, keepdims=True))
        p = HMMParameters(np.log(begin / begin.sum()), rows[:, :2], rows[:, 2], log_emission)
    found, _ = stepwise(start, batches, 10)
    for name in ("log_start", "log_transition", "log_end", "log_emission"):
        assert_allclose(getattr(found, name), getattr(p, name), rtol=1e-9, err_msg=name)


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


def test_what_does_not_fit_is_refused():
    p, sequences = random_parameters(2, 3), sequences_of([[0, 1], [2]])
    wrong = [
        (ShapeError, "log_transition", lambda: HMMParameters(np.zeros(2), np.zeros((2, 3)), None, np.zeros((2, 3)))),
        (ValueRangeError, "log_end", lambda: HMMParameters(np.zeros(1), np.zeros((1, 1)), [np.nan], np.zeros((1, 3)))),
        (
            ShapeError,
            "a state and a symbol",
            lambda: HMMParameters(np.zeros(1), np.zeros((1, 1)), None, np.zeros((1, 0))),
        ),
        (ShapeError, "offsets", lambda: Sequences(np.array([0, 2]), np.zeros(3, np.int32))),
        (ValueRangeError, "sequence 1 is empty", lambda: sequences_of([[0], [], [1]])),
        (ShapeError, "labels", lambda: sequences_of([[0, 1]], labels=np.zeros(3, np.int32))),
        (ValueRangeError, "weights", lambda: sequences_of([[0, 1]], weights=np.zeros(1))),
        (ShapeError, "1 unknown", lambda: sequences_of([[0, -1]])),
        (ValueRangeError, "symbols must lie", lambda: expected_counts(p, sequences_of([[3]]))),
        (ValueRangeError, "labels must lie", lambda: expected_counts(p, sequences_of([[0]], labels=np.array([2])))),
        (ValueRangeError, "dtype", lambda: expected_counts(p, sequences, dtype=np.int64)),
        (ValueRangeError, "method", lambda: em(p, sequences, method="gibbs")),
        (ValueRangeError, "max_iter", lambda: em(p, sequences, max_iter=0)),
        (ValueRangeError, "tol", lambda: em(p, sequences, tol=-1)),
        (ValueRangeError, "priors.emission", lambda: em(p, sequences, priors=Priors(emission=-1))),
        (ShapeError, "priors.emission", lambda: em(p, sequences, priors=Priors(emission=np.ones((3, 2))))),
        (ValueRangeError, "positive for variational", lambda: em(p, sequences, method="vb")),
        (
            ValueRangeError,
            "sum to 1",
            lambda: em(HMMParameters(p.log_start - 1, *list(vars(p).values())[1:]), sequences),
        ),
        (ValueRangeError, "posterior", lambda: em(Posterior(*[np.ones(2)] * 2, None, np.ones((2, 3))), sequences)),
        (ValueRangeError, "power", lambda: stepwise(p, [sequences], 2, power=0.5)),
        (ValueRangeError, "no batches in pass 2", lambda: stepwise(p, iter([sequences]), 2, n_passes=2)),
        (ValueRangeError, "n_restarts", lambda: restarts(0, 2, 3, sequences)),
        (ValueRangeError, "concentration", lambda: random_parameters(2, 3, concentration=0)),
        (ValueRangeError, "mean_length", lambda: random_parameters(2, 3, mean_length=1)),
    ]
    for error, message, call in wrong:
        with pytest.raises(error, match=message):
            call()
