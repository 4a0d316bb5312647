"""The E-step against enumeration, and its code paths against each other."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.models.hmm.sequences import random_sequences, sequences_of
from tests.oracle.hmm import enumerate_counts, joint
from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError
from trelliswork.models.hmm import objective
from trelliswork.models.hmm.em import em
from trelliswork.models.hmm.objective import HMMParameters, Sequences, expected_counts
from trelliswork.models.hmm.updates import random_parameters

LAYOUTS = {"rows": {"LANE_STATES": 0}, "lanes": {"LANE_WASTE": np.inf}}  # where the states of a sequence are
PRECISION = {np.float32: 2e-5, np.float64: 1e-10}


def assert_counts(counts, want, **tolerance):
    for name, value in zip(("start", "transition", "end", "emission", "log_evidence"), want, strict=True):
        assert_allclose(getattr(counts, name), value, err_msg=name, **tolerance)


@st.composite
def problems(draw):
    """Parameters with and without zeros and an end event, ragged sequences, known states."""
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
    return p, lists, labels if draw(st.booleans()) else None


@pytest.fixture(params=LAYOUTS)
def layout(request, monkeypatch):
    """Run a test with either kernel, whichever the sequences favor."""
    for name, value in LAYOUTS[request.param].items():
        monkeypatch.setattr(objective, name, value)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(problem=problems())
def test_counts_equal_enumeration(dtype, layout, problem):
    p, lists, labels = problem
    sequences = sequences_of(lists, labels=None if labels is None else np.concatenate(labels))
    want = enumerate_counts(p.log_start, p.log_transition, p.log_end, p.log_emission, lists, labels)
    with patch.multiple(objective, **LAYOUTS[layout]):
        counts = expected_counts(p, sequences, dtype=dtype)
    assert_counts(counts, want, rtol=PRECISION[dtype], atol=PRECISION[dtype])
    assert_allclose(counts.total, want[-1].sum(), rtol=PRECISION[dtype], atol=1e-6)


@pytest.mark.parametrize("n_states", [1, 5, 8, 16, 17, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_sizes_agree_with_log_space(n_states, dtype, layout):
    """Widths that do and do not fill vectors and register blocks; many sequences, ragged, partly labeled."""
    rng = np.random.default_rng(n_states)
    sequences = random_sequences(70, 30, 11, seed=1)
    labels = np.where(rng.random(len(sequences.symbols)) < 0.8, -1, rng.integers(0, n_states, len(sequences.symbols)))
    sequences = Sequences(sequences.offsets, sequences.symbols, labels.astype(np.int32))
    p = random_parameters(n_states, 11, seed=2, mean_length=10)
    counts, want = expected_counts(p, sequences, dtype=dtype), in_log_space(p, sequences)
    names = ("start", "transition", "end", "emission", "log_evidence")
    assert_counts(counts, [getattr(want, n) for n in names], rtol=PRECISION[dtype], atol=10 * PRECISION[dtype])


def in_log_space(p, sequences):
    counts = objective.Counts.zeros(p.n_states, p.n_symbols, sequences.n_sequences)
    for s in range(sequences.n_sequences):
        objective._add_alone(p, sequences, s, counts)
    return counts


def test_chunks_do_not_matter(monkeypatch):
    sequences, p = random_sequences(200, 40, 9, seed=5), random_parameters(6, 9, seed=5)
    want = expected_counts(p, sequences)
    monkeypatch.setattr(objective, "CHUNK_BYTES", 1 << 15)
    counts = expected_counts(p, sequences)
    for name in ("start", "transition", "end", "emission", "log_evidence"):
        assert_allclose(getattr(counts, name), getattr(want, name), rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_matter(dtype, layout):
    sequences, p = random_sequences(300, 60, 50, seed=6), random_parameters(30, 50, seed=6)
    results = []
    for n in (1, 2, 3):
        with threads.num_threads(n):
            results.append(expected_counts(p, sequences, dtype=dtype))
    for other in results[1:]:
        for name in ("start", "transition", "end", "emission", "log_evidence"):
            assert_array_equal(getattr(other, name), getattr(results[0], name), err_msg=name)


@pytest.mark.parametrize("chunk_bytes", [objective.CHUNK_BYTES, 8])
def test_sequences_that_underflow_are_recomputed(monkeypatch, chunk_bytes, layout):
    """Evidence that contradicts what the prefix made all but impossible: float32, float64, then log space must help."""
    monkeypatch.setattr(objective, "CHUNK_BYTES", chunk_bytes)  # 8: each sequence is a chunk
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


def test_an_unsafe_sequence_does_not_change_its_neighbors(layout):
    """It is detected only at its start, when its counts are already among those of its group."""
    p = random_parameters(2, 3, seed=0)
    log_emission = np.array([[-100.0, np.log(0.5), np.log(0.5)], [0.0, -np.inf, -np.inf]])
    log_transition = np.array([[np.log(0.5), np.log(0.5)], [-np.inf, 0.0]])
    p = HMMParameters(p.log_start, log_transition, None, log_emission)
    lists = [[1, 2, 1, 1], [0, 0, 0, 1], [1, 2, 0, 0], [2, 2, 2, 2]]  # the second must have started in state 0
    want = enumerate_counts(p.log_start, log_transition, None, log_emission, lists)
    safe = []
    for dtype in (np.float32, np.float64):
        counts = expected_counts(p, sequences_of(lists), dtype=dtype)
        assert_counts(counts, want, rtol=1e-5, atol=1e-6)
        scratch = objective.Counts.zeros(2, 3, 4)
        safe.append(objective._scaled(p, np.dtype(dtype), *sequences_of(lists).hidden, scratch))
    assert_array_equal(safe[0], [True, False, True, True])
    assert_array_equal(safe[1], [True, True, True, True])


def test_the_limit_of_safety(layout):
    """No way between two states: after "0 0" the second has 1e-40, too little for float32; "1 1" favors it by 1e30."""
    log_emission, stay = np.log(np.array([[1.0, 1e-15], [1e-20, 1.0]])), np.where(np.eye(2), 0.0, -np.inf)
    p = HMMParameters(np.log([0.5, 0.5]), stay, None, log_emission)
    for dtype, want in ((np.float32, [True, False]), (np.float64, [True, True])):
        sequences = sequences_of([[0, 0, 1], [0, 0, 1, 1]])
        safe = objective._scaled(p, np.dtype(dtype), *sequences.hidden, objective.Counts.zeros(2, 2, 2))
        assert_array_equal(safe[np.argsort(sequences.hidden[0])], want)


@pytest.mark.parametrize("labels", [[-1, -1, -1, -1, -1], [-1, 0, 1, -1, 0], [-1, 1, 1, -1, 1]])
def test_scales_that_are_subnormal(layout, labels):
    """The second symbol, that of a state out of reach, leaves 3e-45 and 1e-44 in two others: few bits in float32."""
    with np.errstate(divide="ignore"):
        log_transition = np.log([[1e-22, 1e-21, 0], [0, 1, 0], [0, 0, 1]])
        log_emission = np.log([[1, 3.3e-23], [1, 1.3e-23], [1, 1]])
    p = HMMParameters(np.array([0.0, -np.inf, -np.inf]), log_transition, None, log_emission)
    lists, labels = [[0, 1, 1], [0, 1]], [np.array(labels[:3]), np.array(labels[3:])]
    want = enumerate_counts(p.log_start, log_transition, None, log_emission, lists, labels)
    sequences = sequences_of(lists, labels=np.concatenate(labels).astype(np.int32))
    assert_counts(expected_counts(p, sequences, dtype=np.float32), want, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scales_that_are_large(dtype, layout):
    """Of 8 states that are all alike, the scale of each position is 8: the product of all is beyond any number."""
    S, V, T = 8, 7, 350
    rows = [np.full(shape, -np.log(shape[-1])) for shape in ((S,), (S, S), (S, V))]
    symbols = np.random.default_rng(0).integers(0, V, 3 * T).astype(np.int32)
    counts = expected_counts(
        HMMParameters(rows[0], rows[1], None, rows[2]), Sequences(np.arange(4) * T, symbols), dtype=dtype
    )
    assert_allclose(counts.log_evidence, -T * np.log(V), rtol=PRECISION[dtype])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_does_not_add_up(dtype, layout):
    """The marginals of every position sum to 1, after 1,500 positions too."""
    T, p = 1500, random_parameters(3, 20, seed=1, concentration=0.3)
    symbols = np.random.default_rng(0).integers(0, 20, 40 * T).astype(np.int32)
    counts = expected_counts(p, Sequences(np.arange(41) * T, symbols), dtype=dtype)
    eps = 20 * np.finfo(dtype).eps
    assert_allclose(counts.start.sum(), 40, rtol=eps)
    assert_allclose(counts.emission.sum(), 40 * T, rtol=eps)
    assert_allclose(counts.transition.sum(), 40 * (T - 1), rtol=eps)


def test_an_end_that_underflows(layout):
    log_end = np.array([-100.0, 0.0])  # state 1 may end, but cannot be reached
    p = HMMParameters(np.array([0.0, -np.inf]), np.array([[0.0, -np.inf], [0.0, 0.0]]), log_end, np.zeros((2, 1)))
    for dtype in (np.float32, np.float64):
        counts = expected_counts(p, sequences_of([[0, 0], [0]]), dtype=dtype)
        assert_allclose(counts.log_evidence, [-100, -100], rtol=1e-6)
        assert_allclose(counts.transition, [[1, 0], [0, 0]])


def test_fully_labeled_sequences_are_counted():
    lists, labels = [[0, 1, 1], [2, 0], [1]], [[0, 1, 0], [1, 1], [0]]
    sequences = sequences_of(lists, labels=np.concatenate(labels).astype(np.int32))
    p = random_parameters(2, 3, seed=1, mean_length=4)
    counts = expected_counts(p, sequences)
    assert_array_equal(counts.start, [2, 1])
    assert_array_equal(counts.end, [2, 1])
    assert_array_equal(counts.transition, [[0, 1], [1, 1]])
    assert_array_equal(counts.emission, [[1, 2, 0], [1, 1, 1]])
    scores = [
        joint(p.log_start, p.log_transition, p.log_end, p.log_emission, x, y)
        for x, y in zip(lists, labels, strict=True)
    ]
    assert_allclose(counts.log_evidence, scores, rtol=1e-12)
    learned, report = em(p, sequences, max_iter=3, tol=1e-9)
    assert report.converged
    assert_allclose(np.exp(learned.log_transition), [[0, 1 / 3], [1 / 3, 1 / 3]], atol=1e-12)
    assert_allclose(np.exp(learned.log_end), [2 / 3, 1 / 3], atol=1e-12)


def test_impossible_sequences():
    p = HMMParameters(np.zeros(1), np.zeros((1, 1)), None, np.log([[1.0, 1e-300]]) * [[1, np.inf]])
    with pytest.raises(ImpossibleError, match=r"sequence 1 has probability zero \(and 1 more\)"):
        expected_counts(p, sequences_of([[0], [0, 1], [1]]))
    labeled = sequences_of([[0], [1]], labels=np.zeros(2, np.int32))
    with pytest.raises(ImpossibleError, match="sequence 1"):
        expected_counts(p, labeled)
