"""Structured mean field and belief propagation: bounds, fixed points, exact special cases, gradients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.inference.factorial.cases import Case, cases, random_case
from trelliswork.errors import ValueRangeError
from trelliswork.inference import chain, factorial
from trelliswork.inference.factorial import engines, mean_field, reference

BOTH = ["structured_mean_field", "bp"]


@given(cases(impossible=True))
def test_mean_field_is_a_lower_bound(case):
    found = factorial.infer(case.potentials(), "structured_mean_field")
    assert found.kind == "lower"
    log_z = np.array([w.log_z for w in case.enumerated()])
    assert (found.value <= log_z + 1e-9 * (1 + np.abs(log_z))).all()


@given(cases(sizes=(1.0, 3.0, 30.0)), st.sampled_from([np.float64, np.float32]))
def test_no_sweep_of_mean_field_lowers_the_bound(case, dtype):
    slack = 1e-9 if dtype == np.float64 else 2e-4
    before = np.full(len(case.lengths), -np.inf)
    for n in range(1, 7):
        found = factorial.infer(case.potentials(dtype), "structured_mean_field", max_iter=n, tolerance=0)
        assert (found.value >= before - slack * (1 + np.abs(found.value))).all()
        before = found.value


def bound_of(case: Case, b: int, q: list[np.ndarray], edges: list[np.ndarray]) -> float:
    """Return E_q[score] + H(q) of sequence b by definition; the entropy of a chain is that of its edges."""
    n = case.lengths[b]
    value = 0.0
    for d, marginals in enumerate(q):
        value += (marginals[:n] * case.log_unary[d][b, :n]).sum() + (edges[d] * case.log_pairwise[d]).sum()
        value -= (edges[d] * np.log(edges[d])).sum() - (marginals[1 : n - 1] * np.log(marginals[1 : n - 1])).sum()
        if n == 1:
            value -= (marginals[:1] * np.log(marginals[:1])).sum()
    for (d, e), table in case.log_between.items():
        value += np.einsum("ti,tj,ij->", q[d][:n], q[e][:n], table)
    return value


def test_the_bound_equals_its_definition_even_before_convergence():
    rng = np.random.default_rng(7)
    case = random_case(rng, [3, 2, 2], B=1, T=4)
    case = case._replace(lengths=np.array([4]))
    p = case.potentials()
    for n in (1, 2, 30):
        solution = engines.engine("structured_mean_field")(p, engines.Options(0.0, n))
        edges = []
        for unary, matrix in zip(solution.log_unary, case.log_pairwise, strict=True):
            _, found = chain.expectations(chain.chain_potentials(unary, matrix), edges=True)
            edges.append(found.edges[0])
        q = [m[0] for m in solution.marginals]
        assert_allclose(solution.value[0], bound_of(case, 0, q, edges), rtol=1e-10)


@given(cases(impossible=True, max_layers=1), st.sampled_from(BOTH))
def test_one_layer_equals_its_chain(case, name):
    found = factorial.infer(case.potentials(), name, counts=True)
    log_z, want = chain.expectations(
        chain.chain_potentials(case.log_unary[0], case.log_pairwise[0], case.lengths), counts=True
    )
    assert (found.n_iter == 1).all()
    assert_allclose(found.value, log_z, rtol=1e-12)
    assert_allclose(found.marginals[0], want.marginals, atol=1e-12)
    assert_allclose(found.counts[0], want.counts.sum(axis=0), atol=1e-12)


@given(cases(impossible=True), st.sampled_from(BOTH))
def test_independent_layers_are_exact(case, name):
    for table in case.log_between.values():
        table[:] = 0
    found = factorial.infer(case.potentials(), name, counts=True)
    want = factorial.infer(case.potentials(), "exact", counts=True)
    assert_allclose(found.value, want.value, rtol=1e-10, atol=1e-10)
    for pair in case.log_between:
        assert_allclose(found.between[pair], want.between[pair], atol=1e-9)


@given(cases(), st.integers(0, 2**32 - 1))
def test_bp_is_exact_for_pair_scores_that_are_sums(case, seed):
    """v(i, j) = a(i) + b(j) does not couple the layers: messages carry b or a, and the fixed point is exact."""
    rng = np.random.default_rng(seed)
    for table in case.log_between.values():
        table[:] = rng.normal(size=(len(table), 1)) + rng.normal(size=(1, table.shape[1]))
    found = factorial.infer(case.potentials(), "bp", counts=True)
    want = factorial.infer(case.potentials(), "exact", counts=True)
    assert_allclose(found.value, want.value, rtol=1e-9, atol=1e-9)
    for a, b in zip(found.marginals, want.marginals, strict=True):
        assert_allclose(a, b, atol=1e-8)


@given(cases(impossible=True, ties_impossible=True, max_layers=2))
def test_bp_is_exact_on_trees(case):
    """One token in two layers is a tree, also with impossible labels and pairs."""
    case = case._replace(lengths=np.ones_like(case.lengths))
    found = factorial.infer(case.potentials(), "bp", counts=True)
    want = factorial.infer(case.potentials(), "exact", counts=True)
    assert found.kind == "estimate"
    assert_allclose(found.value, want.value, rtol=1e-10, atol=1e-10)
    for a, b in zip(found.marginals, want.marginals, strict=True):
        assert_allclose(a, b, atol=1e-9)
    for pair in case.log_between:
        assert_allclose(found.between[pair], want.between[pair], atol=1e-8)


def test_bp_is_close_on_ordinary_scores():
    case = random_case(np.random.default_rng(3), [4, 3], B=10, T=3)
    exact, bp = (factorial.infer(case.potentials(), name) for name in ("exact", "bp"))
    assert np.abs(exact.value - bp.value).max() < 0.05
    assert max(np.abs(a - b).max() for a, b in zip(exact.marginals, bp.marginals, strict=True)) < 0.05


@given(cases())
def test_damping_reaches_the_same_fixed_point(case):
    free = factorial.infer(case.potentials(), "bp", tolerance=1e-10, max_iter=500)
    damped = factorial.infer(case.potentials(), "bp", tolerance=1e-10, max_iter=500, damping=0.4)
    assert_allclose(free.value, damped.value, rtol=1e-6, atol=1e-6)


def perturbed(case: Case, direction: Case, step: float) -> Case:
    def move(arrays, others):
        return [a + step * b for a, b in zip(arrays, others, strict=True)]

    between = {pair: table + step * direction.log_between[pair] for pair, table in case.log_between.items()}
    return Case(
        move(case.log_unary, direction.log_unary),
        move(case.log_pairwise, direction.log_pairwise),
        between,
        case.lengths,
    )


@pytest.mark.parametrize("name", [*BOTH, "exact"])
@pytest.mark.parametrize("n_labels", [[3, 2], [2, 2, 3]])
def test_the_gradient_is_the_beliefs_at_convergence(name, n_labels):
    rng = np.random.default_rng(11)
    case, direction = random_case(rng, n_labels), random_case(rng, n_labels)
    options = {"tolerance": 1e-12, "max_iter": 2000}
    found = factorial.infer(case.potentials(), name, counts=True, **options)
    slope = sum((c * d).sum() for c, d in zip(found.counts, direction.log_pairwise, strict=True))
    slope += sum((m * d).sum() for m, d in zip(found.marginals, direction.log_unary, strict=True))
    slope += sum((found.between[pair] * direction.log_between[pair]).sum() for pair in case.log_between)
    ahead, behind = (
        factorial.infer(perturbed(case, direction, step).potentials(), name, **options).value.sum()
        for step in (1e-5, -1e-5)
    )
    assert found.converged
    assert_allclose(slope, (ahead - behind) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("name", BOTH)
def test_a_batch_equals_its_sequences_one_by_one(name):
    case = random_case(np.random.default_rng(4), [3, 4], B=70, T=6)
    together = factorial.infer(case.potentials(), name)
    for b in (0, 17, 69):
        alone = case._replace(log_unary=[u[b : b + 1] for u in case.log_unary], lengths=case.lengths[b : b + 1])
        assert factorial.infer(alone.potentials(), name).value[0] == together.value[b]


@pytest.mark.parametrize("name", BOTH)
def test_lack_of_convergence_is_reported(name):
    case = random_case(np.random.default_rng(8), [3, 3], tie_scale=3.0)
    found = factorial.infer(case.potentials(), name, max_iter=1)
    assert not found.converged
    assert found.residual.max() > 1e-3
    assert factorial.infer(case.potentials(), name, max_iter=500).converged


def test_mean_field_resumes_from_marginals():
    """A run that starts from the marginals of another converges after one sweep."""
    case = random_case(np.random.default_rng(13), [3, 4])
    p = case.potentials()
    options = engines.Options(1e-9, 500)
    first = mean_field.solve(p, options)
    again = mean_field.solve(p, options, start=first.marginals)
    assert (again.n_iter == 1).all()
    assert_allclose(again.value, first.value, rtol=1e-12)
    elsewhere = [np.where(m > 0, 1 / 3, 0) for m in first.marginals]
    assert_allclose(mean_field.solve(p, options, start=elsewhere).value, first.value, rtol=1e-6)


def reference_bp(case: Case, b: int, n_sweeps: int):
    n = case.lengths[b]
    return reference.belief_propagation(
        [u[b, :n] for u in case.log_unary], case.log_pairwise, case.log_between, n_sweeps
    )


@given(cases(sizes=(1.0, 3.0, 30.0)), st.integers(1, 4))
def test_bp_matches_the_reference(case, n_sweeps):
    found = factorial.infer(case.potentials(), "bp", tolerance=0, max_iter=n_sweeps)
    for b, n in enumerate(case.lengths):
        value, marginals = reference_bp(case, b, n_sweeps)
        assert_allclose(found.value[b], value, rtol=1e-9, atol=1e-9)
        for d, want in enumerate(marginals):
            assert_allclose(found.marginals[d][b, :n], want, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_bp_beyond_the_range_of_single_precision(seed):
    case = random_case(np.random.default_rng(seed), [3, 3], scale=200.0, tie_scale=60.0)
    for dtype, rtol in ((np.float32, 1e-4), (np.float64, 1e-9)):
        found = factorial.infer(case.potentials(dtype), "bp", max_iter=30)
        assert_allclose(found.value, [reference_bp(case, b, 30)[0] for b in range(4)], rtol=rtol)
        assert all(np.isfinite(m).all() for m in found.marginals)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_counts_of_sequences_that_need_log_space(name, dtype):
    """Label 0 is best at the first position alone, but label 1 is best with the transitions."""
    unary = [np.zeros((2, 3, 2)), np.random.default_rng(0).normal(size=(2, 3, 3))]
    unary[0][0, 0, 1] = -800.0
    pairwise = [np.array([[-900.0, -900.0], [0.0, 0.5]]), np.zeros((3, 3))]
    case = Case(unary, pairwise, {(0, 1): np.zeros((2, 3))}, np.array([3, 2]))
    found = factorial.infer(case.potentials(dtype), name, counts=True)
    want = [w.counts() for w in case.enumerated()]
    for d in range(2):
        assert_allclose(found.counts[d], sum(w[d] for w in want), atol=1e-3 if dtype == np.float32 else 1e-9)


def test_mean_field_beyond_the_range_of_single_precision():
    case = random_case(np.random.default_rng(9), [3, 3], scale=200.0, tie_scale=200.0)
    want = factorial.infer(case.potentials(), "exact").value
    for dtype in (np.float32, np.float64):
        found = factorial.infer(case.potentials(dtype), "structured_mean_field", max_iter=30)
        assert np.isfinite(found.value).all()
        assert (found.value <= want * (1 + 1e-5) + 1e-2).all()


@pytest.mark.parametrize("name", BOTH)
def test_an_impossible_sequence(name):
    case = random_case(np.random.default_rng(1), [2, 2])
    case.log_unary[0][2] = -np.inf
    found = factorial.infer(case.potentials(), name, counts=True)
    assert found.value[2] == -np.inf
    assert np.isfinite(np.delete(found.value, 2)).all()
    assert np.isfinite(found.between[0, 1]).all()


@given(cases(impossible=True))
def test_climbing_finds_a_labeling_that_no_single_layer_improves(case):
    limit, engines.MAX_DECODED = engines.MAX_DECODED, 0
    try:
        p = case.potentials()
        labels, scores = factorial.decode(p, "bp")
    finally:
        engines.MAX_DECODED = limit
    assert_allclose(factorial.score(p, labels), scores, rtol=1e-10, atol=1e-10)
    best = np.array([w.best()[0] for w in case.enumerated()])
    assert (scores <= best + 1e-9).all()
    if len(case.log_unary) == 1:
        assert_allclose(scores, best, rtol=1e-10, atol=1e-10)
    for d, unary in enumerate(case.log_unary):
        conditional = unary.copy()
        for (a, b), table in case.log_between.items():
            if d in (a, b):
                other = np.maximum(labels[a + b - d], 0)
                conditional += table.T[other] if d == a else table[other]
        again, _ = chain.viterbi(chain.chain_potentials(conditional, case.log_pairwise[d], case.lengths))
        changed = [again if e == d else row for e, row in enumerate(labels)]
        assert (factorial.score(p, changed) <= scores + 1e-5 * (1 + np.abs(scores))).all()


def test_bp_rejects_label_pairs_that_are_too_far_apart():
    case = random_case(np.random.default_rng(0), [2, 2], tie_scale=1e3)
    with pytest.raises(ValueRangeError, match="apart, belief propagation supports at most 600: use engine='exact'"):
        factorial.infer(case.potentials(), "bp")


@given(cases(impossible=True, ties_impossible=True, max_layers=2))
def test_single_precision_with_impossible_pairs(case):
    case = case._replace(lengths=np.ones_like(case.lengths))
    found = factorial.infer(case.potentials(np.float32), "bp", counts=True)
    want = factorial.infer(case.potentials(), "exact", counts=True)
    assert_allclose(found.value, want.value, rtol=1e-4, atol=1e-4)
    for a, b in zip(found.marginals, want.marginals, strict=True):
        assert a.dtype == np.float32
        assert_allclose(a, b, atol=1e-4)


def test_mean_field_rejects_impossible_pairs_and_damping():
    case = random_case(np.random.default_rng(0), [2, 2])
    with pytest.raises(ValueRangeError, match="damping is for engine='bp'"):
        factorial.infer(case.potentials(), "structured_mean_field", damping=0.5)
    case.log_between[0, 1][0, 1] = -np.inf
    with pytest.raises(ValueRangeError, match=r"log_between\[0, 1\] has -inf: use engine='bp'"):
        factorial.infer(case.potentials(), "structured_mean_field")
