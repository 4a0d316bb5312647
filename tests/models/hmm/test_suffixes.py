"""Tags of words by suffix and count: the formulas by definition, and saving."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.models.hmm.suffixes import Lexicon, SparseCounts, SuffixModel, shape_class

WORDS = st.text("abAB1-.é", max_size=5)


@st.composite
def vocabularies(draw):
    """Distinct words and counts (n_words, S), not all zero; some words and tags do not occur."""
    words = draw(st.lists(WORDS, min_size=1, max_size=12, unique=True))
    S = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = rng.integers(0, 4, (len(words), S)) * (rng.random((len(words), S)) < 0.6)
    counts[0, 0] += 1
    return words, counts


def slow_probabilities(words, counts, word, max_length, max_count, weight):
    """Successive abstraction for one word, from its definition."""
    prior = counts.sum(axis=0) / counts.sum()
    rare = [i for i, n in enumerate(counts.sum(axis=1)) if 0 < n <= max_count]
    tests = [lambda w: True, lambda w: shape_class(w) == shape_class(word)]
    for m in range(1, min(max_length, len(word)) + 1):
        suffix = word.lower()[-m:]
        tests.append(lambda w, suffix=suffix: shape_class(w) == shape_class(word) and w.lower().endswith(suffix))
    p = prior
    for test in tests:
        seen = sum((counts[i] for i in rare if test(words[i])), np.zeros(len(prior)))
        n = seen.sum()
        if not n:
            break
        theta = prior.std(ddof=1) if weight is None and len(prior) > 1 else (weight or 0) / n
        p = (seen / n + theta * p) / (1 + theta)
    return p


@given(vocabularies(), st.lists(WORDS, min_size=1, max_size=5), st.sampled_from([None, 0.5, 8.0]), st.integers(0, 4))
def test_successive_abstraction_equals_its_definition(case, unknown, weight, max_length):
    words, counts = case
    model = SuffixModel.fit(words, counts, max_length=max_length, max_count=4, weight=weight)
    p = model.probabilities(unknown)
    assert_allclose(p.sum(axis=1), 1)
    for row, word in zip(p, unknown, strict=True):
        assert_allclose(row, slow_probabilities(words, counts, word, max_length, 4, weight), rtol=1e-10, atol=1e-15)
    with np.errstate(divide="ignore", invalid="ignore"):
        want = np.log(p) - np.log(counts.sum(axis=0))  # p(t | w) (1 / N) / (n(t) / N)
    assert_allclose(model.log_emission(unknown), np.where(counts.sum(axis=0) > 0, want, -np.inf), atol=1e-12)


def test_suffixes_of_frequent_words_do_not_count():
    words, counts = ["the", "lithe", "bathe"], np.array([[50, 0, 0], [0, 3, 0], [0, 0, 3]])
    p = SuffixModel.fit(words, counts, weight=0.01).probabilities(["scathe"])[0]
    assert p[2] > 0.99  # -athe
    assert p[0] < 1e-6
    alone = SuffixModel.fit(words[:1], counts[:1]).probabilities(["scathe"])[0]
    assert_allclose(alone, [1, 0, 0])  # no rare word: the distribution of all tags


def test_shapes_separate_suffixes():
    model = SuffixModel.fit(["Barking", "parking"], np.array([[5, 0], [0, 5]]), weight=1.0)
    p = model.probabilities(["Harking", "harking", "HARKING"])
    assert p[0, 0] > 0.95
    assert p[1, 1] > 0.95
    assert_allclose(p[2], 0.5)  # an unseen shape: all rare words


@given(vocabularies())
def test_known_words_have_relative_frequencies_without_weights(case):
    words, counts = case
    seen = counts.any(axis=1)
    log_emission = Lexicon.fit(words, counts, word_weight=0, least=0).log_emission(words)
    with np.errstate(divide="ignore", invalid="ignore"):
        want = np.where(counts > 0, np.log(counts / counts.sum(axis=0)), -np.inf)
    assert_allclose(log_emission[seen], want[seen], atol=1e-12)


@given(vocabularies(), st.lists(WORDS, min_size=1, max_size=8))
def test_words_mix_counts_and_suffixes(case, text):
    words, counts = case
    lexicon = Lexicon.fit(words, counts, word_weight=2.0, initial_weight=3.0, least=0)
    initial = np.arange(len(text)) % 2 == 0
    p = lexicon.suffixes.probabilities(text)
    n_tag = counts.sum(axis=0)
    for i, word in enumerate(text):
        q = p[i]
        if initial[i] and word != word.lower():
            any_case = sum((c for w, c in zip(words, counts, strict=True) if w.lower() == word.lower()), 0 * n_tag)
            q = (any_case + 3 * q) / (any_case.sum() + 3)
        own = counts[words.index(word)] if word in words else 0 * n_tag
        q = (own + 2 * q) / (own.sum() + 2)
        got = np.exp(lexicon.log_emission(text, initial)[i])
        assert_allclose(got[n_tag > 0], (q * max(own.sum(), 1) / np.maximum(n_tag, 1))[n_tag > 0], rtol=1e-10)
        assert (got[n_tag == 0] == 0).all()


def test_improbable_tags_are_impossible():
    words, counts = ["a", "b"], np.array([[999, 1], [1, 999]])
    few, all_ = (Lexicon.fit(words, counts, least=least).log_emission(["a", "b", "c"]) for least in (0.01, 0))
    assert_array_equal(np.isneginf(few), [[False, True], [True, False], [False, False]])
    assert np.isfinite(all_).all()
    assert_array_equal(few[~np.isneginf(few)], all_[~np.isneginf(few)])


@given(vocabularies(), st.lists(WORDS, min_size=1, max_size=5))
def test_a_loaded_model_equals_the_saved_one(case, text):
    for kind, options in ((SuffixModel, {"max_length": 3}), (Lexicon, {"max_count": 3, "least": 0.01, "weight": None})):
        model = kind.fit(*case, **options)
        plain, arrays = model.state()
        again = kind.from_state(json.loads(json.dumps(plain)), {name: array.copy() for name, array in arrays.items()})
        assert_array_equal(again.log_emission(text), model.log_emission(text))
        assert json.dumps(again.state()[0]) == json.dumps(plain)
    assert all((word in model) == (word in case[0]) for word in text)


@given(st.integers(0, 2**32 - 1))
def test_sparse_counts_equal_dense_ones(seed):
    rng = np.random.default_rng(seed)
    dense = rng.integers(0, 3, (6, 3)) * (rng.random((6, 3)) < 0.5) * 1.0
    sparse = SparseCounts.from_dense(dense)
    assert_array_equal(sparse.totals(), dense.sum(axis=1))
    rows = rng.integers(-1, 6, 8)
    assert_array_equal(sparse.dense(rows), np.where(rows[:, None] >= 0, dense[rows], 0))
    rows, into = rng.integers(0, 6, 9), rng.integers(0, 4, 9)
    want = np.zeros((4, 3))
    np.add.at(want, into, dense[rows])
    assert_array_equal(sparse.gather(rows, into, 4).dense(np.arange(4)), want)


def test_invalid_input():
    good = ["a", "b"], np.eye(2)
    with pytest.raises(ShapeError, match=r"counts must have shape \(n_words=2, S\), got \(3, 2\)"):
        SuffixModel.fit(["a", "b"], np.ones((3, 2)))
    with pytest.raises(ValueRangeError, match="words must be distinct"):
        SuffixModel.fit(["a", "a"], np.eye(2))
    with pytest.raises(ValueRangeError, match="finite and not negative"):
        Lexicon.fit(["a", "b"], -np.eye(2))
    with pytest.raises(ValueRangeError, match="nothing to learn from"):
        Lexicon.fit(["a", "b"], np.zeros((2, 2)))
    with pytest.raises(ValueRangeError, match="max_length must be a whole number"):
        SuffixModel.fit(*good, max_length=-1)
    with pytest.raises(ValueRangeError, match="weight must be positive"):
        SuffixModel.fit(*good, weight=0)
    with pytest.raises(ValueRangeError, match="word_weight must be a number of tokens"):
        Lexicon.fit(*good, word_weight=-1)
    with pytest.raises(ValueRangeError, match="least must be at least 0"):
        Lexicon.fit(*good, least=1)
    with pytest.raises(ShapeError, match=r"initial must have shape \(1,\)"):
        Lexicon.fit(*good).log_emission(["a"], np.array([True, False]))


@pytest.mark.parametrize("max_length", [-1, 2**63, 1.5, "3"])
def test_absurd_lengths_of_suffixes_are_refused(max_length):
    with pytest.raises(ValueRangeError, match="max_length must be a whole number"):
        SuffixModel.fit(["ab"], np.ones((1, 2)), max_length=max_length, max_count=4, weight="tnt")
