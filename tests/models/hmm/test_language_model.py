"""HMMs as language models: next words, blanks, random sentences, words and transitions of states."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.models.hmm.cases import (
    ALL,
    IDS,
    LEXICONS,
    OTHERS,
    TABLES,
    WORDS,
    model,
    sentences,
    table_parameters,
    tiny,
)
from tests.oracle.hmm import joint
from trelliswork.errors import ShapeError

END = "</s>"


@pytest.mark.parametrize("name", TABLES)
def test_next_words_equal_enumeration(name):
    hmm = model(name)
    log_start, log_transition, log_end, log_emission, words = table_parameters(hmm)
    S, ids = len(log_start), {word: n for n, word in enumerate(words)}
    for x in sentences(hmm):
        if any(word not in ids for word in x):
            continue
        prefix = [ids[word] for word in x[:3]]
        ranked = hmm.predict_next(x[:3], n=10**6, unknown=True)
        paths = list(product(range(S), repeat=len(prefix)))
        seen = np.exp([joint(log_start, log_transition, None, log_emission, prefix, p) for p in paths])
        last = np.array([seen[[p[-1] == j for p in paths]].sum() for j in range(S)]) / seen.sum()
        want = last @ np.exp(log_transition) @ np.exp(log_emission)
        got = dict(ranked)
        assert_allclose([got[word] for word in words], want, atol=1e-10)
        assert got.get(END, 0) == pytest.approx(0 if log_end is None else last @ np.exp(log_end), abs=1e-10)
        assert (END in got) == (log_end is not None)
        assert sum(got.values()) == pytest.approx(1)
        values = [p for _, p in ranked]
        assert values == sorted(values, reverse=True)
        assert hmm.predict_next(x[:3], n=2, unknown=True) == ranked[:2]


def chain_rule(hmm, x):
    """Return log p(words) as a product of predictions, and of the end."""
    total = sum(math.log(dict(hmm.predict_next(x[:t], n=10**6, unknown=True))[x[t]]) for t in range(len(x)))
    return total + (math.log(dict(hmm.predict_next(x, n=10**6, unknown=True))[END]) if hmm.end else 0.0)


@pytest.mark.parametrize("name", TABLES)
def test_chain_rule(name):
    hmm = model(name)
    listed = {word for word, _ in hmm.predict_next([], n=10**6, unknown=True)}
    xs = [x for x in sentences(hmm) if listed.issuperset(x)]
    assert len(xs) >= 1
    assert_allclose([chain_rule(hmm, x) for x in xs], hmm.log_prob(xs), rtol=1e-9)


@pytest.mark.parametrize("name", LEXICONS)
def test_next_words_of_taggers_sum_to_one(name):
    for x in WORDS:
        ranked = model(name).predict_next(x[:2], n=10**6, unknown=True)
        assert sum(p for _, p in ranked) == pytest.approx(1)
        assert {word for word, _ in ranked} == model(name).known_words() | {END}


@pytest.mark.parametrize("name", ["order 1", "order 2"])
def test_first_words_of_taggers_sum_to_one(name):
    ranked = dict(model(name).predict_next([], n=10**6, unknown=True))
    assert sum(ranked.values()) == pytest.approx(1)
    assert ranked[END] == 0


@pytest.mark.parametrize("name", ["order 1", "order 2"])
def test_chain_rule_of_taggers(name):
    """Approximately: first words have a lexicon of their own, and predictions are normalized over known words."""
    hmm = model(name)
    assert_allclose([chain_rule(hmm, x) for x in WORDS], hmm.log_prob(WORDS), atol=0.1)


@pytest.mark.parametrize("name", TABLES)
def test_blanks_equal_the_evidence_of_filled_sentences(name):
    hmm = model(name)
    words = [word for word, _ in hmm.top_words(next(iter(hmm.labels_)), 10**6)]
    x = [w if w in words else words[0] for w in sentences(hmm)[1][:4]]
    for blank in range(len(x)):
        (ranked,) = hmm.fill([*x[:blank], None, *x[blank + 1 :]], 10**6, unknown=True)
        filled = np.exp(hmm.log_prob([[*x[:blank], word, *x[blank + 1 :]] for word in words]))
        assert_allclose([dict(ranked)[word] for word in words], filled / filled.sum(), atol=1e-10)
        assert [p for _, p in ranked] == sorted((p for _, p in ranked), reverse=True)
        assert hmm.fill([*x[:blank], None, *x[blank + 1 :]], 2, unknown=True) == [ranked[:2]]
    pairs = list(product(words, words))
    both = np.exp(hmm.log_prob([[first, x[1], second] for first, second in pairs]))
    first, second = hmm.fill([None, x[1], None], 10**6, unknown=True)
    for n, ranked in enumerate((first, second)):
        want = [both[[pair[n] == word for pair in pairs]].sum() / both.sum() for word in words]
        assert_allclose([dict(ranked)[word] for word in words], want, atol=1e-10)


@pytest.mark.parametrize("name", ["order 1", "order 2", "order 3"])
def test_blanks_of_taggers(name):
    """Approximately the evidence of filled sentences: probabilities are normalized over known words."""
    hmm = model(name)
    first, second = hmm.fill("the ___ sees ___", 100)
    words = [word for word, _ in first]
    evidence = np.exp(hmm.log_prob([["the", a, "sees", b] for a in words for b in words])).reshape(len(words), -1)
    assert_allclose([p for _, p in first], evidence.sum(1) / evidence.sum(), atol=0.01)
    assert sum(p for _, p in first) == pytest.approx(1)
    assert set(words) == {word for word, _ in second} == hmm.known_words()
    assert hmm.fill(["the", None, "sees", None], 100) == [first, second]
    with pytest.raises(ShapeError, match="no blank"):
        hmm.fill("the dog")


@pytest.mark.parametrize("name", ALL)
def test_transitions_and_top_words_are_distributions(name):
    hmm = model(name)
    transitions = hmm.transitions()
    assert transitions.shape == (len(hmm.labels_), len(hmm.labels_))
    assert (transitions >= 0).all()
    assert (transitions.sum(1) <= 1 + 1e-9).all()
    for state in hmm.labels_:
        top = hmm.top_words(state, 10**6)
        values = [p for _, p in top]
        assert values == sorted(values, reverse=True)
        assert sum(values) == pytest.approx(1) or (sum(values) < 1 and name in OTHERS)
        assert hmm.top_words(state, 3) == top[:3]


def test_without_an_end_event_transitions_sum_to_one():
    assert_allclose(model("labeled ids, no end").transitions().sum(1), 1)
    assert_allclose(model("unlabeled, symbol, no end").transitions().sum(1), 1)


@pytest.mark.parametrize("name", ALL)
def test_samples(name):
    hmm = model(name)
    drawn = hmm.sample_with_states(20, seed=3, max_length=7)
    assert drawn == hmm.sample_with_states(20, seed=3, max_length=7)
    assert drawn != hmm.sample_with_states(20, seed=4, max_length=7)
    assert hmm.sample(20, seed=3, max_length=7) == [words for words, _ in drawn]
    assert len(drawn) == 20
    for words, states in drawn:
        assert len(words) == len(states) <= 7
        assert set(states) <= set(hmm.labels_)
    if not hmm.end:
        assert all(len(words) == 7 for words, _ in drawn)


@pytest.mark.parametrize(
    "options", [{"unknown": "symbol"}, {"unknown": "symbol", "transition_prior": 1.0}, {}, {"order": 2}]
)
def test_sample_frequencies(options):
    """Of 4,000 draws, a frequency is off by more than 0.035 once in 100,000 times."""
    hmm = tiny(**options)
    drawn = Counter(map(tuple, hmm.sample(4000, seed=1)))
    for x in (["a"], ["b"], ["a", "b"], ["b", "a"]):
        assert drawn[tuple(x)] / 4000 == pytest.approx(math.exp(hmm.log_prob([x])[0]), abs=0.035)
    assert drawn[()] == 0


def test_integers_stay_integers():
    hmm = model("unlabeled ids")
    assert all(isinstance(word, int) for word in hmm.sample(1, seed=1)[0])
    assert {type(word) for word, _ in hmm.predict_next([0, 1], 100)} == {int, str}
    assert list(hmm.vocabulary_) == ["0", "1", "2", "3", "4", "5"]
    assert hmm.fill([IDS[0][0], None], 1)[0][0][0] in range(6)
