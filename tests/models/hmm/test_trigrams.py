"""Label models: the paper's algorithm spelled out, distributions that sum to one, flags."""

from collections import Counter
from itertools import chain, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.chain import pairs
from trelliswork.models.hmm import trigrams


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
    """All (a, b, c) of a corpus, begins and ends among them."""
    for start, stop in pairwise(offsets):
        full = [S, S, *labels[start:stop].tolist(), S]
        yield from (tuple(full[t : t + 3]) for t in range(len(full) - 2))


def contexts(S):
    """Contexts that exist: nothing but the begin stands before the begin."""
    return [(a, b) for a, b in product(range(S + 1), repeat=2) if b < S or a == S]


def slow_deleted(labels, offsets, S):
    """Figure 1 of Brants (2000), with our one vote and one event more; weights and p(c | a, b)."""
    f3 = Counter(events(labels, offsets, S))
    f2, f1 = Counter(), Counter()
    seen2, seen1 = Counter(), Counter()  # contexts
    for (a, b, c), n in f3.items():
        f2[b, c] += n
        f1[c] += n
        seen2[a, b] += n
        seen1[b] += n
    N = f3.total()
    votes = [1.0, 1.0, 1.0]
    for (a, b, c), n in f3.items():
        cases = [
            (f1[c] - 1) / (N - 1) if N > 1 else 0,
            (f2[b, c] - 1) / (seen1[b] - 1) if seen1[b] > 1 else 0,
            (n - 1) / (seen2[a, b] - 1) if seen2[a, b] > 1 else 0,
        ]
        votes[cases.index(max(cases))] += n
    lambdas = np.array(votes) / sum(votes)

    def p(c, a, b):
        parts = [(f1[c] + 1 / (S + 1)) / (N + 1)]
        if seen1[b]:
            parts.append(f2[b, c] / seen1[b])
        if seen2[a, b]:
            parts.append(f3[a, b, c] / seen2[a, b])
        return sum(w * x for w, x in zip(lambdas, parts, strict=False)) / sum(lambdas[: len(parts)])

    return lambdas, p


@given(corpora())
def test_deleted_interpolation_is_the_papers(case):
    (labels, offsets), S = case
    model = trigrams.fit(labels, offsets, S, method="deleted")
    lambdas, p = slow_deleted(labels, offsets, S)
    assert_allclose(model.lambdas, lambdas, rtol=1e-12)
    for a, b in contexts(S):
        assert_allclose(np.exp(model.log_trigram[a, b]), [p(c, a, b) for c in range(S + 1)], rtol=1e-10)


def test_deleted_interpolation_by_hand():
    """One sequence 0 0: begin begin 0, begin 0 0, 0 0 end."""
    model = trigrams.fit_bigrams(np.array([0, 0]), np.array([0, 2]), 1, method="deleted")
    # f(0) = 2, f(end) = 1, N = 3. (begin, 0): unigram (2-1)/2 beats bigram 0. (0, 0), f = 1 of 2: unigram 1/2 beats
    # 0/1. (0, end): unigram 0/2 ties with 0/1, the lower order wins. So three votes and one against one.
    assert_allclose(model.lambdas, [4 / 5, 1 / 5])
    assert_allclose(np.exp(model.log_start), 4 / 5 * 2.5 / 4 + 1 / 5)
    assert_allclose(np.exp(model.log_transition[0, 0]), 4 / 5 * 2.5 / 4 + 1 / 5 / 2)
    assert_allclose(np.exp(model.log_end), 4 / 5 * 1.5 / 4 + 1 / 5 / 2)


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
def test_kneser_ney_by_its_definition(case):
    (labels, offsets), S = case
    model, p = trigrams.fit(labels, offsets, S), slow_kneser_ney(labels, offsets, S, 3)
    assert model.lambdas is None
    for a, b in contexts(S):
        assert_allclose(np.exp(model.log_trigram[a, b]), [p(c, (a, b)) for c in range(S + 1)], rtol=1e-10)
    bigrams, p = trigrams.fit_bigrams(labels, offsets, S), slow_kneser_ney(labels, offsets, S, 2)
    for b in range(S + 1):
        assert_allclose(np.exp(bigrams.log_bigram[b]), [p(c, (b,)) for c in range(S + 1)], rtol=1e-10)


@pytest.mark.parametrize("method", ["deleted", "kneser-ney"])
@given(case=corpora())
def test_every_context_has_a_distribution_without_zeros(method, case):
    (labels, offsets), S = case
    log_trigram = trigrams.fit(labels, offsets, S, method=method).log_trigram
    assert log_trigram.shape == (S + 1, S + 1, S + 1)
    exist = np.zeros((S + 1, S + 1), bool)
    exist[tuple(zip(*contexts(S), strict=True))] = True
    assert np.isneginf(log_trigram[~exist]).all()
    assert np.isfinite(log_trigram[exist]).all()
    assert_allclose(np.exp(log_trigram[exist]).sum(axis=-1), 1, rtol=1e-10)
    bigrams = trigrams.fit_bigrams(labels, offsets, S, method=method)
    assert np.isfinite(bigrams.log_bigram).all()
    assert_allclose(np.exp(bigrams.log_bigram).sum(axis=-1), 1, rtol=1e-10)


@pytest.mark.parametrize("method", ["deleted", "kneser-ney"])
def test_the_model_is_a_distribution_over_sequences_of_any_length(method):
    labels, offsets = flat([[0, 1], [1, 2, 0], [], [2, 1], [0]])
    model = trigrams.fit(labels, offsets, 3, method=method)
    lengths = np.arange(200)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    assert_allclose(np.exp(pairs.log_evidence(np.zeros((ends[-1], 3)), ends, model.log_trigram)).sum(), 1, rtol=1e-6)


def test_the_second_order_is_learned():
    """0 0 1 1 0 0 1 1 ...: one label back says nothing, two say all."""
    labels = np.array([0, 0, 1, 1] * 50)
    for method in ("deleted", "kneser-ney"):
        p = np.exp(trigrams.fit(labels, np.array([0, 200]), 2, method=method).log_trigram)
        assert min(p[0, 0, 1], p[0, 1, 1], p[1, 1, 0], p[1, 0, 0]) > 0.9
        q = np.exp(trigrams.fit_bigrams(labels, np.array([0, 200]), 2, method=method).log_transition)
        assert_allclose(q, 0.5, atol=0.05)


def test_bad_input_is_refused():
    with pytest.raises(ShapeError, match=r"labels must have shape \(3,\), where offsets end, got \(2,\)"):
        trigrams.fit(np.array([0, 1]), np.array([0, 3]), 2)
    with pytest.raises(ShapeError, match="starts with 0 and never decreases"):
        trigrams.fit(np.array([0, 1]), np.array([1, 2]), 2)
    with pytest.raises(ValueRangeError, match="labels must lie between 0 and 1, got 0 to 2"):
        trigrams.fit(np.array([0, 2]), np.array([0, 2]), 2)
    with pytest.raises(ValueRangeError, match="at least one sequence"):
        trigrams.fit_bigrams(np.array([], int), np.array([0]), 2)
    with pytest.raises(ValueRangeError, match="method must be 'kneser-ney' or 'deleted', got 'good-turing'"):
        trigrams.fit(np.array([0]), np.array([0, 1]), 2, method="good-turing")
