"""Shares of files: together they are the files, and each starts with a sentence; errors have the lines of the file."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trelliswork.data import Corpus, read_columns, read_conllu, read_crfsuite, read_dependencies, read_text, read_trees
from trelliswork.data.corpus import AttributeCorpus
from trelliswork.data.files import Excerpt, open_text
from trelliswork.data.reading.shares import shares
from trelliswork.errors import DataError

BLANKS = ["\n", "\r\n", "  \n", "\t \r\n"]
LINES = ["a b\n", "c d\r\n", "\ufeffx y\n", "e f\n", "é ü\n"]


@st.composite
def texts(draw):
    """Return a column file: any blank lines, with or without a byte order mark and an end of the last line."""
    lines = draw(st.lists(st.sampled_from(BLANKS + LINES), max_size=25))
    text = ("\ufeff" if draw(st.booleans()) else "") + "".join(lines)
    return text.rstrip("\n") if draw(st.booleans()) else text


def pieces(files, size, blank_lines):
    return [shares(files, rank, size, blank_lines=blank_lines) for rank in range(size)]


def content(section):
    return Path(section.path).read_bytes()[section.start : section.stop]


@given(st.lists(texts(), min_size=1, max_size=3), st.integers(1, 7), st.booleans(), st.booleans())
def test_shares_are_the_files(tmp_path_factory, written, size, blank_lines, packed):
    folder = tmp_path_factory.mktemp("shares")
    files = [str(folder / f"{k}.txt") for k in range(len(written))]
    for k, (file, text) in enumerate(zip(files, written, strict=True)):
        Path(file).write_bytes(gzip.compress(text.encode()) if packed and k == 0 else text.encode())
    ranks = pieces(files, size, blank_lines)
    every = [section for sections in ranks for section in sections]
    for file in files:  # nothing is left out, nothing is read twice, in order
        own = [section for section in every if section.path == file]
        assert b"".join(map(content, own)) == Path(file).read_bytes()
        assert [s.start for s in own] == sorted(s.start for s in own)
    read = read_columns if blank_lines else read_text
    whole = [read(Excerpt(str(file))).sentences(0) for file in files]
    parts = [read(section).sentences(0) for section in every]
    assert [s for part in parts for s in part] == [s for part in whole for s in part]


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_files_that_cannot_be_cut(tmp_path, size):
    files = [str(tmp_path / f"{k}.mrg") for k in range(3)]
    for k, file in enumerate(files):
        Path(file).write_text("(S\n (NN a))\n" * (k + 1))
    every = [section for part in pieces(files, size, None) for section in part]
    assert every == [Excerpt(file) for file in files]
    assert sum(len(read_trees(section)) for section in every) == 6


def test_only_files_are_shared(tmp_path):
    for name in (str(tmp_path), "-", str(tmp_path / "missing")):
        with pytest.raises(DataError, match="Name files"):
            shares([name], 0, 2, blank_lines=True)


BAD = {
    "columns": (read_columns, "a b\n\n", "a b c\n"),
    "conllu": (read_conllu, "1\ta\t_\t_\t_\t_\t0\t_\t_\t_\n\n", "1\ta\n"),
    "heads": (read_dependencies, "1\ta\t_\t_\t_\t_\t0\t_\t_\t_\n\n", "1\ta\t_\t_\t_\t_\t9\t_\t_\t_\n"),
    "crfsuite": (read_crfsuite, "A\tx\n\n", "A\tx:y\n"),
    "text": (read_text, "a b\n\n", "a \0 b\n"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_errors_have_the_line_of_the_file(tmp_path, kind, size):
    read, good, bad = BAD[kind]
    file = tmp_path / "file"
    file.write_text(good * 20 + bad + "\n" + good * 3)
    sections = [section for part in pieces([file], size, kind != "text") for section in part]
    with pytest.raises(DataError, match=f"^{file}:41: ") as raised:
        list(map(read, sections))
    if kind == "columns":
        first = int(str(raised.value).split("as in line ")[1].split(",")[0])
        assert first % 2 == 1
        assert (first == 1) == (size == 1)


def test_a_section_inside_a_file_has_no_byte_order_mark(tmp_path):
    file = tmp_path / "file"
    file.write_bytes("a\n\ufeffb\n".encode())
    with open_text(Excerpt(str(file), 2)) as lines:
        assert list(lines) == ["\ufeffb"]


def test_joined_corpora():
    parts = [Corpus.from_sentences(s) for s in ([[("a", "A"), ("b", "B")]], [[("c", "C")], [("d", "D"), ("e", "E")]])]
    joined = Corpus.joined(parts, 2, "files")
    assert joined.sentences(1) == [["A", "B"], ["C"], ["D", "E"]]
    assert joined.source == "files"
    assert len(Corpus.joined([], 3)) == 0
    assert len(Corpus.joined([], 3).columns) == 3


def test_joined_attributes(tmp_path):
    texts = ["A\tx\ty\n\nB\ty\n", "B\tz\ty:2\n", "\n"]
    for k, text in enumerate([*texts, "\n".join(texts)]):
        (tmp_path / str(k)).write_text(text)
    *parts, whole = [read_crfsuite(Excerpt(str(tmp_path / str(k)))) for k in range(4)]
    joined = AttributeCorpus.joined(parts)
    assert (joined.labels, joined.names) == (whole.labels, whole.names)
    for name in ("offsets", "token_ptr", "attributes", "values"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    assert len(AttributeCorpus.joined([])) == 0
