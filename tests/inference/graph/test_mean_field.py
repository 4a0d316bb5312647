"""Mean field: a lower bound that no update decreases, finite wherever something is possible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.compiled import from_python
from tests.oracle.graphs import enumerate_graphs, random_graph
from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.inference.graph import ChainFactor, ExactlyOne, Tables, wire
from trelliswork.inference.graph.engines import mean_field
from trelliswork.inference.graph.engines.components import find, singles, split
from trelliswork.inference.graph.kernels import mean_field as kernels
from trelliswork.inference.graph.layout import flatten, variables

call_update = from_python(kernels._update)
call_bound = from_python(kernels._bound)

SEEDS = st.integers(0, 2**32 - 1)
ZEROS = st.sampled_from([0.0, 0.2, 0.5])
NEVER = -np.inf


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


def bound_of_product(want, marginals):
    """E_q[score] + H(q) over all assignments, for a product of single-variable beliefs."""
    offsets = want.wiring.offsets
    q = np.prod(marginals[offsets[:-1] + want.assignments], axis=1)
    inside = q > 0
    entropy = -sum(p * np.log(p) for p in marginals if p > 0)
    return float((q[inside] * want.scores[inside]).sum() + entropy)


@given(seed=SEEDS, zeros=ZEROS, scale=st.sampled_from([0.3, 1.0, 10.0]))
def test_the_bound_is_below_log_z_and_never_decreases(seed, zeros, scale):
    wiring = some_graphs(seed, zeros, scale)
    result = mean_field.run(wiring)
    assert result.kind == "lower"
    assert not np.isnan(result.marginals).any()
    for b, want in enumerate(enumerate_graphs(wiring)):
        if want.log_z == NEVER:
            assert result.log_z[b] == NEVER
            assert result.impossible[b]
            assert (result.marginals[b] == 0).all()
            continue
        assert NEVER < result.log_z[b] <= want.log_z + 1e-9 * (1 + abs(want.log_z))
        assert_allclose(result.log_z[b], bound_of_product(want, result.marginals[b]), rtol=1e-8, atol=1e-8)
        assert_allclose(np.add.reduceat(result.marginals[b], wiring.offsets[:-1]), 1, rtol=1e-9)
        trace = result.trace[b, : result.n_iter[b] + 1]
        assert (np.diff(trace) >= -1e-9 * (1 + abs(want.log_z))).all()
        assert trace[-1] == result.log_z[b]


@given(seed=SEEDS, zeros=ZEROS, structured=st.booleans())
def test_no_single_update_decreases_the_bound(seed, zeros, structured):
    wiring = some_graphs(seed, zeros)
    flat = flatten(wiring)
    parts = split(wiring, flat, find(wiring, flat)) if structured else singles(wiring, flat)
    n_beliefs, n_messages = parts.size.tolist()
    room, place = np.zeros((3, max(n_beliefs, n_messages))), np.zeros((2, 8), np.int64)
    scratch = kernels.Scratch(*room, *place)
    D = len(parts.member_ptr) - 1
    state = kernels.State(np.zeros((wiring.n_graphs, n_beliefs)), np.zeros((wiring.n_graphs, D)))
    bounds = np.zeros(8)
    noise = np.random.default_rng(seed).normal(size=wiring.log_unary.shape[1])
    given_variables = variables(wiring)
    kernels.initialize(0, wiring.n_graphs, given_variables, flat, parts, noise, scratch, state, bounds)
    for b in range(wiring.n_graphs):
        before = bounds[b]
        if before == NEVER:
            continue
        beliefs, entropy, unary = state.beliefs[b], state.entropy[b], wiring.log_unary[b]
        for d in [*range(D), *range(D)]:
            call_update(b, d, False, given_variables, unary, flat, parts, scratch, beliefs, entropy)
            after = call_bound(b, given_variables, flat, parts, scratch, beliefs, entropy)
            assert after >= before - 1e-10 * (1 + abs(before))
            before = after


def test_the_fixed_point_satisfies_its_equation():
    rng = np.random.default_rng(0)
    wiring = random_graph(rng, n_states=[2, 3, 2, 3], n_factors=5, max_arity=3, scale=0.5)
    result = mean_field.run(wiring, tolerance=1e-12)
    want = enumerate_graphs(wiring)[0]
    offsets, q = wiring.offsets, result.marginals[0]
    each = q[offsets[:-1] + want.assignments]
    for v in range(4):
        rest = np.prod(np.delete(each, v, axis=1), axis=1)
        logits = np.array([(rest * want.scores)[want.assignments[:, v] == x].sum() for x in range(wiring.n_states[v])])
        expected = np.exp(logits - logits.max())
        assert_allclose(q[offsets[v] : offsets[v + 1]], expected / expected.sum(), rtol=1e-8)


def test_without_factors_it_is_exact():
    rng = np.random.default_rng(1)
    wiring = wire([3, 2], log_unary=rng.normal(size=5))
    result = mean_field.run(wiring)
    assert_allclose(result.log_z, enumerate_graphs(wiring)[0].log_z, rtol=1e-12)


def test_factor_marginals_are_products():
    rng = np.random.default_rng(2)
    wiring = random_graph(rng, n_states=[2, 3, 2, 2], n_factors=4, n_graphs=2, max_arity=3)
    result = mean_field.run(wiring)
    for group, beliefs in zip(wiring.groups, result.factor_marginals, strict=True):
        for f, scope in enumerate(group.variables):
            for b in range(2):
                product = np.ones(())
                for v in scope:
                    product = np.multiply.outer(product, result.marginals[b, wiring.offsets[v] : wiring.offsets[v + 1]])
                assert_allclose(beliefs[b, f], product, rtol=1e-12)


def test_a_start_from_the_unary_scores_that_is_impossible_is_replaced():
    """Two variables must be equal, their unary scores allow all: the product of softmaxes has bound -inf."""
    table = np.array([[0.0, NEVER], [NEVER, 1.0]])[None, None]
    wiring = wire([2, 2], [Tables(np.array([[0, 1]]), np.zeros(1, np.int64), table)])
    result = mean_field.run(wiring)
    assert result.log_z[0] in (0.0, 1.0)
    assert sorted(result.marginals[0].tolist()) == [0, 0, 1, 1]


def test_noise_breaks_symmetries():
    """Two equal variables that prefer to agree: uniform beliefs are a fixed point, and a bad one."""
    wiring = wire([2, 2], [Tables(np.array([[0, 1]]), np.zeros(1, np.int64), np.array([[[[3.0, -3], [-3, 3]]]]))])
    stuck = mean_field.run(wiring, noise=0.0)
    assert_allclose(stuck.marginals, 0.5)
    assert (mean_field.run(wiring).log_z > stuck.log_z + 1).all()


def test_constraints_over_many_variables():
    rng = np.random.default_rng(3)
    wiring = wire([2] * 8, log_unary=rng.normal(size=16), structured=[ExactlyOne(np.arange(8))])
    result = mean_field.run(wiring)
    assert result.log_z[0] > NEVER
    assert_allclose(result.marginals.reshape(8, 2)[:, 1].sum(), 1)
    chain = wire([3] * 30, structured=[ChainFactor(np.arange(30), rng.normal(size=(3, 3)))])
    assert mean_field.run(chain).converged.all()


def test_convergence_is_reported():
    wiring = random_graph(np.random.default_rng(0), n_states=[3] * 5, n_graphs=2)
    result = mean_field.run(wiring, max_iter=1, tolerance=0.0)
    assert (result.n_iter == 1).all()
    assert_array_equal(result.converged, result.residual <= 0)
    assert not mean_field.run(wiring, max_iter=1, tolerance=1e-12).converged.all()
    assert mean_field.run(wiring, max_iter=1000, tolerance=1e-12).converged.all()


def test_invalid_options_raise_errors():
    wiring = some_graphs(0, 0.0)
    with pytest.raises(ValueRangeError, match="max_iter must be a positive whole number"):
        mean_field.run(wiring, max_iter=0)
    with pytest.raises(ValueRangeError, match="tolerance must be finite and nonnegative, got nan"):
        mean_field.run(wiring, tolerance=float("nan"))
    with pytest.raises(ValueRangeError, match="noise must be finite and nonnegative, got -1"):
        mean_field.run(wiring, noise=-1)


def test_hard_problems_raise_errors():
    """A pigeonhole problem: 12 variables pairwise different with 11 states. Too large to be certain, so an error."""
    pairs = np.stack(np.triu_indices(12, 1), axis=1)
    table = np.where(np.eye(11, dtype=bool), NEVER, 0.0)[None, None]
    wiring = wire([11] * 12, [Tables(pairs, np.zeros(len(pairs), np.int64), table)])
    with pytest.raises(
        ImpossibleError, match=r"no possible assignment of graph 0 was found by local search in [0-9,]+ sweeps"
    ):
        mean_field.run(wiring)


def test_results_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(4)
    wiring = random_graph(rng, n_states=[3] * 8, n_factors=12, n_graphs=60, max_arity=3)
    with threads.num_threads(1):
        one = mean_field.run(wiring)
    with threads.num_threads(3):
        three = mean_field.run(wiring)
    assert_array_equal(one.log_z, three.log_z)
    assert_array_equal(one.marginals, three.marginals)


@given(seed=SEEDS, zeros=ZEROS)
def test_a_batch_equals_its_graphs_one_by_one(seed, zeros):
    wiring = some_graphs(seed, zeros)
    result = mean_field.run(wiring)
    for b in range(wiring.n_graphs):
        alone = mean_field.run(wiring.select(np.array([b])))
        assert_allclose(alone.log_z[0], result.log_z[b], rtol=1e-9, atol=1e-9)
