"""Sentences as strings: the same ids as from lists of words, with a vocabulary or without, and the same errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from trelliswork.data import Lines, Vocabulary
from trelliswork.data import ids as ids_module
from trelliswork.data.ids import read_ids, read_sentences
from trelliswork.errors import DataError, ValueRangeError

WHITE = [" ", "  ", "\t", "\r", "\x1f"]
words = st.text("abäß\u00a0\u3000", min_size=1, max_size=3)
lines = st.lists(st.lists(st.tuples(st.sampled_from(WHITE), words), max_size=5), max_size=8)


@settings(max_examples=60, deadline=None)
@given(lines, lines, st.booleans())
def test_lines_equal_lists_of_words(train, new, keep_empty):
    options = {"keep_empty": keep_empty}
    text = [["a", "b"]] + [[word for _, word in line] for line in train]
    joined = ["a b"] + ["".join(white + word for white, word in line) for line in train]
    expected, found = (read_ids(source, unknown="symbol", **options) for source in (text, Lines(joined)))
    assert found.vocabulary.items == expected.vocabulary.items
    assert_array_equal(found.ids, expected.ids)
    assert_array_equal(found.offsets, expected.offsets)
    lists = [[word for _, word in line] for line in new]
    strings = ["".join(white + word for white, word in line) + " " for line in new]
    a, b = (read_ids(source, vocabulary=expected.vocabulary, **options) for source in (lists, Lines(strings)))
    assert_array_equal(a.ids, b.ids)
    assert_array_equal(a.offsets, b.offsets)


def test_blocks_and_many_unknown_words(monkeypatch):
    monkeypatch.setattr(ids_module, "TOKENS", 7)
    strings = [f"w{k} x w{k % 3} {'' if k % 5 else 'y' * k}" for k in range(3000)] + [""]
    vocabulary = read_ids([["x", "w1", "<unk>"]]).vocabulary
    a, b = (
        read_ids(source, vocabulary=vocabulary, keep_empty=True)
        for source in (Lines(strings), [line.split() for line in strings])
    )
    assert_array_equal(a.ids, b.ids)
    assert_array_equal(a.offsets, b.offsets)
    assert read_sentences(Lines(["a b", ""])) == [["a", "b"], []]


def test_a_vocabulary_with_white_space_has_no_index():
    vocabulary = Vocabulary(["<s>", "New York", "a", "<unk>"], unknown="<unk>")
    assert_array_equal(read_ids(Lines(["New a York"]), vocabulary=vocabulary).ids, np.array([3, 2, 3]))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["a", "a <s>"], "sentence 1, token 1: <s> marks"),
        (["a", "a a new"], "sentence 1, token 2: 'new' is not in the vocabulary"),
        (["a", "a\na"], "sentence 1: expected a line of text"),
        (["a\0"], "sentence 0: expected a line of text"),
        (["a", None], "sentence 1: expected a line of text"),
        (["a", "\ud800"], "sentence 1, token 0: expected a word of Unicode text"),
    ],
)
def test_errors_name_the_sentence(source, message):
    vocabulary = read_ids([["a"]]).vocabulary
    with pytest.raises(DataError, match=message):
        read_ids(Lines(source), vocabulary=vocabulary)


def test_one_string_is_an_error():
    with pytest.raises(ValueRangeError, match="list of strings"):
        Lines("a b")
