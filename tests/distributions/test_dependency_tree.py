"""ProjectiveTree and SpanningTree: queries against enumeration with both backends, gradients, counts, single roots."""

from collections import Counter
from itertools import product
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from tests.distributions.backends import computed_by
from tests.inference.tree.cases import batches
from tests.oracle.trees import enumerate_trees, trees
from trelliswork.distributions.dependency_tree import ProjectiveTree, SpanningTree
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError

KINDS = [ProjectiveTree, SpanningTree]
both_kinds = pytest.mark.parametrize("kind", KINDS)
both_backends = pytest.mark.parametrize("backend", ["kernel", "torch"])
both_roots = pytest.mark.parametrize("single_root", [True, False])


def build(kind, batch, backend="kernel", **options):
    return computed_by(
        backend, kind(torch.tensor(batch.log_arc), lengths=batch.lengths, single_root=batch.single_root, **options)
    )


def random_scores(seed, *shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labeled_oracle(log_arc, projective, single_root):
    """All (tree, labels) of one sentence: heads and labels (m, n, 2) and scores (m,)."""
    n, L = log_arc.shape[0] - 1, log_arc.shape[2]
    structures = [
        np.stack([heads, labels], axis=1)
        for heads in trees(n, projective, single_root)
        for labels in product(range(L), repeat=n)
    ]
    structures = np.array(structures)
    return structures, log_arc[structures[..., 0], np.arange(1, n + 1), structures[..., 1]].sum(axis=1)


@pytest.mark.parametrize(
    ("n", "single_root", "want"), [(3, True, 7), (3, False, 12), (4, True, 30), (4, False, 55), (5, False, 273)]
)
def test_number_of_projective_trees(n, single_root, want):
    one = ProjectiveTree(torch.zeros(1, n + 1, n + 1, dtype=torch.float64), single_root=single_root)
    assert_allclose(one.log_partition().exp().item(), want, rtol=1e-12)
    assert len(trees(n, True, single_root)) == want


@both_kinds
@both_backends
@given(data=st.data())
def test_expectations_match_enumeration(kind, backend, data):
    batch = data.draw(batches())
    log_z, marginals = build(kind, batch, backend).expectations()
    for b, want in enumerate(batch.enumerate(kind.projective)):
        n = batch.lengths[b]
        assert_allclose(log_z[b].item(), want.log_z, rtol=1e-10, atol=1e-10)
        assert_allclose(marginals[b, : n + 1, : n + 1], want.arc_marginals(), atol=1e-8)


@both_kinds
@given(data=st.data())
def test_structures_match_enumeration(kind, data):
    batch = data.draw(batches(possible=True))
    one = build(kind, batch)
    best, few, hits = one.argmax(), one.topk(5), one.mbr()
    log_prob = one.log_prob(best.value)
    for b, want in enumerate(batch.enumerate(kind.projective)):
        n = batch.lengths[b]
        order = np.sort(want.scores)[::-1]
        assert_allclose(best.log_prob[b].item(), order[0] - want.log_z, rtol=1e-12, atol=1e-9)
        assert_allclose(log_prob[b].item(), order[0] - want.log_z, rtol=1e-9, atol=1e-9)
        assert (best.value[b, n:] == -1).all()
        listed = few.log_prob[b][few.log_prob[b] > -torch.inf].numpy() + want.log_z
        assert len(listed) == min(5, (want.scores > -np.inf).sum())
        assert_allclose(listed, order[: len(listed)], rtol=1e-12, atol=1e-9)
        assert len({tuple(heads) for heads in few.value[b, : len(listed)].tolist()}) == len(listed)
        scored = one.log_arc[b][few.value[b, : len(listed), :n], torch.arange(1, n + 1)].sum(dim=1)
        assert_allclose(scored, listed, rtol=1e-12, atol=1e-9)
        possible = want.structures[want.scores > -np.inf]
        expected = want.arc_marginals()[possible, np.arange(1, n + 1)].sum(axis=1)
        assert_allclose(want.arc_marginals()[hits.value[b, :n], np.arange(1, n + 1)].sum(), expected.max(), atol=1e-7)


@both_kinds
@both_backends
@given(data=st.data())
def test_entropy_matches_enumeration(kind, backend, data):
    batch = data.draw(batches(possible=True))
    entropy = build(kind, batch, backend).entropy()
    for b, want in enumerate(batch.enumerate(kind.projective)):
        assert_allclose(entropy[b].item(), want.entropy(), atol=1e-6)


@both_kinds
@both_roots
def test_samples_follow_the_probabilities_and_are_reproducible(kind, single_root):
    scores = random_scores(3, 3, 5, 5) * 1.5
    scores[0, 2, 1] = scores[0, 0, 3] = -torch.inf
    scores[2] *= 200  # only log space can represent these
    one = kind(scores, lengths=[4, 3, 4], single_root=single_root)
    draws = one.sample(6000, generator=torch.Generator().manual_seed(7))
    assert torch.equal(draws, one.sample(6000, generator=torch.Generator().manual_seed(7)))
    assert not torch.equal(draws, one.sample(6000, generator=torch.Generator().manual_seed(8)))
    assert (draws[:, 1, 3:] == -1).all()
    for b, n in enumerate([4, 3, 4]):
        want = enumerate_trees(scores[b, : n + 1, : n + 1].numpy(), kind.projective, single_root)
        seen = Counter(map(tuple, draws[:, b, :n].tolist()))
        counts = np.array([seen[tuple(heads)] for heads in want.structures.tolist()])
        assert counts.sum() == 6000
        expected = want.probabilities * 6000
        assert (counts[expected == 0] == 0).all()
        often = expected > 5
        if often.sum() > 1:
            counts = np.append(counts[often], counts[~often].sum() + 1e-9)
            expected = np.append(expected[often], expected[~often].sum() + 1e-9)
            assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


@both_kinds
@both_roots
def test_labels_match_enumeration(kind, single_root):
    scores = random_scores(5, 2, 4, 4, 3)
    scores[0, 0, 1, 2] = -torch.inf
    scores[1, 1, 2] = -torch.inf
    one = kind(scores, lengths=[3, 2], single_root=single_root)
    twin = computed_by("torch", kind(scores, lengths=[3, 2], single_root=single_root))
    log_z, marginals = one.expectations()
    assert_allclose(twin.marginals(), marginals, atol=1e-12)
    best, few, hits = one.argmax(), one.topk(6), one.mbr()
    draws = one.sample(4000, generator=torch.Generator().manual_seed(0))
    entropy = one.entropy()
    for b, n in enumerate([3, 2]):
        structures, values = labeled_oracle(scores[b, : n + 1, : n + 1].numpy(), kind.projective, single_root)
        total = np.logaddexp.reduce(values)
        assert_allclose(log_z[b].item(), total, rtol=1e-12)
        p = np.exp(values - total)
        assert_allclose(entropy[b].item(), -(p[p > 0] * np.log(p[p > 0])).sum(), rtol=1e-9)
        want = np.zeros((n + 1, n + 1, 3))
        for d in range(n):
            np.add.at(want, (structures[:, d, 0], d + 1, structures[:, d, 1]), p)
        assert_allclose(marginals[b, : n + 1, : n + 1], want, atol=1e-12)
        order = np.sort(values)[::-1]
        assert_allclose(few.log_prob[b], order[:6] - total, rtol=1e-12, atol=1e-12)
        assert_allclose(best.log_prob[b].item(), order[0] - total, rtol=1e-12, atol=1e-12)
        listed = torch.stack([few.value[b, k, :n] for k in range(6)])
        scored = scores[b][listed[..., 0], torch.arange(1, n + 1), listed[..., 1]].sum(dim=1)
        assert_allclose(scored, order[:6], rtol=1e-12)
        expected = want[structures[..., 0], np.arange(1, n + 1), structures[..., 1]].sum(axis=1)
        chosen = hits.value[b, :n]
        found = want[chosen[:, 0], np.arange(1, n + 1), chosen[:, 1]].sum()
        assert_allclose(found, expected[values > -np.inf].max(), rtol=1e-9)
        for d in range(n):
            seen = np.zeros((n + 1, 3))
            np.add.at(seen, (draws[:, b, d, 0].numpy(), draws[:, b, d, 1].numpy()), 1)
            often = want[:, d + 1] > 0
            assert seen[~often].sum() == 0
            assert chisquare(seen[often], want[:, d + 1][often] * 4000).pvalue > 1e-4
    assert (best.value[1, 2:] == -1).all()
    assert (draws[:, 1, 2:] == -1).all()
    known = torch.tensor([[[-1, 2], [-1, -1], [2, -1]], [[2, -1], [-1, 0], [0, 0]]])
    given_evidence = one.condition(known=known).marginals()
    assert_allclose(given_evidence[0, :, 1, 2].sum().item(), 1, rtol=1e-9)
    assert_allclose(given_evidence[0, 2, 3].sum().item(), 1, rtol=1e-9)


@both_kinds
@both_backends
@given(data=st.data())
def test_evidence_matches_renormalized_enumeration(kind, backend, data):
    batch = data.draw(batches(possible=True))
    rng = np.random.default_rng(0)
    shape = batch.log_arc.shape
    B, n = shape[0], shape[1] - 1
    allowed = rng.random(shape) < 0.7
    heads = np.where(rng.random((B, n)) < 0.3, rng.integers(0, batch.lengths[:, None] + 1, (B, n)), -1)
    one = build(kind, batch, backend).condition(allowed=torch.tensor(allowed), known=torch.tensor(heads))
    log_z, marginals = one.expectations()
    for b, want in enumerate(batch.enumerate(kind.projective)):
        m = batch.lengths[b]
        fits = allowed[b][want.structures, np.arange(1, m + 1)].all(axis=1)
        fits &= ((heads[b, :m] < 0) | (heads[b, :m] == want.structures)).all(axis=1)
        want.scores = np.where(fits, want.scores, -np.inf)
        assert_allclose(log_z[b].item(), want.log_z, rtol=1e-10, atol=1e-10)
        assert_allclose(marginals[b, : m + 1, : m + 1], want.arc_marginals(), atol=1e-8)


@both_kinds
def test_kl_matches_enumeration(kind):
    scores = random_scores(0, 2, 2, 4, 4)
    p, q = kind(scores[0]), kind(scores[1])
    for b in range(2):
        a, c = (enumerate_trees(scores[k, b].numpy(), kind.projective, True) for k in range(2))
        want = (a.probabilities * (np.log(a.probabilities) - np.log(c.probabilities))).sum()
        assert_allclose(p.kl(q)[b].item(), want, rtol=1e-9)
    assert_allclose(p.kl(p), 0, atol=1e-12)
    part = p.condition(known=torch.tensor([[2, -1, -1], [-1, -1, 2]]))
    assert_allclose(part.kl(p), p.log_partition() - part.log_partition(), rtol=1e-9)
    assert torch.isposinf(p.kl(part)).all()
    with pytest.raises(ShapeError, match="same trees"):
        p.kl(kind(scores[1], single_root=False))


@both_kinds
@both_backends
@both_roots
@pytest.mark.parametrize("shape", [(2, 4, 4), (2, 3, 3, 2)])
def test_gradients(kind, backend, single_root, shape):
    scores = random_scores(0, *shape).requires_grad_()
    heads = torch.tensor([[0, 1, 1], [2, 0, 0]])[:, : shape[1] - 1]
    tree = heads if len(shape) == 3 else torch.stack([heads, heads % 2], dim=2)

    def query(name):
        def f(scores):
            one = computed_by(backend, kind(scores, lengths=[shape[1] - 1, 2], single_root=single_root))
            return one.log_prob(tree) if name == "log_prob" else getattr(one, name)()

        return f

    assert torch.autograd.gradcheck(query("log_partition"), scores, fast_mode=True)
    assert torch.autograd.gradgradcheck(query("log_partition"), scores, fast_mode=True)
    for name in ("log_prob", "entropy", "marginals"):
        assert torch.autograd.gradcheck(query(name), scores, fast_mode=True), name


@both_kinds
@both_backends
def test_gradients_with_impossible_arcs_and_sentences(kind, backend):
    scores = random_scores(0, 3, 4, 4)
    scores[0, 1, 2] = -torch.inf
    scores[1, :, 2] = -torch.inf
    scores[2, :, 3] = torch.nan  # padding
    scores.requires_grad_()
    one = computed_by(backend, kind(scores, lengths=[3, 3, 2]))
    log_z = one.log_partition()
    assert log_z[1] == -torch.inf
    log_z[[0, 2]].sum().backward()
    assert_allclose(scores.grad[[0, 2]], one.marginals().detach()[[0, 2]], atol=1e-12)
    assert (scores.grad[1] == 0).all()
    assert scores.grad[0, 1, 2] == 0
    some = computed_by(backend, kind(scores[[0, 2]], lengths=[3, 2]))
    (gradient,) = torch.autograd.grad(some.entropy().sum() + some.marginals()[:, 0, 1].sum(), scores)
    assert torch.isfinite(gradient).all()


@both_kinds
def test_other_structures_have_probability_zero(kind):
    one = kind(torch.zeros(1, 4, 4))
    assert torch.isneginf(one.log_prob(torch.tensor([[2, 1, 0]])))  # a cycle
    assert torch.isneginf(one.log_prob(torch.tensor([[0, 0, 1]])))  # two roots
    several = kind(torch.zeros(1, 5, 5), single_root=False)
    crossing = several.log_prob(torch.tensor([[3, 0, 0, 2]]))
    assert torch.isneginf(crossing) == kind.projective


@both_kinds
def test_single_precision_keeps_its_dtype(kind):
    scores = random_scores(2, 2, 5, 5)
    single, double = kind(scores.float()), kind(scores)
    for name in ("log_partition", "marginals", "entropy"):
        got = getattr(single, name)()
        assert got.dtype == torch.float32
        assert_allclose(got, getattr(double, name)(), rtol=1e-4, atol=1e-5)
    assert single.argmax().log_prob.dtype == torch.float32


@both_kinds
def test_invalid_input_raises_errors(kind):
    scores = torch.zeros(1, 3, 3)
    with pytest.raises(ShapeError, match="n\\+1"):
        kind(torch.zeros(3, 3))
    with pytest.raises(ValueRangeError, match="nan"):
        kind(torch.full((1, 3, 3), torch.nan))
    with pytest.raises(ValueRangeError, match="boolean"):
        kind(scores).condition(allowed=torch.ones(1, 3, 3))
    one = kind(scores)
    with pytest.raises(ValueRangeError, match="heads must be between 0 and 2, got 3"):
        one.log_prob(torch.tensor([[3, 0]]))
    with pytest.raises(ValueRangeError, match="integers"):
        one.log_prob(torch.zeros(1, 2))
    with pytest.raises(ShapeError, match="heads"):
        one.log_prob(torch.zeros(1, 3, dtype=torch.int64))
    nothing = kind(torch.full((1, 3, 3), -torch.inf))
    for query in (nothing.argmax, nothing.sample, nothing.entropy, nothing.mbr):
        with pytest.raises(ImpossibleError):
            query()
    assert (nothing.marginals() == 0).all()
    assert repr(kind(torch.zeros(1, 3, 3, 2))).startswith(f"{kind.__name__}(B=1, n=2, L=2, single root")


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 12, 40, 150])
def test_number_of_spanning_trees(n):
    zeros = torch.zeros(1, n + 1, n + 1, dtype=torch.float64)
    several, single = SpanningTree(zeros, single_root=False), SpanningTree(zeros)
    assert_allclose(several.log_partition().item(), (n - 1) * np.log(n + 1), rtol=1e-11, atol=1e-11)
    assert_allclose(single.log_partition().item(), (n - 1) * np.log(n), rtol=1e-11, atol=1e-11)
    if n <= 5:
        assert len(trees(n, False, False)) == (n + 1) ** (n - 1)
        assert len(trees(n, False, True)) == n ** (n - 1)


