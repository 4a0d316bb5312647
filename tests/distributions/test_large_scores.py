"""Entropies, divergences and probabilities at scores of any size, against enumeration in extended precision."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import entr

from tests.distributions.backends import computed_by
from tests.oracle.chain import enumerate_chain
from tests.oracle.graphs import enumerate_graphs
from tests.oracle.trees import bracketings, derivations, is_projective, trees
from trelliswork import LinearChain, ProjectiveTree, SpanningTree
from trelliswork.distributions import FactorGraph, GrammarTree, NearlyProjectiveTree, SpanTree

SCALES = [1.0, 1e2, 1e4, 1e6]
COST = 0.7
L = 2  # labels


def scores(rng, scale, dtype, *shape):
    """Return multiples of a scale, so that many structures are nearly equal, with a little noise."""
    return (rng.integers(-2, 3, shape) * scale + rng.normal(size=shape)).astype(dtype)


def chain(rng, scale, dtype):
    own, between = scores(rng, scale, dtype, 4, 3), scores(rng, scale, dtype, 3, 3)
    chains = LinearChain(own[None], between)
    every = enumerate_chain(chains.log_unary[0].numpy().astype(np.longdouble), np.array([between] * 3, np.longdouble))
    return chains, every.scores


def beam(rng, scale, dtype):
    chains = chain(rng, scale, dtype)[0].within("size=2")
    own, between = chains.log_unary[0].numpy(), chains.log_pairwise.numpy()
    return chains, enumerate_chain(own.astype(np.longdouble), np.array([between] * 3, np.longdouble)).scores


def dependencies(kind, labeled=False, **options):
    def make(rng, scale, dtype):
        arcs = scores(rng, scale, dtype, 5, 5, L) if labeled else scores(rng, scale, dtype, 5, 5)
        heads = trees(4, kind is ProjectiveTree, True)
        at = arcs.astype(np.longdouble)[heads, np.arange(1, 5)]  # (m, 4) or (m, 4, L)
        crossing = np.array([not is_projective(tuple(tree)) for tree in heads]) * options.get("crossing_cost", 0)
        return kind(arcs[None], **options), (_any_label(at) if labeled else at.sum(axis=1)[:, None]) - crossing[:, None]

    return make


def _any_label(at):
    """Return the scores (m, L^n) of all labelings of trees, from scores (m, n, L) of the labels of their parts."""
    labels = np.array(list(product(range(L), repeat=at.shape[1])))
    return at[:, np.arange(at.shape[1]), labels].sum(axis=2)


def spans(labeled):
    def make(rng, scale, dtype):
        given = scores(rng, scale, dtype, 5, 5, L)
        given = given if labeled else given[..., :1]
        every = [[given[i, j] for i, j in tree] for tree in bracketings(0, 4)]
        at = np.array(every, np.longdouble)
        return SpanTree((given if labeled else given[..., 0])[None]), _any_label(at) if labeled else at.sum(axis=1)

    return make


def grammar(rng, scale, dtype):
    root, rules, leaves = (scores(rng, scale, dtype, *shape) for shape in ((2,), (2, 4, 4), (4, 2)))
    totals = [
        sum((leaves[i, a - 2] if i == j else rules[a, x, y] for i, j, a, _, x, y in nodes), np.longdouble(root[top]))
        for top in range(2)
        for nodes in derivations(0, 3, top, 2, 4)
    ]
    return GrammarTree(root, rules, leaves[None]), np.array(totals)


def graph(engine, pairs):
    def make(rng, scale, dtype):
        factors = [(pair, scores(rng, scale, dtype, 3, 3)) for pair in pairs]
        made = FactorGraph([3] * 4, factors, log_unary=scores(rng, scale, dtype, 12), engine=engine)
        wide = made._wiring.with_unary(made._wiring.log_unary.astype(np.longdouble))
        return made, enumerate_graphs(wide)[0].scores

    return make


STRUCTURES = {
    "chain": chain,
    "beam": beam,
    "projective": dependencies(ProjectiveTree),
    "spanning": dependencies(SpanningTree),
    "nearly": dependencies(NearlyProjectiveTree, crossing_cost=COST),
    "labeled projective": dependencies(ProjectiveTree, labeled=True),
    "labeled spanning": dependencies(SpanningTree, labeled=True),
    "labeled nearly": dependencies(NearlyProjectiveTree, labeled=True, crossing_cost=COST),
    "spans": spans(labeled=False),
    "labeled spans": spans(labeled=True),
    "grammar": grammar,
    "exact": graph("exact", [(0, 1), (1, 2), (2, 3), (0, 3)]),
    "bp": graph("bp", [(0, 1), (1, 2), (1, 3)]),
}
every_structure = pytest.mark.parametrize("name", STRUCTURES)


def probabilities(totals):
    weights = np.exp(totals - totals.max())
    return (weights / weights.sum()).astype(np.float64)


@every_structure
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_entropy(name, scale, dtype):
    # log Z - E[score], with scores of an expected size of about 20 scales: an error of 1e-16 times its square
    error = 3e-15 * scale if name in ("exact", "bp") else 1e-16 * (20 * scale) ** 2
    for seed in range(3):
        made, totals = STRUCTURES[name](np.random.default_rng(seed), scale, dtype)
        value = made.entropy().item()
        assert value >= 0
        relative = 1e-6 if dtype == np.float32 else 1e-12
        assert value == pytest.approx(entr(probabilities(totals)).sum(), rel=relative, abs=1e-11 + error)


GRADIENTS = [name for name in STRUCTURES if name not in ("exact", "bp")]  # graphs have no gradients of entropies


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("shift", [0.0, 1e2])
def test_gradients_of_entropies(name, shift):
    made, totals = STRUCTURES[name](np.random.default_rng(1), 1.0, np.float64)
    made, given = _moved(made, shift)
    p = probabilities(totals)
    assert made.entropy().item() == pytest.approx(entr(p).sum(), abs=1e-10)
    (gradient,) = torch.autograd.grad(made.entropy().sum(), given)
    again, other = _moved(STRUCTURES[name](np.random.default_rng(1), 1.0, np.float64)[0], 0.0)
    (want,) = torch.autograd.grad(again.log_partition().sum() - _expected(again), other)
    np.testing.assert_allclose(gradient, want, atol=1e-9)


def _moved(made, shift):
    """Return the distribution with its first scores moved by a constant, which changes no probability; and these."""
    if isinstance(made, LinearChain):
        given = (made.log_unary.detach() + shift).requires_grad_()
        return LinearChain(given, made.log_pairwise), given
    if isinstance(made, GrammarTree):
        given = (made.log_rules.detach() + shift).requires_grad_()
        symbols, terminals, root, _ = made._inputs
        return made._like(symbols, terminals, root, given), given
    given = (made._scores.detach() + shift).requires_grad_()
    return made._like(given), given


def _expected(made):
    return made._expected_score(made._moments()).sum()


@pytest.mark.parametrize("cost", [0.0, 0.3, 50.0])
@pytest.mark.parametrize("backend", ["kernel", "torch"])
def test_gradients_without_a_projective_tree(cost, backend):
    arcs = torch.full((2, 5, 5), -torch.inf, dtype=torch.float64)
    for d, h in enumerate((3, 4, 0, 3), 1):  # the only tree, whose arcs cross
        arcs[0, h, d] = 0.5
    arcs[1] = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    arcs.requires_grad_()
    made = computed_by(backend, NearlyProjectiveTree(arcs, cost))
    other = computed_by(backend, NearlyProjectiveTree(0.5 * arcs.detach(), cost))
    for value in (made.entropy(), made.kl(other), made.marginals().square().sum(dim=(1, 2))):
        (gradient,) = torch.autograd.grad(value.sum(), arcs)
        assert torch.isfinite(gradient).all()
        assert not gradient[0].any()
    assert made.entropy()[0].item() == made.kl(other)[0].item() == 0


def test_costs_keep_their_digits():
    arcs = np.zeros((1, 5, 5))
    assert NearlyProjectiveTree(arcs, 0.1).crossing_cost.item() == 0.1
    want = np.log(30 + 34 * np.exp(np.longdouble(0.1) * -1))
    assert NearlyProjectiveTree(arcs, 0.1).log_partition().item() == pytest.approx(float(want), rel=1e-14)


@pytest.mark.parametrize("scale", [1e2, 1e4])
@pytest.mark.parametrize("name", ["labeled projective", "labeled spanning", "labeled nearly", "labeled spans"])
def test_labeled_trees_in_single_precision(name, scale):
    made, _ = STRUCTURES[name](np.random.default_rng(3), scale, np.float32)
    made = made._like(made._scores * 0.7117)  # not multiples of the scale
    double = made._like(made._scores.double())
    given = made._scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(made._like(given).log_partition().sum(), given)
    for marginals in (made.marginals(), gradient):
        assert marginals.dtype == torch.float32
        np.testing.assert_allclose(marginals.sum(), 9 if "spans" in name else 4, rtol=1e-6)
        np.testing.assert_allclose(marginals, double.marginals(), rtol=1e-6, atol=1e-9)
    draws = made.sample(3, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(made.log_prob(draws), double.log_prob(draws), rtol=1e-6, atol=1e-9)


def unlikely(kind, forbid):
    """Return two distributions: the second forbids what has the probability exp(-800) under the first.

    Without ``forbid`` it forbids a part of no possible structure.
    """
    low, no = -800.0, -np.inf
    if kind is LinearChain:
        own, between = np.zeros((1, 3, 3)), np.zeros((3, 3))
        own[0, 1, 1], own[0, 1, 2] = low, no
        other = own.copy()
        other[0, 1, 1 if forbid else 2] = no
        return LinearChain(own, between), LinearChain(other, between)
    if kind is SpanTree:
        spans = np.zeros((1, 4, 4))
        spans[0, 1, 3], spans[0, 0, 2] = no, low if forbid else no  # a tree with 1..2 has one of these
        other = spans.copy()
        other[0, 0 if forbid else 1, 2] = no
        return SpanTree(spans), SpanTree(other)
    if kind is GrammarTree:
        root, rules, leaves = np.zeros(2), np.zeros((2, 4, 4)), np.zeros((1, 3, 2))
        rules[0, 2, 3], rules[:, :, 1] = low, no
        root[1] = no
        rules[0, 1] = no  # symbol 1 is never used
        other = rules.copy()
        other[(0 if forbid else 1), 2, 3] = no
        return GrammarTree(root, rules, leaves), GrammarTree(root, other, leaves)
    arcs = np.zeros((1, 4, 4))
    arcs[0, 1, 2], arcs[0, :, 1] = low, no
    arcs[0, 0, 1] = 0  # word 1 is the root, so no other word is
    other = arcs.copy()
    other[0, 1 if forbid else 0, 2] = no
    return kind(arcs), kind(other)


@pytest.mark.parametrize(
    "kind", [LinearChain, ProjectiveTree, SpanningTree, NearlyProjectiveTree, SpanTree, GrammarTree]
)
def test_divergence_from_what_forbids_the_improbable(kind):
    p, q = unlikely(kind, forbid=True)
    assert p.kl(q).item() == np.inf
    assert q.kl(p).item() == pytest.approx(0, abs=1e-9)
    p, q = unlikely(kind, forbid=False)
    assert p.kl(q).item() == pytest.approx(0, abs=1e-9)


def test_divergence_from_a_costly_crossing():
    arcs, other = np.zeros((2, 1, 5, 5))
    other[0, 3, 1] = -np.inf
    assert NearlyProjectiveTree(arcs, 900.0).kl(NearlyProjectiveTree(other, 900.0)).item() == np.inf
    arcs[0, :, 1] = -np.inf
    arcs[0, (3, 4), 1], arcs[0, :, 2] = 0.0, -np.inf
    arcs[0, 4, 2] = 0.0  # 4 -> 2 and 3 -> 1 cross, at the cost of 900
    assert NearlyProjectiveTree(arcs, 900.0).kl(NearlyProjectiveTree(arcs + other, 900.0)).item() == np.inf


@pytest.mark.parametrize("size", [1e18, -1e18, -1e30])
def test_the_torch_path_is_right_for_scores_of_any_size(size):
    rng = np.random.default_rng(0)
    log_unary, log_pairwise = rng.normal(size=(2, 4, 3)), rng.normal(size=(3, 3))
    log_unary[:, 1] += size
    log_unary[0, 2, 1] = -np.inf
    small = [computed_by(backend, LinearChain(log_unary, log_pairwise)) for backend in ("kernel", "torch")]
    arcs = rng.normal(size=(2, 5, 5))
    arcs[:, :, 3] += size
    spans = rng.normal(size=(2, 4, 4)) + size
    root, rules, terminals = rng.normal(size=2) + size, rng.normal(size=(2, 5, 5)), rng.normal(size=(2, 4, 3))
    pairs = [small]
    pairs += [[computed_by(b, make(arcs)) for b in ("kernel", "torch")] for make in (ProjectiveTree, SpanningTree)]
    pairs += [[computed_by(b, SpanTree(spans)) for b in ("kernel", "torch")]]
    pairs += [[computed_by(b, GrammarTree(root, rules, terminals)) for b in ("kernel", "torch")]]
    for ours, other in pairs:
        torch.testing.assert_close(other.log_partition(), ours.log_partition(), rtol=1e-12, atol=1e-9)
        torch.testing.assert_close(other.marginals(), ours.marginals(), rtol=0, atol=1e-6)


def test_impossible_is_exact_on_the_torch_path():
    scores = torch.full((1, 3, 3), -torch.inf, dtype=torch.float64, requires_grad=True)
    for make in (ProjectiveTree, SpanningTree, SpanTree):
        log_z = computed_by("torch", make(scores)).log_partition()
        assert torch.isneginf(log_z).all()
        (gradient,) = torch.autograd.grad(torch.where(torch.isneginf(log_z), 0, log_z).sum(), scores)
        assert (gradient == 0).all()
