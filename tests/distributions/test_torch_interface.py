"""Distributions are torch distributions: shapes, samples, modes, divergences, copies, names."""

import numpy as np
import pytest
import torch
from torch.distributions import kl_divergence

from tests.oracle.graphs import enumerate_graphs
from trelliswork.distributions import (
    Alignment,
    FactorGraph,
    GrammarTree,
    LinearChain,
    NearlyProjectiveTree,
    NgramChain,
    ProjectiveTree,
    SemiMarkovChain,
    SpanningTree,
    SpanTree,
)
from trelliswork.errors import ShapeError, ValueRangeError


def scores(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def grid(B, engine="exact"):
    tables = [(np.array([[0, 1], [1, 2], [2, 3], [3, 0]]), scores(B, 4, 3, 3).numpy(), np.arange(4))]
    return FactorGraph([3] * 4, tables=tables, log_unary=scores(B, 12, seed=1), engine=engine)


def ngrams(B):
    """A chain of pairs of two labels, in states 2 * before + label, which starts after label 0."""
    before, label = np.divmod(np.arange(4), 2)
    pairs = scores(4, 4).masked_fill(torch.from_numpy(label[:, None] != before), -torch.inf)
    start = torch.tensor([0.0, 0.0, -torch.inf, -torch.inf], dtype=torch.float64)
    return NgramChain(LinearChain(scores(B, 5, 4), pairs, log_start=start), label, 2)


MAKERS = {
    "chain": (lambda B: LinearChain(scores(B, 5, 3), scores(3, 3)), (5,)),
    "beam": (lambda B: LinearChain(scores(B, 5, 3), scores(3, 3)).within("size=3"), (5,)),
    "n-grams": (ngrams, (5,)),
    "rules": (
        lambda B: LinearChain(scores(B, 5, 3), scores(3, 3)).condition(rules="AtMostOnce(a)", labels="abc"),
        (5,),
    ),
    "projective": (lambda B: ProjectiveTree(scores(B, 5, 5)), (4,)),
    "labeled": (lambda B: SpanningTree(scores(B, 4, 4, 2)), (3, 2)),
    "nearly": (lambda B: NearlyProjectiveTree(scores(B, 5, 5), 0.5), (4,)),
    "spans": (lambda B: SpanTree(scores(B, 4, 4, 2)), (4, 4)),
    "grammar": (lambda B: GrammarTree(scores(2), scores(2, 4, 4), scores(B, 4, 2)), (4, 4)),
    "segments": (lambda B: SemiMarkovChain(scores(B, 5, 3, 2), scores(2, 2)), (5,)),
    "alignment": (lambda B: Alignment(scores(B, 4, 3, 3), scores(3, 3)), (5,)),
    "graph": (grid, (4,)),
}
both_sizes = pytest.mark.parametrize("name", MAKERS)


@both_sizes
def test_shapes_samples_and_modes(name):
    make, event_shape = MAKERS[name]
    d = make(2)
    assert isinstance(d, torch.distributions.Distribution)
    assert d.batch_shape == (2,)
    assert d.event_shape == event_shape
    assert not d.has_rsample
    assert not d.has_enumerate_support
    generator = torch.Generator().manual_seed(1)
    for shape in ((), (3,), (2, 3)):
        draws = d.sample(shape, generator=generator)
        assert draws.shape == (*shape, 2, *event_shape)
        log_prob = d.log_prob(draws)
        assert log_prob.shape == (*shape, 2)
        assert torch.isfinite(log_prob).all()
    torch.testing.assert_close(log_prob[1, 2], d.log_prob(draws[1, 2]))
    assert d.sample(4).shape == (4, 2, *event_shape)
    value, log_p = d.argmax()
    assert torch.equal(d.mode, value)
    torch.testing.assert_close(log_p, d.log_prob(value))
    assert (log_prob <= log_p + 1e-9).all()
    assert d.mbr().value.shape == (2, *event_shape)
    best = d.topk(3)
    assert best.value.shape == (2, 3, *event_shape)
    torch.testing.assert_close(best.log_prob[:, 0], log_p)
    assert (best.log_prob.diff(dim=1) <= 1e-9).all()
    torch.testing.assert_close(d.entropy().exp(), d.perplexity())
    torch.testing.assert_close(kl_divergence(d, d), torch.zeros(2, dtype=torch.float64), atol=1e-9, rtol=0)


@both_sizes
def test_copies_of_a_batch_of_one(name):
    one = MAKERS[name][0](1)
    three = one.expand((3,))
    assert three.batch_shape == (3,)
    assert one.expand(torch.Size([1])) is one
    for query in ("log_partition", "marginals", "entropy"):
        want = getattr(one, query)()
        torch.testing.assert_close(getattr(three, query)(), want.expand(3, *want.shape[1:]), atol=1e-9, rtol=1e-9)
    assert torch.equal(three.mode, one.mode.expand(3, *one.event_shape))
    with pytest.raises(ShapeError, match="can be expanded to"):
        three.expand((4,))


def test_the_best_assignments_of_a_graph():
    graph = grid(3)
    found, forest = graph.topk(10), FactorGraph([2, 3, 2], [((0, 1), scores(2, 3)), ((1, 2), scores(3, 2))])
    for d, best in ((graph, found), (forest, forest.topk(20))):
        for b, want in enumerate(enumerate_graphs(d._wiring)):
            order = np.sort(want.scores)[::-1][: best.value.shape[1]] - want.log_z
            np.testing.assert_allclose(best.log_prob[b, : len(order)], order, atol=1e-9)
            assert torch.isneginf(best.log_prob[b, len(order) :]).all()
            assert len({tuple(x.tolist()) for x in best.value[b, : len(order)]}) == len(order)
    with pytest.raises(ValueRangeError, match="topk needs exact maxima"):
        grid(1, engine="bp").topk(2)


def test_divergence_of_graphs():
    p = grid(2)
    q = FactorGraph([3] * 4, tables=[(g.variables, 0.5 * g.log_tables, g.which) for g in p._groups], engine="exact")
    for b, (one, two) in enumerate(zip(enumerate_graphs(p._wiring), enumerate_graphs(q._wiring), strict=True)):
        weights = np.exp(one.scores - one.log_z)
        want = (weights * (one.scores - one.log_z - two.scores + two.log_z)).sum()
        assert kl_divergence(p, q)[b].item() == pytest.approx(want, abs=1e-9)
    part = p.condition(known={0: 1})
    torch.testing.assert_close(part.kl(p), p.log_partition() - part.log_partition())
    assert torch.isposinf(p.kl(part)).all()
    with pytest.raises(ShapeError, match="same variables and factors"):
        p.kl(FactorGraph([3] * 4, n_graphs=2))
    with pytest.raises(ValueRangeError, match="kl needs exact results"):
        p.using("bp").kl(p)


def test_names_of_labels():
    from tests.models.fitted import fitted

    crf = fitted("CRF")
    sentence = ["a", "b", "a"]
    posterior = crf.posterior(sentence)
    draws = posterior.sample((2,))
    assert posterior.named(posterior.mode) == crf.predict([sentence])
    assert [len(x[0]) for x in posterior.named(draws)] == [3, 3]
    with pytest.raises(ValueRangeError, match="posterior of a model"):
        LinearChain(torch.zeros(1, 2, 2), torch.zeros(2, 2)).named(torch.zeros(1, 2))


def test_draws_must_be_counted():
    chain = LinearChain(torch.zeros(1, 2, 2), torch.zeros(2, 2))
    for bad in (0, -1, (2, 0), 1.5):
        with pytest.raises(ValueRangeError, match="positive whole number"):
            chain.sample(bad)
