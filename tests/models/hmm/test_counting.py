"""Counting: relative frequencies, smoothing, label n-grams, and distributions over whole sequences."""

from collections import Counter
from itertools import chain, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from trelliswork.errors import ValueRangeError
from trelliswork.models.hmm.counting import count_ngrams
from trelliswork.models.hmm.decoding import StateChain


@st.composite
def corpora(draw):
    """Labels, offsets and S of a few sequences; some are empty, some labels may never occur."""
    S = draw(st.integers(1, 4))
    sequences = draw(st.lists(st.lists(st.integers(0, S - 1), max_size=8), min_size=1, max_size=12))
    return flat(sequences), S


def flat(sequences):
    return np.array(list(chain.from_iterable(sequences)), int), np.concatenate(
        [[0], np.cumsum([len(s) for s in sequences])]
    )


def events(labels, offsets, S):
    """Yield all (a, b, c) of a corpus, with starts and ends."""
    for start, stop in pairwise(offsets):
        full = [S, S, *labels[start:stop].tolist(), S]
        yield from (tuple(full[t : t + 3]) for t in range(len(full) - 2))


def contexts(S):
    """Return the contexts that exist: only the start symbol precedes the start symbol."""
    return [(a, b) for a, b in product(range(S + 1), repeat=2) if b < S or a == S]


def slow_kneser_ney(labels, offsets, S, order):
    """Modified Kneser-Ney by its definition: p(c | context) for contexts of ``order - 1`` labels."""
    grams = Counter(e[3 - order :] for e in events(labels, offsets, S))
    tables = [grams]
    for k in range(order - 1, 0, -1):
        below = Counter()
        for gram in tables[0]:
            below[gram[1:]] += tables[0][gram] if k == 2 and gram[1] == S else 1
        tables.insert(0, below)

    def discounts(table):
        n1, n2, n3, n4 = (sum(v == k for v in table.values()) for k in (1, 2, 3, 4))
        d = [0, 0.75, 0.75, 0.75]
        if n1 and n2:
            y = n1 / (n1 + 2 * n2)
            d[1], d[2] = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2
            d[3] = 3 - 4 * y * n4 / n3 if n3 else 0.75
        return [0, *(min(max(x, 0.1), k) for k, x in enumerate(d[1:], start=1))]

    def p(c, context):
        table = tables[len(context)]
        lower = 1 / (S + 1) if not context else p(c, context[1:])
        after = {g[-1]: n for g, n in table.items() if g[:-1] == context}
        if not after:
            return lower
        d = discounts(table)
        left = sum(d[min(n, 3)] for n in after.values())
        n = after.get(c, 0)
        return (n - d[min(n, 3)] + left * lower) / sum(after.values())

    return p


@given(corpora())
def test_kneser_ney_equals_its_definition(case):
    (labels, offsets), S = case
    model, p = count_ngrams(labels, offsets, S, 2), slow_kneser_ney(labels, offsets, S, 3)
    for a, b in contexts(S):
        assert_allclose(np.exp(model[a, b]), [p(c, (a, b)) for c in range(S + 1)], rtol=1e-10)
    bigrams, p = count_ngrams(labels, offsets, S, 1), slow_kneser_ney(labels, offsets, S, 2)
    for b in range(S + 1):
        assert_allclose(np.exp(bigrams[b]), [p(c, (b,)) for c in range(S + 1)], rtol=1e-10)


@given(corpora())
def test_every_context_has_a_distribution_without_zeros(case):
    (labels, offsets), S = case
    log_trigram = count_ngrams(labels, offsets, S, 2)
    assert log_trigram.shape == (S + 1, S + 1, S + 1)
    exist = np.zeros((S + 1, S + 1), bool)
    exist[tuple(zip(*contexts(S), strict=True))] = True
    assert np.isneginf(log_trigram[~exist]).all()
    assert np.isfinite(log_trigram[exist]).all()
    assert_allclose(np.exp(log_trigram[exist]).sum(axis=-1), 1, rtol=1e-10)
    log_bigram = count_ngrams(labels, offsets, S, 1)
    assert np.isfinite(log_bigram).all()
    assert_allclose(np.exp(log_bigram).sum(axis=-1), 1, rtol=1e-10)


def test_ngrams_are_a_distribution_over_sequences_of_any_length():
    labels, offsets = flat([[0, 1], [1, 2, 0], [], [2, 1], [0]])
    log_trigram = count_ngrams(labels, offsets, 3, 2)
    ends = np.concatenate([[0], np.cumsum(np.arange(1, 200))])
    empty, rest = log_trigram[3, 3, 3], StateChain(log_trigram, None).log_evidence(np.zeros((ends[-1], 3)), ends)
    assert_allclose(np.exp(empty) + np.exp(rest).sum(), 1, rtol=1e-6)


def test_the_second_order_is_learned():
    """0 0 1 1 0 0 1 1 ...: one preceding label predicts nothing, two predict everything."""
    labels = np.array([0, 0, 1, 1] * 50)
    p = np.exp(count_ngrams(labels, np.array([0, 200]), 2, 2))
    assert min(p[0, 0, 1], p[0, 1, 1], p[1, 1, 0], p[1, 0, 0]) > 0.9
    q = np.exp(count_ngrams(labels, np.array([0, 200]), 2, 1))
    assert_allclose(q[:2, :2], 0.5, atol=0.05)


def test_tables_that_are_too_large_are_an_error():
    with pytest.raises(ValueRangeError, match="use a lower order"):
        count_ngrams(np.array([0]), np.array([0, 1]), 400, 2)
