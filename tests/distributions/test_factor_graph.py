"""FactorGraph: construction, queries against enumeration, evidence, gradients, warnings."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.oracle.graphs import enumerate_graphs, random_scores
from trelliswork.compute import limits
from trelliswork.distributions.factor_graph import FactorGraph
from trelliswork.errors import (
    ConvergenceWarning,
    ImpossibleError,
    LimitError,
    ShapeError,
    TrellisworkError,
    ValueRangeError,
)
from trelliswork.inference.graph import ChainFactor, ExactlyOne

seeds = st.integers(0, 10_000)
AGREE = np.log([[3.0, 1.0], [1.0, 3.0]])


def tree(rng, zeros=0.0, **options):
    """Variables of 2, 3, 2, 4 states; factors of 1, 2 and 3 variables without a cycle."""
    factors = [
        ((0, 1), random_scores(rng, (2, 3), 1, zeros)),
        (3, random_scores(rng, (4,), 1, zeros)),
        ((2, 1, 3), random_scores(rng, (2, 3, 4), 1, zeros)),
    ]
    return FactorGraph([2, 3, 2, 4], factors, **options), factors


def enumerated(graph):
    return enumerate_graphs(graph._wiring)


@given(seed=seeds, zeros=st.sampled_from([0.0, 0.2]), engine=st.sampled_from(["bp", "exact"]))
def test_queries_match_enumeration(seed, zeros, engine):
    rng = np.random.default_rng(seed)
    graph, factors = tree(rng, zeros, engine=engine)
    want = enumerated(graph)[0]
    assert graph.kind == "exact"
    assert_allclose(graph.log_partition(), [want.log_z])
    if want.log_z == -np.inf:
        assert not graph.marginals().any()
        with pytest.raises(ImpossibleError):
            graph.argmax()
        return
    marginals = graph.marginals()
    assert marginals.shape == (1, 4, 4)
    for v, size in enumerate([2, 3, 2, 4]):
        assert_allclose(marginals[0, v, :size], want.joint([v]), atol=1e-9)
        assert not marginals[0, v, size:].any()
    for (scope, _), beliefs in zip(factors, graph.factor_marginals(), strict=True):
        assert_allclose(beliefs[0], want.joint(np.atleast_1d(scope)), atol=1e-9)
    best = graph.argmax()
    assert_allclose(graph.score(best.value), [want.best])
    assert_allclose(best.log_prob, [want.best - want.log_z])
    assert_allclose(graph.log_prob(best.value), [want.best - want.log_z])
    assert_allclose(graph.entropy(), [want.entropy()], atol=1e-9)
    hits = [want.joint([v])[state] for v, state in enumerate(graph.mbr().value[0].tolist())]
    assert_allclose(hits, [want.joint([v]).max() for v in range(4)])


@given(seed=seeds)
def test_scores_match_the_factors(seed):
    rng = np.random.default_rng(seed)
    graph, factors = tree(rng)
    states = np.array([rng.integers(s) for s in (2, 3, 2, 4)])
    want = sum(np.asarray(table)[tuple(states[np.atleast_1d(scope)])] for scope, table in factors)
    assert_allclose(graph.score(states), [want])


def test_bulk_arrays_and_lists_give_the_same_graph():
    rng = np.random.default_rng(0)
    pairs = np.array([[0, 1], [1, 2], [2, 3]])
    own, shared = rng.normal(0, 1, (3, 2, 2)), rng.normal(0, 1, (2, 2, 2))
    which = np.array([1, 0, 1])
    unary = rng.normal(0, 1, (4, 2))
    one_by_one = FactorGraph(
        [2] * 4,
        [((a, b), t) for (a, b), t in zip(pairs, own, strict=True)]
        + [((a, b), shared[w]) for (a, b), w in zip(pairs, which, strict=True)]
        + [(v, unary[v]) for v in range(4)],
    )
    in_bulk = FactorGraph([2] * 4, tables=[(pairs, own), (pairs, shared, which), (np.arange(4)[:, None], unary)])
    flat = FactorGraph([2] * 4, tables=[(pairs, own), (pairs, shared, which)], log_unary=unary.ravel())
    for graph in (one_by_one, in_bulk, flat):
        assert_allclose(graph.log_partition(), one_by_one.log_partition())
        assert_allclose(graph.marginals(), one_by_one.marginals())
    assert [b.shape for b in in_bulk.factor_marginals()] == [(1, 3, 2, 2), (1, 3, 2, 2), (1, 4, 2)]
    assert_allclose(in_bulk.factor_marginals()[1][0, 2], one_by_one.factor_marginals()[5][0])


def test_a_table_object_passed_twice_is_shared():
    table = torch.tensor(AGREE, requires_grad=True)
    graph = FactorGraph([2, 2, 2], [((0, 1), table), ((1, 2), table)])
    assert graph._wiring.groups[0].log_tables.shape == (1, 1, 2, 2)
    graph.log_partition().sum().backward()
    assert_allclose(table.grad, 2 * np.array([[3, 1], [1, 3]]) / 8)


def test_one_table_for_all_factors_of_an_entry():
    graph = FactorGraph([2] * 3, tables=[(np.array([[0, 1], [1, 2]]), AGREE)])
    assert_allclose(graph.log_partition().exp(), [32])


def test_a_batch_of_graphs():
    rng = np.random.default_rng(0)
    own, shared = rng.normal(0, 1, (5, 2, 3)), rng.normal(0, 1, (3, 2))
    unary = rng.normal(0, 1, (5, 7))
    graph = FactorGraph([2, 3, 2], [((0, 1), own), ((1, 2), shared)], log_unary=unary)
    assert graph.n_graphs == 5
    for b in range(5):
        alone = FactorGraph([2, 3, 2], [((0, 1), own[b]), ((1, 2), shared)], log_unary=unary[b])
        assert_allclose(graph.log_partition()[b], alone.log_partition()[0])
        assert_allclose(graph.marginals()[b], alone.marginals()[0])
        assert_allclose(graph.entropy()[b], alone.entropy()[0])
        assert_allclose(graph.argmax().log_prob[b], alone.argmax().log_prob[0])


def test_the_number_of_graphs_is_an_option():
    assert FactorGraph([2, 2], [((0, 1), AGREE)], n_graphs=3).log_partition().shape == (3,)


@given(seed=seeds)
def test_evidence(seed):
    rng = np.random.default_rng(seed)
    graph, _ = tree(rng)
    want = enumerated(graph)[0]
    scores = want.scores[(want.assignments[:, 1] == 2)]
    log_z = np.logaddexp.reduce(scores)
    allowed = np.ones((4, 4), bool)
    allowed[1, :2] = False
    for given_states in (
        graph.condition(known={1: 2}),
        graph.condition(known=torch.tensor([-1, 2, -1, -1])),
        graph.condition(known=[[-1, 2, -1, -1]]),
        graph.condition(allowed=allowed),
    ):
        assert_allclose(given_states.log_partition(), [log_z])
        assert_allclose(given_states.marginals()[0, 1], [0, 0, 1, 0])
    assert_allclose(graph.log_partition(), [want.log_z])  # itself unchanged


def test_impossible_evidence():
    forbidding = np.array([[-np.inf, 0.0], [0.0, 0.0]])
    graph = FactorGraph([2, 2], [((0, 1), forbidding)]).condition(known={0: 0, 1: 0})
    assert graph.log_partition().item() == -np.inf
    assert not graph.marginals().any()
    for query in (graph.argmax, graph.entropy, graph.mbr, graph.sample, lambda: graph.log_prob([0, 1])):
        with pytest.raises(ImpossibleError):
            query()


def test_gradients_are_beliefs():
    rng = np.random.default_rng(0)
    unary = torch.tensor(rng.normal(0, 0.3, (2, 8)), requires_grad=True)
    pair = torch.tensor(rng.normal(0, 0.3, (2, 2)), requires_grad=True)
    own = torch.tensor(rng.normal(0, 0.3, (2, 2, 2)), requires_grad=True)  # of each graph
    single = torch.tensor(rng.normal(0, 0.3, 2), requires_grad=True)

    def value(unary, pair, own, single):
        factors = [((0, 1), pair), ((1, 2), pair), ((2, 3), own), ((3, 0), own), (2, single)]
        graph = FactorGraph([2] * 4, factors, log_unary=unary, tolerance=1e-14, max_iter=5000)
        return graph.log_partition()

    assert torch.autograd.gradcheck(value, (unary, pair, own, single), atol=1e-6)


def test_training_is_observed_minus_expected():
    rng = np.random.default_rng(1)
    pair = torch.tensor(rng.normal(0, 1, (3, 3)), requires_grad=True)
    graph = FactorGraph([3, 3, 3], tables=[(np.array([[0, 1], [1, 2]]), pair)])
    graph.log_prob(torch.tensor([0, 1, 1])).sum().backward()
    observed = np.zeros((3, 3))
    observed[0, 1] = observed[1, 1] = 1
    assert_allclose(pair.grad, observed - graph.factor_marginals()[0][0].sum(dim=0).numpy(), atol=1e-12)


def test_the_gradient_of_an_impossible_graph_is_zero():
    unary = torch.full((1, 4), -torch.inf, dtype=torch.float64, requires_grad=True)
    graph = FactorGraph([2, 2], [((0, 1), AGREE)], log_unary=unary)
    graph.log_partition().sum().backward()
    assert not unary.grad.any()


def test_a_warning_without_convergence():
    graph = FactorGraph(
        [2, 2, 2], tables=[(np.array([[0, 1], [1, 2], [2, 0]]), AGREE)], log_unary=[1.0, 0, 0, 0, 0, 0], max_iter=1
    )
    with pytest.warns(
        ConvergenceWarning, match=r"bp did not converge on 1 of 1 graphs: residual .* after 1 iterations"
    ):
        result = graph.infer()
    assert not result.converged.any()
    assert graph.infer() is result  # and runs only once


def test_structured_factors_match_enumeration():
    rng = np.random.default_rng(0)
    pairwise = rng.normal(0, 1, (2, 2))
    graph = FactorGraph(
        [2] * 5, structured=[ExactlyOne([0, 1, 2]), ChainFactor([2, 3, 4], pairwise)], log_unary=rng.normal(0, 1, 10)
    )
    want = enumerated(graph)[0]
    assert graph.kind == "exact"
    assert_allclose(graph.log_partition(), [want.log_z])
    assert_allclose(graph.marginals()[0].flatten(), want.marginals(), atol=1e-9)
    assert_allclose(graph.score(graph.mode), [want.best])
    with pytest.raises(ValueRangeError, match="ExactlyOne does not provide"):
        graph.entropy()


ERRORS = {  # of marginals, on a graph with one weak cycle
    "exact": 1e-12, "bp": 1e-6, "trw": 1e-3, "mean_field": 1e-3, "structured_mean_field": 1e-3, "gibbs": 1e-3,
    "max_product": None,
}  # fmt: skip


@pytest.mark.parametrize("engine", ERRORS)
def test_every_engine_returns_a_result_of_its_kind(engine):
    rng = np.random.default_rng(0)
    pairs, table = np.array([[0, 1], [1, 2], [2, 3], [3, 0]]), rng.normal(0, 0.3, (2, 2))
    graph = FactorGraph([2] * 4, tables=[(pairs, table)], log_unary=rng.normal(size=8))
    result = graph.infer(engine)
    log_z = enumerated(graph)[0].log_z
    assert result.marginals.shape == (1, 8)
    assert result.n_iter.shape == result.residual.shape == result.converged.shape == (1,)
    if result.kind == "exact":
        assert_allclose(result.log_z, log_z)
    elif result.kind == "lower":
        assert result.log_z[0] <= log_z + 1e-9
    elif result.kind == "upper":
        assert result.log_z[0] >= log_z - 1e-9
    if engine != "max_product":
        assert_allclose(result.marginals[0], enumerated(graph)[0].marginals(), atol=ERRORS[engine])
        assert_allclose(graph.using(engine).marginals()[0].flatten(), result.marginals[0])


def test_samples():
    graph = FactorGraph([2, 3], [((0, 1), np.log([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))])
    for engine in ("bp", "exact", "gibbs"):
        draws = graph.using(engine).sample(20_000, generator=torch.Generator().manual_seed(0))
        assert draws.shape == (20_000, 1, 2)
        counts = np.zeros((2, 3))
        np.add.at(counts, tuple(draws[:, 0].T.numpy()), 1 / 20_000)
        assert_allclose(counts, np.array([[1, 2, 3], [4, 5, 6]]) / 21, atol=0.02)
    again = [graph.sample(5, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(*again)


def test_a_hundred_thousand_factors_take_seconds():
    start = time.process_time()
    n = 100_000
    pairs = np.stack([np.arange(n), np.arange(1, n + 1)], axis=1)
    bulk = FactorGraph(np.full(n + 1, 2), tables=[(pairs, np.broadcast_to(AGREE, (n, 2, 2)))])
    assert_allclose(bulk.log_partition(), [np.log(2) + n * np.log(4)])
    assert time.process_time() - start < 20
    listed = FactorGraph(np.full(n + 1, 2), [((v, v + 1), AGREE) for v in range(n)])
    assert_allclose(listed.log_partition(), bulk.log_partition())
    assert time.process_time() - start < 40


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: FactorGraph([2, 2], [((0, 2), AGREE)]), ValueRangeError, "factor 0 has variable 2"),
        (lambda: FactorGraph([2, 3], [((0, 1), AGREE)]), ShapeError, r"must have shape \(2, 3\) or \(B, 2, 3\)"),
        (lambda: FactorGraph([2, 2], [AGREE]), (ShapeError, ValueRangeError), "factor 0"),
        (lambda: FactorGraph([2, 2], [((0, 0), AGREE)]), ValueRangeError, "twice"),
        (lambda: FactorGraph([2, 2], engine="magic"), ValueRangeError, "engine must be one of"),
        (lambda: FactorGraph([2, 2], tables=[(np.zeros((3, 2), int), np.zeros((2, 2, 2)))]), ShapeError, "pass which"),
        (lambda: FactorGraph([2, 2], log_unary=np.zeros(3)), ShapeError, "N=4"),
        (lambda: FactorGraph([2, 2]).condition(allowed=np.ones((2, 3), bool)), ShapeError, "allowed must have shape"),
        (lambda: FactorGraph([2, 2]).condition(allowed=np.ones((2, 2))), ValueRangeError, "boolean"),
        (
            lambda: FactorGraph([2, 2]).score([0, 2]),
            ValueRangeError,
            r"states must be between 0 and 1, got 2 at \(0, 1\)",
        ),
        (lambda: FactorGraph([2, 2]).score([0.0, 1.0]), ValueRangeError, "must be integers"),
        (lambda: FactorGraph([2, 2]).condition(known={5: 0}), ValueRangeError, "has variable 5"),
    ],
)
def test_invalid_arguments_raise_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_graphs_that_need_too_much_memory_are_refused():
    with pytest.raises(LimitError, match="--max-memory"):
        FactorGraph([10**12])
    with pytest.raises(LimitError, match="--max-memory"):
        FactorGraph([2] * 1000 + [10**9])
    with limits.limits(gigabytes=1e-6), pytest.raises(LimitError):
        FactorGraph([100])
    with limits.limits(gigabytes=4e-6), pytest.raises(TrellisworkError, match="--max-memory"):
        FactorGraph([10] * 3, [((0, 1), np.zeros((10, 10))), ((1, 2), np.zeros((10, 10)))], engine="exact").infer()
