"""Training of CRF taggers: features, penalties, weights of sentences, callbacks."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from tests.models.crf.cases import CHUNKS, NEW, TAGS, TEMPLATES, WORDS, as_dicts, as_lists, tagger
from trelliswork.data import Corpus
from trelliswork.errors import (
    ConvergenceWarning,
    DataError,
)
from trelliswork.features import parse_templates
from trelliswork.models import CRF


def test_a_toy_problem_is_learned(fitted):
    assert fitted.predict(WORDS) == TAGS
    assert fitted.score(WORDS, TAGS) == 1.0
    assert set(fitted.labels_) == {"D", "N", "V", "A"}


@pytest.mark.parametrize("l2", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("l1", [0.0, 0.1])
def test_training_ends_by_the_default_tolerance(l1, l2):
    crf = CRF(TEMPLATES, l1=l1, l2=l2).fit(WORDS, TAGS)
    assert crf.report_.converged, crf.report_.reason


@pytest.mark.parametrize("features", [TEMPLATES, "pos", "ner", "letters", parse_templates(TEMPLATES)])
def test_features_of_words(features):
    assert tagger(features).fit(WORDS, TAGS).predict(WORDS) == TAGS


def test_the_chunking_preset_wants_words_and_tags():
    pairs = [list(zip(words, tags, strict=True)) for words, tags in zip(WORDS, TAGS, strict=True)]
    crf = tagger("chunking", scheme="auto").fit(pairs, CHUNKS)
    assert crf.predict(pairs) == CHUNKS
    with pytest.raises(DataError, match="'chunking' needs 2 columns, the data has 1"):
        tagger("chunking").fit(WORDS, CHUNKS)
    with pytest.raises(DataError, match="'chunking' needs 2 columns, the data has 1"):
        crf.predict(WORDS)


def test_a_template_file_is_its_text(tmp_path, fitted):
    path = tmp_path / "template"
    path.write_text(TEMPLATES, encoding="utf-8")
    for features in (path, str(path)):
        assert_array_equal(tagger(features).fit(WORDS, TAGS)._learned.weights, fitted._learned.weights)


def test_a_corpus_is_its_sentences(fitted):
    corpus = Corpus.from_sentences(WORDS)
    assert_array_equal(tagger().fit(corpus, TAGS)._learned.weights, fitted._learned.weights)
    assert fitted.predict(corpus) == TAGS


def test_dicts_and_lists_of_the_same_attributes_agree():
    dicts = tagger(None).fit(as_dicts(WORDS), TAGS)
    lists = tagger(None).fit(as_lists(WORDS), TAGS)
    assert dicts.predict(as_dicts(WORDS)) == TAGS
    assert_array_equal(dicts._learned.weights, lists._learned.weights)
    assert dicts.predict(as_dicts(NEW)) == lists.predict(as_lists(NEW))


def test_values_of_attributes_count():
    # Only the size of x tells the labels apart.
    x = [[{"bias": 1.0, "x": v} for v in row] for row in ([0.1, 2.0, 0.2], [1.9, 0.0], [2.2, 1.8, 0.1, 0.3])]
    y = [["big" if token["x"] > 1 else "small" for token in s] for s in x]
    crf = CRF(None, l2=1e-3).fit(x, y)
    assert crf.predict(x) == y
    assert crf.predict([[{"bias": 1.0, "x": 3.0}], [{"bias": 1.0, "x": -1.0}]]) == [["big"], ["small"]]


def test_all_pairs_give_a_lower_objective():
    observed = tagger(tol=1e-8).fit(WORDS, TAGS)
    every = tagger(tol=1e-8, feature_set="all").fit(WORDS, TAGS)
    assert len(every._learned.weights) > len(observed._learned.weights)
    assert every.report_.value < observed.report_.value
    assert every.predict(WORDS) == TAGS


def test_l1_gives_sparse_weights():
    dense = tagger(l2=0.01, feature_set="all").fit(WORDS, TAGS)
    sparse = tagger(l2=0.01, l1=0.3, feature_set="all").fit(WORDS, TAGS)
    sparser = tagger(l2=0.01, l1=1.0, feature_set="all").fit(WORDS, TAGS)
    n_dense, n_sparse, n_sparser = (np.count_nonzero(crf._learned.weights) for crf in (dense, sparse, sparser))
    assert n_dense > 0.9 * len(dense._learned.weights)
    assert 0 < n_sparser < n_sparse < 0.3 * n_dense
    assert sparse.score(WORDS, TAGS) > 0.9


def test_l2_shrinks_the_weights():
    norms = [np.linalg.norm(tagger(l2=l2).fit(WORDS, TAGS)._learned.weights) for l2 in (0.01, 0.1, 1.0, 10.0)]
    assert norms == sorted(norms, reverse=True)
    assert norms[0] > 5 * norms[-1]


def test_min_count_drops_rare_attributes():
    crf = tagger("U:%x[0,0]", min_count=3).fit(WORDS, TAGS)
    assert {name for name, _, _ in crf.top_features(1000)} == {"U:the", "U:dog"}
    ready = tagger(None, min_count=3).fit([[[w] for w in s] for s in WORDS], TAGS)
    assert {name for name, _, _ in ready.top_features(1000)} == {"the", "dog"}


def test_a_weight_of_two_is_the_sentence_twice():
    options = {"tol": 1e-10, "max_iter": 3000, "l2": 0.1}
    weights = np.array([1.0, 2.0, 1.0, 1.0, 3.0, 1.0])
    weighted = tagger(**options).fit(WORDS, TAGS, sample_weight=weights)
    which = np.repeat(np.arange(6), weights.astype(int))
    repeated = tagger(**options).fit([WORDS[n] for n in which], [TAGS[n] for n in which])
    assert_allclose(weighted.report_.value, repeated.report_.value, rtol=1e-5)
    names = [sorted(crf.top_features(1000) + crf._learned.top_ngrams(1000, 2)) for crf in (weighted, repeated)]
    assert [row[:2] for row in names[0]] == [row[:2] for row in names[1]]
    assert_allclose([row[2] for row in names[0]], [row[2] for row in names[1]], atol=1e-3)
    plain = tagger(**options).fit(WORDS, TAGS)
    assert abs(plain.report_.value - weighted.report_.value) > 0.1


def test_a_weight_of_zero_leaves_a_sentence_out():
    options = {"tol": 1e-10, "max_iter": 3000, "l2": 0.1}
    wrong = [["V", "D", "N"], *TAGS[1:]]
    crf = tagger(**options).fit(WORDS, wrong, sample_weight=np.array([0.0, 1, 1, 1, 1, 1]))
    assert crf.predict(WORDS) == tagger(**options).fit(WORDS[1:], TAGS[1:]).predict(WORDS)


def test_the_report_is_the_penalized_likelihood():
    crf = tagger(l2=0.3, l1=0.1, tol=1e-8, max_iter=2000).fit(WORDS, TAGS)
    labels = list(crf.labels_)
    loss = 0.0
    for words, tags in zip(WORDS, TAGS, strict=True):
        loss -= crf.posterior(words).log_prob(torch.tensor([[labels.index(tag) for tag in tags]])).item()
    penalty = 0.3 * crf._learned.weights @ crf._learned.weights + 0.1 * np.abs(crf._learned.weights).sum()
    assert_allclose(crf.report_.value, loss + penalty, rtol=1e-5)


def test_the_callback_sees_and_stops():
    seen = []

    def callback(step):
        seen.append(step.iteration)
        return step.iteration == 2

    crf = tagger().fit(WORDS, TAGS, callback=callback)
    assert seen == [1, 2]
    assert not crf.report_.converged


def test_too_few_iterations_warn():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        tagger(max_iter=1).fit(WORDS, TAGS)


def test_fit_is_deterministic_and_forgets(fitted):
    crf = tagger().fit([["other", "words"]], [["X", "Y"]])
    assert crf.fit(WORDS, TAGS) is crf
    assert_array_equal(crf._learned.weights, fitted._learned.weights)
    assert list(crf.labels_) == list(fitted.labels_)


def test_what_is_passed_in_is_left_alone():
    words, tags = [list(s) for s in WORDS], [list(s) for s in TAGS]
    weights = np.ones(6)
    tagger().fit(words, tags, sample_weight=weights)
    assert (words, tags) == (WORDS, TAGS)
    assert_array_equal(weights, 1)
