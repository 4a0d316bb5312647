"""Gibbs sampling: the correct distribution, reproducible random numbers, and a possible start."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.compiled import from_python
from tests.oracle.graphs import enumerate_graphs, random_graph
from trelliswork.compute import threads
from trelliswork.compute.kernels.random import uniform
from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.inference.graph import ChainFactor, ExactlyOne, Tables, wire
from trelliswork.inference.graph.engines import feasible, gibbs
from trelliswork.inference.graph.layout import flatten

call_uniform = from_python(uniform)

NEVER = -np.inf
SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("pairs", [None, True])
@pytest.mark.parametrize("seed", range(6))
def test_marginals_match_enumeration(seed, pairs):
    rng = np.random.default_rng(seed)
    wiring = random_graph(rng, n_variables=5, n_factors=5, n_graphs=2, max_arity=4, scale=0.7)
    result = gibbs.run(wiring, 20_000, 200, seed=seed, pairs=pairs)
    assert result.kind == "estimate"
    assert np.isnan(result.log_z).all()
    assert not result.impossible.any()
    assert not result.converged.any()
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.marginals[b], want.marginals(), atol=0.02)
        assert result.residual[b] < 0.04
        for got, joint in zip(result.factor_marginals, want.factor_marginals(), strict=True):
            assert_allclose(got[b], joint, atol=0.02)
            assert_allclose(got[b].reshape(len(joint), -1).sum(axis=1), 1, rtol=1e-9)


def test_draws_have_the_distribution():
    rng = np.random.default_rng(0)
    wiring = random_graph(rng, n_states=[2, 3, 2], n_factors=3, n_graphs=2, scale=0.5)
    draws = gibbs.sample(wiring, 100_000, 100, seed=1)[::5]
    assert draws.shape == (20_000, 2, 3)
    for b, want in enumerate(enumerate_graphs(wiring)):
        share = np.bincount(np.ravel_multi_index(tuple(draws[:, b].T), wiring.n_states), minlength=12) / 20_000
        p = want.probabilities
        assert (np.abs(share - p) <= 6 * np.sqrt(p * (1 - p) / 20_000)).all()


def test_one_variable_needs_one_sample():
    wiring = wire([3], log_unary=np.log([0.2, 0.3, 0.5]))
    assert_allclose(gibbs.run(wiring, 1, 0).marginals, [[0.2, 0.3, 0.5]], rtol=1e-12)


def test_constraints_hold_and_pairs_move_along_them():
    rng = np.random.default_rng(2)
    wiring = wire([2] * 5, log_unary=rng.normal(size=10), structured=[ExactlyOne(np.arange(5))])
    result = gibbs.run(wiring, 20_000, 100)
    assert_allclose(result.marginals[0], enumerate_graphs(wiring)[0].marginals(), atol=0.02)
    draws = gibbs.sample(wiring, 500, 0)
    assert (draws.sum(axis=2) == 1).all()
    stuck = gibbs.sample(wiring, 500, 0, pairs=False)
    assert (stuck == stuck[0]).all()


def test_chains_as_factors():
    rng = np.random.default_rng(3)
    wiring = wire([2] * 6, structured=[ChainFactor(np.arange(6), rng.normal(size=(2, 5, 2, 2)))])
    result = gibbs.run(wiring, 20_000, 100)
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.marginals[b], want.marginals(), atol=0.02)


def test_the_same_seed_gives_the_same_walk_on_any_number_of_threads():
    rng = np.random.default_rng(4)
    wiring = random_graph(rng, n_states=[3] * 6, n_factors=8, n_graphs=12)
    with threads.num_threads(1):
        one = gibbs.run(wiring, 300, 10, seed=5)
    with threads.num_threads(3):
        three = gibbs.run(wiring, 300, 10, seed=5)
    assert_array_equal(one.marginals, three.marginals)
    assert_array_equal(one.factor_marginals[0], three.factor_marginals[0])
    assert (gibbs.run(wiring, 300, 10, seed=6).marginals != one.marginals).any()


def test_random_numbers_are_those_of_splitmix64():
    counter = np.array([1234567], np.uint64)
    wanted = [6457827717110365317, 3203168211198807973, 9817491932198370423]  # published outputs for this seed
    assert [call_uniform(counter) for _ in wanted] == [(z >> 11) / 2**53 for z in wanted]


def test_graphs_of_a_batch_walk_independently():
    wiring = wire([2] * 4, n_graphs=2)
    draws = gibbs.sample(wiring, 50, 0)
    assert (draws[:, 0] != draws[:, 1]).any()


def test_impossible_graphs_raise_errors():
    wiring = wire([2, 2], log_unary=np.array([[0.0, 0, 0, 0], [0, 0, NEVER, NEVER]]))
    with pytest.raises(ImpossibleError, match="Gibbs sampling: every assignment of graph 1 has probability zero"):
        gibbs.run(wiring)


def test_invalid_options_raise_errors():
    wiring = wire([2, 2])
    with pytest.raises(ValueRangeError, match="n_samples must be a positive whole number"):
        gibbs.run(wiring, 0)
    with pytest.raises(ValueRangeError, match="burn_in must be a nonnegative integer, got -1"):
        gibbs.run(wiring, 10, -1)


def test_a_walk_without_pairs_stays_between_zeros():
    same = Tables(np.array([[0, 1]]), np.zeros(1, np.int64), np.where(np.eye(3, dtype=bool), 0.0, NEVER)[None, None])
    wiring = wire([3, 3], [same])
    draws = gibbs.sample(wiring, 20, 0, pairs=False)
    assert (draws == draws[0]).all()


@settings(max_examples=30)
@given(seed=SEEDS)
def test_local_search_finds_possible_assignments(seed):
    """Factors forbid half of all pairs, but not a hidden assignment: the result is never impossible."""
    rng = np.random.default_rng(seed)
    V, S, F = 60, 3, 90
    hidden = rng.integers(0, S, V)
    pairs = np.array([rng.permutation(V)[:2] for _ in range(F)])
    table = np.where(rng.random((1, F, S, S)) < 0.4, NEVER, 0.0)
    table[0, np.arange(F), hidden[pairs[:, 0]], hidden[pairs[:, 1]]] = 0
    wiring = wire([S] * V, [Tables(pairs, np.arange(F), table)])
    for states in (
        feasible.possible_assignment(wiring, flatten(wiring), np.zeros(1, np.int64), seed=seed),
        *feasible.local_search(wiring, flatten(wiring), np.zeros(1, np.int64), seed=seed)[:1],
    ):
        assert (wiring.score(states) > NEVER).all()


def test_local_search_finds_a_coloring():
    """A 12 by 12 grid in four colors, with a different start in each of three graphs."""
    i = np.arange(144).reshape(12, 12)
    across, down = np.stack([i[:, :-1].ravel(), i[:, 1:].ravel()], 1), np.stack([i[:-1].ravel(), i[1:].ravel()], 1)
    pairs = np.concatenate([across, down])
    table = np.where(np.eye(4, dtype=bool), NEVER, 0.0)[None, None]
    unary = np.random.default_rng(0).normal(size=(3, 576))
    wiring = wire([4] * 144, [Tables(pairs, np.zeros(len(pairs), np.int64), table)], log_unary=unary)
    states, possible = feasible.local_search(wiring, flatten(wiring), np.arange(3))
    assert possible.all()
    assert (wiring.score(states) > NEVER).all()
    assert (states[0] != states[1]).any()
