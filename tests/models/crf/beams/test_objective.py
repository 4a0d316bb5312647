"""Objective within beams: compared with the exact one, and with finite differences for fixed beams."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from experiments.synthetic import synthetic_hmm
from tests.models.crf.test_objective import random_problem
from trelliswork.compute.threads import num_threads
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.chain.beam import Beam, BeamSets
from trelliswork.inference.chain.beam.sparse import SparseTransitions
from trelliswork.models.crf.beams.layout import Structure
from trelliswork.models.crf.beams.objective import BeamObjective
from trelliswork.models.crf.layout import Allowed, Labeling
from trelliswork.models.crf.objective import ChainObjective

CASES = [
    (4, "observed", False, 0), (9, "all_pairs", True, 0), (20, "all_pairs", False, 3), (20, "observed", True, 3),
    (40, "all_pairs", False, 0),
]  # fmt: skip


def problem_of(n_labels, kind, real, n_edges, seed=1, **options):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, 30)
    problem = random_problem(
        rng,
        n_labels=n_labels,
        n_attributes=12,
        lengths=lengths,
        real=real,
        kind=kind,
        n_edge_attributes=n_edges,
        **options,
    )
    problem.weights = rng.uniform(0, 2, 30)
    return problem, rng.normal(size=problem.layout.n_features)


def objective_of(problem, beam, **options):
    return BeamObjective(
        problem.tokens, problem.labeling, problem.layout, beam=Beam.parse(beam), l2=0.1, weights=problem.weights,
        allowed=problem.allowed, **options,
    )  # fmt: skip


def exact_of(problem):
    return ChainObjective(
        problem.tokens, problem.labeling, problem.layout, l2=0.1, weights=problem.weights, allowed=problem.allowed
    )


def fix(objective, w):
    """Choose beams by a forward pass at ``w`` and keep them until ``release``: one smooth function."""
    objective.release()
    rows = objective._beams_at(w)
    objective.sets = BeamSets(rows.ptr, rows.states)


def slope(objective, w, direction, step=0.02):
    at = [objective(w + k * step * direction)[0] for k in (-2, -1, 1, 2)]
    return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * step)


@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("case", CASES)
def test_beam_without_loss_gives_the_exact_objective(case, size):
    problem, w = problem_of(*case)
    value, gradient = exact_of(problem)(w * size)
    for beam, full_first in (("kl=0,min=1", False), ("size=1", True)):
        objective = objective_of(problem, beam, full_first=full_first)
        found = objective(w * size)
        assert_allclose(found[0], value, rtol=1e-5)
        assert_allclose(found[1], gradient, atol=1e-4 * (1 + np.abs(gradient).max()), rtol=1e-4)
        assert found[1].dtype == np.float64
    assert objective.statistics.full
    smaller, _ = objective(w * size)
    assert not objective.statistics.full
    assert smaller < value
    assert objective.statistics.mean_size < problem.n_labels


@pytest.mark.parametrize("beam", ["kl=0.05,min=2", "size=3", "threshold=1.0,min=1"])
@pytest.mark.parametrize("case", CASES)
def test_gradient_with_the_beams_fixed(case, beam):
    problem, w = problem_of(*case)
    objective = objective_of(problem, beam, full_first=False)
    chosen = objective(w)
    fix(objective, w)
    value, gradient = objective(w)
    assert_allclose(value, chosen[0], rtol=1e-6)
    assert_allclose(gradient, chosen[1], atol=1e-5)
    direction = np.random.default_rng(0).normal(size=len(w))
    direction /= np.linalg.norm(direction)
    assert_allclose(gradient @ direction, slope(objective, w, direction), rtol=1e-3, atol=3e-3)
    fixed = objective(w + direction)[0]
    objective.release()
    assert objective(w + direction)[0] != fixed


def test_value_is_between_zero_and_the_exact_one():
    problem, w = problem_of(9, "all_pairs", False, 0)
    for size in (0.1, 1.0, 10.0, 100.0):
        exact, _ = ChainObjective(problem.tokens, problem.labeling, problem.layout)(w * size)
        objective = BeamObjective(
            problem.tokens, problem.labeling, problem.layout, beam=Beam("size", size=1), full_first=False
        )
        value, _ = objective(w * size)  # the gold label is inside, or the difference would be below zero
        assert -1e-3 <= value <= exact * (1 + 1e-6)


def test_forbidden_pairs():
    problem, w = problem_of(5, "all_pairs", False, 0)
    problem.gold[:] = 0
    pairs = np.random.default_rng(0).random((5, 5)) < 0.5
    pairs[0, 0] = True
    problem.allowed = Allowed(pairs, np.arange(5) != 2, np.arange(5) != 3)
    value, gradient = exact_of(problem)(w)
    found = objective_of(problem, "kl=0,min=1", full_first=False)(w)
    assert_allclose(found[0], value, rtol=1e-5)
    assert_allclose(found[1], gradient, atol=1e-4)


def tied(problem, order):
    """A structure of n-grams whose transitions depend on the last two labels alone: the first-order model again."""
    L = problem.n_labels
    structure = SparseTransitions.ngrams(L, order)
    ids = structure.emits[structure.sources].astype(np.int64) * L + structure.emits[structure.targets]
    return Structure(structure, ids[None], L * L), replace(problem.layout, transitions=np.empty(0, np.int64))


@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("scheme", [False, True])
def test_tied_ngrams_are_the_first_order_model(order, size, scheme):
    problem, w = problem_of(4, "all_pairs", False, 0)
    if scheme:
        problem.gold[:] = 0
        pairs = np.eye(4, dtype=bool) | (np.random.default_rng(0).random((4, 4)) < 0.4)
        problem.allowed = Allowed(pairs, np.arange(4) != 2, np.arange(4) != 3)
    structure, layout = tied(problem, order)
    value, gradient = exact_of(problem)(w * size)
    objective = BeamObjective(
        problem.tokens, problem.labeling, layout, beam=Beam.parse("kl=0.1,min=2"), l2=0.1, weights=problem.weights,
        allowed=problem.allowed, structure=structure,
    )  # fmt: skip
    found = objective(w * size)
    assert_allclose(found[0], value, rtol=1e-5)
    assert_allclose(found[1], gradient, atol=1e-4 * (1 + np.abs(gradient).max()), rtol=1e-4)
    assert objective(w * size)[0] <= value


@pytest.mark.parametrize("beam", ["kl=0.05,min=2", "size=3"])
def test_gradient_of_free_pairs_with_the_beams_fixed(beam):
    problem, w = problem_of(4, "all_pairs", False, 0)
    structure = Structure.free(SparseTransitions.ngrams(4, 2))
    layout = replace(problem.layout, transitions=np.empty(0, np.int64))
    objective = BeamObjective(
        problem.tokens, problem.labeling, layout, beam=Beam.parse(beam), l2=0.1, structure=structure, full_first=False
    )
    rng = np.random.default_rng(0)
    w, direction = rng.normal(size=(2, objective.n_features))
    direction /= np.linalg.norm(direction)
    fix(objective, w)
    _, gradient = objective(w)
    assert_allclose(gradient @ direction, slope(objective, w, direction), rtol=1e-3, atol=3e-3)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("size", [1.0, 200.0])
def test_results_do_not_depend_on_the_number_of_threads(sparse, size):
    problem, w = problem_of(6, "all_pairs", False, 0)
    structure, layout = tied(problem, 2) if sparse else (None, problem.layout)
    found = []
    for n in (1, 2, 3):
        with num_threads(n):
            objective = BeamObjective(
                problem.tokens, problem.labeling, layout, beam=Beam.parse("kl=0.1,min=2"), structure=structure,
                full_first=False,
            )  # fmt: skip
            found.append(objective(w * size))
    for value, gradient in found[1:]:
        assert value == found[0][0]
        assert_array_equal(gradient, found[0][1])


def test_gradient_of_few_labels_in_wide_rows():
    # More labels than a beam: single numbers are added instead of rows.
    problem, w = problem_of(150, "all_pairs", False, 0)
    objective = objective_of(problem, "size=4", full_first=False)
    fix(objective, w)
    _, gradient = objective(w)
    direction = np.random.default_rng(0).normal(size=len(w))
    direction /= np.linalg.norm(direction)
    assert_allclose(gradient @ direction, slope(objective, w, direction), rtol=1e-3, atol=3e-3)


def test_invalid_arguments():
    problem, _ = problem_of(4, "all_pairs", False, 0)
    with pytest.raises(ValueRangeError, match="every token's label"):
        BeamObjective(problem.tokens, Labeling(np.full_like(problem.gold, -1)), problem.layout, beam=Beam())
    with pytest.raises(ShapeError, match="no transitions"):
        BeamObjective(problem.tokens, problem.gold, problem.layout, beam=Beam(), structure=tied(problem, 2)[0])


def test_synthetic_models_match_the_paper():
    hmm = synthetic_hmm(20, np.random.default_rng(0))
    assert hmm.states.shape == hmm.symbols.shape == (20, 75)
    assert_allclose(np.exp(hmm.log_transition).sum(axis=1), 1)
    assert_allclose(np.exp(hmm.log_emission).sum(axis=1), 1)
    support = (hmm.log_emission > -np.inf).sum(axis=1)
    assert set(support.tolist()) == {10, 100}
    assert 60 <= (support == 10).sum() <= 90
    assert (hmm.log_emission[hmm.states, hmm.symbols] > -np.inf).all()
    assert hmm.log_unary(np.float32).shape == (20, 75, 100)
