"""Log evidence against the enumeration of all paths, and probabilities of all sentences that sum to 1."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.models.hmm.cases import (
    IDS,
    LEXICONS,
    NEW,
    TABLES,
    TAGS,
    WORDS,
    accuracies,
    corpus,
    enumerate_paths,
    lexicon_oracle,
    model,
    sentences,
    table_oracle,
    table_parameters,
    tiny,
)
from trelliswork import HMM


@pytest.mark.parametrize("name", TABLES)
def test_evidence_equals_enumeration(name):
    hmm = model(name)
    score, xs = table_oracle(hmm), sentences(hmm)
    want = [enumerate_paths(score, x, len(hmm.labels_))[2] for x in xs]
    assert_allclose(hmm.log_prob(xs), want, rtol=1e-9)
    assert_allclose([hmm.posterior(x).log_partition().item() for x in xs], want, rtol=1e-9)
    n_scored = sum(len(x) + hmm.end for x in xs)
    assert hmm.score(xs) == pytest.approx(sum(want) / n_scored, rel=1e-9)
    assert hmm.perplexity(xs) == pytest.approx(np.exp(-sum(want) / n_scored), rel=1e-9)


@pytest.mark.parametrize("name", LEXICONS)
def test_evidence_of_taggers_equals_enumeration(name):
    """Up to one factor for all sentences: the lexicon does not define whether an empty sentence is an event."""
    hmm = model(name)
    score = lexicon_oracle(hmm)
    want = np.array([enumerate_paths(score, x, len(hmm.labels_))[2] for x in [*WORDS, *NEW]])
    got = hmm.log_prob([*WORDS, *NEW])
    assert_allclose(got - want, (got - want)[0], atol=1e-9)
    assert 0 <= (got - want)[0] + 1e-9 < 0.5
    assert_allclose([hmm.posterior(x).log_partition().item() for x in [*WORDS, *NEW]], got, rtol=1e-9)


@pytest.mark.parametrize("options", [{}, {"emission_prior": 1.0, "transition_prior": 0.5}])
def test_all_sentences_sum_to_one(options):
    """The probability that is missing up to length L is p(longer than L) = start A^L 1."""
    hmm = tiny(unknown="symbol", **options)
    log_start, log_transition, _, _, words = table_parameters(hmm)
    assert sorted(words) == ["<unk>", "a", "b"]
    rest, total, missing = np.exp(log_start), 0.0, []
    assert rest.sum() == pytest.approx(1)
    for length in range(1, 7):
        total += np.exp(hmm.log_prob([list(x) for x in product(["a", "b", "other"], repeat=length)])).sum()
        rest = rest @ np.exp(log_transition)
        assert total == pytest.approx(1 - rest.sum(), abs=1e-10)
        missing.append(1 - total)
    assert missing == sorted(missing, reverse=True)
    assert 0 <= missing[-1] < 0.03


@pytest.mark.parametrize("fit", [lambda: tiny(unknown="symbol", end=False), lambda: HMM(2, end=False).fit(IDS)])
def test_without_end_each_length_sums_to_one(fit):
    hmm = fit()
    symbols = ["a", "b", "other"] if "a" in hmm.known_words() else range(6)
    for length in (1, 2, 3):
        xs = [list(x) for x in product(symbols, repeat=length)]
        assert np.exp(hmm.log_prob(xs)).sum() == pytest.approx(1, abs=1e-10)


def test_rare_words_share_the_unknown_symbol():
    hmm = model("unlabeled, rare words")
    assert hmm.log_prob([["man"]]) == hmm.log_prob([["barks"]]) == hmm.log_prob([["never"]])
    assert hmm.known_words() == {"the", "a", "dog", "cat", "sees"}
    assert set(hmm.vocabulary_) == hmm.known_words() | {"<unk>"}


def test_the_unknown_symbol_may_occur_in_the_text():
    marked = [["<unk>" if word in ("man", "barks") else word for word in x] for x in WORDS]
    hmm = HMM(2, unknown="symbol").fit(marked)
    assert hmm.known_words() == {word for x in marked for word in x} - {"<unk>"}
    assert list(hmm.vocabulary_)[-1] == "<unk>"
    assert hmm.log_prob([["<unk>"]]) == hmm.log_prob([["never"]])
    streamed = HMM(2, unknown="symbol").partial_fit(marked, words={"dog": 2, "<unk>": 3})
    for other in (HMM(2).fit(marked), streamed):
        assert np.isfinite(other.log_prob([["<unk>", "never", "dog"]])).all()


def test_unknown_words_are_scored_by_suffixes():
    hmm = model("unlabeled, rare words by suffixes")
    for other in (hmm, model("unlabeled"), model("half")):
        assert np.isfinite(other.log_prob(NEW)).all()
        assert_allclose([other.posterior(x).log_partition().item() for x in NEW], other.log_prob(NEW), rtol=1e-9)
    X, y = corpus("train", 300)
    labeled = [tags if n % 10 else [None, *tags[1:]] for n, tags in enumerate(y)]
    suffix, symbol = (accuracies(HMM(unknown=u).fit(X, labeled))[1] for u in ("suffix", "symbol"))
    assert suffix > symbol + 0.1


@pytest.mark.parametrize("order", [1, 2])
def test_taggers_without_an_end_event(order):
    hmm = HMM(order=order, end=False).fit(WORDS, TAGS)
    assert "</s>" not in dict(hmm.predict_next(["the"], 100))
    assert_allclose(hmm.transitions().sum(1), 1)
