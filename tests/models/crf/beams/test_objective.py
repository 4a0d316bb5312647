"""Objective within beams: compared with the exact one, and with finite differences for fixed beams."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from experiments.synthetic import synthetic_hmm
from tests.models.crf.test_objective import random_problem
from trelliswork.compute.padding import unpad
from trelliswork.compute.threads import num_threads
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam, BeamSets
from trelliswork.inference.chain.beam.passes import NO_SETS
from trelliswork.inference.chain.beam.sparse import SparseTransitions
from trelliswork.models.crf.beams.objective import BeamObjective
from trelliswork.models.crf.beams.structure import Structure
from trelliswork.models.crf.layout import Allowed
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.crf.problem import Labeling

CASES = [
    (4, "observed", False, 0), (9, "all_pairs", True, 0), (20, "all_pairs", False, 0), (40, "observed", True, 0),
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
    return BeamObjective(problem.given, beam=Beam.parse(beam), l2=0.1, **options)


def exact_of(problem):
    return ChainObjective(problem.given, l2=0.1)


def hold_all(objective):
    """Hold sets of all states."""
    n, S = len(objective._gold), objective.n_states
    objective.sets = BeamSets(np.arange(n + 1) * S, np.tile(np.arange(S, dtype=np.int32), n))


def slope(objective, w, direction, step=0.02):
    at = [objective(w + k * step * direction)[0] for k in (-2, -1, 1, 2)]
    return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * step)


@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("case", CASES)
def test_sets_of_all_states_give_the_exact_objective(case, size):
    problem, w = problem_of(*case)
    value, gradient = exact_of(problem)(w * size)
    objective = objective_of(problem, "size=1", completes=False)
    hold_all(objective)
    found = objective(w * size)
    assert_allclose(found[0], value, rtol=1e-5)
    assert_allclose(found[1], gradient, atol=1e-4 * (1 + np.abs(gradient).max()), rtol=1e-4)
    assert found[1].dtype == np.float64


@pytest.mark.parametrize("beam", ["kl=1,min=2", "size=3", "threshold=0.5,min=1"])
@pytest.mark.parametrize("case", [case for case in CASES if case[0] > 9])
def test_gradient_within_beams(case, beam):
    problem, w = problem_of(*case)
    objective = objective_of(problem, beam, completes=False)
    objective.hold(w)
    assert 1 <= objective.statistics.mean_size < problem.n_labels / 4
    assert not objective.statistics.full
    direction = np.random.default_rng(0).normal(size=len(w))
    direction /= np.linalg.norm(direction)
    assert_allclose(objective(w)[1] @ direction, slope(objective, w, direction), rtol=1e-3, atol=3e-3)


def test_value_is_between_zero_and_the_exact_one():
    problem, w = problem_of(20, "all_pairs", False, 0)
    for size in (0.1, 1.0, 10.0, 100.0):
        exact, _ = ChainObjective(problem.given)(w * size)
        objective = BeamObjective(problem.given, beam=Beam("size", size=1), completes=False)
        objective.hold(w * size)
        value, _ = objective(w * size)  # the gold label is inside, or the difference would be below zero
        assert -1e-3 <= value <= exact * (1 + 1e-6)


def test_beams_that_keep_many_states_and_weights_of_zero_are_exact():
    problem, w = problem_of(9, "all_pairs", False, 0)
    for beam, weights in (("kl=0,min=1", w), ("size=1", 0 * w)):
        objective = objective_of(problem, beam)
        objective.hold(weights)
        assert objective(weights)[0] == exact_of(problem)(weights)[0]


def test_states_are_chosen_by_the_posterior():
    problem, w = problem_of(20, "all_pairs", False, 0)
    objective = objective_of(problem, "size=2", completes=False)
    objective.hold(w)
    first = 0
    for p in objective._scorer.potentials(objective._weights(w)):
        marginals = unpad(chain.expectations(p)[1].marginals, p.lengths)
        for i, row in enumerate(marginals, start=first):
            states = objective.sets.states[slice(*objective.sets.ptr[i : i + 2])]
            assert objective._gold[i] in states
            assert {int(k) for k in np.argsort(-row)[:2]} <= set(states.tolist())
        first += len(marginals)
    assert first == len(objective._gold)


def test_forbidden_pairs():
    problem, w = problem_of(5, "all_pairs", False, 0)
    problem.gold[:] = 0
    pairs = np.random.default_rng(0).random((5, 5)) < 0.5
    pairs[0, 0] = True
    problem.allowed = Allowed(pairs, np.arange(5) != 2, np.arange(5) != 3)
    value, gradient = exact_of(problem)(w)
    objective = objective_of(problem, "size=1")
    hold_all(objective)
    found = objective(w)
    assert_allclose(found[0], value, rtol=1e-5)
    assert_allclose(found[1], gradient, atol=1e-4)


def tied(problem, order):
    """A problem of n-grams whose transitions depend on the last two labels alone: the first-order model again."""
    L = problem.n_labels
    structure = SparseTransitions.ngrams(L, order)
    ids = structure.emits[structure.sources].astype(np.int64) * L + structure.emits[structure.targets]
    return over(problem, Structure(structure, ids[None], L * L))


def over(problem, structure):
    """Return a problem whose transitions are those of a structure."""
    layout = replace(problem.layout, transitions=np.empty(0, np.int64))
    return replace(problem.given, layout=layout, structure=structure)


@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("scheme", [False, True])
def test_tied_ngrams_are_the_first_order_model(order, size, scheme):
    problem, w = problem_of(4, "all_pairs", False, 0)
    if scheme:
        problem.gold[:] = 0
        pairs = np.eye(4, dtype=bool) | (np.random.default_rng(0).random((4, 4)) < 0.4)
        problem.allowed = Allowed(pairs, np.arange(4) != 2, np.arange(4) != 3)
    value, gradient = exact_of(problem)(w * size)
    objective = BeamObjective(tied(problem, order), beam=Beam.parse("kl=0,min=2"), l2=0.1)
    objective.hold(w * size)
    found = objective(w * size)
    assert_allclose(found[0], value, rtol=1e-5)
    assert_allclose(found[1], gradient, atol=1e-4 * (1 + np.abs(gradient).max()), rtol=1e-4)
    objective.beam = Beam.parse("kl=0.1,min=2")
    objective._chosen = objective._grown = NO_SETS  # not the states of the last choice, too
    objective.hold(w * size)
    assert objective(w * size)[0] <= value


@pytest.mark.parametrize("beam", ["kl=0.05,min=2", "size=3"])
def test_gradient_of_free_pairs_with_the_beams_fixed(beam):
    problem, w = problem_of(4, "all_pairs", False, 0)
    transitions = SparseTransitions.ngrams(4, 2)
    n = len(transitions.targets)
    free = over(problem, Structure(transitions, np.arange(n)[None], n))  # one weight for each transition
    objective = BeamObjective(free, beam=Beam.parse(beam), l2=0.1)
    rng = np.random.default_rng(0)
    w, direction = rng.normal(size=(2, free.n_features))
    direction /= np.linalg.norm(direction)
    objective.hold(w)
    _, gradient = objective(w)
    assert_allclose(gradient @ direction, slope(objective, w, direction), rtol=1e-3, atol=3e-3)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("size", [1.0, 200.0])
def test_results_do_not_depend_on_the_number_of_threads(sparse, size):
    problem, w = problem_of(6, "all_pairs", False, 0)
    given = tied(problem, 2) if sparse else problem.given
    found = []
    for n in (1, 2, 3):
        with num_threads(n):
            objective = BeamObjective(given, beam=Beam.parse("size=1"))
            objective.hold(w * size)
            found.append(objective(w * size))
    for value, gradient in found[1:]:
        assert value == found[0][0]
        assert_array_equal(gradient, found[0][1])


def test_gradient_of_few_labels_in_wide_rows():
    # More labels than a beam: single numbers are added instead of rows.
    problem, w = problem_of(150, "all_pairs", False, 0)
    objective = objective_of(problem, "size=4", completes=False)
    objective.hold(w)
    _, gradient = objective(w)
    direction = np.random.default_rng(0).normal(size=len(w))
    direction /= np.linalg.norm(direction)
    assert_allclose(gradient @ direction, slope(objective, w, direction), rtol=1e-3, atol=3e-3)


def test_invalid_arguments():
    given = problem_of(4, "all_pairs", False, 0)[0].given
    for wrong in (
        replace(given, labeling=Labeling(np.full_like(given.labeling.gold, -1))),
        replace(given, label_weights=np.ones(4)),
        problem_of(4, "all_pairs", False, 3)[0].given,
    ):
        with pytest.raises(ValueRangeError, match="needs one label per token, no label weights and no B templates"):
            BeamObjective(wrong, beam=Beam())
    transitions = SparseTransitions.ngrams(4, 2)
    with pytest.raises(ShapeError, match="no transitions"):
        BeamObjective(replace(given, structure=Structure(transitions, np.zeros((1, 80), int), 1)), beam=Beam())


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
