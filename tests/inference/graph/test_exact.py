"""Elimination against enumeration: values, marginals, best states, samples; errors for graphs that are too large."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.oracle.graphs import enumerate_graphs, random_graph
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.graph import AtMostOne, Cardinality, ChainFactor, ExactlyOne, Tables, wire
from trelliswork.inference.graph.engines import exact
from trelliswork.inference.graph.engines.elimination import elimination_order

SEEDS = st.integers(0, 2**32 - 1)
ZEROS = st.sampled_from([0.0, 0.2, 0.5])


def some_graphs(seed, zeros, scale=1.0):
    rng = np.random.default_rng(seed)
    return random_graph(
        rng,
        n_variables=int(rng.integers(1, 7)),
        n_factors=int(rng.integers(0, 8)),
        n_graphs=int(rng.integers(1, 4)),
        max_arity=4,
        zeros=zeros,
        scale=scale,
    )


def grid(n, n_states, rng):
    i = np.arange(n * n).reshape(n, n)
    across = np.stack([i[:, :-1].ravel(), i[:, 1:].ravel()], axis=1)
    down = np.stack([i[:-1].ravel(), i[1:].ravel()], axis=1)
    pairs = np.concatenate([across, down])
    tables = Tables(pairs, np.arange(len(pairs)), rng.normal(size=(1, len(pairs), n_states, n_states)))
    return wire(np.full(n * n, n_states), [tables], log_unary=rng.normal(size=n * n * n_states))


@given(seed=SEEDS, zeros=ZEROS, scale=st.sampled_from([1.0, 30.0, 1e3]))
def test_marginals_match_enumeration(seed, zeros, scale):
    wiring = some_graphs(seed, zeros, scale)
    result = exact.run(wiring)
    assert result.kind == "exact"
    assert result.converged.all()
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.log_z[b], want.log_z, rtol=1e-10, atol=1e-10)
        assert_allclose(result.marginals[b], want.marginals(), rtol=1e-9, atol=1e-12)
        for got, joint in zip(result.factor_marginals, want.factor_marginals(), strict=True):
            assert_allclose(got[b], joint, rtol=1e-9, atol=1e-12)


@given(seed=SEEDS, zeros=ZEROS)
def test_best_states_match_enumeration(seed, zeros):
    wiring = some_graphs(seed, zeros)
    result = exact.best(wiring)
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.log_z[b], want.best, rtol=1e-10, atol=1e-10)
        if want.best == -np.inf:
            assert (result.assignment[b] == -1).all()
            assert (result.marginals[b] == 0).all()
        else:
            scores = want.scores[(want.assignments == result.assignment[b]).all(axis=1)]
            assert_allclose(scores, [want.best], rtol=1e-10, atol=1e-10)
            assert_array_equal(np.flatnonzero(result.marginals[b]), wiring.offsets[:-1] + result.assignment[b])


def test_samples_have_the_distribution():
    rng = np.random.default_rng(6)
    wiring = random_graph(rng, n_variables=4, n_factors=5, n_graphs=2, zeros=0.1, n_states=[2, 3, 2, 2])
    n = 40_000
    draws = exact.sample(wiring, rng.random((n, 2, 4)))
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert want.log_z > -np.inf
        index = np.ravel_multi_index(tuple(draws[:, b].T), wiring.n_states)
        share = np.bincount(index, minlength=len(want.scores)) / n
        p = want.probabilities
        assert (share[p == 0] == 0).all()
        assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / n)).all()


def test_samples_of_impossible_graphs_raise_errors():
    wiring = wire([2, 2], log_unary=np.array([[0.0, 0, 0, 0], [0, 0, -np.inf, -np.inf]]))
    with pytest.raises(ImpossibleError, match="every assignment of graph 1 has probability zero"):
        exact.sample(wiring, np.zeros((1, 2, 2)))
    with pytest.raises(ShapeError, match=r"uniform must have shape \(n, B, V\) with B=2 and V=2, got \(3, 2\)"):
        exact.sample(wiring, np.zeros((3, 2)))


def test_uniform_numbers_near_one_never_give_an_impossible_state():
    wiring = wire([3], log_unary=np.array([np.log(0.3), np.log(0.7), -np.inf]))
    assert exact.sample(wiring, np.full((1, 1, 1), np.nextafter(1, 0)))[0, 0, 0] == 1


@pytest.mark.parametrize("kind", ["chain", "one", "most", "count"])
def test_structured_factors_match_enumeration(kind):
    rng = np.random.default_rng(3)
    V = 4
    factor = {
        "chain": ChainFactor([2, 0, 3], rng.normal(size=(2, 2, 2, 2))),
        "one": ExactlyOne([0, 1, 3]),
        "most": AtMostOne([3, 1, 2]),
        "count": Cardinality([0, 1, 2, 3], rng.normal(size=5)),
    }[kind]
    wiring = random_graph(rng, n_states=[2] * V, n_factors=3, n_graphs=2, structured=(factor,))
    result = exact.run(wiring)
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.log_z[b], want.log_z, rtol=1e-10)
        assert_allclose(result.marginals[b], want.marginals(), rtol=1e-9, atol=1e-12)
        for got, joint in zip(result.factor_marginals, want.factor_marginals(), strict=True):
            assert_allclose(got[b], joint, rtol=1e-9, atol=1e-12)


def test_large_structured_factors_raise_errors_but_long_chains_do_not():
    with pytest.raises(ValueRangeError, match=r"ExactlyOne over 40 variables has a table of 1.1e\+12 entries"):
        exact.run(wire([2] * 40, structured=[ExactlyOne(np.arange(40))]))
    long = wire([2] * 40, structured=[ChainFactor(np.arange(40), np.zeros((2, 2)))])
    assert_allclose(exact.run(long).log_z, 40 * np.log(2), rtol=1e-12)


def test_the_error_for_large_graphs_reports_their_size():
    wiring = grid(12, 3, np.random.default_rng(0))
    with pytest.raises(
        ValueRangeError, match=r"largest clique alone has [\d,]+, but max_size is 1,000\. Raise max_size"
    ):
        exact.run(wiring, max_size=1000)
    everything = np.stack(np.triu_indices(60, 1), axis=1)
    dense = wire([2] * 60, [Tables(everything, np.zeros(len(everything), np.int64), np.zeros((1, 1, 2, 2)))])
    with pytest.raises(ValueRangeError, match="the largest clique alone has about 10\\^18, but max_size is 67,108,864"):
        exact.run(dense)


def test_evidence_makes_large_graphs_small():
    rng = np.random.default_rng(1)
    wiring = grid(12, 3, rng)
    unary = wiring.log_unary.copy().reshape(1, 144, 3)
    row = np.arange(144) // 12 % 2 == 1  # every other row of the grid is known
    states = rng.integers(0, 3, 144)
    unary[0, row] = np.where(np.arange(3) == states[row, None], unary[0, row], -np.inf)
    known = wiring.with_unary(unary.reshape(1, -1))
    result = exact.run(known, max_size=2000)
    assert_allclose(result.log_z, exact.run(known, max_size=1 << 24).log_z, rtol=1e-12)
    marginals = result.marginals.reshape(144, 3)
    assert (marginals[row, states[row]] == 1).all()
    assert_allclose(marginals.sum(axis=1), 1, rtol=1e-10)
    best = exact.best(known, max_size=2000).assignment[0]
    assert_array_equal(best[row], states[row])
    draws = exact.sample(known, rng.random((5, 1, 144)), max_size=2000)
    assert (draws[:, 0, row] == states[row]).all()


@given(seed=SEEDS)
def test_fixed_variables_match_enumeration(seed):
    wiring = some_graphs(seed, 0.1)
    rng = np.random.default_rng(seed)
    unary = wiring.log_unary.copy()
    for v in np.flatnonzero(rng.random(wiring.n_variables) < 0.5):
        start, stop = wiring.offsets[v : v + 2]
        keep = rng.integers(start, stop)
        unary[:, [x for x in range(start, stop) if x != keep]] = -np.inf
    wiring = wiring.with_unary(unary)
    result, best = exact.run(wiring), exact.best(wiring)
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.log_z[b], want.log_z, rtol=1e-10, atol=1e-10)
        assert_allclose(best.log_z[b], want.best, rtol=1e-10, atol=1e-10)
        assert_allclose(result.marginals[b], want.marginals(), rtol=1e-9, atol=1e-12)
        for got, joint in zip(result.factor_marginals, want.factor_marginals(), strict=True):
            assert_allclose(got[b], joint, rtol=1e-9, atol=1e-12)


def test_a_chain_of_1000_variables_is_fast():
    rng = np.random.default_rng(0)
    T, S = 1000, 50
    pairs = np.stack([np.arange(T - 1), np.arange(1, T)], axis=1)
    tables = Tables(pairs, np.zeros(T - 1, np.int64), rng.normal(size=(1, 1, S, S)))
    wiring = wire(np.full(T, S), [tables], log_unary=rng.normal(size=T * S))
    result = exact.run(wiring)
    start = time.process_time()
    exact.run(wiring)
    assert time.process_time() - start < 2  # 0.06 s on a free core
    alpha, log_z = np.exp(wiring.log_unary[0, :S]), 0.0
    for t in range(1, T):
        alpha = alpha @ np.exp(tables.log_tables[0, 0]) * np.exp(wiring.log_unary[0, t * S : (t + 1) * S])
        log_z += np.log(alpha.sum())
        alpha /= alpha.sum()
    assert_allclose(result.log_z, [log_z], rtol=1e-12)


def test_elimination_orders_are_optimal_where_the_optimum_is_known():
    path = elimination_order([3] * 50, [[v, v + 1] for v in range(49)], 10**6)
    assert max(map(len, path)) == 2
    star = elimination_order([2] * 50, [[0, v] for v in range(1, 50)], 10**6)
    assert max(map(len, star)) == 2
    ring = elimination_order([2] * 30, [[v, (v + 1) % 30] for v in range(30)], 10**6)
    assert max(map(len, ring)) == 3
    for cliques in (path, star, ring):
        assert sorted(clique[-1] for clique in cliques) == list(range(len(cliques)))


def test_graphs_without_factors_or_variables():
    result = exact.run(wire([2, 3]))
    assert_allclose(result.log_z, np.log(6), rtol=1e-12)
    assert result.factor_marginals == ()
    assert_allclose(exact.run(wire(np.zeros(0, np.int64))).log_z, 0)
