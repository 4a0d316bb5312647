"""Kernels of grammars: the matrix product, threads, batches, error messages."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.compiled import from_python
from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError
from trelliswork.inference.span import Grammar, brackets, grammar
from trelliswork.inference.span.kernels.products import add_matrix_product

call_add_matrix_product = from_python(add_matrix_product)


def random_grammar(seed, lengths, N=5, P=7, size=2.0) -> Grammar:
    rng = np.random.default_rng(seed)
    n, S = max(lengths), N + P
    shapes = ((N,), (N, S, S), (len(lengths), n, P))
    root, rules, terminals = (rng.normal(size=shape) * size for shape in shapes)
    return Grammar(root, rules, terminals, None, np.array(lengths))


@pytest.mark.parametrize("m", [1, 3, 4, 9])
@pytest.mark.parametrize("K", [1, 5])
@pytest.mark.parametrize("L", [1, 7, 8, 17, 30])
def test_product(m, K, L):
    rng = np.random.default_rng(0)
    A, B, C = rng.normal(size=(m, K)), rng.normal(size=(K, L)), rng.normal(size=(m + 1, L))
    want = C.copy()
    want[1:] += A @ B
    for matrix, row, column in ((A, K, 1), (np.ascontiguousarray(A.T), 1, m)):
        got = C.copy()
        call_add_matrix_product(matrix.reshape(-1), 0, row, column, B.reshape(-1), got.reshape(-1), L, m, K, L)
        assert_allclose(got, want, rtol=1e-12)


def test_results_do_not_depend_on_the_number_of_threads():
    one = random_grammar(0, [12, 9, 12, 2, 7, 11], N=12, P=20)
    rng = np.random.default_rng(1)
    seeds, spans = rng.integers(0, 2**62, (2, 6)), rng.normal(size=(6, 12, 12))
    results = []
    for n_threads in (1, 3):
        with threads.num_threads(n_threads):
            all_rules = grammar.expectations(one)
            trees = *grammar.topk(one, 2), grammar.sample(one, seeds)
            results.append((all_rules.log_z, all_rules.rules, all_rules.symbols, *trees))
            results[-1] += brackets.expectations(spans, one.lengths)
    for first, second in zip(*results, strict=True):
        assert_array_equal(first, second)


@pytest.mark.parametrize("evidence", [True, False])
def test_extreme_scores_match_log_space(evidence):
    one = random_grammar(3, [12, 14, 9, 11, 13, 5, 14, 8, 10], N=3, P=4, size=300.0)
    symbols = np.random.default_rng(4).normal(size=(9, 14, 14, 7)) * 300 if evidence else None
    one = Grammar(one.log_root, one.log_rules, one.log_terminals, symbols, one.lengths)
    expected, (want, _) = grammar.expectations(one), grammar.log_expectations(one)
    for name in ("log_z", "roots", "rules", "symbols"):
        assert_allclose(getattr(expected, name), getattr(want, name), rtol=1e-9, atol=1e-9, err_msg=name)


def test_results_do_not_depend_on_the_batch():
    one = random_grammar(2, [8, 5, 3, 2])
    batch = grammar.expectations(one)
    for b in range(4):
        alone = grammar.expectations(one.take(np.array([b])))
        assert_array_equal(alone.log_z[0], batch.log_z[b])
        assert_array_equal(alone.symbols[0], batch.symbols[b])
        assert (batch.symbols[b, one.lengths[b] :] == 0).all()
        assert_allclose(batch.terminals[b, : one.lengths[b]].sum(axis=1), 1, rtol=1e-10)


def test_error_messages_of_impossible_sentences():
    lengths = np.array([2])
    nothing = np.full((1, 2, 2), -np.inf)
    message = "every tree of sentence 0 has probability zero.*forbidden spans,"
    with pytest.raises(ImpossibleError, match=message):
        brackets.topk(nothing[..., None], lengths, 1)
    with pytest.raises(ImpossibleError, match=message):
        brackets.sample(nothing, lengths, np.zeros((1, 1), np.int64))
    empty = Grammar(np.zeros(1), np.full((1, 2, 2), -np.inf), np.zeros((1, 2, 1)), None, lengths)
    message = "every tree of sentence 0 has probability zero.*forbidden rules and spans,"
    with pytest.raises(ImpossibleError, match=message):
        grammar.topk(empty, 1)
    with pytest.raises(ImpossibleError, match=message):
        grammar.sample(empty, np.zeros((1, 1), np.int64))
