"""The compiled reader of ready attributes against `named`, which reads one token in Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trelliswork.errors import DataError
from trelliswork.features.ready import CHUNK, Items, Names, ReadyExtractor, named

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.text('"\\/:,{}[]\n\t\x01\x7f', max_size=6)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats(-1e30, 1e30) | st.booleans()
VALUES = st.recursive(
    TEXT | NUMBERS | st.binary(max_size=3) | NUMBERS.map(np.float64) | st.lists(TEXT, max_size=3) | st.sets(TEXT),
    lambda inner: st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
TOKENS = st.lists(TEXT | st.binary(max_size=3), max_size=4) | st.dictionaries(TEXT, VALUES, max_size=4)


@given(st.lists(st.lists(TOKENS, max_size=3), max_size=4), st.booleans())
def test_attributes_are_those_of_each_token(sentences, zeros):
    kind = Items if zeros else list
    names = Names()
    rows = names.read([kind(sentence) for sentence in sentences], learn=True)
    expected = [named(token, zeros=zeros) for sentence in sentences for token in sentence]
    listed, values = names.listed(), rows.values
    assert len(set(listed)) == len(listed) == len(names)
    for t, pairs in enumerate(expected):
        own = slice(rows.token_ptr[t], rows.token_ptr[t + 1])
        assert [listed[k] for k in rows.ids[own]] == [name for name, _ in pairs]
        np.testing.assert_array_equal(values[own], np.array([value for _, value in pairs], np.float32))


def test_more_sentences_than_are_read_at_a_time():
    sentences = [[[f"w{n}", f"{n % 7}" * (n % 50)], {"n": n}] for n in range(3 * CHUNK + 1)]
    extractor = ReadyExtractor()
    attributes = extractor.fit(sentences)
    names = extractor.names()
    found = [names[k] for k in attributes.ids]
    assert found == [name for sentence in sentences for token in sentence for name in token]
    assert attributes.values.tolist() == [v for n in range(len(sentences)) for v in (1, 1, n)]
    with pytest.raises(DataError, match=rf"sentence {CHUNK + 3}, token 1: .*finite number"):
        extractor.transform([*sentences[: CHUNK + 3], [["a"], {"a": None}]])


def test_keys_of_bytes_and_tuples_of_names():
    extractor = ReadyExtractor()
    extractor.fit([[{b"k": {b"inner": 2}}, ("a", b"b")]])
    assert extractor.names() == ["k:inner", "a", "b"]


def test_names_nested_too_deep_and_in_a_circle():
    deep = {"a": 1.0}
    for _ in range(100):
        deep = {"n": deep}
    circle = {}
    circle["again"] = circle
    for token in (deep, circle):
        with pytest.raises((DataError, RecursionError)):
            ReadyExtractor().fit([[token]])
