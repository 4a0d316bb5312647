"""The expected gain of labels."""

from collections import Counter

import numpy as np
import pytest

from trelliswork.integrations.information import PRIOR, Gains, attributes, variances

WORDS = ["the", "The", "dog", "dogs", "cats", "run", "runs", "running", "!", "Fido"]


def sentences(n, seed):
    rng = np.random.default_rng(seed)
    words = [[WORDS[k] for k in rng.integers(0, len(WORDS), size=rng.integers(0, 6))] for _ in range(n)]
    return words, [rng.random(len(row)) for row in words]


def information(words, values):
    total, weights = Counter(), {}
    for row, own in zip(words, values, strict=True):
        for t, name, weight in attributes(row):
            total[name] += own[t]
            weights[name] = weight
    return total, weights


def ratio(pool, labeled):
    """Return the sum over attributes of the pool, from scratch."""
    (needed, weights), (known, _) = information(*pool), information(*labeled)
    return sum(weights[name] * needed[name] / (PRIOR + known[name]) for name in needed)


def test_variances_by_hand():
    p = np.array([[0.5, 0.5], [1.0, 0.0], [0.8, 0.2]])
    np.testing.assert_allclose(variances([p]), [0.5, 0, 0.32])
    np.testing.assert_allclose(variances([p, p]), [1, 0, 0.64])


def test_attributes_of_a_sentence():
    found = list(attributes(["The", "dogs"]))
    assert [(t, name) for t, name, _ in found if "start" in name or "first" in name] == [
        (0, "first the"),
        (0, "start Xxx he"),
    ]
    assert {name for t, name, _ in found if t == 1} == {"word dogs", "suffix ogs", "suffix2 gs"}


def test_a_gain_is_the_decrease_of_the_ratio():
    words, values = sentences(8, 0)
    labeled = sentences(3, 1)
    gains = Gains(words, values)
    gains.know(*labeled)
    known = [list(labeled[0]), list(labeled[1])]
    for chosen in (3, 0, 6):
        before = ratio((words, values), known)
        for k in range(8):
            more = [known[0] + [words[k]], known[1] + [values[k]]]
            assert gains(k) == pytest.approx(before - ratio((words, values), more))
        gains.add(chosen)
        known = [known[0] + [words[chosen]], known[1] + [values[chosen]]]


def test_gains_only_fall():
    gains = Gains(*sentences(10, 2))
    before = [gains(k) for k in range(10)]
    assert min(before) >= 0
    for _ in range(4):
        chosen = int(np.argmax(before))
        gains.add(chosen)
        now = [gains(k) for k in range(10)]
        assert all(a <= b for a, b in zip(now, before, strict=True))
        assert now[chosen] < before[chosen]
        before = now


def test_frequent_attributes_of_the_pool_gain_more_and_certain_tokens_nothing():
    words = [["frequent"], ["frequent"], ["rare"], ["sure"]]
    gains = Gains(words, [np.array([u]) for u in (0.5, 0.5, 0.5, 0.0)])
    assert gains(0) > gains(2) > gains(3) == 0
    gains.know([["frequent"]], [np.array([0.5])])
    assert gains(0) < gains(2)
