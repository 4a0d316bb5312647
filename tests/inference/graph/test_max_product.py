"""Max-product: the best assignment of forests, ties and zeros included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.oracle.graphs import enumerate_graphs, random_graph, random_scores
from trelliswork.inference.graph import AtMostOne, ChainFactor, ExactlyOne, Tables, wire
from trelliswork.inference.graph.engines import exact, max_product

SCHEDULES = ("auto", "flooding", "sequential")
seeds = st.integers(0, 10_000)


def assert_best(wiring, result):
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.log_z[b], want.best, rtol=1e-10, atol=1e-10)
        if want.best == -np.inf:
            assert (result.assignment[b] == -1).all()
            continue
        states = np.tile(result.assignment[b], (wiring.n_graphs, 1))
        assert_allclose(wiring.score(states)[b], want.best, rtol=1e-10, atol=1e-10)


@given(seed=seeds)
def test_factor_marginals_are_those_of_the_assignment(seed):
    """Their expected scores and the unary ones give back the score; where nothing is possible they are zero."""
    wiring = random_graph(np.random.default_rng(seed), n_variables=5, n_graphs=2, tree=True, max_arity=3, zeros=0.2)
    for result in (max_product.run(wiring), exact.best(wiring)):
        for b, states in enumerate(result.assignment):
            if result.log_z[b] == -np.inf:
                assert (states == -1).all()
                assert not any(beliefs[b].any() for beliefs in result.factor_marginals)
                continue
            score = wiring.log_unary[b, wiring.offsets[:-1] + states].sum()
            for group, beliefs in zip(wiring.groups, result.factor_marginals, strict=True):
                tables = group.dense()[b % len(group.log_tables)]
                score += tables[beliefs[b] == 1].sum()
            assert_allclose(score, result.log_z[b], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(seed=seeds, zeros=st.sampled_from([0.0, 0.1, 0.3]), ties=st.booleans())
def test_the_best_assignment_of_a_tree(schedule, seed, zeros, ties):
    rng = np.random.default_rng(seed)
    wiring = random_graph(rng, n_variables=6, n_graphs=2, tree=True, max_arity=4, zeros=zeros)
    if ties:
        groups = [Tables(g.variables, g.which, np.round(g.log_tables)) for g in wiring.groups]
        wiring = wire(wiring.n_states, groups, log_unary=np.round(wiring.log_unary))
    result = max_product.run(wiring, schedule=schedule)
    assert result.kind == "exact"
    assert result.converged.all()
    assert_best(wiring, result)


@given(seed=seeds)
def test_max_marginals_of_a_tree(seed):
    rng = np.random.default_rng(seed)
    wiring = random_graph(rng, n_variables=5, tree=True, zeros=0.1)
    result = max_product.run(wiring)
    want = enumerate_graphs(wiring)[0]
    if want.best == -np.inf:
        return
    for v in range(5):
        for i in range(wiring.n_states[v]):
            of_state = want.scores[want.assignments[:, v] == i].max()
            assert_allclose(result.marginals[0, wiring.offsets[v] + i], np.exp(of_state - want.best), atol=1e-10)


@given(seed=seeds)
def test_on_loopy_graphs_the_score_is_a_lower_bound_of_an_assignment(seed):
    rng = np.random.default_rng(seed)
    wiring = random_graph(rng, n_variables=6, n_factors=8, n_graphs=2, zeros=0.05)
    result = max_product.run(wiring, damping=0.3, max_iter=300)
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert result.log_z[b] <= want.best + 1e-9
        if result.log_z[b] > -np.inf:
            states = np.tile(result.assignment[b], (2, 1))
            assert_allclose(wiring.score(states)[b], result.log_z[b])


@given(seed=seeds, schedule=st.sampled_from(SCHEDULES))
def test_structured_factors_match_enumeration(seed, schedule):
    rng = np.random.default_rng(seed)
    factors = [ExactlyOne([0, 1, 2]), AtMostOne([2, 3, 4]), ChainFactor([4, 5, 6], random_scores(rng, (2, 2), 1, 0.1))]
    pair = Tables(np.array([[6, 7]]), np.array([0]), np.round(rng.normal(0, 1, (1, 1, 2, 2))))
    wiring = wire([2] * 8, [pair], structured=factors, log_unary=np.round(random_scores(rng, (2, 16), 2, 0.05)))
    result = max_product.run(wiring, schedule=schedule)
    assert result.kind == "exact"
    assert_best(wiring, result)


def test_a_long_chain():
    rng = np.random.default_rng(0)
    T, S = 300, 7
    steps = np.stack([np.arange(T - 1), np.arange(1, T)], axis=1)
    pairwise = rng.normal(0, 1, (1, 1, S, S))
    unary = rng.normal(0, 1, (1, T * S))
    by_tables = max_product.run(
        wire(np.full(T, S), [Tables(steps, np.zeros(T - 1, np.int64), pairwise)], log_unary=unary)
    )
    as_one = max_product.run(
        wire(np.full(T, S), structured=[ChainFactor(np.arange(T), pairwise[0, 0])], log_unary=unary)
    )
    assert_allclose(by_tables.log_z, as_one.log_z)
    assert np.array_equal(by_tables.assignment, as_one.assignment)