@pytest.mark.parametrize(("n", "k"), [(4, 1), (4, 2), (6, 3)])
def test_number_of_rooted_forests(n, k):
    # C(n, k) k n^(n-k-1) forests of k rooted trees: the coefficient of t^k when root arcs weigh t.
    scale = np.linspace(0.5, 2, n + 1)  # the polynomial has degree n
    values = []
    for t in scale:
        scores = torch.zeros(1, n + 1, n + 1, dtype=torch.float64)
        scores[:, 0] = np.log(t)
        values.append(SpanningTree(scores, single_root=False).log_partition().exp().item())
    coefficients = np.linalg.solve(np.vander(scale, n + 1, increasing=True), values)
    assert_allclose(coefficients[k], comb(n, k) * k * float(n) ** (n - k - 1), rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_single_root_is_the_best_over_all_roots(seed):
    scores = torch.randn(1, 13, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 10
    scores[:, 0] += 20  # several roots would be far better
    best = SpanningTree(scores).argmax()
    assert (best.value == 0).sum() == 1
    values = []
    for root in range(1, 13):
        one = scores.clone()
        one[:, 0] = -torch.inf
        one[:, 0, root] = scores[:, 0, root]
        values.append(SpanningTree(one, single_root=False)._viterbi()[1].item())
    found = scores[0, best.value[0], torch.arange(1, 13)].sum().item()
    assert_allclose(found, max(values), rtol=1e-12)
    assert (SpanningTree(scores, single_root=False).mode == 0).sum() > 1


def test_single_root_with_scores_that_a_large_constant_would_drown():
    scores = torch.zeros(1, 4, 4, dtype=torch.float64)
    scores[0, 0] = torch.tensor([0, 1e11, 1e11, 1e11])
    scores[0, 2, 1] = scores[0, 2, 3] = 1e-3
    assert SpanningTree(scores).mode.tolist() == [[2, 0, 2]]


def test_a_word_that_only_the_root_can_head():
    scores = torch.zeros(1, 4, 4, dtype=torch.float64)
    scores[0, 1:, 2] = -torch.inf
    one = SpanningTree(scores)
    assert_allclose(one.log_partition().exp().item(), 3)
    assert_allclose(one.marginals()[0, 0], [0, 0, 1, 0], atol=1e-12)
    scores[0, 1:, 3] = -torch.inf  # two of them: no tree with a single root
    assert torch.isneginf(SpanningTree(scores).log_partition()).all()
    assert_allclose(SpanningTree(scores, single_root=False).log_partition().exp().item(), 3)
