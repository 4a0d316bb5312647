"""Trees whose crossing arcs have a cost, against enumeration."""

import numpy as np
import pytest
import torch

from tests.distributions.backends import computed_by
from tests.oracle.trees import Enumerated, is_projective, trees
from trelliswork import ProjectiveTree, SpanningTree
from trelliswork.distributions import NearlyProjectiveTree
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.tree import tree_potentials
from trelliswork.inference.tree.nearly import mixture

N = 4
LENGTHS = np.array([4, 3, 1, 4])


def case(seed, single_root):
    """Return scores, costs and the enumerated trees of four sentences; the last has no projective tree."""
    rng = np.random.default_rng(seed)
    log_arc, cost = 2 * rng.normal(size=(4, N + 1, N + 1)), rng.exponential(2, size=4)
    log_arc[3] = np.where(np.isin(np.arange(N + 1), (1, 2))[None], -np.inf, log_arc[3])
    log_arc[3, 3, 1] = log_arc[3, 4, 2] = 0.5  # these two cross
    every = []
    for b, n in enumerate(LENGTHS):
        all_trees = trees(int(n), False, single_root)
        crossing = np.array([not is_projective(tuple(tree)) for tree in all_trees])
        scores = log_arc[b, all_trees, np.arange(1, n + 1)].sum(axis=1) - cost[b] * crossing
        every.append((Enumerated(all_trees, scores), crossing))
    return log_arc, cost, every


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("backend", ["kernel", "torch"])
def test_all_queries_are_those_of_enumeration(single_root, backend):
    log_arc, cost, every = case(int(single_root), single_root)
    options = {"lengths": LENGTHS, "single_root": single_root}
    q = computed_by(backend, NearlyProjectiveTree(log_arc, cost, **options))
    other = computed_by(backend, NearlyProjectiveTree(0.5 * log_arc, cost[::-1].copy(), **options))
    log_z, marginals, entropy = q.log_partition(), q.marginals(), q.entropy()
    divergence, crossing, best = q.kl(other), q.crossing_probability(), q.topk(7)
    draws = q.sample(4000, generator=torch.Generator().manual_seed(1)).numpy()
    for b, (want, crosses) in enumerate(every):
        n, p = int(LENGTHS[b]), want.probabilities
        assert log_z[b].item() == pytest.approx(want.log_z)
        assert entropy[b].item() == pytest.approx(want.entropy())
        assert crossing[b].item() == pytest.approx(p[crosses].sum())
        for d in range(1, n + 1):
            for h in range(n + 1):
                assert marginals[b, h, d].item() == pytest.approx(p[want.structures[:, d - 1] == h].sum(), abs=1e-9)
        scores = 0.5 * (want.scores + cost[b] * crosses) - cost[::-1][b] * crosses
        theirs = Enumerated(want.structures, scores)
        both = p > 0
        assert divergence[b].item() == pytest.approx((p[both] * np.log(p[both] / theirs.probabilities[both])).sum())
        order = np.argsort(-want.scores, kind="stable")[:7]
        order = order[want.scores[order] > -np.inf]
        np.testing.assert_allclose(best.log_prob[b, : len(order)], want.scores[order] - want.log_z, atol=1e-12)
        np.testing.assert_array_equal(best.value[b, : len(order), :n], want.structures[order])
        assert (best.value[b, len(order) :] == -1).all()
        frequency = (draws[:, b, None, :n] == want.structures).all(axis=2).mean(axis=0)
        assert np.abs(frequency - p).max() < 0.05
    first = torch.stack([torch.as_tensor(np.pad(e.structures[e.scores.argmax()], (0, N - n)))
                         for (e, _), n in zip(every, LENGTHS, strict=True)])  # fmt: skip
    np.testing.assert_array_equal(torch.where(q.mode < 0, 0, q.mode), first)
    np.testing.assert_allclose(q.log_prob(first), [e.scores.max() - e.log_z for e, _ in every])


def test_gradients_are_those_of_differences():
    log_arc, cost, _ = case(2, True)
    scores = torch.tensor(log_arc[:2], requires_grad=True)

    def queries(scores):
        q = NearlyProjectiveTree(scores, cost[:2], lengths=LENGTHS[:2])
        return q.log_partition().sum() + q.entropy().sum()

    assert torch.autograd.gradcheck(queries, scores)


def test_labels_and_evidence():
    rng = np.random.default_rng(3)
    q = NearlyProjectiveTree(rng.normal(size=(1, N + 1, N + 1, 2)), 1.5)
    summed = NearlyProjectiveTree(np.logaddexp.reduce(q.log_arc.numpy(), axis=3), 1.5)
    assert q.log_partition().item() == pytest.approx(summed.log_partition().item())
    best = q.topk(40)
    assert len({tuple(tree.flatten().tolist()) for tree in best.value[0]}) == 40
    np.testing.assert_allclose(q.log_prob(best.value[:, 5]), best.log_prob[:, 5])
    assert (best.log_prob.diff(dim=1) <= 1e-12).all()
    given = summed.condition(known=torch.tensor([[3, 4, -1, -1]]))  # these two cross
    assert given.crossing_probability().item() == pytest.approx(1)
    assert given.log_partition().item() == pytest.approx(
        SpanningTree(summed.log_arc).condition(known=torch.tensor([[3, 4, -1, -1]])).log_partition().item() - 1.5
    )
    hits = summed.mbr()
    marginals = summed.marginals()[0].numpy()
    sums = [marginals[tree, np.arange(1, N + 1)].sum() for tree in trees(N, False, True)]
    assert marginals[hits.value[0], np.arange(1, N + 1)].sum() == pytest.approx(max(sums))


def test_a_share_is_a_mixture():
    log_arc, _, _ = case(4, True)
    engine, arcs = mixture(tree_potentials(log_arc, LENGTHS), 0.1)
    few, many = (make(log_arc[:3], lengths=LENGTHS[:3]) for make in (ProjectiveTree, SpanningTree))
    np.testing.assert_allclose(arcs[:3], 0.9 * few.marginals() + 0.1 * many.marginals(), atol=1e-11)
    mixed = NearlyProjectiveTree(log_arc, engine.cost, lengths=LENGTHS)
    np.testing.assert_allclose(mixed.marginals(), arcs, atol=1e-11)
    for rows in ([[2, 0, 2, 3], [2, 0, 2, 0], [0, 0, 0, 0]], [[3, 4, 0, 3], [2, 0, 2, 0], [0, 0, 0, 0]]):  # 3, 4 cross
        want = 0.9 * few.log_prob(torch.tensor(rows)).exp() + 0.1 * many.log_prob(torch.tensor(rows)).exp()
        np.testing.assert_allclose(mixed.log_prob(torch.tensor([*rows, [3, 4, 0, 3]]))[:3].exp(), want)
    np.testing.assert_allclose(arcs[3], SpanningTree(log_arc[3:]).marginals()[0], atol=1e-11)


def test_errors():
    with pytest.raises(ValueRangeError, match="crossing_cost must be finite"):
        NearlyProjectiveTree(np.zeros((1, 3, 3)), -1.0)
    with pytest.raises(ShapeError, match="crossing_cost must be a number or have shape"):
        NearlyProjectiveTree(np.zeros((1, 3, 3)), np.zeros(2))
