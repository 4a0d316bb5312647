"""CRF++ template syntax, and presets."""

import gzip

import pytest

from trelliswork.errors import DataError, ValueRangeError
from trelliswork.features.presets import DERIVED, PRESETS, Preset, derive, preset, shape
from trelliswork.features.templates import Template, parse_template, parse_templates, read_templates


def test_a_line_is_split_into_text_and_macros():
    template = parse_template("U05:%x[-1,0]/%x[0,12]|end")
    assert template.macros == ((-1, 0), (0, 12))
    assert template.pieces == ("U05:", "/", "|end")
    assert template.name == "U05:%x[-1,0]/%x[0,12]|end"
    assert (template.skip_outside, template.where) == (False, "all")
    assert template.n_columns == 13
    assert not template.on_edges


def test_a_template_may_have_no_macro():
    template = parse_template("B")
    assert template.macros == ()
    assert template.pieces == ("B",)
    assert template.n_columns == 0
    assert template.on_edges


def test_macros_may_be_spaced():
    assert parse_template("U:%x[ -2 , 1 ]").macros == ((-2, 1),)


def test_comments_and_blank_lines_are_skipped():
    text = "# Unigram\nU00:%x[-2,0]\n\n   \nU01:%x[0,0]  # the word\n#U02:%x[1,0]\nB\n"
    assert [t.name for t in parse_templates(text)] == ["U00:%x[-2,0]", "U01:%x[0,0]", "B"]


def test_skip_outside_applies_to_every_template():
    templates = parse_templates("U00:%x[-2,0]\nU01:%x[0,0]", skip_outside=True)
    assert [t.skip_outside for t in templates] == [True, True]


@pytest.mark.parametrize(
    "line",
    ["X00:%x[0,0]", "u00:%x[0,0]", "%x[0,0]", "U00:%x[0]", "U00:%x[0,0", "U00:%x[a,0]", "U00:%x[0,-1]", "U00:%y[0,0]"],
)
def test_errors_name_file_and_line(line, tmp_path):
    path = tmp_path / "template.txt"
    path.write_text(f"# words\nU00:%x[0,0]\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_templates(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert line in str(caught.value)


def test_duplicate_lines_raise():
    with pytest.raises(DataError, match=r"here.*U00:%x\[0,0\].*twice"):
        parse_templates("U00:%x[0,0]\nB\nU00:%x[0,0]", "here")
    assert len(parse_templates("U00:%x[0,0]\nU01:%x[0,0]")) == 2


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
def test_no_template_raises(text):
    with pytest.raises(DataError, match=r"nothing\.txt: expected at least one template"):
        parse_templates(text, "nothing.txt")


def test_files_are_read_like_text(tmp_path):
    text = "# Umlauts: ä\nU00:%x[-2,0]\nU01:ä=%x[0,0]/%x[1,1]\nB\n"
    path = tmp_path / "template.txt"
    path.write_bytes(text.replace("\n", "\r\n").encode())
    assert read_templates(path) == parse_templates(text)
    assert read_templates(str(path)) == parse_templates(text)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("McDonald's", "XxXxx'x"),
        ("the", "xx"),
        ("NATO", "XX"),
        ("1996", "99"),
        ("3.5", "9.9"),
        ("a", "x"),
        ("ab", "xx"),
        ("...", ".."),
        ("Ärzte", "Xxx"),
        ("日本", "日本"),
        ("", ""),
    ],
)
def test_shape(word, expected):
    assert shape(word) == expected


def test_derived_columns():
    words = ["Running", "of"]
    made = derive([words, ["x", "y"]], PRESETS["pos"])
    assert made[0] == words
    derived = dict(zip([name for _, name in PRESETS["pos"].derived], made[1:], strict=True))
    assert derived["lower"] == ["running", "of"]
    assert derived["shape"] == ["Xxx", "xx"]
    assert derived["prefix1"] == ["r", "o"]
    assert derived["prefix4"] == ["runn", "of"]
    assert derived["suffix3"] == ["ing", "of"]
    assert derived["suffix1"] == ["g", "f"]


def test_columns_may_be_derived_from_any_column():
    chosen = Preset(2, ((1, "lower"), (0, "suffix2")), ())
    assert derive([["Ab"], ["CD"], ["unused"]], chosen) == [["Ab"], ["CD"], ["cd"], ["ab"]]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_find_all_their_columns(name):
    chosen = preset(name)
    assert chosen is PRESETS[name]
    assert max(t.n_columns for t in chosen.templates) <= chosen.n_columns + len(chosen.derived)
    assert all(column < chosen.n_columns and kind in DERIVED for column, kind in chosen.derived)
    assert len({t.name for t in chosen.templates}) == len(chosen.templates)
    assert [t.where for t in chosen.templates if t.where != "all"] == ["first", "last"]


def test_chunking_is_the_feature_set_of_crfsuite():
    # Words: five, two pairs; tags: five, four pairs, three triples; both ends of the sentence.
    by_shape = [tuple(row for row, _ in t.macros) for t in PRESETS["chunking"].templates]
    window = [(-2,), (-1,), (0,), (1,), (2,)]
    pairs, triples = [(-2, -1), (-1, 0), (0, 1), (1, 2)], [(-2, -1, 0), (-1, 0, 1), (0, 1, 2)]
    assert sorted(by_shape) == sorted([*window, (-1, 0), (0, 1), *window, *pairs, *triples, (), ()])


def test_unknown_preset_raises():
    with pytest.raises(ValueRangeError, match=r"chunking, pos, ner, letters.*'chunkin'"):
        preset("chunkin")


def test_templates_are_immutable_and_comparable():
    assert Template("U", ("U",), ()) == parse_template("U")
    assert len({parse_template("U"), parse_template("U")}) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"U:%x[99999999999,0]", "at most 1000"),
        (b"U:%x[-1001,0]", "at most 1000"),
        (b"U:%x[0," + b"9" * 5000 + b"]", "at most 1000"),
        (b"U:%x[0,0]\xff", "expected UTF-8"),
        (b"U:\0", "NUL byte"),
        (b"U" + b"%" * 10**5, "macros must be written"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_templates_are_read_like_other_files(line, problem, pack, tmp_path):
    path = tmp_path / "template"
    path.write_bytes(pack(b"U00:%x[0,0]\n" + line + b"\n"))
    with pytest.raises(DataError, match=problem) as caught:
        read_templates(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert len(str(caught.value)) < 400
    path.write_bytes(pack(b"\xef\xbb\xbfU00:%x[-1000,0]\r\n"))
    assert read_templates(path)[0].macros == ((-1000, 0),)
