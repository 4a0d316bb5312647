"""Tree-reweighted propagation: an upper bound once converged, exact on trees; weights of spanning trees."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.oracle.graphs import enumerate_graphs, random_graph
from trelliswork.compute import threads
from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph import ChainFactor, ExactlyOne, Tables, wire
from trelliswork.inference.graph.engines import mean_field, spanning, structured_mean_field, trw

SEEDS = st.integers(0, 2**32 - 1)
ZEROS = st.sampled_from([0.0, 0.2, 0.4])
NEVER = -np.inf


def some_graphs(seed, zeros=0.0, **options):
    rng = np.random.default_rng(seed)
    defaults = {
        "n_variables": int(rng.integers(1, 7)),
        "n_factors": int(rng.integers(0, 12)),
        "n_graphs": int(rng.integers(1, 4)),
        "max_arity": 2,
    }
    return random_graph(rng, zeros=zeros, **(defaults | options))


def spanning_trees(n, ends):
    """All sets of n-1 edges without a cycle, as rows of 0 and 1."""
    trees = []
    for chosen in combinations(range(len(ends)), n - 1):
        root = list(range(n))

        def find(v, root=root):
            while root[v] != v:
                v = root[v]
            return v

        for e in chosen:
            u, v = find(ends[e][0]), find(ends[e][1])
            if u == v:
                break
            root[u] = v
        else:
            trees.append([e in chosen for e in range(len(ends))])
    return np.array(trees, float)


@given(seed=SEEDS, zeros=ZEROS, scale=st.sampled_from([0.5, 1.0, 3.0]))
def test_log_z_lies_between_mean_field_and_converged_trw(seed, zeros, scale):
    wiring = some_graphs(seed, zeros, scale=scale)
    upper = trw.run(wiring)
    naive, structured = mean_field.run(wiring), structured_mean_field.run(wiring)
    assert upper.kind == ("upper" if upper.converged.all() else "estimate")
    assert upper.converged.all()
    assert not np.isnan(upper.marginals).any()
    for b, want in enumerate(enumerate_graphs(wiring)):
        if want.log_z == NEVER:
            assert naive.log_z[b] == structured.log_z[b] == NEVER
            continue
        margin = 1e-7 * (1 + abs(want.log_z))
        assert naive.log_z[b] <= want.log_z + margin
        assert structured.log_z[b] <= want.log_z + margin
        assert want.log_z <= upper.log_z[b] + margin


@given(seed=SEEDS, zeros=st.sampled_from([0.0, 0.15]))
def test_trees_are_exact(seed, zeros):
    wiring = some_graphs(seed, zeros, tree=True)
    result = trw.run(wiring)
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.log_z[b], want.log_z, rtol=1e-7, atol=1e-7)
        assert_allclose(result.marginals[b], want.marginals(), atol=1e-6)
        for got, joint in zip(result.factor_marginals, want.factor_marginals(), strict=True):
            assert_allclose(got[b], joint, atol=1e-6)


@given(seed=SEEDS)
def test_the_value_matches_its_beliefs(seed):
    """<b, theta> + sum H - sum rho I, from the beliefs returned; the gradient by a unary score is the belief."""
    wiring = some_graphs(seed, n_graphs=1, n_states=np.random.default_rng(seed).integers(2, 4, 1 + seed % 6))
    pairs = {(min(u, v), max(u, v)) for group in wiring.groups for u, v in group.variables.tolist()}
    ends = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    weights = spanning.uniform_weights(wiring.n_variables, ends)
    result = trw.run(wiring, tolerance=1e-11)
    b = result.marginals[0]
    value = (b * wiring.log_unary[0]).sum() - sum(p * np.log(p) for p in b if p > 0)
    joints = {}
    for group, beliefs in zip(wiring.groups, result.factor_marginals, strict=True):
        for f, (u, v) in enumerate(group.variables.tolist()):
            joint = beliefs[0, f]
            value += (joint * group.dense()[0, f]).sum()
            joints[min(u, v), max(u, v)] = joint
            assert_allclose(joint.sum(axis=1), b[wiring.offsets[u] : wiring.offsets[u + 1]], atol=1e-7)
            assert_allclose(joint.sum(axis=0), b[wiring.offsets[v] : wiring.offsets[v + 1]], atol=1e-7)
    for (u, v), rho in zip(ends.tolist(), weights, strict=True):
        joint = joints[u, v]
        independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
        value -= rho * (joint * np.log(joint / independent)).sum()
    assert_allclose(result.log_z[0], value, rtol=1e-7, atol=1e-7)
    shifted = wiring.log_unary.copy()
    shifted[0, 0] += 1e-4
    change = trw.run(wiring.with_unary(shifted), tolerance=1e-11).log_z[0] - result.log_z[0]
    assert_allclose(change / 1e-4, b[0], atol=1e-4)


def test_factors_over_the_same_pair_are_one_edge():
    rng = np.random.default_rng(1)
    tables = [
        Tables(np.array([[0, 1], [0, 1]]), np.arange(2), rng.normal(size=(2, 2, 2, 3))),
        Tables(np.array([[1, 0]]), np.zeros(1, np.int64), rng.normal(size=(1, 1, 3, 2))),
    ]
    wiring = wire([2, 3], tables, log_unary=rng.normal(size=5))
    result = trw.run(wiring)
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.log_z[b], want.log_z, rtol=1e-9)
        for got, joint in zip(result.factor_marginals, want.factor_marginals(), strict=True):
            assert_allclose(got[b], joint, atol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_uniform_weights_count_spanning_trees(seed):
    rng = np.random.default_rng(seed)
    ends = np.array([(u, v) for u, v in combinations(range(6), 2) if v == u + 1 or rng.random() < 0.4])
    trees = spanning_trees(6, ends.tolist())
    assert_allclose(spanning.uniform_weights(6, ends), trees.mean(axis=0), rtol=1e-10)
    sampled = spanning.sampled_weights(6, ends, seed)
    assert_allclose(sampled.sum(), 5, rtol=1e-12)
    assert (sampled > 0).all()
    values = rng.normal(size=len(ends))
    chosen = spanning.spanning_forest(6, ends, values)
    assert_allclose(values[chosen].sum(), (trees @ values).max(), rtol=1e-12)


def test_weights_of_forests_and_of_large_graphs():
    assert_allclose(spanning.uniform_weights(5, np.array([[0, 1], [3, 4]])), 1)
    assert spanning.uniform_weights(5, np.zeros((0, 2), np.int64)).shape == (0,)
    ring = np.stack([np.arange(1500), (np.arange(1500) + 1) % 1500], axis=1)
    ring.sort(axis=1)
    weights = spanning.uniform_weights(1501, ring)
    assert_allclose(weights.sum(), 1499, rtol=1e-9)
    assert (weights > 0).all()


def test_damping_and_schedules_reach_the_same_point():
    wiring = some_graphs(7, n_variables=6, n_factors=12, n_graphs=2, scale=1.0)
    want = trw.run(wiring, tolerance=1e-10)
    damped = trw.run(wiring, tolerance=1e-10, damping=0.5)
    assert (damped.n_iter > want.n_iter).all()
    assert_allclose(damped.log_z, want.log_z, rtol=1e-9)
    assert_allclose(damped.marginals, want.marginals, atol=1e-8)


def test_without_convergence_the_value_is_not_a_bound():
    wiring = some_graphs(8, n_variables=6, n_factors=12, n_graphs=2, scale=2.0)
    result = trw.run(wiring, max_iter=1)
    assert result.kind == "estimate"
    assert not result.converged.any()
    assert (result.residual > 1e-8).all()


def test_chains_as_factors_and_impossible_graphs():
    rng = np.random.default_rng(2)
    chain = ChainFactor(np.arange(4), rng.normal(size=(3, 3)))
    wiring = wire([3] * 4, structured=[chain], log_unary=rng.normal(size=12))
    assert_allclose(trw.run(wiring).log_z, enumerate_graphs(wiring)[0].log_z, rtol=1e-8)
    never = Tables(np.array([[0, 1]]), np.zeros(1, np.int64), np.full((1, 1, 2, 2), NEVER))
    result = trw.run(wire([2, 2], [never]))
    assert result.log_z[0] == NEVER
    assert (result.marginals == 0).all()
    assert result.kind == "upper"


def test_evidence_cuts_cycles():
    rng = np.random.default_rng(3)
    ring = Tables(np.array([[0, 1], [1, 2], [2, 3], [3, 0]]), np.arange(4), 2 * rng.normal(size=(1, 4, 3, 3)))
    unary = rng.normal(size=(3, 4, 3))
    unary[0, 1, [0, 2]] = NEVER  # graph 0 knows variable 1, graph 1 variable 2, graph 2 nothing
    unary[1, 2, 1:] = NEVER
    wiring = wire([3] * 4, [ring], log_unary=unary.reshape(3, -1))
    result = trw.run(wiring)
    for b, want in enumerate(enumerate_graphs(wiring)):
        if b < 2:
            assert_allclose(result.log_z[b], want.log_z, rtol=1e-7)
            assert_allclose(result.marginals[b], want.marginals(), atol=1e-6)
        else:
            assert want.log_z < result.log_z[b] + 1e-7


def test_results_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(4)
    wiring = random_graph(rng, n_states=[3] * 8, n_factors=12, n_graphs=20, max_arity=2)
    with threads.num_threads(1):
        one = trw.run(wiring)
    with threads.num_threads(3):
        three = trw.run(wiring)
    assert_array_equal(one.log_z, three.log_z)
    assert_array_equal(one.marginals, three.marginals)


def test_invalid_factors_and_options_raise_errors():
    triple = Tables(np.array([[0, 2, 1]]), np.zeros(1, np.int64), np.zeros((1, 1, 2, 2, 2)))
    with pytest.raises(ValueRangeError, match=r"supports factors over two variables, but factor 0 is over \[0, 2, 1\]"):
        trw.run(wire([2] * 3, [triple]))
    with pytest.raises(ValueRangeError, match="supports factors over two variables"):
        trw.run(wire([2] * 3, structured=[ExactlyOne(np.arange(3))]))
    ring = Tables(np.array([[0, 1], [1, 2], [2, 0]]), np.zeros(3, np.int64), np.zeros((1, 1, 2, 2)))
    wiring = wire([2] * 3, [ring])
    with pytest.raises(ValueRangeError, match=r"damping must be in \[0, 1\), got 1"):
        trw.run(wiring, damping=1)
    with pytest.raises(ValueRangeError, match="tolerance must not be negative"):
        trw.run(wiring, tolerance=-1)


def test_trw_with_a_subnormal_entry():
    for low in (-744.0, -400.0):
        table = np.array([[low, -2 * 372.0], [0.0, low]])
        graph = wire([2, 2], [Tables(np.array([[0, 1]]), np.array([0]), table[None, None])])
        result = trw.run(graph)
        assert np.isfinite(result.log_z).all()
