"""Attributes against a naive expansion of templates into strings."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from trelliswork.errors import DataError
from trelliswork.features import Attributes, Template, TemplateExtractor, parse_templates
from trelliswork.features.feature_map import FeatureMap
from trelliswork.features.ready import ReadyExtractor


def expand(templates, columns, offsets):
    """Return the strings of each token in the order of templates, as CRF++ writes them."""
    expanded = []
    for start, stop in pairwise(np.asarray(offsets).tolist()):
        for i in range(start, stop):
            strings = []
            for template in templates:
                if (template.where == "first" and i != start) or (template.where == "last" and i != stop - 1):
                    continue
                at = [i + row for row, _ in template.macros]
                if template.skip_outside and any(a < start or a >= stop for a in at):
                    continue
                values = [
                    f"_B-{start - a}" if a < start else f"_B+{a - stop + 1}" if a >= stop else columns[column][a]
                    for a, (_, column) in zip(at, template.macros, strict=True)
                ]
                text = template.pieces[0]
                for value, piece in zip(values, template.pieces[1:], strict=True):
                    text += value + piece
                strings.append(text)
            expanded.append(strings)
    return expanded


def spelled(attributes: Attributes, names):
    """Return the strings of the attributes of each token."""
    return [[names[k] for k in attributes.ids[a:b]] for a, b in pairwise(attributes.token_ptr.tolist())]


def same(a: Attributes, b: Attributes) -> None:
    for name in ("offsets", "token_ptr", "ids"):
        assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name, strict=True)
    assert (a.values is None) == (b.values is None)
    if a.values is not None:
        assert_array_equal(a.values, b.values)
    assert a.n_attributes == b.n_attributes


@st.composite
def templates(draw, n_columns):
    drawn = []
    for k in range(draw(st.integers(1, 5))):
        macros = tuple(draw(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, n_columns - 1)), max_size=4)))
        pieces = (f"U{k}:", *("/" for _ in macros))
        where = draw(st.sampled_from(["all", "all", "first", "last"]))
        drawn.append(Template(f"U{k}", pieces, macros, draw(st.booleans()), where))
    return drawn


@st.composite
def corpora(draw, n_columns, alphabet="abcd"):
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    columns = [
        draw(st.lists(st.sampled_from(alphabet), min_size=sum(lengths), max_size=sum(lengths)))
        for _ in range(n_columns)
    ]
    return columns, np.cumsum([0, *lengths])


@st.composite
def problems(draw):
    """Templates, the columns and offsets of a training corpus, and those of another with more strings."""
    n_columns = draw(st.integers(1, 3))
    return draw(templates(n_columns)), draw(corpora(n_columns)), draw(corpora(n_columns, "abcdefé"))


@given(problems())
def test_attributes_equal_naive_expansion(problem):
    chosen, (columns, offsets), _ = problem
    extractor = TemplateExtractor(chosen)
    attributes = extractor.fit(columns, offsets)
    expected = expand(chosen, columns, offsets)
    names = extractor.names()
    assert spelled(attributes, names) == expected
    assert sorted(names) == sorted({string for token in expected for string in token})
    assert attributes.n_attributes == extractor.n_attributes == len(names)
    assert attributes.values is None
    assert (len(attributes), attributes.n_tokens) == (len(offsets) - 1, offsets[-1])
    assert_array_equal(attributes.offsets, offsets)


@given(problems())
def test_transform_of_the_training_data_equals_fit(problem):
    chosen, (columns, offsets), _ = problem
    extractor = TemplateExtractor(chosen)
    same(extractor.fit(columns, offsets), extractor.transform(columns, offsets))


@given(problems(), st.integers(1, 3))
def test_transform_keeps_known_attributes(problem, min_count):
    chosen, (columns, offsets), (new, new_offsets) = problem
    extractor = TemplateExtractor(chosen, min_count=min_count)
    extractor.fit(columns, offsets)
    names = extractor.names()
    expected = [[s for s in token if s in set(names)] for token in expand(chosen, new, new_offsets)]
    attributes = extractor.transform(new, new_offsets)
    assert spelled(attributes, names) == expected
    assert attributes.n_attributes == len(names)


@given(problems(), st.integers(1, 4))
def test_min_count_drops_rarer_attributes(problem, min_count):
    chosen, (columns, offsets), _ = problem
    expanded = expand(chosen, columns, offsets)
    counts = Counter(string for token in expanded for string in token)
    extractor = TemplateExtractor(chosen, min_count=min_count)
    attributes = extractor.fit(columns, offsets)
    names = extractor.names()
    assert set(names) == {string for string, n in counts.items() if n >= min_count}
    assert spelled(attributes, names) == [[s for s in token if counts[s] >= min_count] for token in expanded]
    same(attributes, extractor.transform(columns, offsets))


@given(problems(), st.integers(1, 2))
def test_state_survives_json(problem, min_count):
    chosen, corpus, new = problem
    extractor = TemplateExtractor(chosen, min_count=min_count)
    extractor.fit(*corpus)
    plain, arrays = extractor.state()
    again = TemplateExtractor(chosen)
    again.restore(json.loads(json.dumps(plain)), {k: v.copy() for k, v in arrays.items()})
    assert again.names() == extractor.names()
    for columns, offsets in (corpus, new):
        same(extractor.transform(columns, offsets), again.transform(columns, offsets))


@pytest.mark.parametrize(
    "damage",
    [
        lambda plain, arrays: plain["extractor"].update(reach=0),  # compiled code would read beyond its arrays
        lambda plain, arrays: plain["features"][0]["macros"][0].__setitem__(0, 99),
        lambda plain, arrays: plain["features"][0]["macros"][0].__setitem__(1, 7),
        lambda plain, arrays: plain["features"][0].update(where="nowhere"),
        lambda plain, arrays: plain["features"][0]["pieces"].pop(),
        lambda plain, arrays: plain["extractor"]["stages"][0].clear(),
        lambda plain, arrays: plain["extractor"]["columns"][0].append(3),
        lambda plain, arrays: arrays.update({"template.0.kept": arrays["template.0.kept"][:-1]}),
        lambda plain, arrays: arrays.update({"template.0.kept": arrays["template.0.kept"] - 5}),
        lambda plain, arrays: arrays.update({"template.0.stage.0": arrays["template.0.stage.0"].astype(np.int32)}),
    ],
)
def test_a_damaged_state_is_refused(damage):
    features = FeatureMap("U:%x[-1,0]/%x[0,1]")
    features.fit([[("a", "c"), ("b", "d")]])
    plain, arrays = features.state()
    plain = json.loads(json.dumps(plain))
    FeatureMap.from_state(plain, arrays)
    damage(plain, arrays)
    with pytest.raises(DataError):
        FeatureMap.from_state(plain, arrays)


def test_positions_beyond_the_sentence_by_hand():
    chosen = parse_templates("U0:%x[-2,0]/%x[1,0]\nU1:%x[0,1]")
    extractor = TemplateExtractor(chosen)
    attributes = extractor.fit([["a", "b", "c"], ["x", "y", "z"]], np.array([0, 2, 3]))
    assert spelled(attributes, extractor.names()) == [
        ["U0:_B-2/b", "U1:x"],
        ["U0:_B-1/_B+1", "U1:y"],
        ["U0:_B-2/_B+1", "U1:z"],
    ]


def test_first_and_last_of_a_sentence_of_one_token():
    chosen = [Template("F", ("F",), (), where="first"), Template("L", ("L",), (), where="last")]
    extractor = TemplateExtractor(chosen)
    attributes = extractor.fit([["a", "b", "c"]], np.array([0, 1, 3]))
    assert spelled(attributes, extractor.names()) == [["F", "L"], ["F"], ["L"]]


def test_unseen_strings_give_no_attribute():
    extractor = TemplateExtractor(parse_templates("U0:%x[0,0]\nU1:%x[-1,0]\nU2"))
    extractor.fit([["a", "b"]], np.array([0, 2]))
    attributes = extractor.transform([["b", "new", "a"]], np.array([0, 3]))
    assert spelled(attributes, extractor.names()) == [["U0:b", "U1:_B-1", "U2"], ["U2"], ["U0:a", "U2"]]


def test_an_unseen_combination_of_seen_strings_gives_no_attribute():
    extractor = TemplateExtractor(parse_templates("U0:%x[0,0]/%x[0,1]"))
    extractor.fit([["a", "b"], ["x", "y"]], np.array([0, 2]))
    attributes = extractor.transform([["a", "a"], ["y", "x"]], np.array([0, 2]))
    assert spelled(attributes, extractor.names()) == [[], ["U0:a/x"]]


def test_an_empty_sentence_has_no_token():
    # first and last must not affect the sentences next to an empty one
    chosen = [*parse_templates("U:%x[-1,0]"), Template("F", ("F",), (), where="first")]
    chosen.append(Template("L", ("L",), (), where="last"))
    columns, offsets = [["a", "b", "c"]], np.array([0, 0, 2, 2, 3, 3])
    extractor = TemplateExtractor(chosen)
    assert spelled(extractor.fit(columns, offsets), extractor.names()) == expand(chosen, columns, offsets)


@pytest.mark.parametrize("n_macros", [6, 12])
def test_combinations_that_need_more_than_64_bits(n_macros):
    # 3,000 strings and six macros: 3,000 ** 6 > 2 ** 64.
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 30, 300)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    column = [f"w{k}" for k in rng.integers(0, 3000, offsets[-1])]
    column[:3000] = [f"w{k}" for k in range(3000)]
    rows = [k // 2 if k % 2 else -(k // 2) for k in range(n_macros)]
    text = "/".join(f"%x[{row},0]" for row in rows)
    chosen = parse_templates(f"U0:{text}\nU1:%x[0,0]") + parse_templates(f"U2:{text}", skip_outside=True)
    extractor = TemplateExtractor(chosen)
    attributes = extractor.fit([column], offsets)
    names = extractor.names()
    assert spelled(attributes, names) == expand(chosen, [column], offsets)
    same(attributes, extractor.transform([column], offsets))
    plain, arrays = extractor.state()
    again = TemplateExtractor(chosen)
    again.restore(json.loads(json.dumps(plain)), arrays)
    other = list(column)
    for k in range(0, len(other), 7):
        other[k] = other[k - 1]
    same(extractor.transform([other], offsets), again.transform([other], offsets))
    known = set(names)
    expected = [[s for s in token if s in known] for token in expand(chosen, [other], offsets)]
    assert spelled(again.transform([other], offsets), names) == expected


def test_a_key_of_many_macros_over_few_strings():
    # 40 macros over two strings: the key is cut although no macro alone is large.
    chosen = [Template("U", ("U:", *("/" for _ in range(40))), tuple((k - 20, 0) for k in range(40)))]
    column, offsets = list("abbabaabbbabab"), np.array([0, 6, 14])
    extractor = TemplateExtractor(chosen)
    assert spelled(extractor.fit([column], offsets), extractor.names()) == expand(chosen, [column], offsets)


def test_missing_column_raises():
    extractor = TemplateExtractor(parse_templates("U0:%x[0,0]\nU7:%x[0,2]"))
    with pytest.raises(DataError, match=r"U7:%x\[0,2\].*column 2.*has 2"):
        extractor.fit([["a"], ["b"]], np.array([0, 1]))
    extractor.fit([["a"], ["b"], ["c"]], np.array([0, 1]))
    with pytest.raises(DataError, match=r"U7:%x\[0,2\].*column 2.*has 1"):
        extractor.transform([["a"]], np.array([0, 1]))


def test_fit_replaces_earlier_attributes():
    extractor = TemplateExtractor(parse_templates("U:%x[0,0]"))
    extractor.fit([["a", "b"]], np.array([0, 2]))
    extractor.fit([["c"]], np.array([0, 1]))
    assert extractor.names() == ["U:c"]


# Attributes that the user made


def test_ready_tokens_of_all_types():
    extractor = ReadyExtractor()
    attributes = extractor.fit(
        [
            [{"bias": 1.0, "word": "dog", "upper": False, "known": True}, ["bias", "extra"]],
            [{"bias": 2, "size": np.float32(0.25), "flag": np.bool_(False), "seen": np.True_, "zero": 0.0}],
        ]
    )
    names = extractor.names()
    assert names == ["bias", "word:dog", "known", "extra", "size", "seen", "zero"]
    assert spelled(attributes, names) == [
        ["bias", "word:dog", "known"],
        ["bias", "extra"],
        ["bias", "size", "seen", "zero"],
    ]
    assert attributes.values is not None
    assert attributes.values.tolist() == [1, 1, 1, 1, 1, 2, 0.25, 1, 0]
    assert attributes.offsets.tolist() == [0, 2, 3]
    assert attributes.n_attributes == extractor.n_attributes == 7


def test_ready_values_of_one_are_not_stored():
    assert ReadyExtractor().fit([[{"a": 1, "b": "c"}, ["a"], {}, []]]).values is None


def test_ready_transform_keeps_known_attributes():
    extractor = ReadyExtractor()
    fitted = extractor.fit([[{"w": "a", "x": 0.5}, ["y"]]])
    same(fitted, extractor.transform([[{"w": "a", "x": 0.5}, ["y"]]]))
    attributes = extractor.transform([[{"w": "new", "x": 3.0, "z": True}], [["y", "q"]]])
    assert spelled(attributes, extractor.names()) == [["x"], ["y"]]
    assert attributes.values is not None
    assert attributes.values.tolist() == [3, 1]
    again = ReadyExtractor(extractor.names())
    same(attributes, again.transform([[{"w": "new", "x": 3.0, "z": True}], [["y", "q"]]]))


@given(st.lists(st.lists(st.lists(st.sampled_from("abcde"), max_size=4), max_size=4), max_size=4), st.integers(1, 4))
def test_ready_min_count_drops_rarer_attributes(sentences, min_count):
    counts = Counter(name for sentence in sentences for token in sentence for name in token)
    extractor = ReadyExtractor(min_count=min_count)
    attributes = extractor.fit(sentences)
    names = extractor.names()
    assert set(names) == {name for name, n in counts.items() if n >= min_count}
    expected = [[name for name in token if counts[name] >= min_count] for sentence in sentences for token in sentence]
    assert spelled(attributes, names) == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, None, {"bad": None}, {"bad": {"bad": ["a", 1]}}, 1j])
def test_invalid_ready_values_raise(value):
    with pytest.raises(DataError, match=r"sentence 1, token 2: .*('bad'|got 1)"):
        ReadyExtractor().fit([[["a"]], [["a"], ["a"], {"good": 1.0, "bad": value}]])


@pytest.mark.parametrize("value", [1e300, -1e39, pytest.param(10**400, id="huge")])
def test_ready_values_too_large_for_float32(value):
    with pytest.raises(DataError, match=r"sentence 0, token 0: .*'bad'"):
        ReadyExtractor().fit([[{"bad": value}]])


@pytest.mark.parametrize("token", ["word", None, 3])
def test_ready_tokens_of_other_types_raise(token):
    with pytest.raises(DataError, match=r"sentence 0, token 1: "):
        ReadyExtractor().fit([[["a"], token]])
