"""Residual belief propagation by bounds: they are never below the true changes, and order the updates."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.oracle.graphs import random_graph, random_scores
from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph import AtMostOne, Tables, wire
from trelliswork.inference.graph.engines import bp, max_product
from trelliswork.inference.graph.engines.schedules import prepare
from trelliswork.inference.graph.kernels import flooding, residual
from trelliswork.inference.graph.kernels import messages as weights

seeds = st.integers(0, 10_000)


def distance(new, old):
    """log max(new / old) - log min(new / old) over the possible states; very large if these differ."""
    if ((new > 0) != (old > 0)).any():
        return 1e200  # the kernel takes 1e-300 for zero
    change = np.log(new[new > 0]) - np.log(old[new > 0])
    return change.max() - change.min()


def binary_grid(side, scale, seed, zeros=0.0, n_graphs=1):
    rng = np.random.default_rng(seed)
    index = np.arange(side * side).reshape(side, side)
    pairs = np.concatenate(
        [np.stack([a.ravel(), b.ravel()], axis=1) for a, b in ((index[:, :-1], index[:, 1:]), (index[:-1], index[1:]))]
    )
    tables = random_scores(rng, (n_graphs, len(pairs), 2, 2), scale, zeros)
    unary = random_scores(rng, (n_graphs, 2 * side * side), 1.0, zeros)
    return wire(np.full(side * side, 2), [Tables(pairs, np.arange(len(pairs)), tables)], log_unary=unary)


@given(seed=seeds, zeros=st.sampled_from([0.0, 0.1]), damping=st.sampled_from([0.0, 0.4]), n_iter=st.integers(1, 4))
def test_bounds_are_not_below_the_changes(seed, zeros, damping, n_iter):
    """After any number of updates, for every message: by how much would it change if it were computed now?"""
    rng = np.random.default_rng(seed)
    if seed % 2:
        wiring = random_graph(rng, n_variables=6, n_factors=8, n_graphs=2, max_arity=4, scale=1.0, zeros=zeros)
    else:
        wiring = binary_grid(4, 1.0, seed, zeros, n_graphs=2)
    graph = prepare(wiring)
    pairs = bp._pairs(graph)
    queue = bp._buckets(graph, pairs)
    r = bp._uniform(graph)
    state = weights.Probabilities(bp._weights_of_states(graph), r, graph.messages.log_q, graph.messages.rows)
    options = weights.Stopping(damping, 1e-6, n_iter, 0.0)
    outcome = weights.Outcome(np.zeros(2, np.int64), np.zeros(2), np.zeros(2, np.int64))
    residual.residual_weights(0, 2, graph.layout, graph.data, state, queue, pairs, options, outcome)
    before = r.copy()
    one = weights.Outcome(np.zeros(2, np.int64), np.zeros(2), np.zeros(2, np.int64))
    scratch = np.empty_like(r)
    flooding.flood(
        0, 2, graph.layout, graph.data, state, scratch, pairs, options._replace(damping=0.0, max_iter=1), one
    )
    edge_at = graph.layout.edge_at
    for b in range(2):
        if outcome.status[b] == weights.IMPOSSIBLE or one.status[b] == weights.IMPOSSIBLE:
            continue
        for e, (first, last) in enumerate(pairwise(edge_at)):
            # a damped message with a new zero does not sum to one
            new, old = (m[b, first:last] / m[b, first:last].sum() for m in (r, before))
            assert queue.key[b, e] >= distance(new, old) * (1 - 1e-9) - 1e-13
            assert queue.key[b, e] >= (np.abs(new - old) / np.maximum(np.maximum(new, old), 1e-300)).max() - 1e-13
        assert outcome.residual[b] == queue.key[b].max()
        if outcome.status[b] == weights.CONVERGED:
            assert queue.key[b].max() <= 1e-6


@given(seed=seeds, n_rows=st.integers(1, 4), n_columns=st.integers(1, 9))
def test_contractions_bound_the_effect_of_a_table(seed, n_rows, n_columns):
    rng = np.random.default_rng(seed)
    table = rng.normal(0, rng.choice([1e-6, 0.3, 3.0]), (n_rows, n_columns))
    graph = prepare(wire([n_rows, n_columns], [Tables(np.array([[0, 1]]), np.zeros(1, np.int64), table[None, None])]))
    forth, back = bp._buckets(graph, bp._pairs(graph)).contraction[0]
    for contraction, matrix in ((forth, table), (back, table.T)):
        assert 0 < contraction < 1
        old, new = rng.random((2, len(matrix)))
        sent = [w @ np.exp(matrix) for w in (old, new)]
        assert distance(sent[1], sent[0]) <= contraction * distance(new, old) + 1e-13


@pytest.mark.parametrize("damping", [0.0, 0.3])
@given(seed=seeds, zeros=st.sampled_from([0.0, 0.05]))
def test_schedules_agree_on_binary_graphs(damping, seed, zeros):
    """Messages of two numbers have code of their own."""
    wiring = binary_grid(4, 0.5, seed, zeros, n_graphs=2)
    want = bp.run(wiring, schedule="flooding", tolerance=1e-12, max_iter=2000)
    for schedule in ("flooding", "sequential", "residual"):
        got = bp.run(wiring, schedule=schedule, damping=damping, tolerance=1e-12, max_iter=2000)
        same = want.converged & got.converged
        assert same.all() or zeros
        assert np.array_equal(got.impossible[same], want.impossible[same])
        assert_allclose(got.log_z[same], want.log_z[same], atol=1e-9)
        assert_allclose(got.marginals[same], want.marginals[same], atol=1e-8)


def test_residuals_converge_where_flooding_oscillates():
    rng = np.random.default_rng(0)
    grid = binary_grid(12, 0.0, 0)
    couplings = rng.uniform(-1.2, 1.2, len(grid.groups[0]))[:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])
    pairs = grid.groups[0].variables
    wiring = wire(
        grid.n_states, [Tables(pairs, np.arange(len(pairs)), couplings[None])], log_unary=0.1 * grid.log_unary
    )
    assert not bp.run(wiring, schedule="flooding", max_iter=200).converged.any()
    result = bp.run(wiring, schedule="residual", max_iter=200)
    assert result.converged.all()
    assert result.residual[0] <= 1e-8


def test_residuals_are_refused_where_nothing_bounds_the_changes():
    pair = Tables(np.array([[0, 1]]), np.array([0]), np.zeros((1, 1, 2, 2)))
    with pytest.raises(ValueRangeError, match="needs tables only"):
        bp.run(wire([2, 2], [pair], structured=[AtMostOne([0, 1])]), schedule="residual")
    with pytest.raises(ValueRangeError, match="max-product has no schedule"):
        max_product.run(wire([2, 2], [pair]), schedule="residual")
