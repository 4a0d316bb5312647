"""Tree factors: each equals its dense table in every result; alone, belief propagation is exact."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.compiled import from_python
from tests.inference.graph.test_factors import fold, messages_of_table
from tests.oracle.graphs import enumerate_graphs, random_scores
from tests.oracle.trees import enumerate_trees, trees
from trelliswork.distributions import FactorGraph
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph import ProjectiveTreeFactor, Propagator, SpanningTreeFactor, Tables, wire
from trelliswork.inference.graph.engines import bp, max_product
from trelliswork.inference.tree.kernels.matrix_tree_log import into_word, spanning_sums

call_into_word = from_python(into_word)
call_spanning_sums = from_python(spanning_sums)

KINDS = [ProjectiveTreeFactor, SpanningTreeFactor]
seeds = st.integers(0, 10_000)


def all_arcs(n):
    pairs = [(h, d) for h in range(n + 1) for d in range(1, n + 1) if h != d]
    return tuple(np.array(column) for column in zip(*pairs, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("single_root", [True, False])
@given(seed=seeds, zeros=st.sampled_from([0.0, 0.2, 0.4]), scale=st.sampled_from([1.0, 400.0]))
def test_a_factor_equals_its_table(kind, single_root, seed, zeros, scale):
    rng = np.random.default_rng(seed)
    n, B = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    heads, modifiers = all_arcs(n)
    some = rng.permutation(len(heads))[: rng.integers(1, len(heads) + 1)]
    factor = kind(np.arange(len(some)), heads[some], modifiers[some], n, single_root=single_root)
    assert isinstance(factor, Propagator)
    sizes = factor.n_states
    incoming = random_scores(rng, (B, sizes.sum()), scale, zeros)
    result, best = factor.propagate(incoming), factor.best(incoming)
    wiring = wire(sizes, structured=[factor], log_unary=incoming, n_graphs=B)
    table = factor.table()[0]
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
        for got, reduce in ((result.log_messages[b], np.logaddexp), (best.log_messages[b], np.maximum)):
            messages = messages_of_table(table, incoming[b], sizes, lambda s, axis, r=reduce: fold(r, s, axis))
            for v, message in enumerate(messages):
                mine = got[2 * v : 2 * v + 2]
                assert np.array_equal(mine == -np.inf, message == -np.inf)
                if (message > -np.inf).all():
                    assert_allclose(mine[1] - mine[0], message[1] - message[0], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_belief_propagation_with_the_tree_alone_is_exact(kind, single_root, n):
    rng = np.random.default_rng(n)
    heads, modifiers = all_arcs(n)
    K, B = len(heads), 3
    factor = kind(np.arange(K), heads, modifiers, n, single_root=single_root)
    unary = rng.normal(0, 2, (B, K, 2))
    result = bp.run(wire([2] * K, structured=[factor], log_unary=unary.reshape(B, -1)))
    assert result.kind == "exact"
    log_arc = np.full((B, n + 1, n + 1), -np.inf)
    log_arc[:, heads, modifiers] = unary[:, :, 1] - unary[:, :, 0]
    for b in range(B):
        want = enumerate_trees(log_arc[b], kind is ProjectiveTreeFactor, single_root)
        assert_allclose(result.log_z[b], want.log_z + unary[b, :, 0].sum(), atol=1e-10)
        assert_allclose(result.marginals[b, 1::2], want.arc_marginals()[heads, modifiers], atol=1e-10)


@pytest.mark.parametrize("single_root", [True, False])
@given(seed=seeds, scale=st.sampled_from([0.5, 3.0, 30.0, 900.0]), share=st.sampled_from([1.0, 0.4]))
def test_one_elimination_is_as_precise_as_one_per_word(single_root, seed, scale, share):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 10))
    heads, modifiers = all_arcs(n)
    kept = np.flatnonzero(rng.random(len(heads)) < share)
    w = np.full((n + 1, n + 1), -np.inf)
    heads, modifiers = heads[kept], modifiers[kept]
    w[heads, modifiers] = rng.normal(0, scale, len(kept))
    result, want = np.full_like(w, -np.inf), np.full_like(w, -np.inf)
    log_z, n_again = call_spanning_sums(w, n, single_root, heads, modifiers, result)
    scratch = np.empty((n + 1, n + 1)), np.empty(n + 1), np.empty(n + 1, np.int64)
    for d in range(1, n + 1):
        call_into_word(w, n, d, single_root, *scratch, want)
    assert_allclose(log_z, np.logaddexp.reduce(w[:, 1] + want[:, 1]), rtol=1e-11, atol=1e-9)
    assert np.array_equal(result[heads, modifiers] == -np.inf, want[heads, modifiers] == -np.inf)
    assert_allclose(result[heads, modifiers], want[heads, modifiers], rtol=1e-9, atol=1e-8)
    if scale == 0.5 and share == 1.0:
        assert n_again == 0  # one run of O(n^3) was enough


@pytest.mark.parametrize("kind", KINDS)
def test_number_of_trees(kind):
    heads, modifiers = all_arcs(3)
    for single_root in (True, False):
        graph = FactorGraph([2] * 9, structured=[kind(np.arange(9), heads, modifiers, 3, single_root=single_root)])
        want = len(trees(3, kind is ProjectiveTreeFactor, single_root))
        assert round(graph.log_partition().exp().item()) == want


def with_pairs(rng, kind, scale=0.5):
    """A tree over 3 words and pairs of arcs on top of it; the same with the tree's table by unary and joint tables."""
    heads, modifiers = all_arcs(3)
    factor = kind(np.arange(9), heads, modifiers, 3)
    pairs = np.array([(a, b) for a in range(9) for b in range(9) if modifiers[a] == heads[b]])
    tables = np.zeros((1, len(pairs), 2, 2))
    tables[0, :, 1, 1] = rng.normal(0, scale, len(pairs))
    return factor, Tables(pairs, np.arange(len(pairs)), tables), rng.normal(0, 1, (2, 18))


