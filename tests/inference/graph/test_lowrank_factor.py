"""Low-rank factors: each equals its dense table in every result; trees of them are exact."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.oracle.graphs import enumerate_graphs, random_scores
from trelliswork.distributions import FactorGraph, LowRankFactor
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph import Propagator, Tables, wire
from trelliswork.inference.graph.engines import bp, max_product

seeds = st.integers(0, 10_000)


def make(rng, sizes=(3, 4), R=2, n_graphs=None, scale=1.0, zeros=0.0, variables=(0, 1)):
    head = () if n_graphs is None else (n_graphs,)
    left = random_scores(rng, (*head, sizes[0], R), scale, zeros)
    right = random_scores(rng, (sizes[1], R), scale, zeros)
    return LowRankFactor(variables, left, right, log=True)


@given(
    seed=seeds,
    R=st.integers(1, 4),
    batched=st.booleans(),
    zeros=st.sampled_from([0.0, 0.3]),
    scale=st.sampled_from([1.0, 400.0]),
)
def test_a_factor_equals_its_table(seed, R, batched, zeros, scale):
    rng = np.random.default_rng(seed)
    B = 2
    factor = make(rng, R=R, n_graphs=B if batched else None, scale=scale, zeros=zeros)
    assert isinstance(factor, Propagator)
    sizes = factor.n_states
    incoming = random_scores(rng, (B, sizes.sum()), scale, zeros)
    result, best = factor.propagate(incoming), factor.best(incoming)
    wiring = wire(sizes, structured=[factor], log_unary=incoming, n_graphs=B)
    table = np.broadcast_to(factor.table(), (B, *sizes))
    for b, want in enumerate(enumerate_graphs(wiring)):
        if want.log_z == -np.inf:
            assert result.log_value[b] == best.value[b] == -np.inf
            assert (result.log_beliefs[b] == -np.inf).all()
            assert (best.assignment[b] == -1).all()
        else:
            assert_allclose(result.log_value[b], want.log_z, rtol=1e-10, atol=1e-9)
            assert_allclose(np.exp(result.log_beliefs[b]), want.marginals(), atol=1e-9)
            assert_allclose(best.value[b], want.best, rtol=1e-10, atol=1e-10)
            assert_allclose(wiring.score(np.tile(best.assignment[b], (B, 1)))[b], want.best, rtol=1e-10, atol=1e-10)
        first, second = incoming[b, : sizes[0]], incoming[b, sizes[0] :]
        for got, reduce in ((result.log_messages[b], np.logaddexp), (best.log_messages[b], np.maximum)):
            want_messages = np.concatenate(
                [reduce.reduce(table[b] + second, axis=1), reduce.reduce(table[b] + first[:, None], axis=0)]
            )
            assert np.array_equal(got == -np.inf, want_messages == -np.inf)
            possible = want_messages > -np.inf
            assert_allclose(got[possible], want_messages[possible], rtol=1e-9, atol=1e-8)


@given(seed=seeds)
def test_a_tree_of_low_rank_factors_is_exact(seed):
    rng = np.random.default_rng(seed)
    factors = [
        make(rng, (3, 2), variables=(0, 1)),
        make(rng, (2, 4), variables=(1, 2)),
        make(rng, (2, 3), variables=(1, 3)),
    ]
    wiring = wire([3, 2, 4, 3], structured=factors, log_unary=random_scores(rng, (2, 12), 1, 0.05))
    result, best = bp.run(wiring, tolerance=1e-12), max_product.run(wiring)
    assert result.kind == "exact"
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.log_z[b], want.log_z, atol=1e-9)
        assert_allclose(result.marginals[b], want.marginals(), atol=1e-9)
        assert_allclose(wiring.score(best.assignment)[b], want.best, atol=1e-9)


def test_a_loop_is_the_same_with_tables():
    rng = np.random.default_rng(0)
    factors = [make(rng, (3, 3), variables=v, scale=0.5) for v in ((0, 1), (1, 2), (2, 0))]
    tables = [Tables(f.variables[None], np.array([0]), f.table()[:, None]) for f in factors]
    unary = rng.normal(0, 0.5, (1, 9))
    ours = bp.run(wire([3] * 3, structured=factors, log_unary=unary), tolerance=1e-12, damping=0.3)
    theirs = bp.run(wire([3] * 3, tables, log_unary=unary), tolerance=1e-12, damping=0.3)
    assert_allclose(ours.log_z, theirs.log_z, atol=1e-9)
    assert_allclose(ours.marginals, theirs.marginals, atol=1e-9)


@pytest.mark.parametrize("zeros", [0.0, 0.2])
def test_the_gradient_by_the_parameters_equals_differences_and_that_of_a_table(zeros):
    rng = np.random.default_rng(1)
    given = [random_scores(rng, (3, 2), zeros=zeros), random_scores(rng, (4, 2))]
    unary = torch.from_numpy(rng.normal(size=(2, 7)))
    left, right = (torch.tensor(array, requires_grad=True) for array in given)
    graph = FactorGraph([3, 4], structured=[LowRankFactor((0, 1), left, right, log=True)], log_unary=unary)
    states = torch.tensor([[1, 2], [0, 3]])
    found = torch.autograd.grad(graph.log_prob(states).sum(), (left, right))
    table = torch.logsumexp(left[:, None] + right, dim=2)
    dense = FactorGraph([3, 4], [((0, 1), table)], log_unary=unary)
    for one, other in zip(found, torch.autograd.grad(dense.log_prob(states).sum(), (left, right)), strict=True):
        possible = ~torch.isneginf(left) if one.shape == left.shape else torch.ones_like(one, dtype=torch.bool)
        assert_allclose(one[possible], other[possible], rtol=1e-10, atol=1e-12)

    def value(*arrays):
        factor = LowRankFactor((0, 1), *arrays, log=True)
        return FactorGraph([3, 4], structured=[factor], log_unary=unary).log_prob(states).sum().item()

    for k, array in enumerate(given):
        for at in np.argwhere(array > -np.inf):
            moved = [[a.copy() for a in given] for _ in range(2)]
            moved[0][k][tuple(at)] += 1e-6
            moved[1][k][tuple(at)] -= 1e-6
            assert_allclose(found[k][tuple(at)].item(), (value(*moved[0]) - value(*moved[1])) / 2e-6, atol=1e-8)


def test_a_long_chain_of_many_states():
    rng = np.random.default_rng(2)
    S, R, T = 500, 3, 6
    left, right = rng.random((S, R)), rng.random((S, R))
    factors = [LowRankFactor((t, t + 1), left, right) for t in range(T - 1)]
    graph = FactorGraph([S] * T, structured=factors)
    message = np.ones(S)
    for _ in range(T - 1):
        message = right @ (left.T @ message)
    assert_allclose(graph.log_partition().item(), np.log(message.sum()), rtol=1e-10)


def test_invalid_parameters_raise_errors():
    with pytest.raises(ShapeError, match="two variables"):
        LowRankFactor((0, 1, 2), np.ones((2, 1)), np.ones((2, 1)))
    with pytest.raises(ShapeError, match="rank"):
        LowRankFactor((0, 1), np.ones((2, 1)), np.ones((2, 2)))
    with pytest.raises(ValueRangeError, match="log=True"):
        LowRankFactor((0, 1), -np.ones((2, 1)), np.ones((2, 1)))
    with pytest.raises(ValueRangeError, match="must be logarithms"):
        LowRankFactor((0, 1), torch.ones((2, 1), requires_grad=True), np.ones((2, 1)))
    with pytest.raises(ShapeError, match="shape"):
        LowRankFactor((0, 1), np.ones(2), np.ones((2, 1)))
    with pytest.raises(ShapeError, match="graphs"):
        LowRankFactor((0, 1), np.ones((2, 2, 1)), np.ones((3, 2, 1)))
    with pytest.raises(ValueRangeError, match="max_size"):
        LowRankFactor((0, 1), np.ones((2, 1)), np.ones((2, 1))).table(3)
