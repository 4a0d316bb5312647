"""Structured mean field: exact inside components, a bound between naive mean field and log Z."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.oracle.graphs import enumerate_graphs, random_graph
from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph import ChainFactor, Tables, wire
from trelliswork.inference.graph.engines import mean_field, structured_mean_field
from trelliswork.inference.graph.engines.components import find
from trelliswork.inference.graph.layout import flatten

SEEDS = st.integers(0, 2**32 - 1)
ZEROS = st.sampled_from([0.0, 0.2, 0.5])
NEVER = -np.inf


def some_graphs(seed, zeros, **options):
    rng = np.random.default_rng(seed)
    defaults = {
        "n_variables": int(rng.integers(1, 7)),
        "n_factors": int(rng.integers(0, 8)),
        "n_graphs": int(rng.integers(1, 4)),
        "max_arity": 4,
    }
    return random_graph(rng, zeros=zeros, **(defaults | options))


def factorial_chain(rng, T=4, S1=3, S2=2, n_graphs=1, cross=1.0):
    """Two chains, variables 0..T-1 and T..2T-1, joined at each position."""
    t = np.arange(T)
    step = np.stack([t[:-1], t[1:]], axis=1)
    zeros = np.zeros(T, np.int64)
    tables = [
        Tables(step, zeros[1:], rng.normal(size=(1, 1, S1, S1))),
        Tables(step + T, zeros[1:], rng.normal(size=(1, 1, S2, S2))),
        Tables(np.stack([t, t + T], axis=1), zeros, cross * rng.normal(size=(1, 1, S1, S2))),
    ]
    return wire([S1] * T + [S2] * T, tables, log_unary=rng.normal(size=(n_graphs, T * (S1 + S2))))


@given(seed=SEEDS, zeros=ZEROS)
def test_the_bound_is_below_log_z_and_never_decreases(seed, zeros):
    wiring = some_graphs(seed, zeros)
    result = structured_mean_field.run(wiring)
    assert result.kind == "lower"
    assert not np.isnan(result.marginals).any()
    for b, want in enumerate(enumerate_graphs(wiring)):
        if want.log_z == NEVER:
            assert result.log_z[b] == NEVER
            assert (result.marginals[b] == 0).all()
            continue
        assert NEVER < result.log_z[b] <= want.log_z + 1e-9 * (1 + abs(want.log_z))
        assert (np.diff(result.trace[b]) >= -1e-9 * (1 + abs(want.log_z))).all()
        assert_allclose(np.add.reduceat(result.marginals[b], wiring.offsets[:-1]), 1, rtol=1e-9)


@given(seed=SEEDS, zeros=st.sampled_from([0.0, 0.15]))
def test_one_component_is_exact(seed, zeros):
    wiring = some_graphs(seed, zeros, tree=True, max_arity=2)
    result = structured_mean_field.run(wiring, [range(wiring.n_variables)])
    automatic = structured_mean_field.run(wiring)
    for b, want in enumerate(enumerate_graphs(wiring)):
        for got in (result, automatic):
            assert_allclose(got.log_z[b], want.log_z, rtol=1e-9, atol=1e-9)
            assert_allclose(got.marginals[b], want.marginals(), atol=1e-9)
            for beliefs, joint in zip(got.factor_marginals, want.factor_marginals(), strict=True):
                assert_allclose(beliefs[b], joint, atol=1e-9)


def test_forests_of_several_trees_in_one_component_are_exact():
    rng = np.random.default_rng(0)
    tables = Tables(np.array([[0, 1], [3, 2]]), np.arange(2), rng.normal(size=(1, 2, 2, 2)))
    wiring = wire([2] * 5, [tables], log_unary=rng.normal(size=10))
    result = structured_mean_field.run(wiring, [[4, 2, 0, 1, 3]])
    assert_allclose(result.log_z, enumerate_graphs(wiring)[0].log_z, rtol=1e-10)


def test_two_factors_over_one_pair_are_both_counted():
    rng = np.random.default_rng(1)
    tables = [
        Tables(np.array([[0, 1]]), np.zeros(1, np.int64), rng.normal(size=(1, 1, 2, 3))),
        Tables(np.array([[1, 0]]), np.zeros(1, np.int64), rng.normal(size=(1, 1, 3, 2))),
    ]
    wiring = wire([2, 3], tables, log_unary=rng.normal(size=5))
    result = structured_mean_field.run(wiring, [[1, 0]])
    assert_allclose(result.log_z, enumerate_graphs(wiring)[0].log_z, rtol=1e-10)


def test_a_factorial_chain_is_split_into_its_chains():
    wiring = factorial_chain(np.random.default_rng(2), T=6, n_graphs=2)
    components = find(wiring, flatten(wiring))
    assert sorted(map(sorted, components)) == [list(range(6)), list(range(6, 12))]


def test_interleaved_chains_are_found_too():
    rng = np.random.default_rng(3)
    t = np.arange(0, 12, 2)
    step = np.stack([t[:-1], t[1:]], axis=1)
    tables = [
        Tables(np.concatenate([step, step + 1]), np.zeros(10, np.int64), rng.normal(size=(1, 1, 2, 2))),
        Tables(np.stack([t, t + 1], axis=1), np.zeros(6, np.int64), 0.1 * rng.normal(size=(1, 1, 2, 2))),
    ]
    wiring = wire([2] * 12, tables)
    components = find(wiring, flatten(wiring))
    assert sorted(map(sorted, components)) == [list(range(0, 12, 2)), list(range(1, 12, 2))]


def test_chains_are_better_than_single_variables_and_exact_without_coupling():
    rng = np.random.default_rng(4)
    wiring = factorial_chain(rng, n_graphs=3)
    chains = [range(4), range(4, 8)]
    naive, structured = mean_field.run(wiring), structured_mean_field.run(wiring, chains)
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert naive.log_z[b] < structured.log_z[b] < want.log_z
    apart = factorial_chain(rng, n_graphs=2, cross=0.0)
    result = structured_mean_field.run(apart, chains)
    for b, want in enumerate(enumerate_graphs(apart)):
        assert_allclose(result.log_z[b], want.log_z, rtol=1e-9)
        assert_allclose(result.marginals[b], want.marginals(), rtol=1e-7, atol=1e-9)


def test_updates_match_the_paper():
    """q_d ~ exp E_{q_d'}[score], d' != d, at the fixed point: for a factorial chain by enumeration."""
    wiring = factorial_chain(np.random.default_rng(5), T=3)
    result = structured_mean_field.run(wiring, [range(3), range(3, 6)], tolerance=1e-13)
    want = enumerate_graphs(wiring)[0]
    shape = (27, 8)  # states of the two chains, in the order of the enumeration
    score = want.scores.reshape(shape)
    one, two = np.ones(27) / 27, np.ones(8) / 8
    for _ in range(1000):
        one = np.exp(score @ two - (score @ two).max())
        one /= one.sum()
        two = np.exp(one @ score - (one @ score).max())
        two /= two.sum()
    bound = one @ score @ two - (one * np.log(one)).sum() - (two * np.log(two)).sum()
    q = np.multiply.outer(one, two).ravel()
    marginals = [q[want.assignments[:, v] == x].sum() for v in range(6) for x in range(wiring.n_states[v])]
    assert_allclose(result.log_z, bound, rtol=1e-9)
    assert_allclose(result.marginals[0], marginals, rtol=1e-6)


def test_factors_over_three_variables_may_touch_a_coupled_pair():
    rng = np.random.default_rng(6)
    tables = [
        Tables(np.array([[0, 1]]), np.zeros(1, np.int64), rng.normal(size=(1, 1, 2, 3))),
        Tables(np.array([[2, 1, 0]]), np.zeros(1, np.int64), rng.normal(size=(1, 1, 2, 3, 2))),
    ]
    wiring = wire([2, 3, 2], tables, log_unary=rng.normal(size=7))
    result = structured_mean_field.run(wiring, [[0, 1], [2]], tolerance=1e-13)
    want = enumerate_graphs(wiring)[0]
    score = want.scores.reshape(6, 2)
    pair, single = np.ones(6) / 6, result.marginals[0, 5:]
    pair = np.exp(score @ single)
    pair /= pair.sum()
    last = np.exp(pair @ score)
    assert_allclose(single, last / last.sum(), rtol=1e-8)
    bound = pair @ score @ single - (pair * np.log(pair)).sum() - (single * np.log(single)).sum()
    assert_allclose(result.log_z, bound, rtol=1e-10)
    assert bound < want.log_z
    joint = np.multiply.outer(pair.reshape(2, 3), single).transpose(2, 1, 0)
    assert_allclose(result.factor_marginals[1][0, 0], joint, rtol=1e-7)


def test_zeros_inside_components_are_exact():
    """Hard transitions in a chain: its product start would be impossible, the chain's own is not."""
    table = np.array([[0.0, NEVER], [0.0, 0.5]])
    wiring = wire([2] * 5, structured=[ChainFactor(np.arange(5), table)])
    result = structured_mean_field.run(wiring, [range(5)])
    assert_allclose(result.log_z, enumerate_graphs(wiring)[0].log_z, rtol=1e-10)


def test_evidence_cuts_cycles():
    rng = np.random.default_rng(7)
    ring = Tables(np.array([[0, 1], [1, 2], [2, 3], [3, 0]]), np.arange(4), rng.normal(size=(1, 4, 3, 3)))
    unary = rng.normal(size=(4, 3))
    unary[1, [0, 2]] = NEVER
    wiring = wire([3] * 4, [ring], log_unary=unary.ravel())
    assert sorted(map(sorted, find(wiring, flatten(wiring)))) == [[0, 2, 3], [1]]
    assert_allclose(structured_mean_field.run(wiring).log_z, enumerate_graphs(wiring)[0].log_z, rtol=1e-9)


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ([[0, 1, 2]], "factors inside component 0 form a cycle through variables"),
        ([[0, 1], [1, 2]], "components must share no variable, got 1 in components 0 and 1"),
        ([[0, 1]], "components must contain every variable, got none with 2"),
        ([[0, 1], [2, 3]], "components must contain variables from 0 to 2, got 3 in component 1"),
    ],
)
def test_invalid_components_raise_errors(components, message):
    triangle = Tables(np.array([[0, 1], [1, 2], [2, 0]]), np.zeros(3, np.int64), np.zeros((1, 1, 2, 2)))
    with pytest.raises(ValueRangeError, match=message):
        structured_mean_field.run(wire([2] * 3, [triangle]), components)


def test_a_factor_with_three_variables_of_a_component_raises_an_error():
    triple = Tables(np.array([[0, 2, 1]]), np.zeros(1, np.int64), np.zeros((1, 1, 2, 2, 2)))
    wiring = wire([2] * 3, [triple])
    with pytest.raises(
        ValueRangeError, match=r"factor 0 over variables \[0, 2, 1\] touches three or more of component 0"
    ):
        structured_mean_field.run(wiring, [[0, 1, 2]])
    assert structured_mean_field.run(wiring).converged.all()


@given(seed=SEEDS)
def test_found_components_are_always_forests(seed):
    rng = np.random.default_rng(seed)
    wiring = random_graph(rng, n_variables=12, n_factors=int(rng.integers(0, 30)), max_states=2)
    components = find(wiring, flatten(wiring))
    assert sorted(v for component in components for v in component) == list(range(12))
    structured_mean_field.run(wiring, components, max_iter=1)  # raises an error for cycles
