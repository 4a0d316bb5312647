"""B templates with columns: attributes of pairs of adjacent labels."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.features.test_extraction import corpora, expand, same, spelled, templates
from tests.features.test_hashed import relabeled
from trelliswork.data import Corpus
from trelliswork.errors import DataError
from trelliswork.features import Template, parse_templates
from trelliswork.features.feature_map import FeatureMap

WORDS = [["the", "dog", "barks"], ["yes"], ["a", "dog"]]


def expand_edges(chosen, columns, offsets):
    """The strings of each token but the first of its sentence, as CRF++ would write them."""
    attributes = expand(chosen, columns, offsets)
    for start in offsets[:-1]:
        attributes[start] = []
    return attributes


@st.composite
def problems(draw):
    """U templates, B templates with macros, and two corpora."""
    n_columns = draw(st.integers(1, 3))
    nodes = draw(templates(n_columns))
    pairs = [
        replace(t, name=f"B{k}", pieces=(f"B{k}:", *t.pieces[1:]))
        for k, t in enumerate(draw(templates(n_columns)))
        if t.macros
    ]
    return nodes, pairs, draw(corpora(n_columns)), draw(corpora(n_columns, "abcdefé"))


def as_corpus(problem_corpus):
    columns, offsets = problem_corpus
    return Corpus([list(column) for column in columns], offsets)


def test_edges_computed_by_hand():
    features = FeatureMap("U00:%x[0,0]\nB02:%x[0,0]/%x[-1,0]\nB03:%x[1,0]/%x[-2,0]")
    attributes = features.fit(WORDS)
    assert attributes.edges is not None
    assert spelled(attributes, features.names()) == [[f"U00:{word}"] for sentence in WORDS for word in sentence]
    assert spelled(attributes.edges, features.edge_names()) == [
        [],
        ["B02:dog/the", "B03:barks/_B-1"],
        ["B02:barks/dog", "B03:_B+1/the"],
        [],
        [],
        ["B02:dog/a", "B03:_B+1/_B-1"],
    ]
    assert features.n_edge_attributes == attributes.edges.n_attributes == 6
    assert attributes.edges.edges is None
    assert attributes.edges.values is None
    assert_array_equal(attributes.edges.offsets, attributes.offsets, strict=True)


@given(problems(), st.integers(1, 3))
def test_edges_equal_naive_expansion(problem, min_count):
    nodes, pairs, corpus, new = problem
    features = FeatureMap([*pairs, *nodes], min_count=min_count)
    attributes = features.fit(as_corpus(corpus))
    same(replace(attributes, edges=None), FeatureMap(nodes, min_count=min_count).fit(as_corpus(corpus)))
    if not pairs:
        assert attributes.edges is None
        assert (features.n_edge_attributes, features.edge_names()) == (0, [])
        return
    expected = expand_edges(pairs, *corpus)
    counts = Counter(string for token in expected for string in token)
    names = features.edge_names()
    assert sorted(names) == sorted(string for string, n in counts.items() if n >= min_count)
    assert attributes.edges is not None
    assert spelled(attributes.edges, names) == [[s for s in token if s in set(names)] for token in expected]
    assert attributes.edges.n_attributes == features.n_edge_attributes == len(names)
    other = features.transform(as_corpus(new)).edges
    assert other is not None
    assert spelled(other, names) == [[s for s in token if s in set(names)] for token in expand_edges(pairs, *new)]


@given(problems())
def test_state_survives_json(problem):
    nodes, pairs, corpus, new = problem
    features = FeatureMap([*nodes, *pairs])
    features.fit(as_corpus(corpus))
    plain, arrays = features.state()
    again = FeatureMap.from_state(json.loads(json.dumps(plain)), {k: v.copy() for k, v in arrays.items()})
    assert again.names() == features.names()
    assert again.edge_names() == features.edge_names()
    assert again.features == features.features == [*nodes, *pairs]
    for each in (corpus, new):
        before, after = features.transform(as_corpus(each)), again.transform(as_corpus(each))
        same(before, after)
        assert (before.edges is None) == (after.edges is None) == (not pairs)
        if before.edges is not None:
            same(before.edges, after.edges)


@given(problems())
def test_thirty_bits_relabel_the_stored_edges(problem):
    nodes, pairs, corpus, _ = problem
    hashed, stored = (FeatureMap([*nodes, *pairs], hash_bits=b).fit(as_corpus(corpus)) for b in (30, None))
    relabeled(hashed, stored)
    assert (hashed.edges is None) == (stored.edges is None)
    if hashed.edges is not None:
        relabeled(hashed.edges, stored.edges)
        assert hashed.edges.n_attributes == 2**30


@pytest.mark.parametrize("hash_bits", [None, 20])
@pytest.mark.parametrize("text", ["U:%x[0,0]\nB", "U:%x[0,0]\nB01", "U:%x[0,0]\n"])
def test_a_plain_b_makes_no_attribute(text, hash_bits):
    features = FeatureMap(text, hash_bits=hash_bits)
    assert features.fit(WORDS).edges is None
    assert features.transform([]).edges is None
    assert features.n_edge_attributes == 0
    assert features.features == parse_templates("U:%x[0,0]")


def test_a_plain_b_with_another_template():
    features = FeatureMap("U:%x[0,0]\nB\nB1:%x[0,0]")
    features.fit(WORDS)
    assert features.edge_names() == ["B1:dog", "B1:barks"]


def test_only_edges():
    features = FeatureMap("B1:%x[0,0]")
    attributes = features.fit(WORDS)
    assert (attributes.n_attributes, len(attributes.ids), attributes.n_tokens) == (0, 0, 6)
    assert features.names() == []
    assert features.known_words() == {"the", "dog", "barks", "yes", "a"}
    assert attributes.edges is not None
    assert spelled(attributes.edges, features.edge_names()) == [[], ["B1:dog"], ["B1:barks"], [], [], ["B1:dog"]]


def test_first_and_last_of_edges():
    chosen = [
        Template("B1", ("B1:", ""), ((0, 0),), where="first"),  # no pair ends there
        Template("B2", ("B2:", ""), ((0, 0),), where="last"),
        Template("B3", ("B3:", ""), ((1, 0),), skip_outside=True),
    ]
    features = FeatureMap(chosen)
    attributes = features.fit(WORDS).edges
    assert attributes is not None
    assert spelled(attributes, features.edge_names()) == [[], ["B3:barks"], ["B2:barks"], [], [], ["B2:dog"]]


def test_no_sentences_have_no_edges():
    features = FeatureMap("U:%x[0,0]\nB1:%x[0,0]")
    features.fit(WORDS)
    attributes = features.transform([]).edges
    assert attributes is not None
    assert (len(attributes), attributes.n_tokens, attributes.n_attributes) == (0, 0, 2)


def test_ready_attributes_have_no_edges():
    for features in (FeatureMap(None), FeatureMap(lambda sentence, t: [sentence[t]])):
        attributes = features.fit([[["a"], ["b"]]] if features.function is None else WORDS)
        assert attributes.edges is None
        assert (features.n_edge_attributes, features.edge_names()) == (0, [])


def test_missing_column_raises():
    with pytest.raises(DataError, match=r"B7:%x\[0,1\].*column 1.*has 1"):
        FeatureMap("U:%x[0,0]\nB7:%x[0,1]").fit(WORDS)


def test_a_sentence_of_one_token_has_no_edge():
    attributes = FeatureMap("U:%x[0,0]\nB1:%x[0,0]").fit([["a"], ["b"]]).edges
    assert attributes is not None
    assert attributes.token_ptr.tolist() == [0, 0, 0]
    assert attributes.ids.dtype == np.int32
