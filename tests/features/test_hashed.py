"""Hashed attributes: fixed ids, and a relabeling of stored attributes if nothing collides."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.features.test_extraction import expand, problems, same
from trelliswork.data import AttributeCorpus, Corpus
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.features import Template, TemplateExtractor, parse_templates
from trelliswork.features.feature_map import FeatureMap
from trelliswork.features.hashed import HashedTemplateExtractor, hash_string
from trelliswork.features.presets import PRESETS

WORDS = [["The", "dog", "barks"], ["A", "dog"], ["Yes"], ["The", "Dogs", "of", "1996", "bark", "."]]
TAGGED = [[(word, word[-1]) for word in sentence] for sentence in WORDS]
READY = [[{"w": "dog", "size": 0.25, "big": True, "small": False}, ["a", "b"]], [{"size": 2, "a": 1}, []]]


def relabeled(hashed, stored):
    """Check that rows are the same and ids correspond one to one."""
    assert_array_equal(hashed.offsets, stored.offsets, strict=True)
    assert_array_equal(hashed.token_ptr, stored.token_ptr, strict=True)
    assert hashed.ids.dtype == np.int32
    pairs = set(zip(hashed.ids.tolist(), stored.ids.tolist(), strict=True))
    assert len(pairs) == len({h for h, _ in pairs}) == len({r for _, r in pairs})


def mixed(key, value):
    """Compute eq. 2 with Python integers."""
    key ^= value
    key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    key = (key ^ (key >> 27)) * 0x94D049BB133111EB % 2**64
    return key ^ (key >> 31)


def expected_id(template, values, bits):
    """Return the id of a template with these strings; those in a tuple are beyond the sentence."""
    key = hash_string(
        json.dumps([template.pieces, template.macros, template.skip_outside, template.where]), b"template"
    )
    for value in values:
        key = mixed(key, hash_string(value[0], b"outside") if isinstance(value, tuple) else hash_string(value))
    return key >> (64 - bits)


@given(problems())
def test_thirty_bits_relabel_the_stored_attributes(problem):
    chosen, (columns, offsets), (new, new_offsets) = problem
    hashed = HashedTemplateExtractor(chosen, 30)
    relabeled(hashed.fit(columns, offsets), TemplateExtractor(chosen).fit(columns, offsets))
    # strings that training did not have get ids as well
    relabeled(hashed.transform(new, new_offsets), TemplateExtractor(chosen).fit(new, new_offsets))


@given(problems(), st.integers(1, 8))
def test_fewer_bits_are_the_upper_bits(problem, bits):
    chosen, (columns, offsets), _ = problem
    attributes = HashedTemplateExtractor(chosen, bits).transform(columns, offsets)
    many = HashedTemplateExtractor(chosen, 30).transform(columns, offsets)
    assert_array_equal(attributes.ids, many.ids >> (30 - bits))  # colliding attributes are all kept
    assert attributes.n_attributes == 2**bits
    assert attributes.values is None


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    hashed = FeatureMap(name, hash_bits=30)
    attributes = hashed.fit(TAGGED)
    relabeled(attributes, FeatureMap(name).fit(TAGGED))
    assert attributes.n_attributes == hashed.n_attributes == 2**30
    assert attributes.edges is None
    same(attributes, hashed.transform(Corpus.from_sentences(TAGGED)))


def test_ids_of_templates_follow_equation_2():
    texts = "U00:%x[0,0]\nU01:%x[-1,0]/%x[0,1]\nU02:%x[2,1]\nU03\nB01:%x[-2,0]/%x[0,0]"
    u0, u1, u2, u3, b1 = chosen = parse_templates(texts)
    attributes = FeatureMap(chosen, hash_bits=20).fit([[("a", "x"), ("é", "")]])
    expected = [
        *(expected_id(u0, ["a"], 20), expected_id(u1, [("_B-1",), "x"], 20), expected_id(u2, [("_B+1",)], 20)),
        expected_id(u3, [], 20),
        *(expected_id(u0, ["é"], 20), expected_id(u1, ["a", ""], 20), expected_id(u2, [("_B+2",)], 20)),
        expected_id(u3, [], 20),
    ]
    assert attributes.ids.tolist() == expected
    assert attributes.edges is not None
    assert attributes.edges.token_ptr.tolist() == [0, 0, 1]
    assert attributes.edges.ids.tolist() == [expected_id(b1, [("_B-1",), "é"], 20)]
    assert attributes.edges.n_attributes == 2**20


def test_ids_never_change():
    # Models on disk rely on these numbers.
    assert hash_string("dog") == 0xE5FF15AC9DB27095
    assert hash_string("") == 0xD11E1B8505A0DC8F
    ready = FeatureMap(None, hash_bits=18).fit([[["dog", "w[0]=Ärger", ""]]])
    assert ready.ids.tolist() == [235516, 28125, 214136]
    templates = FeatureMap("U00:%x[0,0]\nU01:%x[-1,0]/%x[1,0]\nB01:%x[0,0]", hash_bits=18).fit([["dog", "Ärger"]])
    assert templates.ids.tolist() == [101082, 251158, 99959, 79903]
    assert templates.edges is not None
    assert templates.edges.ids.tolist() == [57783]


@pytest.mark.parametrize("seed", ["0", "1"])
def test_ids_are_the_same_in_other_processes(seed):
    program = (
        "from trelliswork.features.feature_map import FeatureMap\n"
        f"print(FeatureMap(None, hash_bits=25).fit({READY!r}).ids.tolist())\n"
        f"print(FeatureMap('pos', hash_bits=25).fit({WORDS!r}).ids.tolist())"
    )
    environment = os.environ | {"PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    here = [FeatureMap(None, hash_bits=25).fit(READY), FeatureMap("pos", hash_bits=25).fit(WORDS)]
    assert done.stdout.splitlines() == [str(attributes.ids.tolist()) for attributes in here]


def test_positions_beyond_the_sentence_differ_from_words():
    attributes = FeatureMap("U00:%x[-1,0]", hash_bits=30).fit([["_B-1", "dog"]])
    assert attributes.ids[0] != attributes.ids[1]


def test_templates_of_the_same_text_differ_by_macros_and_places():
    pieces = ("U:", "")
    chosen = [
        Template("U", pieces, ((0, 0),)),
        Template("U", pieces, ((0, 1),)),
        Template("U", pieces, ((0, 0),), skip_outside=True),
        Template("U", pieces, ((0, 0),), where="first"),
        Template("U", pieces, ((0, 0),), where="last"),
    ]
    attributes = HashedTemplateExtractor(chosen, 30).fit([["a"], ["a"]], np.array([0, 1]))
    assert len(set(attributes.ids.tolist())) == 5


def test_an_empty_sentence_has_no_token():
    chosen = [*parse_templates("U:%x[-1,0]\nB:%x[0,0]"), Template("F", ("F",), (), where="first")]
    chosen.append(Template("L", ("L",), (), where="last"))
    columns, offsets = [["a", "b", "c"]], np.array([0, 0, 2, 2, 3, 3])
    relabeled(
        HashedTemplateExtractor(chosen, 30).fit(columns, offsets), TemplateExtractor(chosen).fit(columns, offsets)
    )


def test_spread_over_the_ids():
    # 20,000 attributes over 256 ids: about 78 each, chi-square 255 +- 23.
    columns, offsets = [[f"w{k}" for k in range(10_000)]], np.array([0, 10_000])
    attributes = HashedTemplateExtractor(parse_templates("U0:%x[0,0]\nU1:%x[0,0]/%x[0,0]"), 8).fit(columns, offsets)
    counts = np.bincount(attributes.ids, minlength=256)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 255 + 5 * 23


# Attributes that the user made


def test_ready_attributes_keep_their_values():
    hashed = FeatureMap(None, hash_bits=30)
    attributes, stored = hashed.fit(READY), FeatureMap(None).fit(READY)
    relabeled(attributes, stored)
    assert attributes.values is not None
    assert_array_equal(attributes.values, stored.values, strict=True)
    names = ["w:dog", "size", "big", "a", "b", "size", "a"]
    assert attributes.ids.tolist() == [hash_string(name) >> 34 for name in names]
    same(attributes, hashed.transform(READY))
    assert FeatureMap(None, hash_bits=30).fit([[["a"], {"b": True}]]).values is None


def test_colliding_ready_attributes_are_both_kept():
    attributes = FeatureMap(None, hash_bits=1).fit([[{"a": 0.5, "b": 2.0, "c": 3.0}]])
    assert attributes.token_ptr.tolist() == [0, 3]
    assert attributes.values is not None
    assert attributes.values.tolist() == [0.5, 2.0, 3.0]
    assert set(attributes.ids.tolist()) <= {0, 1}


def test_a_function():
    def around(sentence, t):
        return {"word": sentence[t], "length": float(len(sentence[t]))}

    hashed = FeatureMap(around, hash_bits=30)
    attributes, stored = hashed.fit(WORDS), FeatureMap(around).fit(WORDS)
    relabeled(attributes, stored)
    assert_array_equal(attributes.values, stored.values)
    assert hashed.features is around


@pytest.mark.parametrize("values", [None, [1.0, 0.5, -2.0], [1.0, 1.0, 1.0]])
def test_a_file_of_ready_attributes(values):
    corpus = AttributeCorpus(
        ["A", "B"],
        np.array([0, 1, 2]),
        np.array([0, 2, 3]),
        np.array([1, 0, 1], np.int32),
        None if values is None else np.array(values),
        ["x", "y"],
    )
    hashed = FeatureMap(None, hash_bits=20)
    attributes = hashed.fit(corpus)
    by_hand = [[{"y": 1.0, "x": 1.0 if values is None else values[1]}], [{"y": 1.0 if values is None else values[2]}]]
    same(attributes, hashed.fit(by_hand))
    same(attributes, hashed.transform(corpus))


def test_names_that_are_not_strings_raise():
    with pytest.raises(DataError, match="must be a string, got 3"):
        FeatureMap(None, hash_bits=20).fit([[["a", 3]]])


def test_any_string_has_an_id():
    strings = ["", "\udcff", "\0", "日本", "a" * 10_000]
    assert len(set(FeatureMap(None, hash_bits=30).fit([[strings]]).ids.tolist())) == len(strings)
    assert len(set(FeatureMap("U:%x[0,0]", hash_bits=30).fit([strings]).ids.tolist())) == len(strings)


# The map


def test_consecutive_corpora():
    hashed = FeatureMap("pos", hash_bits=22)
    whole = hashed.fit(WORDS)
    parts = [hashed.fit(WORDS[:2]), hashed.transform(WORDS[2:])]
    assert_array_equal(np.concatenate([part.ids for part in parts]), whole.ids)
    same(FeatureMap("pos", hash_bits=22).transform(WORDS), whole)  # without fit


@pytest.mark.parametrize("features", ["pos", "U:%x[0,0]\nB\nB1:%x[-1,0]/%x[0,0]", None])
def test_state_is_small_and_survives_json(features):
    X = READY if features is None else WORDS
    hashed = FeatureMap(features, hash_bits=17)
    before = hashed.fit(X)
    plain, arrays = hashed.state()
    text = json.dumps(plain)
    assert not arrays
    assert "dog" not in text
    again = FeatureMap.from_state(json.loads(text), {})
    after = again.transform(X)
    same(before, after)
    assert (before.edges is None) == (after.edges is None)
    if before.edges is not None:
        same(before.edges, after.edges)
    assert (again.hash_bits, again.preset, again.features) == (17, hashed.preset, hashed.features)
    assert (again.n_attributes, again.n_edge_attributes) == (hashed.n_attributes, hashed.n_edge_attributes)


def test_names_are_numbers():
    hashed = FeatureMap("U:%x[0,0]\nB:%x[0,0]", hash_bits=2)
    hashed.fit(WORDS)
    assert hashed.names() == hashed.edge_names() == ["#0", "#1", "#2", "#3"]
    assert hashed.known_words() is None
    ready = FeatureMap(None, hash_bits=1)
    assert ready.names() == ["#0", "#1"]
    assert ready.edge_names() == []
    assert ready.known_words() is None


@pytest.mark.parametrize("bits", [0, -1, 31, 2.0, "18", True])
def test_invalid_numbers_of_bits_raise(bits):
    with pytest.raises(ValueRangeError, match=r"hash_bits must be .* from 1 to 30"):
        FeatureMap("pos", hash_bits=bits)


def test_min_count_is_not_allowed():
    for features in ("pos", None):
        with pytest.raises(ValueRangeError, match=r"min_count must be 1 with hash_bits, got 2: .* not stored"):
            FeatureMap(features, min_count=2, hash_bits=18)


def test_errors_equal_those_without_hashing():
    hashed = FeatureMap("U0:%x[0,0]\nU7:%x[0,2]", hash_bits=18)
    with pytest.raises(DataError, match=r"U7:%x\[0,2\].*column 2.*has 1"):
        hashed.fit(WORDS)
    with pytest.raises(DataError, match="needs 2 columns"):
        FeatureMap("chunking", hash_bits=18).fit(WORDS)
    with pytest.raises(DataError, match="corpus of columns"):
        FeatureMap(None, hash_bits=18).fit(Corpus.from_sentences(WORDS))
    with pytest.raises(DataError, match="at least one sentence"):
        hashed.fit([])
    empty = FeatureMap("pos", hash_bits=18).transform([])
    assert (len(empty), empty.n_tokens, empty.n_attributes) == (0, 0, 2**18)


@given(problems())
def test_number_of_ids(problem):
    # The naive expansion spells an attribute; equal spellings of one template have equal ids.
    chosen, (columns, offsets), _ = problem
    attributes = HashedTemplateExtractor(chosen, 30).fit(columns, offsets)
    strings = [string for token in expand(chosen, columns, offsets) for string in token]
    assert len(set(attributes.ids.tolist())) == len(set(strings))
    assert len(dict(zip(strings, attributes.ids.tolist(), strict=True))) == len(set(strings))
