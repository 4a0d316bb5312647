"""Belief propagation: exact on trees, one fixed point for all schedules, the Bethe value and its gradient."""

import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.oracle.graphs import enumerate_graphs, random_graph, random_scores
from trelliswork.compute import threads
from trelliswork.errors import ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.graph import Tables, wire
from trelliswork.inference.graph.engines import bp

SCHEDULES = ("auto", "flooding", "sequential", "residual")
seeds = st.integers(0, 10_000)


def assert_exact(wiring, result):
    for b, want in enumerate(enumerate_graphs(wiring)):
        if want.log_z == -np.inf:
            assert result.impossible[b]
            assert not result.marginals[b].any()
            assert all(not beliefs[b].any() for beliefs in result.factor_marginals)
            continue
        assert_allclose(result.log_z[b], want.log_z, rtol=1e-9, atol=1e-9)
        assert_allclose(result.marginals[b], want.marginals(), atol=1e-8)
        for got, beliefs in zip(result.factor_marginals, want.factor_marginals(), strict=True):
            assert_allclose(got[b], beliefs, atol=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(seed=seeds, zeros=st.sampled_from([0.0, 0.1, 0.3]), scale=st.sampled_from([1.0, 30.0, 800.0]))
def test_trees_are_exact(schedule, seed, zeros, scale):
    rng = np.random.default_rng(seed)
    wiring = random_graph(
        rng, n_variables=6, n_graphs=int(rng.integers(1, 3)), tree=True, max_arity=4, zeros=zeros, scale=scale
    )
    result = bp.run(wiring, schedule=schedule, tolerance=1e-11)
    assert result.converged.all()
    assert result.kind == "exact"
    assert not np.isnan(result.log_z).any()
    assert_exact(wiring, result)


@given(seed=seeds)
def test_forests_of_several_trees_are_exact(seed):
    rng = np.random.default_rng(seed)
    left, right = (random_graph(rng, n_variables=3, tree=True) for _ in range(2))
    moved = [replace(group, variables=group.variables + 3) for group in right.groups]
    wiring = wire(
        np.concatenate([left.n_states, right.n_states]),
        [*left.groups, *moved],
        log_unary=np.concatenate([left.log_unary, right.log_unary], axis=1),
    )
    assert_exact(wiring, bp.run(wiring))


@given(seed=seeds, zeros=st.sampled_from([0.0, 0.1]))
def test_schedules_and_damping_reach_the_same_fixed_point(seed, zeros):
    rng = np.random.default_rng(seed)
    wiring = random_graph(rng, n_variables=6, n_factors=7, n_graphs=2, max_arity=4, scale=0.4, zeros=zeros)
    want = bp.run(wiring, tolerance=1e-12, damping=0.4, max_iter=3000)
    assert want.converged.all() or zeros
    assume(want.converged.all())  # with zeros it may oscillate
    for schedule in SCHEDULES:
        for damping in (0.0, 0.3):
            got = bp.run(wiring, schedule=schedule, damping=damping, tolerance=1e-12, max_iter=3000)
            assert got.converged.all() or zeros
            if not got.converged.all():
                continue
            assert_allclose(got.log_z, want.log_z, atol=1e-9)
            assert_allclose(got.marginals, want.marginals, atol=1e-8)
            assert (got.residual <= 1e-12).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("damping", [0.0, 0.4])
@pytest.mark.parametrize(("seed", "impossible"), [(149, True), (72, False), (75, False)])
def test_zeros_in_cycles(schedule, damping, seed, impossible):
    """Damping must not approach a zero in steps; entries that decrease without end must not count as change."""
    rng = np.random.default_rng(seed)
    wiring = random_graph(rng, n_variables=6, n_factors=7, n_graphs=2, max_arity=4, scale=0.4, zeros=0.1)
    result = bp.run(wiring, schedule=schedule, damping=damping, tolerance=1e-10, max_iter=2000)
    assert result.converged.all()
    assert result.impossible.any() == impossible
    assert not np.isnan(result.marginals).any()


def test_log_space_and_probability_space_agree(monkeypatch):
    rng = np.random.default_rng(3)
    wiring = random_graph(rng, n_variables=8, n_factors=12, n_graphs=3, max_arity=4, scale=0.5, zeros=0.05)
    fast = bp.run(wiring, schedule="flooding", tolerance=1e-12)
    monkeypatch.setattr(bp, "COARSEST", 0.0)
    slow = bp.run(wiring, schedule="flooding", tolerance=1e-12)
    assert fast.converged.all()
    assert_allclose(fast.log_z, slow.log_z, atol=1e-10)
    assert_allclose(fast.marginals, slow.marginals, atol=1e-10)


def test_underflow_falls_back_to_log_space():
    # Messages multiply to e^-900 on the only assignment that the last table allows.
    steep = np.array([[0.0, -300.0], [-300.0, 0.0]])
    closed = np.array([[-np.inf, -np.inf], [-np.inf, 0.0]])
    variables = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    tables = Tables(variables, np.array([0, 0, 0, 1]), np.stack([steep, closed])[None])
    wiring = wire([2, 2, 2, 2], [tables], log_unary=np.array([[0, -300.0, 0, 0, 0, 0, 0, -100.0]]))
    result = bp.run(wiring, schedule="flooding", max_iter=200)
    assert_allclose(result.log_z, enumerate_graphs(wiring)[0].log_z, rtol=1e-6)
    assert_allclose(result.marginals[0, 1::2], 1, atol=1e-6)


@given(seed=seeds)
def test_a_batch_equals_its_graphs_one_by_one(seed):
    rng = np.random.default_rng(seed)
    wiring = random_graph(rng, n_variables=5, n_factors=6, n_graphs=4, scale=0.5, zeros=0.1, shared_by_graphs=False)
    for schedule in SCHEDULES:
        together = bp.run(wiring, schedule=schedule)
        for b in range(4):
            alone = bp.run(wiring.select(np.array([b])), schedule=schedule)
            assert_allclose(alone.log_z, together.log_z[b : b + 1], rtol=0, atol=0)
            assert_allclose(alone.marginals, together.marginals[b : b + 1], rtol=0, atol=0)
            assert alone.n_iter[0] == together.n_iter[b]


def test_results_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    S = 30
    tables = Tables(np.array([[0, 1], [1, 2], [2, 0]]), np.zeros(3, np.int64), rng.normal(0, 1, (8, 1, S, S)))
    wiring = wire([S] * 3, [tables], log_unary=rng.normal(0, 1, (8, 3 * S)))
    results = []
    for n in (1, 3):
        with threads.num_threads(n):
            results.append(bp.run(wiring))
    assert np.array_equal(results[0].log_z, results[1].log_z)
    assert np.array_equal(results[0].marginals, results[1].marginals)


@given(seed=seeds, zeros=st.sampled_from([0.0, 0.1]), damping=st.sampled_from([0.0, 0.3]))
def test_large_graphs_are_flooded_in_parts(seed, zeros, damping):
    """Threads share the variables of a graph; here parts of a small graph, with the same numbers to the last bit."""
    rng = np.random.default_rng(seed)
    n_states = rng.choice([2, 3, 20], 6)
    wiring = random_graph(
        rng, n_states=n_states, n_factors=8, n_graphs=2, max_arity=2 + seed % 2, scale=0.5, zeros=zeros
    )
    options = {"schedule": "flooding", "damping": damping, "max_iter": 1 + seed % 40}
    want = bp.run(wiring, **options)
    with pytest.MonkeyPatch.context() as patch, threads.num_threads(2):
        patch.setattr(threads, "LEAST_WORK", 5)
        got = bp.run(wiring, **options)
    for one, other in zip(want.marginals, got.marginals, strict=True):
        assert np.array_equal(one, other)
    for name in ("log_z", "n_iter", "residual", "converged"):
        assert np.array_equal(getattr(want, name), getattr(got, name))


@given(seed=seeds, zeros=st.sampled_from([0.0, 0.15]))
def test_the_gradient_of_the_bethe_value_is_the_beliefs(seed, zeros):
    rng = np.random.default_rng(seed)
    wiring = random_graph(rng, n_variables=5, n_factors=6, scale=0.4, zeros=zeros)

    def value(wiring):
        result = bp.run(wiring, tolerance=1e-13, max_iter=5000)
        assert result.converged.all()
        return result

    base, h = value(wiring), 1e-5
    if base.impossible.any():
        return
    for i in np.flatnonzero(wiring.log_unary[0] > -np.inf)[:4]:
        step = np.zeros_like(wiring.log_unary)
        step[0, i] = h
        up, down = (value(wiring.with_unary(wiring.log_unary + s)) for s in (step, -step))
        assert_allclose((up.log_z - down.log_z) / (2 * h), base.marginals[:, i], atol=1e-6)
    for g, group in enumerate(wiring.groups):
        u = int(group.which[0])
        entry = (0, u, *([0] * len(group.shape)))
        if group.log_tables[entry] == -np.inf:
            continue
        values = []
        for sign in (1, -1):
            tables = group.log_tables.copy()
            tables[entry] += sign * h
            groups = (*wiring.groups[:g], replace(group, log_tables=tables), *wiring.groups[g + 1 :])
            values.append(value(replace(wiring, groups=groups)).log_z[0])
        beliefs = base.factor_marginals[g][0, group.which == u][(slice(None), *entry[2:])]
        assert_allclose((values[0] - values[1]) / (2 * h), beliefs.sum(), atol=1e-6)


def test_factor_beliefs_are_consistent_with_variable_beliefs():
    rng = np.random.default_rng(1)
    wiring = random_graph(rng, n_variables=6, n_factors=8, scale=0.5)
    result = bp.run(wiring, tolerance=1e-12)
    for group, beliefs in zip(wiring.groups, result.factor_marginals, strict=True):
        for f, scope in enumerate(group.variables):
            for k, v in enumerate(scope):
                axes = tuple(a for a in range(len(scope)) if a != k)
                want = result.marginals[0, wiring.offsets[v] : wiring.offsets[v + 1]]
                assert_allclose(beliefs[0, f].sum(axis=axes), want, atol=1e-9)


@pytest.mark.parametrize("huge", [0.0, 1e4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_impossible_graphs_are_reported_without_nan(schedule, huge):
    differ = np.array([[-np.inf, 0.0], [0.0, -np.inf]])
    chain_of_two = Tables(np.array([[0, 1], [1, 2]]), np.array([0, 0]), differ[None, None])
    wiring = wire([2, 2, 2, 2], [chain_of_two], log_unary=[0.0, -np.inf, 0, 0, -np.inf, 0.0, huge, 0.0])
    result = bp.run(wiring, schedule=schedule)
    assert result.impossible.all()
    assert result.log_z[0] == -np.inf
    assert not result.marginals.any()
    assert not result.factor_marginals[0].any()


def test_non_convergence_is_reported():
    # A frustrated grid of strong couplings: flooding oscillates.
    rng = np.random.default_rng(0)
    index = np.arange(25).reshape(5, 5)
    pairs = np.concatenate(
        [np.stack([a.ravel(), b.ravel()], axis=1) for a, b in ((index[:, :-1], index[:, 1:]), (index[:-1], index[1:]))]
    )
    signs = rng.choice([-4.0, 4.0], len(pairs))
    tables = signs[:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])
    wiring = wire(
        np.full(25, 2), [Tables(pairs, np.arange(len(pairs)), tables[None])], log_unary=rng.normal(0, 0.1, 50)
    )
    result = bp.run(wiring, max_iter=50)
    assert not result.converged.any()
    assert result.residual[0] > 1e-8
    assert result.n_iter[0] == 50
    assert result.kind == "estimate"
    assert np.isfinite(result.log_z).all()


def test_a_chain_of_many_variables_takes_little_memory():
    """pgmpy issue 1571: marginals of a chain of 20 variables ran out of memory because of a joint table."""
    rng = np.random.default_rng(0)
    T, S = 1000, 50
    steps = np.stack([np.arange(T - 1), np.arange(1, T)], axis=1)
    unary, pairwise = rng.normal(0, 1, (1, T, S)), rng.normal(0, 1, (1, T - 1, S, S))
    wiring = wire(np.full(T, S), [Tables(steps, np.arange(T - 1), pairwise)], log_unary=unary.reshape(1, -1))
    bp.run(wiring)
    tracemalloc.start()
    start = time.process_time()
    result = bp.run(wiring)
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    log_z, want = chain.expectations(chain.chain_potentials(unary, pairwise))
    assert result.kind == "exact"
    assert_allclose(result.log_z, log_z, rtol=1e-12)
    assert_allclose(result.marginals.reshape(1, T, S), want.marginals, atol=1e-10)
    assert peak < 4 * pairwise.nbytes
    assert seconds < 2  # 25 ms on an idle machine


def test_a_star_of_many_leaves_is_linear():
    leaves = 20_000
    rng = np.random.default_rng(0)
    scopes = np.stack([np.zeros(leaves, np.int64), np.arange(1, leaves + 1)], axis=1)
    table = rng.normal(0, 0.01, (1, leaves, 2, 2))
    wiring = wire(np.full(leaves + 1, 2), [Tables(scopes, np.arange(leaves), table)])
    want = np.logaddexp.reduce(np.logaddexp.reduce(table[0], axis=2).sum(axis=0))
    for schedule in ("auto", "flooding", "sequential"):
        assert_allclose(bp.run(wiring, schedule=schedule).log_z, want, rtol=1e-10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": "random"}, "schedule must be one of"),
        ({"damping": 1.0}, "damping must be in"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"max_iter": 0}, "max_iter"),
    ],
)
def test_invalid_options_raise_errors(options, words):
    with pytest.raises(ValueRangeError, match=words):
        bp.run(wire([2]), **options)


def test_many_states_and_wide_tables():
    rng = np.random.default_rng(0)
    sizes = [37, 18, 5, 2, 9]
    groups = [
        Tables(np.array([[0, 1]]), np.array([0]), random_scores(rng, (1, 1, 37, 18), 2.0, 0.3)),
        Tables(np.array([[1, 2, 3]]), np.array([0]), random_scores(rng, (1, 1, 18, 5, 2), 2.0, 0.2)),
        Tables(np.array([[4, 3]]), np.array([0]), random_scores(rng, (1, 1, 9, 2), 2.0)),
    ]
    wiring = wire(sizes, groups, log_unary=random_scores(rng, (1, sum(sizes)), 2.0, 0.1))
    for schedule in SCHEDULES:
        assert_exact(wiring, bp.run(wiring, schedule=schedule, tolerance=1e-12))
