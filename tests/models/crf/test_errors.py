"""Errors of CRF taggers for wrong data and parameters."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.models.crf.cases import TAGS, TEMPLATES, WORDS, tagger
from trelliswork.data import Corpus
from trelliswork.errors import (
    ConvergenceWarning,
    DataError,
    NotFittedError,
    ShapeError,
    TrellisworkError,
    ValueRangeError,
)
from trelliswork.models import CRF


def test_nothing_works_before_fit(tmp_path):
    crf = CRF()
    for ask in (
        lambda: crf.predict(WORDS),
        lambda: crf.predict_topk(WORDS, 2),
        lambda: crf.posterior(WORDS[0]),
        lambda: crf.score(WORDS, TAGS),
        lambda: crf.top_features(),
        lambda: crf.transitions(),
        lambda: crf.save(tmp_path / "model"),
    ):
        with pytest.raises(NotFittedError, match="fit"):
            ask()


def test_no_marginals_before_fit():
    with pytest.raises(NotFittedError, match="fit"):
        CRF().predict_marginals(WORDS)


def test_a_failed_fit_does_not_count_as_fitted():
    crf = tagger()
    with pytest.raises(ShapeError):
        crf.fit([["a", "b"]], [["A"]])
    with pytest.raises(NotFittedError):
        crf.predict([["a"]])


def test_lengths_must_match():
    with pytest.raises(ShapeError, match="6 and 5 sentences"):
        tagger().fit(WORDS, TAGS[:-1])
    with pytest.raises(ShapeError, match="sentence 2 has 2 tokens but 3 labels"):
        tagger().fit([["a"], ["b"], ["c", "d"]], [["A"], ["B"], ["A", "B", "A"]])


@pytest.mark.parametrize("weights", [np.ones(5), np.ones(7), np.ones((6, 1)), 2.0])
def test_sample_weights_must_match(weights):
    with pytest.raises(ShapeError, match="sample_weight"):
        tagger().fit(WORDS, TAGS, sample_weight=weights)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0])
def test_sample_weights_must_be_finite_and_not_negative(wrong):
    with pytest.raises(ValueRangeError, match="sample_weight"):
        tagger().fit(WORDS, TAGS, sample_weight=np.array([1, 1, wrong, 1, 1, 1]))


@pytest.mark.parametrize("features", [TEMPLATES, "pos", "letters", None])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_empty_sentence_is_named(features, at):
    x, y = [["a", "b"], ["b"]], [["A", "B"], ["B"]]
    if features is None:
        x = [[[word] for word in s] for s in x]
    crf = tagger(features).fit(x, y)
    with_empty, labels = [*x[:at], [], *x[at:]], [*y[:at], [], *y[at:]]
    with pytest.raises(ShapeError, match=f"sentence {at} is empty"):
        tagger(features).fit(with_empty, labels)
    for ask in (crf.predict, crf.predict_marginals, lambda sentences: crf.predict_topk(sentences, 2)):
        with pytest.raises(ShapeError, match=f"sentence {at} is empty"):
            ask(with_empty)


def test_an_only_sentence_that_is_empty(fitted):
    with pytest.raises(ShapeError, match="sentence 0 is empty"):
        fitted.predict([[]])


def test_no_posterior_of_nothing(fitted):
    with pytest.raises(ShapeError, match="empty"):
        fitted.posterior([])


def test_no_sentences(fitted):
    assert fitted.predict([]) == []
    assert fitted.predict_marginals([]) == []
    assert fitted.predict_topk([], 3) == []
    with pytest.raises(TrellisworkError, match="sentence"):
        tagger().fit([], [])


def test_no_sentences_of_several_columns():
    crf = tagger("chunking").fit([[("dog", "N")]], [["B"]])
    assert crf.predict([]) == []


def test_an_unknown_preset_is_told_which_there_are():
    with pytest.raises(ValueRangeError, match=r"chunking, pos, ner, letters.*'chunkin'"):
        CRF("chunkin").fit(WORDS, TAGS)


def test_templates_that_cannot_be_used():
    with pytest.raises(DataError, match=r"U1:%x\[0,1\].*column 1"):
        CRF("U0:%x[0,0]\nU1:%x[0,1]").fit(WORDS, TAGS)
    with pytest.raises(DataError, match=r"B1:%x\[0,1\].*column 1"):
        CRF("U0:%x[0,0]\nB1:%x[0,1]").fit(WORDS, TAGS)
    with pytest.raises(DataError, match=r":2: .*X:%x\[0,0\]"):
        CRF("U0:%x[0,0]\nX:%x[0,0]").fit(WORDS, TAGS)


def test_columns_must_be_as_many_in_every_token():
    with pytest.raises(ShapeError, match="sentence 1, token 1"):
        CRF(TEMPLATES).fit([[("a", "x")], [("b", "y"), ("c",)]], [["A"], ["A", "B"]])


def test_words_are_not_ready_attributes():
    with pytest.raises(DataError, match=r"sentence 0, token 0: .*'the'"):
        CRF(None).fit(WORDS, TAGS)
    with pytest.raises(DataError, match="corpus"):
        CRF(None).fit(Corpus.from_sentences(WORDS), TAGS)


@pytest.mark.parametrize(
    "options",
    [{"l1": -1.0}, {"l2": -0.1}, {"l2": np.nan}, {"feature_set": "some"}, {"scheme": "iob"}],
)
def test_parameters_that_cannot_be_used(options):
    (name,) = options
    with pytest.raises(ValueRangeError, match=f"{name} must be"):
        tagger(**options).fit(WORDS, TAGS)


def test_one_label_is_a_certain_answer():
    crf = tagger().fit([["a", "b"]], [["A", "A"]])
    assert crf.predict([["b", "new"]]) == [["A", "A"]]
    assert_allclose(crf.predict_marginals([["b"]])[0][0]["A"], 1)


def test_huge_values_do_not_break_the_probabilities():
    # Scores in the thousands: probability space underflows, log space does not.
    x = [[{"x": 1000.0}, {"y": 1000.0}, {"x": 500.0}], [{"y": 1000.0}, {"x": 1000.0}]]
    y = [["A", "B", "A"], ["B", "A"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        crf = CRF(None, l2=1e-6, scheme=None, max_iter=50).fit(x, y)
    assert crf.predict(x) == y
    for token in (token for sentence in crf.predict_marginals(x) for token in sentence):
        assert_allclose(sum(token.values()), 1, rtol=1e-5)
