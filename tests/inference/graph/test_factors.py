"""Structured factors: each equals its dense table in every result."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.oracle.graphs import enumerate_graphs, random_scores
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph import AtMostOne, Cardinality, ChainFactor, ExactlyOne, Propagator, Tables, wire
from trelliswork.inference.graph.engines import bp, exact, max_product, trw

NAMES = (
    "cardinality",
    "cardinality by graph",
    "exactly one",
    "at most one",
)
seeds = st.integers(0, 10_000)


def make(name, rng, k, n_graphs, scale, zeros):
    n_states = rng.integers(2, 4, k)
    state = np.array([rng.integers(s) for s in n_states])
    variables = np.arange(k)
    if name.startswith("cardinality"):
        shape = (n_graphs, k + 1) if "graph" in name else (k + 1,)
        return Cardinality(variables, random_scores(rng, shape, scale, zeros), n_states=n_states, state=state)
    return (ExactlyOne if name == "exactly one" else AtMostOne)(variables, n_states=n_states, state=state)


def messages_of_table(table, incoming, sizes, reduce):
    """By the definition: reduce table plus the other messages over the other axes."""
    starts = np.cumsum(sizes) - sizes
    out = []
    for v in range(len(sizes)):
        scores = table
        for u, size in enumerate(sizes):
            if u != v:
                shape = [1] * len(sizes)
                shape[u] = size
                scores = scores + incoming[starts[u] : starts[u] + size].reshape(shape)
        out.append(reduce(scores, axis=tuple(a for a in range(len(sizes)) if a != v)))
    return out


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds, zeros=st.sampled_from([0.0, 0.2, 0.4]), scale=st.sampled_from([1.0, 400.0]))
def test_a_factor_equals_its_table(name, seed, zeros, scale):
    rng = np.random.default_rng(seed)
    k, B = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    factor = make(name, rng, k, B, scale, zeros)
    assert isinstance(factor, Propagator)
    sizes = factor.n_states
    incoming = random_scores(rng, (B, sizes.sum()), scale, zeros)
    result, best = factor.propagate(incoming), factor.best(incoming)
    wiring = wire(sizes, structured=[factor], log_unary=incoming, n_graphs=B)
    for b, want in enumerate(enumerate_graphs(wiring)):
        if want.log_z == -np.inf:
            assert result.log_value[b] == best.value[b] == -np.inf
            assert (result.log_beliefs[b] == -np.inf).all()
            assert (best.assignment[b] == -1).all()
        else:
            assert_allclose(result.log_value[b], want.log_z, rtol=1e-10, atol=1e-9)
            assert_allclose(np.exp(result.log_beliefs[b]), want.marginals(), atol=1e-9)
            assert_allclose(best.value[b], want.best, rtol=1e-10, atol=1e-10)
            states = np.tile(best.assignment[b], (B, 1))
            assert_allclose(wiring.score(states)[b], want.best, rtol=1e-10, atol=1e-10)
        table = factor.table()[b if factor.n_graphs > 1 else 0]
        starts = np.cumsum(sizes) - sizes
        for got, reduce in ((result.log_messages[b], np.logaddexp), (best.log_messages[b], np.maximum)):
            for v, message in enumerate(
                messages_of_table(table, incoming[b], sizes, lambda s, axis, r=reduce: fold(r, s, axis))
            ):
                mine = got[starts[v] : starts[v] + sizes[v]]
                assert np.array_equal(mine == -np.inf, message == -np.inf)
                possible = message > -np.inf
                if possible.any():
                    assert_allclose(
                        (mine - mine[possible][0])[possible],
                        (message - message[possible][0])[possible],
                        rtol=1e-9,
                        atol=1e-8,
                    )


def fold(ufunc, scores, axis):
    for a in sorted(axis, reverse=True):
        scores = ufunc.reduce(scores, axis=a)
    return scores


@given(seed=seeds, schedule=st.sampled_from(["auto", "flooding", "sequential"]))
def test_belief_propagation_on_a_tree_of_structured_factors_is_exact(seed, schedule):
    rng = np.random.default_rng(seed)
    factors = [
        ExactlyOne([0, 1, 2]),
        Cardinality([2, 3, 4], random_scores(rng, (2, 4))),
        ChainFactor([4, 5, 6], random_scores(rng, (2, 2), 1, 0.1)),
    ]
    pair = Tables(np.array([[6, 7]]), np.array([0]), rng.normal(0, 1, (1, 1, 2, 2)))
    wiring = wire([2] * 8, [pair], structured=factors, log_unary=random_scores(rng, (2, 16), 1, 0.05))
    result = bp.run(wiring, schedule=schedule, tolerance=1e-11)
    assert result.kind == "exact"
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.log_z[b], want.log_z, atol=1e-9)
        assert_allclose(result.marginals[b], want.marginals(), atol=1e-9)


@pytest.mark.parametrize("steps", [None, 3, "graphs"])
def test_a_chain_is_tables_in_every_engine(steps):
    rng = np.random.default_rng(0)
    shape = {None: (3, 3), 3: (3, 3, 3), "graphs": (2, 3, 3, 3)}[steps]
    wiring = wire([3] * 4, structured=[ChainFactor([2, 0, 3, 1], rng.normal(size=shape))], log_unary=np.zeros((2, 12)))
    for b, want in enumerate(enumerate_graphs(wiring)):
        for engine in (bp, exact, trw):
            assert_allclose(engine.run(wiring).log_z[b], want.log_z, rtol=1e-10)
        assert_allclose(max_product.run(wiring).log_z[b], want.best, rtol=1e-10)


@given(seed=seeds)
def test_loopy_belief_propagation_is_the_same_with_tables(seed):
    rng = np.random.default_rng(seed)
    factors = [
        AtMostOne([0, 1, 2]),
        Cardinality([1, 2, 3], rng.normal(0, 0.5, 4)),
    ]
    unary, chain = rng.normal(0, 0.5, (1, 8)), ChainFactor([0, 3], rng.normal(0, 0.5, (2, 2)))
    tables = [chain] + [Tables(f.variables[None], np.array([0]), f.table()[:, None]) for f in factors]
    with_factors = bp.run(wire([2] * 4, structured=[*factors, chain], log_unary=unary), tolerance=1e-12, damping=0.3)
    with_tables = bp.run(wire([2] * 4, tables, log_unary=unary), tolerance=1e-12, damping=0.3)
    assert with_factors.converged.all()
    assert with_tables.converged.all()
    assert_allclose(with_factors.log_z, with_tables.log_z, atol=1e-9)
    assert_allclose(with_factors.marginals, with_tables.marginals, atol=1e-9)


def test_many_variables_at_once():
    k = 2000
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 1, (1, 2 * k))
    result = ExactlyOne(np.arange(k)).propagate(scores)
    odds = scores[0, 1::2] - scores[0, ::2]
    want = scores[0, ::2].sum() + np.logaddexp.reduce(odds)
    assert_allclose(result.log_value, want, rtol=1e-12)
    assert_allclose(np.exp(result.log_beliefs[0, 1::2]), np.exp(odds - np.logaddexp.reduce(odds)), rtol=1e-8)


def test_invalid_parameters_raise_errors():
    with pytest.raises(ShapeError, match="log_pairwise"):
        ChainFactor([0, 1], np.zeros((2, 3)))
    with pytest.raises(ShapeError, match="T-1=2"):
        ChainFactor([0, 1, 2], np.zeros((4, 2, 2)))
    with pytest.raises(ShapeError, match="log_counts"):
        Cardinality([0, 1], np.zeros(2))
    with pytest.raises(ValueRangeError, match="state must be one of them"):
        ExactlyOne([0, 1], state=2)
    with pytest.raises(ValueRangeError, match="more than max_size"):
        ExactlyOne(np.arange(40)).table()
    with pytest.raises(ShapeError, match="table of shape"):
        wire([3, 2], structured=[ExactlyOne([0, 1])])