class Dense:
    """A factor defined by its dense table."""

    def __init__(self, factor):
        self.variables, self.n_states, self.n_graphs = factor.variables, factor.n_states, 1
        self._table = factor.table()[0]

    def propagate(self, log_messages):
        out = [
            np.concatenate(
                messages_of_table(self._table, row, self.n_states, lambda s, axis: fold(np.logaddexp, s, axis))
            )
            for row in log_messages
        ]
        out = np.array(out)
        scores = log_messages + out
        value = np.logaddexp(scores[:, 0], scores[:, 1])
        return bp_propagation(value, scores - value[:, None], out)


def bp_propagation(value, beliefs, out):
    from trelliswork.inference.graph import Propagation

    return Propagation(value, beliefs, out)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", ["flooding", "sequential"])
def test_belief_propagation_with_pairs_is_the_same_with_the_dense_table(kind, schedule):
    factor, pairs, unary = with_pairs(np.random.default_rng(0), kind)
    options = {"tolerance": 1e-12, "damping": 0.2, "schedule": schedule, "max_iter": 1000}
    result = bp.run(wire([2] * 9, [pairs], structured=[factor], log_unary=unary), **options)
    want = bp.run(wire([2] * 9, [pairs], structured=[Dense(factor)], log_unary=unary), **options)
    assert result.converged.all()
    assert_allclose(result.log_z, want.log_z, atol=1e-9)
    assert_allclose(result.marginals, want.marginals, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_other_engines_use_the_table(kind):
    factor, pairs, unary = with_pairs(np.random.default_rng(1), kind)
    wiring = wire([2] * 9, [pairs], structured=[factor], log_unary=unary)
    graph = FactorGraph([2] * 9, tables=[(pairs.variables, pairs.log_tables[0])], structured=[factor], log_unary=unary)
    result, best = graph.infer("exact"), max_product.run(wiring, damping=0.2)
    for b, want in enumerate(enumerate_graphs(wiring)):
        assert_allclose(result.log_z[b], want.log_z, atol=1e-9)
        assert_allclose(result.marginals[b], want.marginals(), atol=1e-9)
        assert -np.inf < best.log_z[b] <= want.best + 1e-9  # a tree, and a good one
    assert_allclose(graph.score(graph.using("exact").mode), [w.best for w in enumerate_graphs(wiring)], atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_beliefs_and_evidence_conditions(kind):
    heads, modifiers = all_arcs(4)
    K = len(heads)
    unary = torch.tensor(np.random.default_rng(2).normal(size=2 * K), requires_grad=True)
    graph = FactorGraph([2] * K, structured=[kind(np.arange(K), heads, modifiers, 4)], log_unary=unary)
    (gradient,) = torch.autograd.grad(graph.log_partition().sum(), unary)
    assert_allclose(gradient.reshape(K, 2), graph.marginals()[0], atol=1e-12)
    on, off = (
        int(np.flatnonzero((heads == 2) & (modifiers == 4))[0]),
        int(np.flatnonzero((heads == 0) & (modifiers == 1))[0]),
    )
    given_arcs = graph.condition(known={on: 1, off: 0})
    log_arc = np.full((5, 5), -np.inf)
    log_arc[heads, modifiers] = (unary[1::2] - unary[::2]).detach().numpy()
    log_arc[:, 4][np.arange(5) != 2] = -np.inf
    log_arc[0, 1] = -np.inf
    want = enumerate_trees(log_arc, kind is ProjectiveTreeFactor, True)
    assert_allclose(given_arcs.marginals()[0, :, 1], want.arc_marginals()[heads, modifiers], atol=1e-10)
    assert_allclose(given_arcs.log_partition().detach()[0], want.log_z + unary[::2].sum().item(), atol=1e-10)
    gold = np.zeros(K, np.int64)
    gold[[int(np.flatnonzero((heads == d - 1) & (modifiers == d))[0]) for d in range(1, 5)]] = 1
    assert_allclose(graph.condition(known=gold).marginals()[0, :, 1], gold, atol=1e-12)


def test_invalid_arcs_raise_errors():
    with pytest.raises(ValueRangeError, match="arc 1 goes from 2 to 2"):
        ProjectiveTreeFactor([0, 1], [0, 2], [1, 2], 2)
    with pytest.raises(ValueRangeError, match="the same arc"):
        SpanningTreeFactor([0, 1], [0, 0], [1, 1], 2)
    with pytest.raises(ShapeError, match="K=2"):
        SpanningTreeFactor([0, 1], [0], [1], 2)
    heads, modifiers = all_arcs(6)
    with pytest.raises(ValueRangeError, match="use an engine"):
        ProjectiveTreeFactor(np.arange(36), heads, modifiers, 6).table()
