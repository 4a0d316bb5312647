"""Vocabularies: order, unknown strings, stand-ins, errors."""

import pytest

from trelliswork.data.vocabulary import UNKNOWN, Vocabulary, word_shape
from trelliswork.errors import DataError


def test_most_frequent_first_and_ties_by_appearance():
    words = Vocabulary.from_sequences([["b", "a", "c"], ["a", "c", "a"]])
    assert words.items == ["a", "c", "b"]
    assert words.ids(["c", "a"]) == [1, 0]
    assert words.strings([2, 0]) == ["b", "a"]
    assert "b" in words
    assert "d" not in words
    assert list(words) == words.items


def test_rare_words_are_replaced_by_stand_ins():
    words = Vocabulary.from_sequences([["run", "run", "walking", "1987"]], min_count=2, unknown=word_shape)
    assert words.items == ["run", "<ing>", "<number>", "<unk>"]
    assert words.strings(words.ids(["run", "swimming", "12", "blue", "Zanzibar"])) == [
        "run", "<ing>", "<number>", "<unk>", "<unk>",
    ]  # fmt: skip


def test_min_count_without_stand_ins_drops():
    assert Vocabulary.from_sequences([["a", "a", "b"]], min_count=2).items == ["a"]


def test_unlisted_strings_are_the_unknown_string():
    words = Vocabulary.from_sequences([["run", "run", "walk", "sit"]], min_count=2, unknown=UNKNOWN)
    assert words.items == ["run", UNKNOWN]
    assert words.ids(["walk", "run", "fly"]) == [1, 0, 1]
    assert words.unknown_word == UNKNOWN
    assert Vocabulary(["run"]).unknown_word is None
    assert Vocabulary(["run"], unknown=UNKNOWN).items == ["run", UNKNOWN]


def test_restored_vocabularies_know_their_unknown_word():
    words = Vocabulary.restored(["a", "<unk>"], "<unk>")
    assert (words.items, words.id("new")) == (["a", "<unk>"], 1)
    assert Vocabulary.restored(["a", "b"], None).unknown_word is None


@pytest.mark.parametrize("items", [["a", 1], ["a", None], "ab", {"a": 1}, 3, None, ["\ud800"], [["a"]]])
def test_what_is_not_a_list_of_strings_is_not_restored(items):
    with pytest.raises(DataError, match="expected a list of strings"):
        Vocabulary.restored(items, None)


def test_errors_name_the_string():
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
