"""Low-rank grammars: against enumeration and dense grammars; gradients, extreme input, threads."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.oracle.trees import derivations
from trelliswork.compute import threads
from trelliswork.inference.span import grammar, lowrank, reference
from trelliswork.inference.span.autograd import lowrank_log_partition
from trelliswork.inference.span.potentials import LowRankGrammar


def random_grammar(seed, lengths, N=3, P=4, R=2, size=1.0, zeros=0.0) -> LowRankGrammar:
    rng = np.random.default_rng(seed)

    def draw(*shape):
        scores = rng.normal(size=shape) * size
        scores[rng.random(shape) < zeros] = -np.inf
        return scores

    n, S = max(lengths), N + P
    return LowRankGrammar(
        draw(N), draw(N, R), draw(R, S), draw(R, S), draw(len(lengths), n, P), np.array(lengths, np.int64)
    )


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_matches_enumeration(n):
    g = random_grammar(n, [n], N=2, P=2, R=2)
    rules = reference.rules(g.log_up, g.log_left, g.log_right)
    scores, trees = [], []
    for symbol in range(2):
        for tree in derivations(0, n - 1, symbol, 2, 4):
            score = g.log_root[symbol]
            for i, _, a, r, x, y in tree:
                score += g.log_terminals[0, i, a - 2] if r < 0 else rules[a, x, y]
            scores.append(score)
            trees.append(tree)
    scores = np.array(scores)
    log_z = np.logaddexp.reduce(scores)
    expected = lowrank.expectations(g, symbols=True)
    assert_allclose(expected.log_z[0], log_z, rtol=1e-12)
    symbols = np.zeros((n, n, 4))
    for p, tree in zip(np.exp(scores - log_z), trees, strict=True):
        for i, j, a, *_ in tree:
            symbols[i, j, a] += p
    assert_allclose(expected.symbols[0], symbols, atol=1e-12)
    assert_allclose(expected.spans[0], symbols.sum(axis=2), atol=1e-12)


@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([0.5, 3.0, 100.0, 400.0]),
    zeros=st.sampled_from([0.0, 0.1, 0.4]),
    R=st.integers(1, 9),
)
def test_matches_the_dense_grammar(seed, size, zeros, R):
    g = random_grammar(seed, [6, 1, 4, 2], N=3, P=5, R=R, size=size, zeros=zeros)
    want = grammar.log_expectations(_dense(g))[0]
    for expected in (lowrank.expectations(g, symbols=True), lowrank.log_expectations(g, symbols=True)):
        assert_array_equal(np.isneginf(expected.log_z), np.isneginf(want.log_z))
        possible = want.log_z > -np.inf
        assert_allclose(expected.log_z[possible], want.log_z[possible], rtol=1e-8)
        assert_allclose(expected.roots, want.roots.sum(axis=0), atol=1e-8)
        assert_allclose(expected.symbols, want.symbols, atol=1e-8)
        assert_allclose(expected.terminals, want.terminals, atol=1e-8)
        assert_allclose(expected.spans, want.symbols.sum(axis=3), atol=1e-8)
        n_rules = (g.lengths - 1)[possible].sum()
        assert_allclose(
            [expected.ups.sum(), expected.lefts.sum(), expected.rights.sum()], n_rules, rtol=1e-8, atol=1e-8
        )
        assert_allclose(expected.ups.sum(axis=1), want.rules.sum(axis=(0, 2, 3)), atol=1e-8)
        assert_allclose(expected.lefts.sum(axis=0), want.rules.sum(axis=(0, 1, 3)), atol=1e-8)
        assert_allclose(expected.rights.sum(axis=0), want.rules.sum(axis=(0, 1, 2)), atol=1e-8)


def _dense(g):
    """Return the dense grammar, its rules computed in log space, so that nothing underflows."""
    rules = reference.rules(g.log_up, g.log_left, g.log_right)
    return grammar.Grammar(g.log_root, rules, g.log_terminals, None, g.lengths)


def test_dense_rules():
    g = random_grammar(0, [3], R=5, zeros=0.2)
    assert_allclose(np.exp(g.dense().log_rules), np.exp(_dense(g).log_rules), rtol=1e-12)


def test_scaled_and_log_space_agree_on_large_sizes():
    g = random_grammar(1, [25, 12], N=20, P=30, R=11)
    expected, want = lowrank.expectations(g), lowrank.log_expectations(g)
    for name in ("log_z", "roots", "ups", "lefts", "rights", "terminals", "spans"):
        assert_allclose(getattr(expected, name), getattr(want, name), rtol=1e-9, atol=1e-9)


def test_sentence_weights():
    g = random_grammar(2, [5, 3, 4], size=2.0)
    weights = np.array([0.5, 0.0, -2.0])
    for run in (lowrank.expectations, lowrank.log_expectations):
        each = [run(g.take(np.array([b]))) for b in range(3)]
        expected = run(g, weights)
        for name in ("roots", "ups", "lefts", "rights"):
            want = sum(w * getattr(e, name) for w, e in zip(weights, each, strict=True))
            assert_allclose(getattr(expected, name), want, atol=1e-12)


def test_gradients():
    generator = torch.Generator().manual_seed(0)
    shapes = (2,), (2, 3), (3, 5), (3, 5), (3, 4, 3)
    scores = [torch.randn(*s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]
    lengths = torch.tensor([4, 3, 2])
    assert torch.autograd.gradcheck(lambda *x: lowrank_log_partition(*x, lengths), scores)


def test_results_do_not_depend_on_the_number_of_threads():
    g = random_grammar(3, [20, 3, 17, 2, 25, 9, 20, 20], N=10, P=20, R=16)
    results = []
    for n_threads in (1, 3):
        with threads.num_threads(n_threads):
            run = lowrank.expectations(g)
            results.append((run.log_z, run.roots, run.ups, run.lefts, run.rights, run.terminals, run.spans))
    for first, second in zip(*results, strict=True):
        assert_array_equal(first, second)
