"""Rules about words of HMM language models: probabilities by enumeration, samples, next words."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from tests.models.hmm_lm.test_hmm_lm import doubled, lm  # noqa: F401, a fixture
from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.rules import AtMostOnce, Count, Pattern

PHRASES = Pattern(".* the dog .* cat .*")
SHORT = Pattern(".{0,4}")


def accepts(rule, model):
    words = model.vocabulary_
    automaton, ids = rule.automaton(words, "word"), {word: n for n, word in enumerate(words)}
    return lambda sentence: automaton.accepts([ids[word] for word in sentence])


def listed(model, most=4):
    return [list(s) for n in range(most + 1) for s in product(model.vocabulary_, repeat=n)]


def test_probabilities_by_enumeration(lm, monkeypatch):  # noqa: F811
    model = doubled(lm, monkeypatch)
    monkeypatch.setattr(model, "_spoken", None)
    sentences = listed(model)
    p, good = np.exp(model.log_prob(sentences)), np.array(list(map(accepts(PHRASES, model), sentences)))
    assert good.any()
    assert_allclose(np.exp(model.log_evidence(PHRASES & SHORT)), p[good].sum(), rtol=1e-12)
    assert_allclose(np.exp(model.log_evidence(SHORT)), p.sum(), rtol=1e-12)
    both = np.exp([model.log_evidence(PHRASES), model.log_evidence(~PHRASES)]).sum()
    assert_allclose(both, 1, rtol=1e-12)
    for start in ([], ["the"]):
        found = dict(model.predict_next(start, 20, unknown=True, rules=PHRASES & SHORT))
        for word in model.vocabulary_:
            own = [n for n, s in enumerate(sentences) if good[n] and s[: len(start) + 1] == [*start, word]]
            rest = [n for n, s in enumerate(sentences) if good[n] and s[: len(start)] == start]
            assert_allclose(found[word], p[own].sum() / p[rest].sum(), rtol=1e-10, atol=1e-14)
    assert dict(model.predict_next(["the", "dog", "cat"], 20, rules=PHRASES))["</s>"] > 0
    assert dict(model.predict_next(["the", "dog"], 20, rules=PHRASES))["</s>"] == 0


def test_samples(lm):  # noqa: F811
    rule = Count("dog", 1) & Pattern(".{2,3}")
    good = accepts(rule, lm)
    drawn = lm.sample_with_states(1000, seed=1, rules=rule)
    assert all(good(words) and len(words) == len(states) for words, states in drawn)
    assert lm.sample(3, seed=1, rules=rule) == [words for words, _ in drawn[:3]]
    sentences = [s for s in listed(lm, 3) if good(s)]
    p = np.exp(lm.log_prob(sentences) - lm.log_evidence(rule))
    likely = np.argsort(-p)[: int((p * 1000 > 8).sum())]
    drawn_words = [words for words, _ in drawn]
    counts = np.array([drawn_words.count(sentences[n]) for n in likely])
    counts, expected = np.append(counts, 1000 - counts.sum()), np.append(p[likely], 1 - p[likely].sum()) * 1000
    assert chisquare(counts, expected).pvalue > 1e-3


def test_what_cannot_be_is_an_error(lm):  # noqa: F811
    with pytest.raises(ValueRangeError, match="'dgo' is not one of the words: did you mean 'dog'"):
        lm.log_evidence(Count("dgo", 1))
    with pytest.raises(ImpossibleError, match="no sentence satisfies this rule"):
        lm.sample(rules=Count("dog", 2) & Count("dog", maximum=1))
    with pytest.raises(ImpossibleError, match="can satisfy this rule"):
        lm.predict_next(["dog", "dog"], rules=AtMostOnce("dog"))
