"""Tags of words by suffix and count: the formulas by definition, and saving."""

import json
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from trelliswork.models.hmm import suffixes
from trelliswork.models.hmm.suffixes import Lexicon, SuffixModel, shape_class

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


def slow_probabilities(words, counts, word, longest, rarest, weight):
    """Successive abstraction for one word, from its definition."""
    prior = counts.sum(axis=0) / counts.sum()
    rare = [i for i, n in enumerate(counts.sum(axis=1)) if 0 < n <= rarest]
    tests = [lambda w: True, lambda w: shape_class(w) == shape_class(word)]
    for m in range(1, min(longest, len(word)) + 1):
        suffix = word.lower()[-m:]
        tests.append(lambda w, suffix=suffix: shape_class(w) == shape_class(word) and w.lower().endswith(suffix))
    p = prior
    for test in tests:
        seen = sum((counts[i] for i in rare if test(words[i])), np.zeros(len(prior)))
        n = seen.sum()
        if not n:
            break
        p = (seen / n + weight / n * p) / (1 + weight / n)
    return p


@given(vocabularies(), st.lists(WORDS, min_size=1, max_size=5), st.sampled_from([0.5, 8.0]), st.integers(0, 4))
def test_successive_abstraction_equals_its_definition(case, unknown, weight, longest):
    words, counts = case
    with patch.multiple(suffixes, LONGEST=longest, RARE=4, SUFFIX_WEIGHT=weight):
        model = SuffixModel(words, csr_array(counts))
        p, log_emission = model.probabilities(unknown), model.log_emission(unknown)
    assert_allclose(p.sum(axis=1), 1)
    for row, word in zip(p, unknown, strict=True):
        assert_allclose(row, slow_probabilities(words, counts, word, longest, 4, weight), rtol=1e-10, atol=1e-15)
    with np.errstate(divide="ignore", invalid="ignore"):
        want = np.log(p) - np.log(counts.sum(axis=0))  # p(t | w) (1 / N) / (n(t) / N)
    assert_allclose(log_emission, np.where(counts.sum(axis=0) > 0, want, -np.inf), atol=1e-12)


def test_suffixes_of_frequent_words_do_not_count():
    words, counts = ["the", "lithe", "bathe"], csr_array([[50, 0, 0], [0, 3, 0], [0, 0, 3]])
    with patch.object(suffixes, "SUFFIX_WEIGHT", 0.01):
        p = SuffixModel(words, counts).probabilities(["scathe"])[0]
    assert p[2] > 0.99  # -athe
    assert p[0] < 1e-6
    alone = SuffixModel(words[:1], counts[:1]).probabilities(["scathe"])[0]
    assert_allclose(alone, [1, 0, 0])  # no rare word: the distribution of all tags


def test_shapes_separate_suffixes():
    with patch.object(suffixes, "SUFFIX_WEIGHT", 1.0):
        p = SuffixModel(["Barking", "parking"], csr_array([[5, 0], [0, 5]])).probabilities(
            ["Harking", "harking", "HARKING"]
        )
    assert p[0, 0] > 0.95
    assert p[1, 1] > 0.95
    assert_allclose(p[2], 0.5)  # an unseen shape: all rare words


@given(vocabularies(), st.lists(WORDS, min_size=1, max_size=8))
def test_words_mix_counts_and_suffixes(case, text):
    words, counts = case
    initial = np.arange(len(text)) % 2 == 0
    with patch.multiple(suffixes, WORD_WEIGHT=2.0, INITIAL_WEIGHT=3.0, LEAST=0):
        lexicon = Lexicon(words, csr_array(counts))
        p, log_emission = lexicon.suffixes.probabilities(text), lexicon.log_emission(text, initial)
    n_tag = counts.sum(axis=0)
    for i, word in enumerate(text):
        q = p[i]
        if initial[i] and word != word.lower():
            any_case = sum((c for w, c in zip(words, counts, strict=True) if w.lower() == word.lower()), 0 * n_tag)
            q = (any_case + 3 * q) / (any_case.sum() + 3)
        own = counts[words.index(word)] if word in words else 0 * n_tag
        q = (own + 2 * q) / (own.sum() + 2)
        got = np.exp(log_emission[i])
        assert_allclose(got[n_tag > 0], (q * max(own.sum(), 1) / np.maximum(n_tag, 1))[n_tag > 0], rtol=1e-10)
        assert (got[n_tag == 0] == 0).all()


def test_improbable_tags_are_impossible():
    words, counts, results = ["a", "b"], csr_array([[999, 1], [1, 999]]), []
    for least in (0.01, 0):
        with patch.object(suffixes, "LEAST", least):
            results.append(Lexicon(words, counts).log_emission(["a", "b", "c"]))
    few, every = results
    assert_array_equal(np.isneginf(few), [[False, True], [True, False], [False, False]])
    assert np.isfinite(every).all()
    assert_array_equal(few[~np.isneginf(few)], every[~np.isneginf(few)])


@given(vocabularies(), st.lists(WORDS, min_size=1, max_size=5))
def test_a_loaded_model_equals_the_saved_one(case, text):
    for kind in (SuffixModel, Lexicon):
        model = kind(case[0], csr_array(case[1]))
        plain, arrays = model.state()
        again = kind.from_state(json.loads(json.dumps(plain)), {name: array.copy() for name, array in arrays.items()})
        assert_array_equal(again.log_emission(text), model.log_emission(text))
        assert json.dumps(again.state()[0]) == json.dumps(plain)
    assert model.words == case[0]
