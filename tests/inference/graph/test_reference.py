"""The reference against enumeration, and the kernels against the reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.oracle.graphs import enumerate_graphs, graph_of, random_graph
from trelliswork.inference.graph import AtMostOne, reference
from trelliswork.inference.graph.engines import bp, exact, max_product
from trelliswork.inference.graph.reference import belief_propagation, eliminate

seeds = st.integers(0, 10_000)
ZEROS = st.sampled_from([0.0, 0.2])


def some_graphs(seed, **options):
    rng = np.random.default_rng(seed)
    return random_graph(rng, n_graphs=2, max_arity=4, **options)


@given(seed=seeds, zeros=ZEROS)
def test_elimination_matches_enumeration(seed, zeros):
    wiring = some_graphs(seed, zeros=zeros)
    for b, want in enumerate(enumerate_graphs(wiring)):
        graph = graph_of(wiring, b)
        assert_allclose(eliminate(graph), want.log_z, rtol=1e-10, atol=1e-10)
        assert_allclose(eliminate(graph, add=np.max), want.best, rtol=1e-10, atol=1e-10)
        if want.log_z > -np.inf:
            for keep in ((0,), (3, 1)):
                assert_allclose(np.exp(eliminate(graph, keep) - want.log_z), want.joint(keep), atol=1e-10)


@given(seed=seeds)
def test_belief_propagation_is_exact_on_trees(seed):
    wiring = some_graphs(seed, tree=True)
    for b, want in enumerate(enumerate_graphs(wiring)):
        result = belief_propagation(graph_of(wiring, b), n_iter=6)
        assert_allclose(result.log_z, want.log_z, rtol=1e-10)
        assert_allclose(np.exp(np.concatenate(result.variables)), want.marginals(), atol=1e-10)


@given(seed=seeds, zeros=ZEROS)
def test_elimination_kernels_match_the_reference(seed, zeros):
    """With more variables than in the other tests, and a structured factor."""
    wiring = some_graphs(
        seed, n_variables=9, n_factors=9, zeros=zeros, structured=[AtMostOne([0, 2, 5])], n_states=[2] * 9
    )
    sums, best = exact.run(wiring), exact.best(wiring)
    for b in range(wiring.n_graphs):
        graph = graph_of(wiring, b)
        assert_allclose(sums.log_z[b], eliminate(graph), rtol=1e-10, atol=1e-10)
        assert_allclose(best.log_z[b], eliminate(graph, add=np.max), rtol=1e-10, atol=1e-10)
        if sums.log_z[b] > -np.inf:
            assert_allclose(sums.marginals[b, 6:8], np.exp(eliminate(graph, (3,)) - sums.log_z[b]), atol=1e-10)


@pytest.mark.parametrize("space", ["probability", "log"])
@pytest.mark.parametrize("n_iter", [1, 4])
@settings(max_examples=15)
@given(seed=seeds, zeros=ZEROS)
def test_loopy_iterations_match_the_reference(space, n_iter, seed, zeros):
    """Beliefs before convergence on graphs with cycles: no other oracle judges them."""
    wiring = some_graphs(seed, n_factors=7, zeros=zeros)
    with pytest.MonkeyPatch.context() as patch:
        if space == "log":
            patch.setattr(bp, "COARSEST", 0.0)
        result = bp.run(wiring, schedule="flooding", max_iter=n_iter, tolerance=0.0)
    for b in range(wiring.n_graphs):
        want = belief_propagation(graph_of(wiring, b), n_iter)
        if want.log_z == -np.inf or result.impossible[b]:
            continue  # the kernels stop as soon as they know
        assert_allclose(result.log_z[b], want.log_z, rtol=1e-9, atol=1e-9)
        assert_allclose(result.marginals[b], np.exp(np.concatenate(want.variables)), atol=1e-9)
        beliefs = [belief for group in result.factor_marginals for belief in group[b]]
        for got, log_belief in zip(beliefs, want.factors, strict=True):
            assert_allclose(got, np.exp(log_belief), atol=1e-9)


@given(seed=seeds)
def test_max_marginals_match_the_reference(seed):
    wiring = some_graphs(seed, tree=True)
    result = max_product.run(wiring)
    for b in range(wiring.n_graphs):
        want = belief_propagation(graph_of(wiring, b), n_iter=6, add=np.max)
        assert_allclose(result.marginals[b], np.exp(np.concatenate(want.variables)), atol=1e-10)


def test_tables_are_aligned_by_variable():
    one, two = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    variables, table = reference.add_tables([((4, 1), one), ((1,), two)])
    assert variables == (4, 1)
    assert_allclose(table, one + two)
    variables, table = reference.add_tables([((1,), two), ((4, 1), one)])
    assert variables == (1, 4)
    assert_allclose(table, (one + two).T)
