"""Scores of one sentence and of many, as strings and as lists: the same bits, and the sums of those of next words."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from trelliswork.compute import threads
from trelliswork.data import Lines
from trelliswork.errors import DataError, NotFittedError, TrellisworkError
from trelliswork.integrations.convert.arpa import read_arpa, write_arpa
from trelliswork.models import KneserNey, LogBilinear
from trelliswork.models.baselines import compact
from trelliswork.models.baselines.base import LeftToRight


def sentences(n, seed=0, n_words=400):
    rng = np.random.default_rng(seed)
    return [[f"w{min(int(z), n_words)}" for z in rng.zipf(1.2, rng.integers(0, 14))] for _ in range(n)]


NEW = [*sentences(40, seed=1, n_words=500), ["w1", "w2"] * 80, ["w3"], []]


@pytest.fixture(scope="module")
def model():
    return KneserNey(4).fit(sentences(600))


def check(model):
    """Compare all ways to score with that by ids, and this with the distributions of next words."""
    expected = model.log_prob(NEW)
    assert_allclose(expected, LeftToRight.log_prob(model, NEW), rtol=1e-14)
    strings = [" ".join(sentence) for sentence in NEW]
    for source in (Lines(strings), tuple(map(tuple, NEW)), Lines([f"\t{line} \x1f" for line in strings])):
        assert_array_equal(model.log_prob(source), expected)
    for sentence, line, log_p in zip(NEW, strings, expected, strict=True):
        for text in (f"  {line}  ", line.replace(" ", "\t")):
            assert model.log_prob(Lines([text])) == log_p
        assert model.log_prob([sentence]) == model.log_prob(Lines([line])) == log_p
    for sentence in NEW[:15]:
        ids = [*model._words.ids(sentence), 0]
        p = [model.next_distribution(sentence[:t])[i] for t, i in enumerate(ids)]
        assert_allclose(model.token_log_probs(sentence), np.log(p), rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 4, 9])
def test_all_ways_agree(order):
    check(KneserNey(order).fit(sentences(600)))


def test_all_ways_agree_with_an_arpa_file_and_wide_words(tmp_path, monkeypatch, model):
    monkeypatch.setattr(compact, "_width", lambda C: np.uint32)
    check(KneserNey(3).fit(sentences(600)))
    write_arpa(model, tmp_path / "a.arpa")
    check(read_arpa(tmp_path / "a.arpa"))


def test_long_texts_are_scored_in_blocks(model):
    whole = [word for sentence in sentences(900, seed=3) for word in sentence]
    assert len(whole) > 3000
    ids = [*model._words.ids(whole[:1500]), 0]
    p = [model.next_distribution(whole[t - 3 : t])[ids[t]] for t in (1022, 1023, 1024, 1025)]
    assert_allclose(model.token_log_probs(whole)[1022:1026], np.log(p), rtol=1e-12)
    assert model.log_prob([whole])[0] == model.log_prob([[], whole])[1]
    assert_allclose(model.log_prob([whole])[0], LeftToRight.log_prob(model, [whole])[0], rtol=1e-14)


def test_scores_do_not_depend_on_the_number_of_threads(model):
    many = sentences(6000, seed=5)
    before = threads.get_num_threads()
    try:
        found = []
        for n in (1, 2):
            threads.set_num_threads(n)
            found.append([model.log_prob(many), model.log_prob(Lines([" ".join(s) for s in many]))])
    finally:
        threads.set_num_threads(before)
    assert_array_equal(found, np.broadcast_to(found[0][0], np.shape(found)))


@pytest.mark.parametrize(
    "words", [["w1", ""], [""], ["a\x1fb", ""], ["w1 w2"], ["a\x1fb" * 9], ["w1\n", "w2"], ["\0"], ["", "", ""]]
)
def test_separators_within_words_are_not_separators(model, words):
    expected = LeftToRight.log_prob(model, [words, ["w1"]])
    assert_allclose(model.log_prob([words, ["w1"]]), expected, rtol=1e-14)
    assert_allclose(model.log_prob([words])[0], expected[0], rtol=1e-14)
    assert len(model.token_log_probs(words)) == len(words) + 1


@pytest.mark.parametrize("sentence", ["a <s>", "</s>", "a\nb", "a\0b", "\ud800", ["<s>"], ["</s>"], [1], ["a", None]])
def test_what_is_no_sentence_is_an_error(model, sentence):
    source = Lines([sentence]) if isinstance(sentence, str) else [sentence]
    for call in (lambda: model.token_log_probs(sentence), lambda: model.log_prob(source)):
        with pytest.raises(TrellisworkError, match="sentence 0"):
            call()


def test_unlisted_words_of_a_strict_model_are_errors():
    model = KneserNey(2, unknown="error").fit([["a", "b"], ["b"]])
    with pytest.raises(DataError, match="not in the vocabulary"):
        model.log_prob([["a", "c"]])
    with pytest.raises(NotFittedError):
        KneserNey(2).log_prob([["a"]])


def test_words_with_white_space_in_the_vocabulary():
    model = KneserNey(2).fit([["a b", "c"], ["c", "a b"]])
    assert (
        model.log_prob([["c", "a b"]]) == LeftToRight.log_prob(model, [["c", "a b"]]) > model.log_prob(Lines(["c a b"]))
    )


def test_other_models_score_one_sentence():
    model = LogBilinear(2, rank=3, max_iter=2, batch_size=4).fit([["a", "b"], ["b", "a", "a"]])
    assert model.log_prob(Lines(["a b"])) == model.log_prob([["a", "b"]])


def test_very_rare_words_do_not_underflow(tmp_path):
    """Products of probabilities become logarithms before they underflow."""
    file = tmp_path / "a.arpa"
    words = [(-99.0, "<s>"), (-0.5, "</s>"), (-98.0, "never"), (-40.0, "rare"), (-0.3, "a")]
    lines = ["\\data\\", f"ngram 1={len(words)}", "", "\\1-grams:", *(f"{p}\t{w}" for p, w in words), "", "\\end\\"]
    file.write_text("\n".join(lines) + "\n")
    model = read_arpa(file)
    for sentence in ("never", "rare rare rare rare a", "a never a never rare", "a " * 2000):
        scores = {w: p for p, w in words}
        expected = sum(scores[word] for word in [*sentence.split(), "</s>"]) * np.log(10)
        assert_allclose(model.log_prob(Lines([sentence])), expected, rtol=1e-12)
        assert_allclose(model.token_log_probs(sentence).sum(), expected, rtol=1e-12)
