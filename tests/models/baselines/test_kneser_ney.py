"""Kneser-Ney n-grams against a hand-computed example and a reference with dictionaries."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from trelliswork.errors import DataError, ValueRangeError
from trelliswork.models import KneserNey, load
from trelliswork.models.baselines.compact import discounts

texts = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=12)


def test_hand_computed_probabilities():
    """Two sentences, a b and a c; the discounts of order 1 are 0.6 and 1, of order 2 two thirds and 1."""
    model = KneserNey(2, unknown="error").fit([["a", "b"], ["a", "c"]])
    ids = model._words.id
    assert_allclose(model.next_distribution([])[ids("a")], 1 / 2 + 1 / 2 * 0.22, rtol=1e-12)
    after_a = model.next_distribution(["a"])
    assert_allclose(after_a[ids("b")], 1 / 6 + 2 / 3 * 0.22, rtol=1e-12)
    assert_allclose(after_a[0], 2 / 3 * 0.34, rtol=1e-12)
    log_p = np.log(0.61 * (1 / 6 + 2 / 3 * 0.22) * 0.56)
    assert_allclose(model.log_prob([["a", "b"]]), [log_p], rtol=1e-12)
    assert_allclose(model.score([["a", "b"]]), log_p / 3, rtol=1e-12)
    assert_allclose(model.perplexity([["a", "b"]]), np.exp(-log_p / 3), rtol=1e-12)


def reference(text: list[list[str]], order: int):
    """Return log p of a sentence, computed with dictionaries as in the equations."""
    sentences = [("<s>", *s, "</s>") for s in text]
    words = sorted({w for s in text for w in s} | {"</s>"})
    counts = [Counter() for _ in range(order + 1)]
    for s in sentences:
        for i in range(1, len(s)):
            for m in range(1, min(order, i + 1) + 1):
                counts[m][s[i - m + 1 : i + 1]] += 1
    adjusted = [Counter(), *counts[1:]]
    for m in range(1, order):
        before = defaultdict(set)
        for gram in counts[m + 1]:
            before[gram[1:]].add(gram[0])
        adjusted[m] = Counter({g: n if g[0] == "<s>" else len(before[g]) for g, n in counts[m].items()})
    D = [None, *(discounts(np.array(list(adjusted[m].values()))) for m in range(1, order + 1))]

    def p(history: tuple[str, ...], word: str, m: int) -> float:
        if m == 0:
            return 1 / len(words)
        h = history[len(history) - (m - 1) :]
        seen = [n for g, n in adjusted[m].items() if g[:-1] == h]
        lower = p(history, word, m - 1)
        if not seen:
            return lower
        n = adjusted[m][(*h, word)]
        rest = sum(D[m][min(k, 3)] for k in seen) / sum(seen)
        return (n - D[m][min(n, 3)]) / sum(seen) + rest * lower

    def log_p(sentence: list[str]) -> float:
        s = ("<s>", *sentence, "</s>")
        return sum(np.log(p(s[max(0, i - order + 1) : i], s[i], min(order, i + 1))) for i in range(1, len(s)))

    return log_p


@settings(max_examples=40, deadline=None)
@given(texts, st.integers(1, 4))
def test_log_evidence_equals_the_reference(text, order):
    model = KneserNey(order, unknown="error").fit(text)
    log_p = reference(text, order)
    words = sorted({w for s in text for w in s})
    new = [list(reversed(s)) for s in text[:4]] + [words]
    assert_allclose(model.log_prob(new), [log_p(s) for s in new], rtol=1e-10)
    for context in ([], words[:1], words, words[::-1]):
        assert_allclose(model.next_distribution(context).sum(), 1, rtol=1e-12)


def test_orders_beyond_the_longest_sentence_change_nothing(tmp_path):
    text = [["a", "b"], ["b", "a"], ["a"]]
    plain, long = KneserNey(4).fit(text), KneserNey(9).fit(text)
    new = [["a", "b", "a", "b", "b", "a", "a", "b", "a", "a"], ["b"]]
    assert_allclose(long.log_prob(new), plain.log_prob(new), rtol=1e-12)
    assert_allclose(long.next_distribution(new[0]), plain.next_distribution(new[0]), rtol=1e-12)
    assert long.n_ngrams()[4:] == [0] * 5
    long.save(tmp_path / "m")
    assert_allclose(load(tmp_path / "m").log_prob(new), plain.log_prob(new), rtol=1e-12)


def test_unscorable_words_are_named():
    model = KneserNey(2, unknown="error").fit([["a"]])
    with pytest.raises(DataError, match=r"sentence 0, token 0: 'new' is not in the vocabulary.* with unknown='symbol'"):
        model.log_prob([["new"]])
    with pytest.raises(ValueRangeError, match="split it"):
        model.log_prob(iter(["a a"]))
    with pytest.raises(DataError, match="sentence 1, token 0: <s> marks"):
        KneserNey(2, min_count=2).fit([["a", "a", "b"]]).log_prob([["a"], ["<s>"]])


def test_reading_is_announced():
    steps = []
    KneserNey(2).fit([["a", "b"]], callback=steps.append)
    assert steps
    assert all(step.iteration == 0 and step.stage.startswith("reading text") for step in steps)
