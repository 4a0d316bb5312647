"""Rules about words of an HMM: probabilities by enumeration, samples by rejection, next words."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from trelliswork import HMM
from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.rules import AtMostOnce, Count, Pattern

X = [["the", "dog", "ran"], ["the", "cat"], ["a", "dog", "saw", "the", "cat"], ["the", "dog", "saw", "a", "dog"]]
Y = [["D", "N", "V"], ["D", "N"], ["D", "N", "V", "D", "N"], ["D", "N", "V", "D", "N"]]
PHRASES = Pattern(".* the dog .* saw .* cat .*")


def hmm(order=1):
    return HMM(order=order, unknown="symbol", transition_prior=0.5, emission_prior=0.2).fit(X, Y)


@pytest.mark.parametrize("order", [1, 2])
def test_the_probability_of_three_phrases_by_enumeration(order):
    """Of sentences of at most 6 words, all of which are listed."""
    model = hmm(order)
    words, short = model.vocabulary_, Pattern(".{1,5}")
    sentences = [list(s) for n in range(1, 6) for s in product(words, repeat=n)]
    log_p = model.log_prob(sentences)
    good = np.array([PHRASES.automaton(words, "word").accepts([words.index(w) for w in s]) for s in sentences])
    assert good.any()
    assert_allclose(np.exp(model.log_evidence(PHRASES & short)), np.exp(log_p[good]).sum(), rtol=1e-12)
    assert_allclose(np.exp(model.log_evidence(short)), np.exp(log_p).sum(), rtol=1e-12)
    both = np.exp([model.log_evidence(PHRASES), model.log_evidence(~PHRASES)]).sum()
    assert_allclose(both, 1, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_samples_satisfy_the_rules_and_are_distributed_as_those_of_rejection(order):
    model, rule = hmm(order), Count("dog", 1) & Pattern(".{2,4}")
    words = model.vocabulary_
    automaton = rule.automaton(words, "word")

    def good(sentence):
        return automaton.accepts([words.index(w) for w in sentence])

    drawn = model.sample(1000, seed=1, rules=rule)
    assert all(map(good, drawn))
    sentences = [list(s) for n in range(2, 5) for s in product(words, repeat=n)]
    sentences = [s for s in sentences if good(s)]
    p = np.exp(model.log_prob(sentences) - model.log_evidence(rule))
    assert_allclose(p.sum(), 1, rtol=1e-9)
    first = {w: sum(q for s, q in zip(sentences, p, strict=True) if s[0] == w) for w in words}
    kinds = [w for w in words if first[w] * 1000 > 5]
    counts = [sum(s[0] == w for s in drawn) for w in kinds]
    expected = np.array([first[w] for w in kinds])
    assert chisquare(counts, expected / expected.sum() * sum(counts)).pvalue > 1e-3
    rejected = [s for s in model.sample(20_000, seed=2) if good(s)]
    lengths = [2, 3, 4]
    share = np.array([sum(len(s) == n for s in rejected) for n in lengths]) / len(rejected)
    assert chisquare([sum(len(s) == n for s in drawn) for n in lengths], share * 1000).pvalue > 1e-3


@pytest.mark.parametrize("order", [1, 2])
def test_next_words_given_that_the_sentence_will_satisfy_the_rule(order):
    model, rule = hmm(order), AtMostOnce("the") & Pattern(".* dog . .{0,1}")
    words = model.vocabulary_
    automaton = rule.automaton(words, "word")
    found = dict(model.predict_next(["the"], 20, unknown=True, rules=rule))
    sentences = [["the", *s] for n in range(1, 5) for s in product(words, repeat=n)]
    sentences = [s for s in sentences if automaton.accepts([words.index(w) for w in s])]
    longer = model.log_evidence(rule)  # the sentences of more words have a share that vanishes in the comparison
    p = np.exp(model.log_prob(sentences))
    short = {w: p[[s[1] == w for s in sentences]].sum() for w in words}
    assert found["the"] == 0
    assert found["</s>"] == 0
    assert_allclose(sum(found.values()), 1, rtol=1e-12)
    assert np.isfinite(longer)
    rest = model.predict_next(["the"], 20, unknown=True, rules=rule & Pattern(".{1,5}"))
    assert_allclose([dict(rest)[w] for w in words], np.array([short[w] for w in words]) / p.sum(), rtol=1e-10)
    assert dict(model.predict_next(["the", "dog", "ran"], 20, rules=rule))["</s>"] > 0


def test_what_cannot_be_is_an_error():
    model = hmm()
    with pytest.raises(ValueRangeError, match="'dgo' is not one of the words: did you mean 'dog'"):
        model.log_evidence(Count("dgo", 1))
    with pytest.raises(ImpossibleError, match="no sentence satisfies this rule"):
        model.log_evidence(Count("dog", 2) & Count("dog", maximum=1))
    with pytest.raises(ImpossibleError, match="can satisfy this rule"):
        model.predict_next(["dog", "dog"], rules=AtMostOnce("dog"))
    with pytest.raises(ValueRangeError, match="end=True"):
        HMM(end=False).fit(X, Y).log_evidence(Count("dog", 1))
