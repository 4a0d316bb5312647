"""CoNLL-U: reading of words, checks of everything else, and writing."""

import gzip
import io

import pytest

from trelliswork.data import bundled, read_conllu
from trelliswork.data.conllu import COLUMNS, write_conllu_with
from trelliswork.data.writers import write_conllu
from trelliswork.errors import DataError, ShapeError, ValueRangeError


def row(id_, form="x", **columns):
    return "\t".join({**dict.fromkeys(COLUMNS, "_"), "id": id_, "form": form, **columns}.values())


SAMPLE = "\n".join(
    [
        "# text = Sue doesn't know.",
        row("0.1", "Oh"),
        row("1", "Sue", upos="PROPN"),
        row("2-3", "doesn't"),
        row("2", "does", upos="AUX"),
        row("3", "n't", upos="PART"),
        row("3.1", "really"),
        row("3.2", "ever"),
        row("4", "know", upos="VERB", misc="SpaceAfter=No"),
        row("5", ".", upos="PUNCT"),
        "",
        "# newdoc",
        row("1", "10 000", upos="NUM"),
        "",
        "",
    ]
)


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "dev.conllu"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def replaced(corpus, column, values):
    file = io.StringIO()
    write_conllu_with(corpus, {column: values}, file)
    return file.getvalue()


def test_words_only(write):
    for content in (SAMPLE, SAMPLE.rstrip("\n"), SAMPLE.replace("\n", "\r\n"), gzip.compress(SAMPLE.encode())):
        corpus = read_conllu(write(content))
        assert corpus.sentences() == [["Sue", "does", "n't", "know", "."], ["10 000"]]
    corpus = read_conllu(write(SAMPLE), columns=("upos", "id"))
    assert corpus.columns == [["PROPN", "AUX", "PART", "VERB", "PUNCT", "NUM"], [*"12345", "1"]]
    assert corpus.raw is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["1 x _ _ _ _ _ _ _ _"], r"dev.conllu:1: expected 10 columns, separated by tabs, got 1: .* spaces in place"),
        ([row("1"), row("2") + "\t_"], r"dev.conllu:2: expected 10 columns, separated by tabs, got 11"),
        ([row("1"), "2\tx"], r"dev.conllu:2: expected 10 columns, separated by tabs, got 2: '2\\tx'"),
        (["# c", row("2")], r"dev.conllu:2: expected id 1 .*, got '2'. Ids count"),
        ([row("1"), row("1")], r"dev.conllu:2: expected id 2 .*, got '1'. Put a blank line between"),
        ([row("1"), row("3")], r"dev.conllu:2: expected id 2"),
        ([row("01")], r"dev.conllu:1: expected id 1"),
        ([row("_")], r"dev.conllu:1: expected id 1"),
        ([row("1"), row("2-")], r"dev.conllu:2: expected id 2"),
        ([row("1"), row("1.")], r"dev.conllu:2: expected id 2"),
        (
            [row("1"), row("1-2"), row("2")],
            r"dev.conllu:2: a multiword token must start with the next word, 2, .* 1-2",
        ),
        ([row("2-1"), row("1")], r"dev.conllu:1: a multiword token must start with the next word, 1"),
        ([row("1-3"), row("1"), row("2-3"), row("2"), row("3")], r"dev.conllu:3: multiword tokens must not overlap"),
        ([row("1-3"), row("1"), row("2"), ""], r"dev.conllu:4: a multiword token reaches to word 3, .* after word 2"),
        ([row("1-2")], r"dev.conllu:1: a multiword token reaches to word 2"),
        ([row("1"), row("1.2")], r"dev.conllu:2: the id of an empty node here must be 1.1, got 1.2"),
        ([row("1"), row("2.1")], r"dev.conllu:2: the id of an empty node here must be 1.1"),
        (["# nothing", ""], r"dev.conllu: expected at least one sentence"),
        ([], r"dev.conllu: expected at least one sentence"),
    ],
)
def test_errors(write, rows, message):
    with pytest.raises(DataError, match=message):
        read_conllu(write("".join(f"{r}\n" for r in rows)))


def test_invalid_encoding_raises(write):
    with pytest.raises(DataError, match=r"dev.conllu:2: expected UTF-8"):
        read_conllu(write(row("1").encode() + b"\n\xff"))
    with pytest.raises(DataError, match="none: no such file"):
        read_conllu(write("").with_name("none"))


def test_names_of_columns(write):
    with pytest.raises(ValueRangeError, match=r"no column 'pos'. Its columns are id, form"):
        read_conllu(write(SAMPLE), columns=["form", "pos"])
    for columns in ("form", []):
        with pytest.raises(ValueRangeError, match="columns must be a sequence of names"):
            read_conllu(write(SAMPLE), columns=columns)


def test_one_column_is_replaced(write):
    corpus = read_conllu(write(SAMPLE), columns=("form", "upos"), keep_lines=True)
    assert replaced(corpus, "upos", corpus.columns[1]) == SAMPLE
    new = ["A", "B", "C", "D", "E", "F"]
    text = replaced(corpus, "xpos", new)
    again = read_conllu(write(text), columns=COLUMNS, keep_lines=True)
    assert again.columns[4] == new
    assert [again.columns[1], again.columns[3]] == corpus.columns
    changed = [a != b for a, b in zip(again.raw.split(b"\n"), corpus.raw.split(b"\n"), strict=True)]
    assert [i for i, c in enumerate(changed) if c] == corpus.token_lines.tolist()


def test_invalid_values_are_not_written(write):
    corpus = read_conllu(write(row("1")), keep_lines=True)
    with pytest.raises(ValueRangeError, match="keep_lines=True"):
        replaced(read_conllu(write(row("1"))), "upos", ["X"])
    with pytest.raises(ValueRangeError, match="no column 'pos'"):
        replaced(corpus, "pos", ["X"])
    with pytest.raises(ShapeError, match="each of 1 tokens, got 2"):
        replaced(corpus, "upos", ["X", "Y"])
    for value in ("", "a\tb", "a\n"):
        with pytest.raises(ValueRangeError, match="must have values that fit"):
            replaced(corpus, "upos", [value])


def test_reader_inverts_writer(write):
    sentences = bundled.load("train")[:50]
    file = io.StringIO()
    write_conllu(sentences, file)
    corpus = read_conllu(write(file.getvalue()), columns=("form", "xpos", "head"))
    assert corpus.sentences(0) == [list(s.words) for s in sentences]
    assert corpus.sentences(1) == [list(s.tags) for s in sentences]
    assert corpus.sentences(2) == [[str(h) for h in s.heads] for s in sentences]


@pytest.mark.parametrize(
    ("name", "sentences", "words", "types"),
    [("train", 12544, 204577, 19674), ("dev", 2001, 25147, 5494), ("test", 2077, 25094, 5629)],
)
def test_english_web_treebank(data_dir, name, sentences, words, types):
    path = data_dir / "ud-en-ewt" / f"en_ewt-ud-{name}.conllu"
    corpus = read_conllu(path, columns=("form", "upos"), keep_lines=True)
    assert (len(corpus), corpus.n_tokens, len(set(corpus.columns[0]))) == (sentences, words, types)
    assert len(set(corpus.columns[1])) == 17
    assert replaced(corpus, "upos", corpus.columns[1]) == path.read_text(encoding="utf-8")
