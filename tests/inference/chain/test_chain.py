"""Linear chains: the reference against enumeration, the kernels against both."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.inference.chain.cases import Chain, chains
from tests.oracle.chain import enumerate_batch
from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain import reference

TIGHT = {np.float64: {"rtol": 1e-10, "atol": 1e-10}, np.float32: {"rtol": 3e-4, "atol": 3e-4}}


def scale_of(case: Chain) -> float:
    """Return the size of the scores, the unit of absolute errors."""
    finite = [np.abs(x[np.isfinite(x)]).max(initial=1) for x in (case.log_unary, case.log_pairwise)]
    return float(max(finite))


@given(chains())
def test_reference_matches_enumeration(case):
    B, T, S = case.log_unary.shape
    pairwise = np.broadcast_to(case.log_pairwise, (B, T - 1, S, S)) if T > 1 else np.zeros((B, 0, S, S))
    for b, want in enumerate(enumerate_batch(*case)):
        n = case.lengths[b]
        log_z, marginals, edges = reference.expectations(case.log_unary[b, :n], pairwise[b, : n - 1])
        assert_allclose(log_z, want.log_z, rtol=1e-12, atol=1e-12)
        assert_allclose(marginals, want.marginals(S), atol=1e-9)
        assert_allclose(edges, want.edges(S), atol=1e-9)
        best, _ = reference.forward(case.log_unary[b, :n], pairwise[b, : n - 1], add=np.max)
        assert_allclose(best, want.scores.max(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(data=st.data())
def test_kernels_match_enumeration(dtype, data):
    case = data.draw(chains(dtype))
    S = case.log_unary.shape[2]
    tolerance = {k: v * (scale_of(case) if dtype == np.float32 else 1) for k, v in TIGHT[dtype].items()}
    potentials = chain.chain_potentials(*case)
    log_z, result = chain.expectations(potentials, edges=True, counts=True)
    for b, want in enumerate(enumerate_batch(*case)):
        n = case.lengths[b]
        assert_allclose(log_z[b], want.log_z, **TIGHT[dtype] | {"atol": TIGHT[dtype]["atol"] * scale_of(case)})
        assert_allclose(result.marginals[b, :n], want.marginals(S), **tolerance)
        assert_allclose(result.edges[b, : n - 1], want.edges(S), **tolerance)
        assert_allclose(result.counts[b], want.edges(S).sum(axis=0), **tolerance)
        assert not result.marginals[b, n:].any()
        assert not result.edges[b, max(n - 1, 0) :].any()


@given(chains())
def test_split_passes_match_the_fused_pass_and_weights_multiply(case):
    potentials = chain.chain_potentials(*case)
    log_z, fused = chain.expectations(potentials, counts=True)
    passed = chain.forward(potentials)
    assert_array_equal(passed.log_z, log_z)
    weights = np.linspace(-1, 2, len(log_z))
    split = chain.backward(passed, weights=weights, counts=True, total=True)
    assert_allclose(split.marginals, weights[:, None, None] * fused.marginals, rtol=1e-12, atol=1e-14)
    assert_allclose(split.counts, np.einsum("b,bij->ij", weights, fused.counts), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(data=st.data())
def test_one_sentence_is_what_it_is_in_a_batch(dtype, data):
    """A single short sentence takes a path of its own, with the same result to the last bit."""
    case = data.draw(chains(dtype, possible=True))
    if case.log_pairwise.ndim != 2:
        case = case._replace(
            log_pairwise=case.log_pairwise[0, 0] if case.log_pairwise.size else np.zeros((1, 1), dtype)
        )
        case = case._replace(log_pairwise=np.resize(case.log_pairwise, (case.log_unary.shape[2],) * 2))
    twice = [np.concatenate([x, x]) for x in (case.log_unary, case.lengths)]
    together = chain.chain_potentials(twice[0], case.log_pairwise, twice[1])
    log_z, want = chain.expectations(together, counts=True)
    for b in range(len(case.lengths)):
        alone = chain.chain_potentials(case.log_unary[[b]], case.log_pairwise, case.lengths[[b]])
        assert alone.length_if_short == case.lengths[b]
        own_log_z, got = chain.expectations(alone, counts=True)
        assert_array_equal(own_log_z[0], log_z[b])
        assert_array_equal(got.marginals[0], want.marginals[b])
        assert_array_equal(got.counts[0], want.counts[b])
        if log_z[b] > -np.inf:
            assert_array_equal(chain.viterbi(alone)[0][0, : case.lengths[b]], best_of(case, b))


def best_of(case: Chain, b: int) -> np.ndarray:
    """Return the best labels of a sentence, computed in a batch with itself."""
    pair = np.concatenate([case.log_unary[[b]]] * 2), case.log_pairwise, case.lengths[[b, b]]
    return chain.viterbi(chain.chain_potentials(*pair))[0][1, : case.lengths[b]]


@given(chains(possible=True))
def test_viterbi_and_topk_match_enumeration(case):
    potentials = chain.chain_potentials(*case)
    labels, scores = chain.viterbi(potentials)
    many, many_scores = chain.topk(potentials, 7)
    for b, want in enumerate(enumerate_batch(*case)):
        n = case.lengths[b]
        order = np.sort(want.scores)[::-1][:7]
        assert_allclose(scores[b], order[0], rtol=1e-12, atol=1e-9)
        assert_allclose(chain.score(potentials, labels)[b], order[0], rtol=1e-12, atol=1e-9)
        assert (labels[b, n:] == -1).all()
        possible = int(np.isfinite(order).sum())
        assert_allclose(many_scores[b, :possible], order[:possible], rtol=1e-12, atol=1e-9)
        assert np.isneginf(many_scores[b, possible:]).all()
        assert (many[b, possible:] == -1).all()
        distinct = {tuple(y[:n]) for y in many[b, :possible]}
        assert len(distinct) == possible
        for y, score in zip(many[b, :possible], many_scores[b, :possible], strict=True):
            index = int(np.flatnonzero((want.labelings == y[:n]).all(axis=1))[0])
            assert_allclose(want.scores[index], score, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(9, 70, 5), (1, 70, 5), (5, 13, 16), (3, 15, 37), (2, 20, 64)])
def test_of_equally_good_labelings_the_last_labels_are_smallest(dtype, shape):
    """Whole numbers have many ties. Transitions by position have a kernel of their own."""
    rng = np.random.default_rng(6)
    B, T, S = shape
    unary, pairwise = (rng.integers(-2, 1, s).astype(dtype) for s in (shape, (S, S)))
    pairwise[rng.random((S, S)) < 0.2] = unary[rng.random(shape) < 0.2] = -np.inf
    unary[:, :, 0] = pairwise[0, 0] = -2  # nothing is impossible
    lengths = rng.integers(1, T + 1, B)
    labels, scores = chain.viterbi(chain.chain_potentials(unary, pairwise, lengths))
    steps = np.broadcast_to(pairwise, (1, T - 1, S, S))
    by_position = chain.chain_potentials(unary, steps, lengths)
    want, want_scores = chain.viterbi(by_position)
    assert_array_equal(labels, want)
    assert_array_equal(scores, want_scores)
    assert_array_equal(scores, chain.topk(by_position, 1)[1][:, 0])


@given(chains(possible=True))
def test_k_best_lists_are_prefixes_of_each_other(case):
    potentials = chain.chain_potentials(*case)
    few, few_scores = chain.topk(potentials, 3)
    many, many_scores = chain.topk(potentials, 8)
    assert_array_equal(few_scores, many_scores[:, :3])
    assert_array_equal(few, many[:, :3])


@pytest.mark.parametrize("n_labels", [1, 2, 5, 16, 17, 33])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_number_of_paths_is_s_to_the_t(n_labels, dtype):
    T = np.arange(1, 11)
    potentials = chain.chain_potentials(np.zeros((10, 10, n_labels), dtype), np.zeros((n_labels, n_labels), dtype), T)
    assert_allclose(chain.log_partition(potentials), T * np.log(n_labels), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(9, 70, 5), (5, 130, 16), (3, 65, 37), (2, 200, 64)])
def test_longer_and_wider_chains_match_the_reference(dtype, shape):
    """Blocks of positions, strips of labels and groups of sequences all have a remainder."""
    rng = np.random.default_rng(5)
    B, T, S = shape
    unary, pairwise = rng.normal(size=shape).astype(dtype), rng.normal(size=(S, S)).astype(dtype)
    lengths = rng.integers(1, T + 1, B)
    lengths[0] = T
    log_z, result = chain.expectations(chain.chain_potentials(unary, pairwise, lengths), counts=True)
    tolerance = 1e-10 if dtype == np.float64 else 1e-4
    for b, n in enumerate(lengths):
        want = reference.expectations(
            unary[b, :n].astype(float), np.broadcast_to(pairwise.astype(float), (n - 1, S, S))
        )
        assert_allclose(log_z[b], want[0], rtol=tolerance)
        assert_allclose(result.marginals[b, :n], want[1], atol=tolerance)
        assert_allclose(result.counts[b], want[2].sum(axis=0), atol=10 * tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_long_chains_match_the_reference(dtype):
    rng = np.random.default_rng(1)
    unary, pairwise = rng.normal(size=(1, 100_000, 10)).astype(dtype), rng.normal(size=(10, 10)).astype(dtype)
    log_z, result = chain.expectations(chain.chain_potentials(unary, pairwise), counts=True)
    steps = np.broadcast_to(pairwise.astype(float), (99_999, 10, 10))
    want, _ = reference.forward(unary[0].astype(float), steps, add=np.logaddexp.reduce)
    assert_allclose(log_z[0], want, rtol=1e-12 if dtype == np.float64 else 1e-7)
    assert_allclose(result.marginals.sum(axis=2), 1, rtol=1e-5)
    assert_allclose(result.counts.sum(), 99_999, rtol=1e-5)
    labels, _ = chain.viterbi(chain.chain_potentials(unary, pairwise))
    assert labels.min() >= 0


@pytest.mark.parametrize("layout", ["shared", "by position"])
@pytest.mark.parametrize("crossing", [-np.inf, -3000.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(-50.0, -np.inf, id="forbidden at the end"),
        pytest.param(-50.0, -3000.0, id="unlikely at the end"),
        pytest.param(-3.0, -3.5, id="slowly, there and back"),
    ],
)
def test_underflow_at_the_start_that_matters_at_the_end(before, after, dtype, crossing, layout):
    """Label 1 is very unlikely in the first half and likely in the second; transitions from 0 to 1 are rare.

    In probability space its mass underflows without a trace in the scales: only log space represents it.
    """
    half = 1000
    unary = np.zeros((1, 2 * half, 2), dtype)
    unary[0, :half, 1] = before
    unary[0, half:, 0] = after
    pairwise = np.array([[0, crossing], [crossing, 0]], dtype)
    if layout == "by position":
        pairwise = np.broadcast_to(pairwise, (1, 2 * half - 1, 2, 2))
    potentials = chain.chain_potentials(unary, pairwise)
    want, marginals, edges = reference.expectations(
        unary[0].astype(float), np.broadcast_to(pairwise.astype(float).reshape(-1, 2, 2), (2 * half - 1, 2, 2))
    )
    log_z, result = chain.expectations(potentials, counts=True)
    for value in (log_z[0], chain.log_partition(potentials)[0]):
        assert_allclose(value, want, rtol=1e-6)
    assert_allclose(result.marginals[0], marginals, atol=1e-6)
    assert_allclose(result.counts[0], edges.sum(axis=0), atol=1e-2)
    total = chain.backward(chain.forward(potentials), counts=True, total=True).counts
    assert_allclose(total, edges.sum(axis=0), atol=1e-2)


@pytest.fixture
def flush_denormals():
    """Let the processor turn subnormal numbers into zero, as some programs do."""
    import torch

    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    with threads.num_threads(1):  # the setting is per thread
        yield
    torch.set_flush_denormal(False)


def behind_and_back(low: float) -> tuple[np.ndarray, np.ndarray]:
    """Return scores by which label 1 falls to exp(low) of the mass of label 0 and recovers by the end."""
    unary = np.zeros((1, 20, 2))
    unary[0, :10, 1] = unary[0, 10:, 0] = low / 10
    return unary, np.array([[0, -np.inf], [-np.inf, 0]])


def all_products_small(low: float) -> tuple[np.ndarray, np.ndarray]:
    """Return scores with products of about exp(low) at position 2, half of them lost; label 7 raises the maximum."""
    unary = np.zeros((1, 6, 8))
    unary[0, 2] = low / 2 + np.linspace(-3, 3, 8)
    unary[0, 2, 0] = -np.inf
    unary[0, 2, 7] = 0
    pairwise = np.full((8, 8), -np.inf)
    np.fill_diagonal(pairwise, 0)
    pairwise[0, 1:7] = low / 2
    pairwise[7, 7] = -np.inf
    unary[0, 0, 1:] = -np.inf
    return unary, pairwise


@pytest.mark.usefixtures("flush_denormals")
@pytest.mark.parametrize("layout", ["shared", "by position"])
@pytest.mark.parametrize("build", [behind_and_back, all_products_small])
@pytest.mark.parametrize(("dtype", "low"), [(np.float32, -87.5), (np.float64, -708.6)])
def test_flushed_subnormal_numbers_are_recomputed(build, dtype, low, layout):
    unary, pairwise = (x.astype(dtype) for x in build(low))
    steps = unary.shape[1] - 1
    wide = np.broadcast_to(pairwise, (1, steps, *pairwise.shape))
    want = reference.expectations(unary[0].astype(float), wide[0].astype(float))
    potentials = chain.chain_potentials(unary, pairwise if layout == "shared" else wide)
    log_z, result = chain.expectations(potentials, counts=True)
    assert_allclose(log_z[0], want[0], rtol=1e-6)
    assert_allclose(result.marginals[0], want[1], atol=1e-5)
    assert_allclose(chain.log_partition(potentials)[0], want[0], rtol=1e-6)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_results_do_not_depend_on_the_number_of_threads(n_threads):
    rng = np.random.default_rng(2)
    unary, pairwise = rng.normal(size=(41, 60, 24)).astype(np.float32), rng.normal(size=(24, 24)).astype(np.float32)
    lengths = rng.integers(1, 61, 41)

    def compute() -> list[np.ndarray]:
        potentials = chain.chain_potentials(unary, pairwise, lengths)
        log_z, result = chain.expectations(potentials, counts=True)
        total = chain.backward(chain.forward(potentials), counts=True, total=True).counts
        return [log_z, result.marginals, result.counts, total, chain.viterbi(potentials)[0]]

    with threads.num_threads(1):
        want = compute()
    with threads.num_threads(n_threads):
        for ours, theirs in zip(compute(), want, strict=True):
            assert_array_equal(ours, theirs)


@given(chains(possible=True))
def test_padding_is_never_read(case):
    B, T = case.log_unary.shape[:2]
    unary, pairwise = case.log_unary.copy(), case.log_pairwise.copy()
    pad = np.arange(T) >= case.lengths[:, None]
    unary[pad] = np.nan
    if pairwise.shape[:2] == (B, T - 1) and pairwise.ndim == 4:
        pairwise[pad[:, 1:]] = np.nan
    clean, dirty = chain.chain_potentials(*case), chain.chain_potentials(unary, pairwise, case.lengths)
    for (z, result), (z_dirty, result_dirty) in [(chain.expectations(clean), chain.expectations(dirty))]:
        assert_array_equal(z, z_dirty)
        assert_array_equal(result.marginals, result_dirty.marginals)
    assert_array_equal(chain.viterbi(clean)[0], chain.viterbi(dirty)[0])


def test_samples_follow_the_distribution():
    from scipy.stats import chisquare

    rng = np.random.default_rng(3)
    unary, pairwise = rng.normal(size=(1, 4, 3)), rng.normal(size=(3, 3))
    pairwise[0, 1] = -np.inf
    want = enumerate_batch(unary, pairwise, np.array([4]))[0]
    draws = chain.sample(chain.chain_potentials(unary, pairwise), rng.random((20_000, 1, 4)))[:, 0]
    index = (draws * 3 ** np.arange(3, -1, -1)).sum(axis=1)
    observed = np.bincount(index, minlength=81)
    possible = want.probabilities > 0
    assert observed[~possible].sum() == 0
    assert chisquare(observed[possible], 20_000 * want.probabilities[possible]).pvalue > 1e-3


def test_samples_of_a_sequence_that_underflows():
    unary = np.zeros((1, 300, 2), np.float32)
    unary[0, :, 1] = -90
    unary[0, -1, 0] = -np.inf
    stay = np.array([[0, -np.inf], [-np.inf, 0]], np.float32)
    draws = chain.sample(chain.chain_potentials(unary, stay), np.random.default_rng(0).random((5, 1, 300)))
    assert (draws == 1).all()


def test_impossible_sequence():
    unary, pairwise = np.zeros((3, 4, 2)), np.zeros((2, 2))
    unary[1, 2] = -np.inf
    potentials = chain.chain_potentials(unary, pairwise)
    log_z, result = chain.expectations(potentials, edges=True, counts=True)
    assert_allclose(log_z, [4 * np.log(2), -np.inf, 4 * np.log(2)])
    assert not result.marginals[1].any()
    assert not result.counts[1].any()
    assert_allclose(result.marginals[[0, 2]], 0.5)
    for query in (chain.viterbi, lambda p: chain.topk(p, 2), lambda p: chain.sample(p, np.zeros((1, 3, 4)))):
        with pytest.raises(ImpossibleError, match="sequence 1 has probability zero"):
            query(potentials)


@pytest.mark.parametrize(
    ("unary", "pairwise", "lengths", "error", "message"),
    [
        ((2, 3), (3, 3), None, ShapeError, r"log_unary must have shape \(B, T, S\), got \(2, 3\): expected 3 axes"),
        (
            (2, 3, 4),
            (3, 4),
            None,
            ShapeError,
            r"log_pairwise must have shape \(S, S\), got \(3, 4\): axis 0 should be S=4",
        ),
        ((2, 3, 4), (2, 3, 4, 4), None, ShapeError, r"\(B, T-1, S, S\)=\(2, 2, 4, 4\), got \(2, 3, 4, 4\)"),
        ((0, 3, 4), (4, 4), None, ShapeError, "B must be at least 1"),
        ((2, 0, 4), (4, 4), None, ShapeError, "T must be at least 1"),
        ((2, 3, 4), (4, 4), [3, 0], ValueRangeError, "between 1 and T=3, got 0 for sequence 1"),
        ((2, 3, 4), (4, 4), [3, 4], ValueRangeError, "between 1 and T=3, got 4 for sequence 1"),
        ((2, 3, 4), (4, 4), [3.0, 2.0], ValueRangeError, "lengths must be integers, got dtype float64"),
        ((2, 3, 4), (4, 4), [3], ShapeError, r"lengths must have shape \(B,\), got \(1,\): axis 0 should be B=2"),
    ],
)
def test_wrong_shapes_raise(unary, pairwise, lengths, error, message):
    with pytest.raises(error, match=message):
        chain.chain_potentials(np.zeros(unary), np.zeros(pairwise), lengths)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["log_unary", "log_pairwise"])
def test_nan_and_plus_inf_raise(bad, name):
    arrays = {"log_unary": np.zeros((2, 3, 4)), "log_pairwise": np.zeros((4, 4))}
    arrays[name][-1, 1] = bad
    with pytest.raises(ValueRangeError, match=rf"{name} must hold finite scores or -inf .*got (nan|inf) at index"):
        chain.chain_potentials(**arrays)


def test_other_invalid_arguments_raise():
    potentials = chain.chain_potentials(np.zeros((1, 2, 3)), np.zeros((3, 3)))
    with pytest.raises(ValueRangeError, match="k must be a positive whole number, got 0"):
        chain.topk(potentials, 0)
    with pytest.raises(ValueRangeError, match="labels must be between 0 and S-1=2, got 3 at"):
        chain.score(potentials, np.array([[0, 3]]))
    with pytest.raises(ValueRangeError, match="log_unary must be float32 or float64, got dtype float16"):
        chain.chain_potentials(np.zeros((1, 2, 3), np.float16), np.zeros((3, 3)))
    with pytest.raises(ShapeError, match="uniforms must have shape"):
        chain.sample(potentials, np.zeros((2, 2)))


def test_inputs_are_left_unchanged():
    rng = np.random.default_rng(0)
    unary, pairwise = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 4))
    before = unary.copy(), pairwise.copy()
    potentials = chain.chain_potentials(unary, pairwise)
    chain.expectations(potentials, edges=True, counts=True)
    chain.viterbi(potentials)
    assert_array_equal(unary, before[0])
    assert_array_equal(pairwise, before[1])
