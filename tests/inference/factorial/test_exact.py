"""The product chain against enumeration and the reference: log Z, marginals, counts, best labelings; errors."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose

from tests.inference.factorial.cases import Case, cases, random_case
from trelliswork.compute.threads import num_threads
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference import factorial
from trelliswork.inference.factorial import product, reference


def agree(case: Case, **tolerances) -> None:
    found = factorial.infer(case.potentials(), "exact", counts=True)
    want = case.enumerated()
    assert found.kind == "exact"
    assert found.converged
    assert_allclose(found.value, [w.log_z for w in want], **tolerances)
    for d in range(len(case.log_unary)):
        for b, n in enumerate(case.lengths):
            assert_allclose(found.marginals[d][b, :n], want[b].marginals()[d], atol=1e-9)
            assert not found.marginals[d][b, n:].any()
        assert_allclose(found.counts[d], sum(w.counts()[d] for w in want), atol=1e-8)
    for pair in case.log_between:
        assert_allclose(found.between[pair], sum(w.between(*pair) for w in want), atol=1e-8)


@given(cases(impossible=True, ties_impossible=True))
def test_the_reference_matches_enumeration(case):
    for (b, n), want in zip(enumerate(case.lengths), case.enumerated(), strict=True):
        log_z, marginals, counts, between = reference.expectations(
            [u[b, :n] for u in case.log_unary], case.log_pairwise, case.log_between
        )
        assert_allclose(log_z, want.log_z, rtol=1e-12, atol=1e-12)
        for found, expected in zip(marginals + counts, want.marginals() + want.counts(), strict=True):
            assert_allclose(found, expected, atol=1e-12)
        for pair, found in between.items():
            assert_allclose(found, want.between(*pair), atol=1e-12)


def test_exact_matches_the_reference():
    """More labels than enumeration can handle."""
    case = random_case(np.random.default_rng(6), [5, 3, 4], T=6)
    found = factorial.infer(case.potentials(), "exact", counts=True)
    want = [
        reference.expectations([u[b, :n] for u in case.log_unary], case.log_pairwise, case.log_between)
        for b, n in enumerate(case.lengths)
    ]
    for b, n in enumerate(case.lengths):
        assert_allclose(found.value[b], want[b][0], rtol=1e-12)
        for d in range(3):
            assert_allclose(found.marginals[d][b, :n], want[b][1][d], atol=1e-12)
    for d in range(3):
        assert_allclose(found.counts[d], sum(w[2][d] for w in want), atol=1e-11)
    for pair in case.log_between:
        assert_allclose(found.between[pair], sum(w[3][pair] for w in want), atol=1e-11)


@given(cases(impossible=True, ties_impossible=True))
def test_exact_matches_enumeration(case):
    agree(case, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scale", [200.0, 1e4])
def test_scores_that_underflow_are_computed_in_log_space(scale):
    rng = np.random.default_rng(5)
    for n_labels in ([3, 2], [2, 2, 2]):
        agree(random_case(rng, n_labels, scale=scale, tie_scale=scale), rtol=1e-9)


def test_an_underflow_that_the_forward_pass_does_not_detect():
    """Label 0 is best at the first position alone, but label 1 is best with the transitions."""
    unary = [np.zeros((1, 3, 2)), np.zeros((1, 3, 2))]
    unary[0][0, 0, 1] = -800.0
    pairwise = [np.array([[-900.0, -900.0], [0.0, 0.0]]), np.zeros((2, 2))]
    agree(Case(unary, pairwise, {(0, 1): np.zeros((2, 2))}, np.array([3])), rtol=1e-12)


def test_an_impossible_sequence_has_no_mass():
    case = random_case(np.random.default_rng(1), [2, 2])
    case.log_unary[1][1] = -np.inf
    found = factorial.infer(case.potentials(), "exact", counts=True)
    assert found.value[1] == -np.inf
    assert np.isfinite(np.delete(found.value, 1)).all()
    assert not found.marginals[0][1].any()
    assert np.isfinite(found.counts[0]).all()
    with pytest.raises(ImpossibleError, match="sequence 1"):
        factorial.decode(case.potentials(), "exact")


@given(cases(impossible=True, ties_impossible=True))
def test_decode_finds_the_best_labeling(case):
    p = case.potentials()
    labels, scores = factorial.decode(p, "exact")
    assert_allclose(scores, [w.best()[0] for w in case.enumerated()], rtol=1e-10, atol=1e-10)
    assert_allclose(factorial.score(p, labels), scores, rtol=1e-10, atol=1e-10)
    for row in labels:
        assert ((row == -1) == (np.arange(row.shape[1]) >= case.lengths[:, None])).all()


@given(cases(impossible=True, ties_impossible=True))
def test_the_k_best_labelings_match_enumeration(case):
    p, k = case.potentials(), 5
    labels, log_p = factorial.topk(p, k)
    for b, (n, want) in enumerate(zip(case.lengths, case.enumerated(), strict=True)):
        best = np.sort(want.chain.scores[want.chain.scores > -np.inf])[::-1][:k] - want.log_z
        possible = log_p[b] > -np.inf
        assert_allclose(log_p[b, possible], best, rtol=1e-9, atol=1e-9)
        for r in np.flatnonzero(possible):
            own = [np.where(np.arange(rows.shape[2]) < n, rows[b, r], 0)[None] for rows in labels]
            alone = case._replace(log_unary=[u[b : b + 1] for u in case.log_unary], lengths=case.lengths[b : b + 1])
            assert_allclose(factorial.score(alone.potentials(), own)[0] - want.log_z, log_p[b, r], atol=1e-9)


def test_real_label_sets_of_any_width_agree_between_engines_without_ties():
    """45 x 23 labels: full and partial vectors."""
    case = random_case(np.random.default_rng(0), [45, 23], B=6, T=7, tie_scale=0.0)
    exact, bp = (factorial.infer(case.potentials(), name, counts=True) for name in ("exact", "bp"))
    assert_allclose(exact.value, bp.value, rtol=1e-12)
    for d in range(2):
        assert_allclose(exact.marginals[d], bp.marginals[d], atol=1e-12)
        assert_allclose(exact.counts[d], bp.counts[d], atol=1e-11)
    assert_allclose(exact.between[0, 1], bp.between[0, 1], atol=1e-11)


def test_results_do_not_depend_on_the_number_of_threads():
    case = random_case(np.random.default_rng(2), [5, 4], B=200, T=6)
    for name in factorial.ENGINES:
        with num_threads(1):
            one = factorial.infer(case.potentials(), name, counts=True)
        with num_threads(2):
            two = factorial.infer(case.potentials(), name, counts=True)
        assert (one.value == two.value).all()
        assert (one.between[0, 1] == two.between[0, 1]).all()
        assert all((a == b).all() for a, b in zip(one.marginals, two.marginals, strict=True))


def test_too_many_combinations_are_rejected():
    case = random_case(np.random.default_rng(0), [150, 140], B=1, T=1)
    with pytest.raises(ValueRangeError, match=r"150 x 140 labels have 21,000 combinations, .* at most 20,000: use eng"):
        factorial.infer(case.potentials(), "exact")
    assert factorial.infer(case.potentials(), "bp").converged


def test_too_many_combinations_for_log_space_are_rejected(monkeypatch):
    monkeypatch.setattr(product, "MAX_DENSE", 3)
    case = random_case(np.random.default_rng(5), [2, 2], scale=1e4)
    with pytest.raises(ValueRangeError, match="support at most 3 combinations of labels, got 4"):
        factorial.infer(case.potentials(), "exact")


def test_invalid_input_is_rejected():
    case = random_case(np.random.default_rng(0), [2, 3])
    u, w, v, n = case
    with pytest.raises(ShapeError, match="one array for each layer, got 2 and 1"):
        factorial.factorial_potentials(u, w[:1], v, n)
    with pytest.raises(ShapeError, match=r"log_pairwise\[1\] must have shape \(S, S\), got \(2, 2\)"):
        factorial.factorial_potentials(u, [w[0], w[0]], v, n)
    with pytest.raises(ShapeError, match=r"log_between\[0, 1\] must have shape"):
        factorial.factorial_potentials(u, w, {(0, 1): v[0, 1].T}, n)
    with pytest.raises(ValueRangeError, match="ties layers d < e"):
        factorial.factorial_potentials(u, w, {(1, 0): v[0, 1].T}, n)
    with pytest.raises(ValueRangeError, match=r"log_unary\[0\] must hold finite scores"):
        factorial.factorial_potentials([np.full_like(u[0], np.nan), u[1]], w, v, n)
    with pytest.raises(ValueRangeError, match="engine must be one of 'exact'"):
        factorial.infer(case.potentials(), "magic")
    for option in ({"tolerance": -1.0}, {"max_iter": 0}, {"damping": 1.0}):
        with pytest.raises(ValueRangeError, match=next(iter(option))):
            factorial.infer(case.potentials(), "bp", **option)
    with pytest.raises(ValueRangeError, match=r"labels\[1\] must be between 0 and S-1=2"):
        factorial.score(case.potentials(), [np.zeros((4, 3), int), np.full((4, 3), 3)])
