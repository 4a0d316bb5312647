"""States outside held beams: exact at the choice, smooth elsewhere, and a search that ends at the optimum."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from experiments.beams import CRFProblem
from tests.models.crf.beams.test_objective import exact_of, objective_of, problem_of, slope
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam
from trelliswork.learning.lbfgs import lbfgs
from trelliswork.models.crf.beams.objective import MANY, BeamObjective
from trelliswork.models.crf.beams.rest import exact_pass
from trelliswork.models.crf.beams.start import PRIOR, counted_start
from trelliswork.models.crf.beams.training import BeamSearch
from trelliswork.models.crf.kernels import objective as crf_kernels
from trelliswork.models.crf.layout import Allowed, FeatureLayout
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.crf.problem import Labeling, Problem, Tokens

CASES = [
    (14, "all_pairs", False, 0), (16, "all_pairs", True, 0), (16, "observed", False, 0), (40, "observed", True, 0),
]  # fmt: skip


def held(case, beam="size=2", size=1.0):
    problem, w = problem_of(*case)
    objective = objective_of(problem, beam, completes=True)
    objective.hold(w * size)
    assert objective.completed
    return problem, w * size, objective


@pytest.mark.parametrize("beam", ["size=2", "kl=2,min=1"])
@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient_are_exact_at_the_choice(case, beam):
    problem, w, objective = held(case, beam)
    value, gradient = objective(w)
    expected = exact_of(problem)(w)
    assert_allclose(value, expected[0], rtol=1e-5)
    assert_allclose(gradient, expected[1], atol=2e-4)
    assert objective.statistics.mean_size < problem.n_labels / 2


def test_forbidden_transitions():
    problem, w = problem_of(14, "all_pairs", False, 0)
    gold, pairs = problem.labeling.gold, np.random.default_rng(0).random((14, 14)) < 0.5
    pairs[gold[:-1], gold[1:]] = True
    problem.allowed = Allowed(pairs, np.ones(14, bool), np.ones(14, bool))
    objective = objective_of(problem, "size=2", completes=True)
    objective.hold(w)
    value, gradient = objective(w)
    expected = exact_of(problem)(w)
    assert_allclose(value, expected[0], rtol=1e-5)
    assert_allclose(gradient, expected[1], atol=2e-4)


@pytest.mark.parametrize("case", CASES)
def test_gradient_matches_finite_differences_elsewhere(case):
    _, w, objective = held(case)
    rng = np.random.default_rng(3)
    w = w + 0.3 * rng.normal(size=len(w))
    direction = rng.normal(size=len(w))
    direction /= np.linalg.norm(direction)
    assert_allclose(objective(w)[1] @ direction, slope(objective, w, direction), rtol=2e-3, atol=3e-3)


def test_closer_to_the_exact_objective_than_beams_alone():
    problem, w, objective = held((16, "all_pairs", False, 0))
    plain = objective_of(problem, "size=2", completes=False)
    plain.hold(w)
    exact = exact_of(problem)
    direction = np.random.default_rng(4).normal(size=len(w))
    for step in (0.01, 0.1):
        moved = w + step * direction
        true = exact(moved)[0]
        assert abs(objective(moved)[0] - true) < 0.1 * abs(plain(moved)[0] - true)


def test_rests_are_sums_over_the_states_outside():
    """Compare with alpha and beta in float64."""
    problem, w, objective = held((14, "all_pairs", False, 0))
    weights = objective._weights(w)
    found = exact_pass(
        objective._scorer, objective._tokens, objective._gold, objective._alpha, weights, objective.beam.rule
    )
    A, S = np.exp(weights.log_transition.astype(float)), problem.n_labels
    scores = np.empty((len(objective._gold), weights.wide.shape[1]), np.float32)
    crf_kernels.scores(0, len(scores), objective._tokens.arrays, weights.arrays, S, scores, 0)
    offsets, checked = objective._tokens.offsets, 0
    for first, last in itertools.pairwise(offsets):
        e = np.exp(scores[first:last, :S].astype(float))
        alpha, beta, c = [e[0] / e[0].sum()], [np.ones(S)], [e[0].sum()]
        for t in range(1, last - first):
            row = alpha[-1] @ A * e[t]
            c.append(row.sum())
            alpha.append(row / row.sum())
        for t in range(last - first - 1, 0, -1):
            beta.insert(0, A @ (e[t] * beta[0]) / c[t])
        at = [slice(*found.sets.ptr[i : i + 2]) for i in range(first, last)]
        inside = [found.sets.states[place] for place in at]
        outside = [np.setdiff1d(np.arange(S), states) for states in inside]
        mass = [(a * b)[out].sum() for a, b, out in zip(alpha, beta, outside, strict=True)]
        assert_allclose(found.rest.log_scale[first], np.log(c[0] * mass[0]), rtol=1e-4, atol=1e-5)
        for t in range(1, last - first):
            ahead, before = (e[t] * beta[t] / c[t])[outside[t]], alpha[t - 1][outside[t - 1]]
            into = A[np.ix_(inside[t - 1], outside[t])] @ ahead
            out_of = before @ A[np.ix_(outside[t - 1], inside[t])] / mass[t - 1]
            stay = before @ A[np.ix_(outside[t - 1], outside[t])] @ ahead / mass[t - 1]
            assert_allclose(found.rest.log_scale[first + t], np.log(c[t]), rtol=1e-4, atol=1e-5)
            assert_allclose(found.rest.into[at[t - 1]], into, rtol=1e-3, atol=1e-5)
            assert_allclose(found.rest.out_of[at[t]], out_of, rtol=1e-3, atol=1e-5)
            assert_allclose(found.rest.stay[first + t], stay, rtol=1e-3, atol=1e-5)
            checked += 1
    assert checked > 50


@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_pair_counts_match_the_kernels(scale):
    """With scores of size 60 some sentences underflow and are counted one by one."""
    rng = np.random.default_rng(5)
    lengths = np.array([7, 5, 2, 1])
    unary = scale * rng.normal(size=(4, 7, 6)).astype(np.float32)
    p = chain.chain_potentials(unary, scale * rng.normal(size=(6, 6)).astype(np.float32), lengths)
    weight = np.array([1, 0.5, 2, 1], np.float32)
    forward = chain.forward(p)
    found = chain.backward(forward, weights=weight, counts=True, total=True)
    assert forward.safe.all() == (scale == 1.0)
    counts = chain.pair_counts(forward, found.marginals, weight)
    assert_allclose(counts, found.counts, atol=1e-5)


def test_sentences_that_underflow_are_computed_with_all_states():
    problem, w, objective = held((14, "all_pairs", False, 0), size=100.0)
    value, gradient = objective(w)
    exact = exact_of(problem)(w)
    assert_allclose(value, exact[0], rtol=1e-5)
    assert_allclose(gradient, exact[1], atol=1e-3)


@pytest.mark.parametrize("kind", ["all_pairs", "observed"])
def test_search_ends_at_the_exact_optimum(kind):
    given = CRFProblem.draw(40, 1, 0, n_states=20, n_symbols=30, length=12).given
    if kind == "observed":
        given = replace(given, layout=FeatureLayout.observed(given.tokens, given.labeling, 30, 20))
    exact = ChainObjective(given, l2=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best = lbfgs(exact, np.zeros(given.n_features), max_iter=300, tol=1e-6)[1].value
        objective = BeamObjective(given, beam=Beam("size", size=3), l2=0.1, completes=True)
        start = counted_start(given)
        search = BeamSearch(objective, lambda *_: None)
        found, report = search.run(start, None, l1=0.0, max_iter=300, tol=1e-6, history_size=6)
    assert "fell by less than" in report.reason
    assert report.beam.mean_size < 4
    assert_allclose(report.value, best, rtol=1e-3)
    assert exact(found)[0] < best * 1.001


def test_choice_is_restored_from_plain_state():
    problem, w, objective = held((16, "observed", False, 0))
    again = objective_of(problem, "size=2", completes=True)
    again.hold_again(*objective.held(), w)
    rng = np.random.default_rng(0)
    moved = w + 0.1 * rng.normal(size=len(w))
    for one, other in zip(objective(moved), again(moved), strict=True):
        assert_array_equal(one, other)
    assert again.statistics == objective.statistics


def test_resumed_search_ends_at_the_same_weights():
    given = CRFProblem.draw(40, 1, 0, n_states=20, n_symbols=30, length=12).given
    start = counted_start(given)
    saved = []

    def search(keep):
        objective = BeamObjective(given, beam=Beam("size", size=3), l2=0.1, completes=True)
        return BeamSearch(objective, lambda step, weights, state: keep(step, state))

    options = {"l1": 0.0, "max_iter": 40, "tol": 1e-5, "history_size": 6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole, report = search(lambda step, state: saved.append(state()) if step.iteration == 20 else None).run(
            start, None, **options
        )
        again, other = search(lambda *_: None).run(start, saved[0], **options)
    assert report.n_iter > 20
    assert other.n_iter == report.n_iter
    assert_array_equal(again, whole)


def test_default_requires_many_states():
    for states, expected in ((MANY, True), (MANY - 1, False)):
        problem = CRFProblem.draw(2, 1, 0, n_states=states, n_symbols=5, length=3)
        objective = BeamObjective(problem.given, beam=Beam("size", size=2))
        assert objective.completes is expected


def test_counted_start():
    tokens = Tokens(np.array([0, 3, 4]), np.array([0, 1, 2, 3, 5]), np.array([0, 1, 0, 0, 1], np.int32))
    gold = Labeling(np.array([0, 1, 0, 1], np.int32))
    given = Problem(tokens, gold, FeatureLayout.all_pairs(2, 2))
    start = counted_start(given)
    pairs = np.array([[0, 1], [1, 0]])
    expected = np.log1p(pairs / (PRIOR * (pairs.sum(axis=0) + 0.5) / (pairs.sum() + 1)))
    assert_allclose(start[:4], expected.reshape(-1))
    together, often = np.array([[2, 1], [0, 2]]), np.array([3, 2]) / 4
    assert_allclose(start[4:], np.log1p(together / (PRIOR * often[:, None])).reshape(-1) / 1.25)
    twice = counted_start(replace(given, weights=np.array([2.0, 2.0])))
    assert (twice[start > 0] > start[start > 0]).all()
    assert not twice[start == 0].any()
    seen = replace(given, layout=FeatureLayout.observed(tokens, gold, 2, 2))
    assert_allclose(np.sort(counted_start(seen)), np.sort(start[start > 0]))
