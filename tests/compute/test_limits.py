"""Limits of time and memory end a prediction or a training before it starts."""

import pytest

from tests.models.fitted import fitted
from trelliswork import PCFG, DependencyParser
from trelliswork.compute import limits
from trelliswork.errors import LimitError, TrellisworkError


def test_limits_are_raised_and_lowered():
    sentence = [["a", "b", "c", "d", "e"]]
    grammar = fitted("PCFG")
    before = grammar.score(sentence)
    for name in ("seconds", "gigabytes"):
        with limits.limits(**{name: 1e-9}), pytest.raises(LimitError, match=name) as caught:
            grammar.predict([["a"], *sentence])
        assert caught.value.sentence == 1
        with limits.limits(**{name: 1e-9}), pytest.raises(LimitError):
            PCFG(2, n_preterminals=3).fit(sentence)
        with limits.limits(**{name: 1e-12}), pytest.raises(LimitError):
            DependencyParser(1, hash_bits=10).fit([[("a", "N")]], [[0]])
    assert grammar.score(sentence) == before
    for bad in (0, -1, float("nan"), "x"):
        with pytest.raises(TrellisworkError, match="seconds must be"):
            limits.limits(seconds=bad)
