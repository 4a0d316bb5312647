"""SpanTree and GrammarTree: queries against enumeration with both backends, Catalan numbers, gradients, errors."""

from collections import Counter
from math import comb

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from tests.distributions.backends import computed_by
from tests.oracle.trees import Enumerated, bracketings, derivations
from trelliswork.distributions.dependency_tree import ProjectiveTree
from trelliswork.distributions.grammar_tree import GrammarTree
from trelliswork.distributions.span_tree import SpanTree
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.span import Grammar, grammar

both_backends = pytest.mark.parametrize("backend", ["kernel", "torch"])
N, P = 2, 2


def random_scores(seed, *shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def all_brackets(log_span, n, size) -> Enumerated:
    """Charts (m, size, size) with 0 at the spans of all trees over n positions, and their scores."""
    charts = np.full((len(bracketings(0, n - 1)), size, size), -1)
    for chart, spans in zip(charts, bracketings(0, n - 1), strict=True):
        for i, j in spans:
            chart[i, j] = 0
    return Enumerated(charts, np.array([log_span[chart == 0].sum() for chart in charts]))


def all_derivations(one: GrammarTree, b: int) -> tuple[Enumerated, np.ndarray]:
    """Charts of all trees of sentence b with their scores; and how often each uses each rule."""
    n, size = int(one.lengths[b]), one.log_terminals.shape[1]
    root, rules, terminals = (x.detach().numpy() for x in (one.log_root, one.log_rules, one.log_terminals))
    symbols = np.zeros((size, size, N + P)) if one.log_symbols is None else one.log_symbols[b].detach().numpy()
    charts, scores, counts = [], [], []
    for top in range(N):
        for nodes in derivations(0, n - 1, top, N, N + P):
            chart, count, score = np.full((size, size), -1), np.zeros(rules.shape), root[top]
            for i, j, a, _, x, y in nodes:
                chart[i, j] = a
                score += symbols[i, j, a] + (terminals[b, i, a - N] if i == j else rules[a, x, y])
                if i < j:
                    count[a, x, y] += 1
            charts.append(chart)
            scores.append(score)
            counts.append(count)
    return Enumerated(np.array(charts), np.array(scores)), np.array(counts)


def symbol_marginals(want: Enumerated, n_labels: int) -> np.ndarray:
    hits = want.structures[..., None] == np.arange(n_labels)
    return np.einsum("m,mijs->ijs", want.probabilities, hits.astype(float))


def random_grammar(
    seed=0, size=1.0, holes=0.0, evidence=False, backend="kernel", n=4, lengths=(4, 3, 2)
) -> GrammarTree:
    rng = np.random.default_rng(seed)
    S, B = N + P, len(lengths)
    parts = [rng.normal(size=shape) * size for shape in ((N,), (N, S, S), (B, n, P), (B, n, n, S))]
    parts[1][rng.random((N, S, S)) < holes] = -np.inf
    symbols = parts[3] if evidence else None
    return computed_by(backend, GrammarTree(*parts[:3], log_symbols=symbols, lengths=list(lengths)))


def check_draws(draws, want: Enumerated):
    seen = Counter(chart.tobytes() for chart in draws)
    counts = np.array([seen[chart.tobytes()] for chart in want.structures])
    assert counts.sum() == len(draws)
    expected = want.probabilities * len(draws)
    assert (counts[expected == 0] == 0).all()
    often = expected > 5
    if often.sum() > 1:
        counts = np.append(counts[often], counts[~often].sum() + 1e-9)
        expected = np.append(expected[often], expected[~often].sum() + 1e-9)
        assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


@pytest.mark.parametrize("n", [1, 2, 3, 6, 20, 60])
def test_catalan_numbers(n):
    want = np.log(float(comb(2 * n - 2, n - 1) // n))
    assert_allclose(SpanTree(torch.zeros(1, n, n, dtype=torch.float64)).log_partition().item(), want, atol=1e-10)
    one = GrammarTree(*(torch.zeros(*shape, dtype=torch.float64) for shape in ((1,), (1, 2, 2), (1, n, 1))))
    assert_allclose(one.log_partition().item(), want if n > 1 else -np.inf, atol=1e-10)
    if n <= 6:
        assert len(bracketings(0, n - 1)) == round(np.exp(want))


@both_backends
@pytest.mark.parametrize("size", [1.0, 30.0, 1e3])
def test_spans_match_enumeration(backend, size):
    scores = random_scores(0, 3, 5, 5) * size
    scores[0, 1, 3] = scores[1, 0, 1] = -torch.inf
    scores[2, :, 3:] = torch.nan  # padding
    lengths = [5, 4, 3]
    one = computed_by(backend, SpanTree(scores, lengths=lengths))
    log_z, marginals = one.expectations()
    best, few, hits, entropy = one.argmax(), one.topk(4), one.mbr(), one.entropy()
    draws = one.sample(3000, generator=torch.Generator().manual_seed(1))
    log_prob = one.log_prob(best.value)
    for b, n in enumerate(lengths):
        want = all_brackets(scores[b].numpy(), n, 5)
        spans = symbol_marginals(want, 1)[..., 0]
        order = np.sort(want.scores)[::-1]
        assert_allclose(log_z[b].item(), want.log_z, rtol=1e-12)
        assert_allclose(marginals[b], spans, atol=1e-9)
        assert_allclose(entropy[b].item(), want.entropy(), atol=1e-8)
        assert_allclose(best.log_prob[b].item(), order[0] - want.log_z, rtol=1e-12, atol=1e-9)
        listed = few.log_prob[b][few.log_prob[b] > -torch.inf] + want.log_z
        assert len(listed) == min(4, (order > -np.inf).sum())
        assert_allclose(listed, order[: len(listed)], rtol=1e-12)
        assert_allclose(log_prob[b].item(), order[0] - want.log_z, atol=1e-9)
        possible = want.structures[want.scores > -np.inf]
        most = max(spans[chart == 0].sum() for chart in possible)
        assert_allclose(spans[hits.value[b].numpy() == 0].sum(), most, atol=1e-9)
        check_draws(draws[:, b].numpy(), want)


def test_labels_are_summed_inside_each_span():
    scores = random_scores(2, 2, 4, 4, 3)
    scores[0, 0, 1, 1] = -torch.inf
    one, sums = SpanTree(scores, lengths=[4, 3]), SpanTree(torch.logsumexp(scores, 3), lengths=[4, 3])
    assert_allclose(one.log_partition(), sums.log_partition(), rtol=1e-12)
    assert_allclose(one.marginals().sum(dim=3), sums.marginals(), atol=1e-12)
    best = one.argmax()
    of_best_labels = SpanTree(scores.amax(3), lengths=[4, 3])
    score = of_best_labels.argmax().log_prob + of_best_labels.log_partition()
    assert_allclose(best.log_prob, score - one.log_partition(), rtol=1e-10)
    few = one.topk(40)
    assert len({chart.tobytes() for chart in few.value[0].numpy()}) == 40
    assert_allclose(one.log_prob(few.value[:, 7]), few.log_prob[:, 7], rtol=1e-12)
    assert (few.log_prob.diff(dim=1) <= 1e-12).all()
    draws = one.sample(4000, generator=torch.Generator().manual_seed(0))
    seen = (draws[..., None] == torch.arange(3)).double().mean(dim=0)
    assert_allclose(seen, one.marginals(), atol=0.05)
    assert (seen[one.marginals() == 0] == 0).all()
    given_evidence = one.condition(known=torch.where(best.value == 2, 2, -1))
    assert (given_evidence.log_partition() <= one.log_partition()).all()
    assert_allclose(given_evidence.marginals()[..., 2][best.value == 2], 1, rtol=1e-9)


def test_span_evidence_matches_renormalized_enumeration():
    scores = random_scores(3, 1, 5, 5)
    known = torch.full((1, 5, 5), -1)
    known[0, 1, 2] = 0
    allowed = torch.ones(1, 5, 5, dtype=torch.bool)
    allowed[0, 0, 2] = False
    one = SpanTree(scores)
    given_evidence = one.condition(allowed=allowed, known=known)
    want = all_brackets(scores[0].numpy(), 5, 5)
    fits = (want.structures[:, 1, 2] == 0) & (want.structures[:, 0, 2] < 0)
    want.scores = np.where(fits, want.scores, -np.inf)
    assert_allclose(given_evidence.log_partition().item(), want.log_z, rtol=1e-12)
    assert_allclose(given_evidence.kl(one), one.log_partition() - given_evidence.log_partition(), rtol=1e-10)
    assert torch.isposinf(one.kl(given_evidence)).all()


@both_backends
@pytest.mark.parametrize(("size", "holes"), [(1.0, 0.0), (1.0, 0.4), (30.0, 0.0), (1e3, 0.2)])
@pytest.mark.parametrize("evidence", [False, True])
def test_grammars_match_enumeration(backend, size, holes, evidence):
    one = random_grammar(1, size, holes, evidence, backend)
    log_z, roots, rules, symbols = one.expectations()
    best, few, entropy = one.argmax(), one.topk(5), one.entropy()
    draws = one.sample(2000, generator=torch.Generator().manual_seed(1))
    log_prob = one.log_prob(best.value)
    for b in range(3):
        want, counts = all_derivations(one, b)
        order = np.sort(want.scores)[::-1]
        assert_allclose(log_z[b].item(), want.log_z, rtol=1e-12)
        assert_allclose(symbols[b], symbol_marginals(want, N + P), atol=1e-9)
        assert_allclose(rules[b], np.einsum("m,maxy->axy", want.probabilities, counts), atol=1e-9)
        assert_allclose(roots[b].sum().item(), 1, rtol=1e-9)
        assert_allclose(entropy[b].item(), want.entropy(), atol=1e-8)
        assert_allclose(best.log_prob[b].item(), order[0] - want.log_z, rtol=1e-12, atol=1e-9)
        assert_allclose(log_prob[b].item(), order[0] - want.log_z, atol=1e-9)
        listed = few.log_prob[b][few.log_prob[b] > -torch.inf] + want.log_z
        assert len(listed) == min(5, (order > -np.inf).sum())
        assert_allclose(listed, order[: len(listed)], rtol=1e-12)
        assert len({chart.tobytes() for chart in few.value[b, : len(listed)].numpy()}) == len(listed)
        check_draws(draws[:, b].numpy(), want)


def test_long_sentences_agree_in_both_arithmetics():
    rng = np.random.default_rng(0)
    B, n, n_nonterminals, n_preterminals = 2, 25, 4, 5
    S = n_nonterminals + n_preterminals
    for size in (1.0, 100.0):
        shapes = ((n_nonterminals,), (n_nonterminals, S, S), (B, n, n_preterminals))
        one = Grammar(*(rng.normal(size=shape) * size for shape in shapes), None, np.array([25, 17]))
        fast, (slow, chart) = grammar.expectations(one), grammar.log_expectations(one)
        assert_allclose(fast.log_z, slow.log_z, rtol=1e-12)
        assert_allclose(fast.rules, slow.rules, atol=1e-9)
        assert_allclose(fast.symbols, slow.symbols, atol=1e-9)
        assert_allclose(fast.rules.sum(axis=(1, 2, 3)), [24, 16], rtol=1e-9)
        if size == 1.0:
            assert_allclose(grammar.inside_chart(one)[0], chart[0], rtol=1e-9)


def test_grammar_evidence_matches_renormalized_enumeration():
    one = random_grammar(4)
    known = torch.full((3, 4, 4), -1)
    known[0, 1, 2] = 1
    given_evidence = one.condition(known=known)
    want, _ = all_derivations(one, 0)
    want.scores = np.where(want.structures[:, 1, 2] == 1, want.scores, -np.inf)
    assert_allclose(given_evidence.log_partition()[0].item(), want.log_z, rtol=1e-12)
    assert_allclose(given_evidence.log_partition()[1:], one.log_partition()[1:], rtol=1e-12)
    assert_allclose(given_evidence.kl(one), one.log_partition() - given_evidence.log_partition(), atol=1e-10)
    assert torch.isposinf(one.kl(given_evidence)[0])
    allowed = torch.ones(3, 4, 4, dtype=torch.bool)
    allowed[0, 0, 1] = False
    assert one.condition(allowed=allowed).marginals()[0, 0, 1].sum() == 0
    hits = one.mbr()
    spans = one.marginals().sum(dim=3)[0].numpy()
    all_charts = all_brackets(np.zeros((4, 4)), 4, 4).structures
    most = max(spans[chart == 0].sum() for chart in all_charts)
    assert_allclose(spans[hits.value[0].numpy() >= 0].sum(), most, rtol=1e-9)


@both_backends
@pytest.mark.parametrize("shape", [(2, 4, 4), (2, 3, 3, 2)])
def test_gradients_of_spans(backend, shape):
    scores = random_scores(0, *shape).requires_grad_()
    lengths = [shape[1], 2]
    tree = SpanTree(scores, lengths=lengths).mode

    def query(name):
        def f(scores):
            one = computed_by(backend, SpanTree(scores, lengths=lengths))
            return one.log_prob(tree) if name == "log_prob" else getattr(one, name)()

        return f

    assert torch.autograd.gradgradcheck(query("log_partition"), scores)
    for name in ("log_partition", "log_prob", "entropy", "marginals"):
        assert torch.autograd.gradcheck(query(name), scores), name


@both_backends
def test_gradients_of_grammars(backend):
    start = random_grammar(5, evidence=True, n=3, lengths=(3, 2))
    inputs = tuple(
        x.requires_grad_() for x in (start.log_root, start.log_rules, start.log_terminals, start.log_symbols)
    )
    tree = start.mode

    def query(name):
        def f(root, rules, terminals, symbols):
            one = computed_by(backend, GrammarTree(root, rules, terminals, log_symbols=symbols, lengths=[3, 2]))
            if name == "rules":
                return one.expectations().rules
            return one.log_prob(tree) if name == "log_prob" else getattr(one, name)()

        return f

    assert torch.autograd.gradgradcheck(query("log_partition"), inputs, fast_mode=True)
    for name in ("log_partition", "log_prob", "entropy", "marginals", "rules"):
        assert torch.autograd.gradcheck(query(name), inputs, fast_mode=True), name


@pytest.mark.parametrize("backend", ["kernel", "torch"])
def test_single_words_have_no_grammar_tree_and_no_gradient(backend):
    root, rules, terminals = (torch.zeros(shape, requires_grad=True) for shape in ((1,), (1, 2, 2), (2, 1, 1)))
    trees = computed_by(backend, GrammarTree(root, rules, terminals))
    assert torch.isneginf(trees.log_partition()).all()
    assert not trees.marginals().any()
    torch.where(torch.isneginf(trees.log_partition()), 0, trees.log_partition()).sum().backward()
    assert not any(x.grad is not None and x.grad.any() for x in (root, rules, terminals))
    fixed = computed_by(backend, GrammarTree(root.detach(), rules.detach(), terminals.detach()))
    assert not fixed.marginals().any()


def test_other_structures_have_probability_zero():
    one = SpanTree(torch.zeros(1, 3, 3))
    tree = one.mode
    assert torch.isfinite(one.log_prob(tree))
    more, less = tree.clone(), tree.clone()
    more[0, 0, 1] = more[0, 1, 2] = 0
    less[0, 1, 1] = -1
    assert torch.isneginf(one.log_prob(more))
    assert torch.isneginf(one.log_prob(less))
    grammar_tree = random_grammar()
    wrong = grammar_tree.mode
    wrong[0, 0, 0] = 0  # a nonterminal over one position
    assert torch.isneginf(grammar_tree.log_prob(wrong)[0])


def test_invalid_input_raises_errors():
    with pytest.raises(ShapeError, match="log_span"):
        SpanTree(torch.zeros(2, 3))
    with pytest.raises(ShapeError, match="log_span"):
        SpanTree(torch.zeros(2, 3, 4))
    with pytest.raises(ValueRangeError, match="nan"):
        SpanTree(torch.full((1, 2, 2), torch.nan))
    with pytest.raises(ValueRangeError, match="charts must be between -1 and 0, got 1"):
        SpanTree(torch.zeros(1, 2, 2)).log_prob(torch.ones(1, 2, 2, dtype=torch.int64))
    with pytest.raises(ImpossibleError):
        SpanTree(torch.full((1, 2, 2), -torch.inf)).argmax()
    zeros = torch.zeros(2), torch.zeros(2, 4, 4), torch.zeros(1, 3, 2)
    with pytest.raises(ShapeError, match="log_rules"):
        GrammarTree(zeros[0], torch.zeros(3, 4, 4), zeros[2])
    with pytest.raises(ShapeError, match="log_terminals"):
        GrammarTree(*zeros[:2], torch.zeros(1, 3, 3))
    with pytest.raises(ShapeError, match="preterminals"):
        GrammarTree(torch.zeros(2), torch.zeros(2, 2, 2), torch.zeros(1, 3, 0))
    short = GrammarTree(*zeros, lengths=[1])
    assert torch.isneginf(short.log_partition()).all()
    for query in (short.argmax, short.sample, short.entropy):
        with pytest.raises(ImpossibleError):
            query()
    assert (short.marginals() == 0).all()
    assert repr(short) == "GrammarTree(B=1, n=3, N=2, P=2)"


def test_divergence_of_different_kinds_raises_an_error():
    spans, arcs = SpanTree(torch.zeros(1, 3, 3)), ProjectiveTree(torch.zeros(1, 3, 3))
    rules = GrammarTree(torch.zeros(1), torch.zeros(1, 2, 2), torch.zeros(1, 3, 1))
    for one, other in ((spans, arcs), (spans, rules), (rules, spans), (rules, arcs), (arcs, spans)):
        with pytest.raises(ShapeError, match="kl needs two distributions over the same trees"):
            one.kl(other)


def test_errors_for_impossible_sentences_mention_trees():
    nothing = torch.full((1, 3, 3), -torch.inf)
    for tree, parts in ((SpanTree(nothing), "spans"), (ProjectiveTree(nothing), "arcs")):
        with pytest.raises(ImpossibleError, match=f"every tree of sentence 0 has .* the forbidden {parts}"):
            tree.entropy()
