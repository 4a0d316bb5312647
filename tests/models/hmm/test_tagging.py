"""Tagging: labels, marginals, k best and evidence against the enumeration of all paths; accuracy; beams."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.models.hmm.cases import (
    HALF,
    IDS,
    LEXICONS,
    NEW,
    TABLES,
    TAGS,
    WORDS,
    accuracies,
    as_array,
    corpus,
    enumerate_paths,
    model,
    node_marginals,
    oracle,
    sentences,
    table_parameters,
)
from trelliswork import HMM
from trelliswork.data import Corpus
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError


@pytest.mark.parametrize("name", [*TABLES, *LEXICONS])
def test_decoding_and_marginals_equal_enumeration(name):
    hmm = model(name)
    score, S, states = oracle(name, hmm), len(hmm.labels_), list(hmm.labels_)
    xs = sentences(hmm)
    answers = zip(
        xs,
        hmm.predict(xs),
        hmm.predict(xs, decoding="mbr"),
        hmm.predict_marginals(xs),
        hmm.predict_topk(xs, 5),
        strict=True,
    )
    for x, best, hits, marginals, top in answers:
        paths, scores, log_z = enumerate_paths(score, x, S)
        want = node_marginals(paths, scores, log_z, S)
        got = as_array(hmm, marginals)
        assert_allclose(got, want, atol=1e-9)
        assert_allclose(got.sum(1), 1, atol=1e-9)
        assert score(x, [states.index(state) for state in best]) == pytest.approx(scores.max(), abs=1e-9)
        picked = [want[t, states.index(state)] for t, state in enumerate(hits)]
        assert_allclose(picked, want.max(1), atol=1e-9)
        order = np.sort(np.exp(scores - log_z))[::-1][:5]
        order = order[order > 0]
        assert_allclose([p for _, p in top][: len(order)], order, atol=1e-9)
        assert len({tuple(path) for path, _ in top}) == len(top) <= S ** len(x)
        for path, p in top:
            assert p == pytest.approx(math.exp(score(x, [states.index(s) for s in path]) - log_z), abs=1e-9)


@pytest.mark.parametrize("name", ["order 1", "order 2", "order 3", "unlabeled", "labeled ids, no end"])
def test_posterior_scores_every_path(name):
    hmm = model(name)
    score, S, x = oracle(name, hmm), len(hmm.labels_), sentences(hmm)[3][:4]
    chain = hmm.posterior(x)
    paths, scores, log_z = enumerate_paths(score, x, S)
    total = 0.0
    for path, value in zip(paths, scores, strict=True):
        log_p = chain.log_prob(torch.as_tensor(path)[None]).item()
        assert math.exp(log_p) == pytest.approx(math.exp(value - log_z), abs=1e-10)
        total += math.exp(log_p)
    assert total == pytest.approx(1)


@pytest.mark.parametrize("name", ["order 1", "order 2", "order 3", "unlabeled", "half", "labeled, symbol"])
def test_topk_is_sorted_and_complete(name):
    hmm = model(name)
    for x, top, best in zip(WORDS, hmm.predict_topk(WORDS, 7), hmm.predict(WORDS), strict=True):
        probabilities = [p for _, p in top]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) <= 1 + 1e-9
        assert top[0][0] == best
        assert all(len(path) == len(x) for path, _ in top)
    everything = hmm.predict_topk([WORDS[2]], 10**4)[0]
    assert sum(p for _, p in everything) == pytest.approx(1)


@pytest.mark.parametrize("name", ["order 1", "order 2", "labeled, symbol", "half", "unlabeled", "labeled ids"])
def test_known_labels_condition_every_query(name):
    hmm = model(name)
    score, states, S = oracle(name, hmm), list(hmm.labels_), len(hmm.labels_)
    x = sentences(hmm)[1][:4]
    known = [None, states[1], {states[0], states[2]}, None]
    inside = [set(states), {states[1]}, known[2], set(states)]
    paths, scores, log_z = enumerate_paths(
        score, x, S, lambda path: all(states[j] in allowed for j, allowed in zip(path, inside, strict=True))
    )
    want = node_marginals(paths, scores, log_z, S)
    (marginals,) = hmm.predict_marginals([x], known=[known])
    assert_allclose(as_array(hmm, marginals), want, atol=1e-9)
    (best,) = hmm.predict([x], known=[known])
    assert all(state in allowed for state, allowed in zip(best, inside, strict=True))
    assert score(x, [states.index(s) for s in best]) == pytest.approx(scores.max(), abs=1e-9)
    (hits,) = hmm.predict([x], decoding="mbr", known=[known])
    assert [states[j] for j in want.argmax(1)] == hits
    ((top, p),) = hmm.predict_topk([x], 1, known=[known])[0]
    assert top == best
    assert p == pytest.approx(np.exp(scores.max() - log_z), abs=1e-9)
    nothing = [[None] * len(x)]
    assert hmm.predict_marginals([x], known=nothing) == hmm.predict_marginals([x])
    allowed = torch.tensor([[[state in names for state in states] for names in inside]])
    for conditioned in (hmm.posterior(x).condition(allowed=allowed), hmm.posterior(x, known=known)):
        assert_allclose(conditioned.marginals()[0].numpy(), want, atol=1e-9)


def test_known_labels_that_are_impossible():
    hmm = model("order 1")
    with pytest.raises(ValueRangeError, match="'Q' is given, but the model has no such label: D, N, V"):
        hmm.predict(WORDS[:1], known=[["Q", None, None]])
    with pytest.raises(ShapeError):
        hmm.predict(WORDS[:1], known=[["D"]])
    with pytest.raises(ShapeError):
        hmm.predict(WORDS[:1], known=[])
    with pytest.raises(ImpossibleError):
        hmm.predict(WORDS[:1], known=[[[], None, None]])


@pytest.mark.parametrize("name", ["order 1", "order 2", "unlabeled", "half, one more state, ids"])
def test_a_sentence_alone_and_among_others(name):
    hmm = model(name)
    xs = sentences(hmm)
    assert hmm.predict(xs) == [hmm.predict([x])[0] for x in xs]
    assert_allclose(hmm.log_prob(xs), [hmm.log_prob([x])[0] for x in xs], rtol=1e-12)
    assert hmm.predict([]) == []
    assert len(hmm.log_prob([])) == 0


def test_score_is_the_accuracy_if_labels_are_given():
    hmm = model("order 1")
    assert hmm.score(WORDS, TAGS) == 1
    wrong = [["D", "N", "N"], *TAGS[1:]]
    assert hmm.score(WORDS, wrong) == pytest.approx(17 / 18)
    assert hmm.score(WORDS, [[None, "N", "N"], None, None, None, None]) == pytest.approx(1 / 2)
    with pytest.raises(ShapeError):
        hmm.score(WORDS, TAGS[:2])
    with pytest.raises(ShapeError, match="no labels"):
        hmm.score(WORDS, [None] * 5)


def test_inputs_of_other_types():
    columns = Corpus.from_sentences([list(zip(x, y, strict=True)) for x, y in zip(WORDS, TAGS, strict=True)])
    hmm = HMM().fit(columns, TAGS)
    assert hmm.predict(columns) == model("order 1").predict(WORDS)
    assert hmm.score(columns) == model("order 1").score(WORDS)
    arrays = [np.array(x) for x in IDS]
    hmm = HMM(3, seed=1).fit(arrays)
    assert hmm.predict(arrays) == model("unlabeled ids").predict(IDS)
    assert HMM(3).fit(tuple(map(tuple, WORDS))).predict(WORDS) == model("unlabeled").predict(WORDS)


def test_inputs_are_not_changed():
    X, y = [list(x) for x in WORDS], [list(tags) for tags in TAGS]
    HMM(3).fit(X, HALF).predict(X, known=y)
    HMM().fit(X, y)
    assert (X, y) == (WORDS, TAGS)


def test_counts_of_labeled_sentences_by_hand():
    """Symbols: counts plus pseudo-counts, normalized (the M-step with all states known)."""
    hmm = HMM(unknown="symbol", transition_prior=0.25, emission_prior=0.125).fit(WORDS, TAGS)
    states = list(hmm.labels_)
    D, N = (states.index(s) for s in "DN")
    log_start, log_transition, _, _, words = table_parameters(hmm)
    start = np.zeros(3)
    start[[D, N]] = 3, 2
    assert_allclose(np.exp(log_start), (start + 0.25) / 5.75, rtol=1e-9)
    after_d = np.zeros(3)
    after_d[[N, D]] = 5, 1  # and one end
    assert_allclose(np.exp(log_transition[D]), (after_d + 0.25) / 8, rtol=1e-9)
    assert dict(hmm.top_words("V", 100))["sees"] == pytest.approx(2.125 / (4 + 0.125 * len(words)))
    assert "<unk>" in words
    assert not hmm._induced


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("X", [WORDS, IDS])
def test_order_two_with_a_table_of_symbols(X, end):
    hmm = HMM(order=2, unknown="symbol", end=end).fit(X, TAGS)
    assert hmm.predict(X) == TAGS
    for x in X:
        assert hmm.log_prob([x])[0] == pytest.approx(float(hmm.posterior(x).log_partition()[0]))


def test_a_wide_beam_is_exact_and_a_narrow_one_a_lower_bound():
    exact, wide = model("order 2"), HMM(order=2, beam="threshold=1000,min=1").fit(WORDS, TAGS)
    narrow = HMM(order=2, beam="threshold=0.5,min=1").fit(WORDS, TAGS)
    xs = [*WORDS, *NEW]
    assert wide.predict(xs) == exact.predict(xs)
    assert_allclose(wide.log_prob(xs), exact.log_prob(xs), rtol=1e-12)
    assert (narrow.log_prob(xs) <= exact.log_prob(xs) + 1e-12).all()
    assert (narrow.log_prob(xs) < exact.log_prob(xs) - 1e-6).any()


def test_the_beam_can_be_changed_after_training():
    hmm = HMM(order=2).fit(WORDS, TAGS)
    exact = hmm.log_prob(WORDS)
    narrow = hmm.set_params(beam="size=1").log_prob(WORDS)
    assert (narrow <= exact + 1e-9).all()
    assert (narrow < exact - 1e-6).any()
    assert hmm.posterior(WORDS[0]).kind == "lower"
    assert_allclose(hmm.set_params(beam=None).log_prob(WORDS), exact)
    assert hmm.posterior(WORDS[0]).kind == "exact"


def test_tagging_accuracy():
    X, y = corpus("train")
    total, unknown = accuracies(HMM(order=2).fit(X, y))
    first, first_unknown = accuracies(HMM().fit(X, y))
    symbol, symbol_unknown = accuracies(HMM(unknown="symbol").fit(X, y))
    assert total > 0.98
    assert unknown > 0.9
    assert first > 0.975
    assert total > first > symbol > 0.93
    assert first_unknown > symbol_unknown + 0.3
    beamed = HMM(order=2, beam="threshold=6.9,min=1").fit(X, y)
    assert accuracies(beamed)[0] == pytest.approx(total, abs=0.002)
