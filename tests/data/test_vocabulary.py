"""Strings to ids: order, stand-ins, errors."""

import pytest

from trelliswork.data.vocabulary import Vocabulary, word_shape


def test_most_frequent_first_and_ties_by_appearance():
    words = Vocabulary.from_sequences([["b", "a", "c"], ["a", "c", "a"]])
    assert words.items == ["a", "c", "b"]
    assert words.ids(["c", "a"]) == [1, 0]
    assert words.strings([2, 0]) == ["b", "a"]
    assert "b" in words
    assert "d" not in words
    assert list(words) == words.items


def test_rare_words_teach_what_unknown_ones_are_like():
    words = Vocabulary.from_sequences([["run", "run", "walking", "1987"]], min_count=2, unknown=word_shape)
    assert words.items == ["run", "<ing>", "<number>", "<unk>"]
    assert words.strings(words.ids(["run", "swimming", "12", "blue", "Zanzibar"])) == [
        "run", "<ing>", "<number>", "<unk>", "<unk>",
    ]  # fmt: skip


def test_min_count_without_stand_ins_drops():
    assert Vocabulary.from_sequences([["a", "a", "b"]], min_count=2).items == ["a"]


def test_errors_say_what_was_wanted():
    with pytest.raises(KeyError, match="'XX' is not among the 2 listed strings"):
        Vocabulary(["DT", "NN"]).id("XX")
    with pytest.raises(ValueError, match="got 'DT' twice"):
        Vocabulary(["DT", "NN", "DT"])


@pytest.mark.parametrize(
    ("word", "shape"),
    [("3.5", "<number>"), ("Bob", "<capital>"), ("kindness", "<ness>"), ("well-known", "<->"), ("xyz", "<word>")],
)
def test_word_shape(word, shape):
    assert word_shape(word) == shape
