"""Predictions, marginals, k best labelings, posteriors and evidence of CRF taggers."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from tests.models.crf.cases import NEW, TAGS, WORDS, tagger
from trelliswork import CRF
from trelliswork.errors import ValueRangeError
from trelliswork.models.calibration import calibrate


def test_marginals_sum_to_one(fitted):
    found = fitted.predict_marginals(WORDS + NEW)
    assert [len(s) for s in found] == [len(s) for s in WORDS + NEW]
    for token in (token for sentence in found for token in sentence):
        assert set(token) == set(fitted.labels_)
        assert_allclose(sum(token.values()), 1, rtol=1e-5)
        assert all(0 <= p <= 1 + 1e-6 for p in token.values())


def test_the_posterior_agrees_with_everything_else(fitted):
    labels = list(fitted.labels_)
    for sentence in WORDS + NEW:
        posterior = fitted.posterior(sentence)
        best = [labels[j] for j in posterior.mode[0].tolist()]
        assert fitted.predict([sentence]) == [best]
        (marginals,) = fitted.predict_marginals([sentence])
        want = posterior.marginals()[0].tolist()
        assert_allclose([[token[label] for label in labels] for token in marginals], want, atol=1e-5)
        (ranked,) = fitted.predict_topk([sentence], 4)
        assert ranked[0][0] == best
        ids = torch.tensor([[labels.index(label) for label in labeling] for labeling, _ in ranked])
        log_probs = [posterior.log_prob(row[None]).item() for row in ids]
        assert_allclose([p for _, p in ranked], np.exp(log_probs), rtol=1e-4, atol=1e-7)


def test_topk_is_sorted_and_distinct(fitted):
    for sentence, ranked in zip(NEW, fitted.predict_topk(NEW, 10), strict=True):
        probabilities = [p for _, p in ranked]
        assert probabilities == sorted(probabilities, reverse=True)
        assert len({tuple(labeling) for labeling, _ in ranked}) == len(ranked) == min(10, 4 ** len(sentence))
        assert all(len(labeling) == len(sentence) for labeling, _ in ranked)
        assert sum(probabilities) <= 1 + 1e-5


def test_all_labelings_of_a_short_sentence(fitted):
    (ranked,) = fitted.predict_topk([["the", "dog"]], 100)
    assert len(ranked) == 16
    assert_allclose(sum(p for _, p in ranked), 1, rtol=1e-5)
    (marginals,) = fitted.predict_marginals([["the", "dog"]])
    for label, p in marginals[1].items():
        assert_allclose(p, sum(q for labeling, q in ranked if labeling[1] == label), atol=1e-5)


def test_sentences_together_are_sentences_alone(fitted):
    rng = np.random.default_rng(0)
    vocabulary = [*sorted({word for s in WORDS for word in s}), "new"]
    sentences = [[vocabulary[k] for k in rng.integers(0, len(vocabulary), n)] for n in rng.integers(1, 30, 60)]
    sentences.append([vocabulary[k] for k in rng.integers(0, len(vocabulary), 25_000)])  # longer than a batch
    sentences.append(["dog"])
    together = fitted.predict(sentences)
    assert together == [fitted.predict([s])[0] for s in sentences]
    assert [len(s) for s in together] == [len(s) for s in sentences]
    for sentence, found in zip(sentences[:20], fitted.predict_marginals(sentences), strict=False):
        (alone,) = fitted.predict_marginals([sentence])
        assert_allclose([list(t.values()) for t in found], [list(t.values()) for t in alone], atol=1e-5)


def test_known_labels_condition_the_answers(fitted):
    sentence, known = ["the", "old", "cats"], [None, {"V", "A"}, "V"]
    (ranked,) = fitted.predict_topk([sentence], 64)
    fitting = [(labels, p) for labels, p in ranked if labels[1] in ("V", "A") and labels[2] == "V"]
    total = sum(p for _, p in fitting)
    assert fitted.predict([sentence], known=[known]) == [fitting[0][0]]
    (marginals,) = fitted.predict_marginals([sentence], known=[known])
    for t, token in enumerate(marginals):
        for label, p in token.items():
            assert_allclose(p, sum(q for labels, q in fitting if labels[t] == label) / total, atol=1e-4)
    (best,) = fitted.predict_topk([sentence], 64, known=[known])
    assert [labels for labels, _ in best] == [labels for labels, _ in fitting]
    assert fitted.predict(WORDS, known=[[None] * len(s) for s in WORDS]) == TAGS


def test_a_function_gives_the_attributes():
    def attributes(sentence, t):
        return {"word": sentence[t], **({"before": sentence[t - 1]} if t else {}), "last": t + 1 == len(sentence)}

    crf = tagger(attributes).fit(WORDS, TAGS)
    ready = tagger(None).fit([[attributes(s, t) for t in range(len(s))] for s in WORDS], TAGS)
    assert crf.predict(WORDS) == TAGS
    assert_array_equal(crf._learned.weights, ready._learned.weights)


def test_top_features_and_transitions():
    crf = tagger("U:%x[0,0]").fit(WORDS, TAGS)
    found = crf.top_features(5)
    sizes = [abs(w) for _, _, w in found]
    assert len(found) == 5
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == np.abs(crf._learned.weights[-len(crf.top_features(1000)) :]).max()
    assert {label for _, label, _ in crf.top_features(100, label="D")} == {"D"}
    assert ("U:the", "D") in [row[:2] for row in crf.top_features(100, label="D")]
    pairs = {(a, b) for a, b, _ in crf.describe(100).tables[1].rows}
    assert pairs == {pair for tags in TAGS for pair in pairwise(tags)}
    transitions, number = crf.transitions(), crf.labels_.index
    assert transitions.shape == (len(crf.labels_),) * 2
    assert all(transitions[number(a), number(b)] == weight for a, b, weight in crf.describe(100).tables[1].rows)
    assert np.count_nonzero(transitions) == len(pairs)


@pytest.mark.parametrize("options", [{}, {"order": 2, "beam": "size=3"}, {"scheme": "bio"}])
def test_a_frozen_model_answers_the_same_until_it_is_fitted_again(options):
    tags = [["B-" + label for label in sentence] for sentence in TAGS] if "scheme" in options else TAGS
    model = tagger(tol=1e-2, **options).fit(WORDS, tags)

    def answers():
        known = [[tags[0][0], *[None] * (len(WORDS[0]) - 1)]]
        own = model.predict(WORDS + NEW), model.predict_marginals(NEW), model.predict_topk(NEW, 3)
        return *own, model.predict_marginals(WORDS[:1], known=known)

    before = answers()
    assert model.freeze() is model
    assert answers() == before
    with pytest.raises(ValueError, match="read-only"):
        model._learned.weights[0] = 1
    calibrate(model, WORDS, tags)  # another temperature than that of the frozen weights
    calibrated = answers()
    model._frozen = None
    assert answers() == calibrated
    model.set_params(l2=30.0)
    model.fit(WORDS, tags)
    assert answers() != before


def test_answers_do_not_depend_on_the_other_sentences_of_a_call(fitted):
    """Bit for bit: a service answers sentences of several requests together."""
    sentences = (WORDS + NEW) * 3
    for method in (fitted.predict, fitted.predict_marginals, lambda X: fitted.predict_topk(X, 3)):
        assert method(sentences) == [method([sentence])[0] for sentence in sentences]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("frozen", [False, True])
def test_scores_that_overflow_are_an_error(order, frozen):
    X = [[{"a": 1.0, "b": 1.0}, {"b": 2.0}, {"c": 1.0}]]
    crf = CRF(None, order=order).fit(X, [["A", "B", "C"]])
    crf._learned.weights[:] = np.random.default_rng(0).normal(scale=1e5, size=len(crf._learned.weights))
    if frozen:
        crf.freeze()
    large = [[{"a": 3e38, "b": -3e38, "c": 3e38}] * 4]
    queries = (
        crf.predict,
        crf.predict_marginals,
        crf._predict_flat,
        partial(crf.predict, decoding="mbr"),
        partial(crf.predict_topk, k=2),
    )
    for query in queries:
        with pytest.raises(ValueRangeError, match="left the range of float32"):
            query(large)
    finite = [[{"a": 1e33, "b": -1e33, "c": 1e33}] * 4]  # each score is in the range; their sums need not be
    with pytest.raises(ValueRangeError, match="left the range of float32"):
        crf.predict(finite)
