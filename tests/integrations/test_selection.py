"""The choice of sentences to label."""

import math

import numpy as np
import pytest

import trelliswork as t
from tests.models.fitted import PAIRS, WORDS, fitted
from trelliswork.errors import ValueRangeError
from trelliswork.integrations.selection import Halved, _greedy, token_values


def test_values_of_tokens_by_hand():
    p = np.array([[0.5, 0.5], [1.0, 0.0]])
    np.testing.assert_allclose(token_values([p], "entropy"), [math.log(2), 0])
    np.testing.assert_allclose(token_values([p, p], "entropy"), [2 * math.log(2), 0])
    np.testing.assert_allclose(token_values([p], "margin"), [1, 0])
    np.testing.assert_allclose(token_values([np.ones((1, 1))], "margin"), [0])


@pytest.mark.parametrize("name", ["CRF", "HMM", "FactorialCRF", "DependencyParser"])
@pytest.mark.parametrize("by", ["entropy", "margin", "expected-gain"])
def test_sentences_are_chosen_by_their_values(name, by):
    model, X = fitted(name), PAIRS if name == "DependencyParser" else WORDS
    chosen = t.select(model, X, 5, by=by)
    assert len({k for k, _ in chosen}) == 5
    assert [score for _, score in chosen] == sorted((score for _, score in chosen), reverse=True)
    assert chosen == t.select(model, X, 5, by=by)
    if by == "entropy" and name in ("CRF", "HMM"):
        marginals = model.predict_marginals([X[chosen[0].sentence]])[0]
        total = -sum(p * math.log(p) for token in marginals for p in token.values() if p > 0)
        assert chosen[0].score == pytest.approx(total, rel=1e-5)


def test_the_greedy_choice_is_that_of_all_gains():
    rng = np.random.default_rng(0)
    words = [[str(w) for w in rng.integers(0, 6, size=rng.integers(1, 5))] for _ in range(12)]
    values = [rng.random(len(row)) for row in words]
    halved = Halved(words, values)
    chosen = _greedy(halved, halved.add, [1] * 12, 6)
    seen: list[str] = []
    for k, score in chosen:
        gains = {}
        for n in set(range(12)) - {j for j, _ in chosen[: [j for j, _ in chosen].index(k)]}:
            total, before = 0.0, list(seen)
            for value, word in zip(values[n], words[n], strict=True):
                total += value * 0.5 ** before.count(word)
                before.append(word)
            gains[n] = total
        assert score == pytest.approx(max(gains.values()))
        assert gains[k] == pytest.approx(score)
        seen += words[k]


def test_a_diverse_choice_has_no_copies():
    model = fitted("HMM")
    hard = t.select(model, WORDS, 1)[0].sentence
    pool = [WORDS[hard]] * 3 + WORDS[:10]
    assert [k for k, _ in t.select(model, pool, 3)] == [0, 1, 2]
    assert sorted(k for k, _ in t.select(model, pool, 3, diverse=True))[1:] != [1, 2]


def test_labeled_sentences_are_not_chosen_again():
    model = fitted("HMM")
    best = t.select(model, WORDS, 1, by="expected-gain")[0]
    for labeled in ([WORDS[best.sentence]] * 5, []):
        again = t.select(model, WORDS, len(WORDS), by="expected-gain", labeled=labeled)
        score = next(row.score for row in again if row.sentence == best.sentence)
        assert score < best.score / 2 if labeled else again[0] == best
    with pytest.raises(ValueRangeError, match="labeled= is for"):
        t.select(model, WORDS, 1, labeled=WORDS)


def test_errors():
    with pytest.raises(ValueRangeError, match="by must be one of"):
        t.select(fitted("HMM"), WORDS, 1, by="luck")
    with pytest.raises(ValueRangeError, match="expected a tagger"):
        t.select(fitted("KneserNey"), WORDS, 1)
    with pytest.raises(ValueRangeError, match="n must be"):
        t.select(fitted("HMM"), WORDS, 0)
