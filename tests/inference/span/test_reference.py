"""The readable reference of span trees against enumeration, and the kernels against the reference."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.oracle.trees import bracketings, derivations
from trelliswork.inference.span import Grammar, brackets, grammar, reference

N, P = 2, 3


def random_scores(seed, *shapes, zeros=0.2, size=2.0):
    rng = np.random.default_rng(seed)
    for shape in shapes:
        scores = rng.normal(size=shape) * size
        scores[rng.random(shape) < zeros] = -np.inf
        yield scores


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("zeros", [0.0, 0.2])
def test_bracket_reference_matches_enumeration(n, zeros):
    (log_span,) = random_scores(n, (n, n), zeros=zeros)
    scores = np.array([sum(log_span[i, j] for i, j in tree) for tree in bracketings(0, n - 1)])
    assert_allclose(reference.brackets(log_span)[0], np.logaddexp.reduce(scores), rtol=1e-12)
    assert_allclose(reference.brackets(log_span, np.max)[0], scores.max(), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_grammar_reference_matches_enumeration(n):
    S = N + P
    root, rules, terminals, symbols = random_scores(n, (N,), (N, S, S), (n, P), (n, n, S), zeros=0.1)
    scores = [-np.inf]  # one word has no tree: its symbol is a preterminal
    for symbol in range(N):
        for tree in derivations(0, n - 1, symbol, N, S):
            score = root[symbol]
            for i, j, a, r, x, y in tree:
                score += symbols[i, j, a] + (terminals[i, a - N] if r < 0 else rules[a, x, y])
            scores.append(score)
    assert_allclose(reference.grammar(root, rules, terminals, symbols)[0], np.logaddexp.reduce(scores), rtol=1e-12)
    assert_allclose(reference.grammar(root, rules, terminals, symbols, np.max)[0], np.max(scores), rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_bracket_kernels_match_the_reference(size):
    lengths = np.array([7, 5, 1])
    (log_span,) = random_scores(1, (3, 7, 7), zeros=0.05, size=size)
    log_z, _ = brackets.expectations(log_span, lengths)
    _, best = brackets.topk(log_span[..., None], lengths, 1)
    for b, n in enumerate(lengths):
        assert_allclose(log_z[b], reference.brackets(log_span[b, :n, :n])[0], rtol=1e-12)
        assert_allclose(best[b, 0], reference.brackets(log_span[b, :n, :n], np.max)[0], rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 300.0])  # 300: part of the sentences is computed in log space
@pytest.mark.parametrize("evidence", [True, False])
def test_grammar_kernels_match_the_reference(size, evidence):
    lengths, S = np.array([7, 5, 2]), N + P
    shapes = (N,), (N, S, S), (3, 7, P), (3, 7, 7, S)
    root, rules, terminals, symbols = random_scores(2, *shapes, zeros=0.05, size=size)
    given = Grammar(root, rules, terminals, symbols if evidence else None, lengths)
    expected, (_, charts) = grammar.expectations(given), grammar.log_expectations(given)
    scaled = grammar.inside_chart(given)
    _, best = grammar.topk(given, 1)
    for b, n in enumerate(lengths):
        scores = root, rules, terminals[b, :n], symbols[b, :n, :n] if evidence else None
        log_z, inside = reference.grammar(*scores)
        assert_allclose(expected.log_z[b], log_z, rtol=1e-10)
        assert_allclose(charts[b, :n, :n], inside, rtol=1e-10)
        if size == 1.0:  # otherwise insignificant entries underflow
            assert_allclose(scaled[b, :n, :n], inside, rtol=1e-10)
        assert_allclose(best[b, 0], reference.grammar(*scores, np.max)[0], rtol=1e-12)
