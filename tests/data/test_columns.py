"""Column files: reading, errors, and writing with new columns."""

import gzip
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trelliswork.data import Corpus, read_columns
from trelliswork.data import columns as columns_module
from trelliswork.data.columns import write_columns_with
from trelliswork.data.corpus import Column
from trelliswork.data.files import lines_of, no_sentence, open_text, shorten, splitter
from trelliswork.data.reading.shares import excerpts
from trelliswork.errors import DataError, ShapeError, ValueRangeError


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "train.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def tagged(corpus, extra, **options):
    file = io.StringIO()
    write_columns_with(corpus, extra, file, **options)
    return file.getvalue()


def test_sentences_and_columns(write):
    corpus = read_columns(write("The DT B-NP\ndog  NN\tI-NP \n\n \t\n\nruns VBZ B-VP"))
    assert len(corpus) == 2
    assert corpus.n_tokens == 3
    assert corpus.columns == [["The", "dog", "runs"], ["DT", "NN", "VBZ"], ["B-NP", "I-NP", "B-VP"]]
    assert corpus.offsets.tolist() == [0, 2, 3]
    assert corpus.offsets.dtype == np.int64
    assert corpus.sentences(2) == [["B-NP", "I-NP"], ["B-VP"]]
    assert corpus.raw is None
    assert corpus.token_lines.tolist() == [0, 1, 5]
    assert corpus.source.endswith("train.txt")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([0], ["a", "d"]),
        ([-1], ["c", "f"]),
        ([1, 0], ["be", "ad"]),
        ([0, 1, 2], ["ad", "be", "cf"]),
        ((2, -1), ["cf"] * 2),
    ],
)
def test_chosen_columns(write, columns, expected):
    corpus = read_columns(write("a b c\nd e f\n"), columns=columns)
    if len(columns) == 1:
        assert corpus.columns == [expected]
    else:
        assert corpus.columns == [list(w) for w in expected]


def test_variants_of_one_file_give_the_same_corpus(write):
    expected = read_columns(write("Ä x\nb y\n\nc z\n")).columns
    for other in ("\ufeffÄ x\r\nb y\r\n\r\nc z\r\n", "\n\nÄ x\nb y\n\n\nc z", "Ä\tx\nb\ty\n\t\nc\tz\n\n"):
        for content in (other.encode(), gzip.compress(other.encode())):
            corpus = read_columns(write(content))
            assert corpus.columns == expected
            assert corpus.offsets.tolist() == [0, 2, 3]


def test_separator(write):
    corpus = read_columns(write("New York\tNNP\n\tX\n \t \n"), separator="\t")
    assert corpus.columns == [["New York", ""], ["NNP", "X"]]
    assert read_columns(write("10\u00a0000 CD\n")).columns == [["10\u00a0000"], ["CD"]]
    for separator in ("", "\n"):
        with pytest.raises(ValueRangeError, match="separator must be None"):
            read_columns(write("a b"), separator=separator)


def test_docstart(write):
    path = write("-DOCSTART- -X- O\n\na b\n-DOCSTART- -X- O\nc d\n")
    corpus = read_columns(path, keep_lines=True)
    assert corpus.sentences() == [["a"], ["c"]]
    assert tagged(corpus, [["x", "y"]]) == "-DOCSTART- -X- O\n\na b x\n-DOCSTART- -X- O\nc d y\n"


def test_equal_strings_are_one_object(write):
    words = read_columns(write("dog NN\ndog NN\n")).columns[0]
    assert words[0] is words[1]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            "a b\n\nc d\na b c\n",
            {},
            r"train.txt:4: expected 2 columns, as in line 1, got 3: 'a b c'. Is the separator ri",
        ),
        ("\na\nb c\n", {}, r"train.txt:3: expected 1 column, as in line 2, got 2: 'b c'"),
        ("a b\n", {"columns": [2]}, r"train.txt:1: expected a column 2, but there are only 2, 0 to 1: 'a b'"),
        ("a b\n", {"columns": [0, -3]}, r"train.txt:1: expected a column -3"),
        ("", {}, r"train.txt: expected at least one sentence"),
        (" \n\n", {}, r"train.txt: expected at least one sentence"),
        ("-DOCSTART- O\n", {}, r"train.txt: expected at least one sentence"),
        (b"a b\nc \xff\n", {}, r"train.txt:2: expected UTF-8, but byte 3 of the line is 0xff: 'c \\\\xff'"),
        ("a b\nc\0 d\n", {}, r"train.txt:2: expected text, got a NUL byte"),
        (
            "a b\n" + "x" * 500,
            {},
            r"train.txt:2: expected 2 columns, as in line 1, got 1: 'x{60}\.\.\.'\. Is the",
        ),
    ],
)
def test_errors(write, content, options, message):
    with pytest.raises(DataError, match=message):
        read_columns(write(content), **options)


def test_empty_selection_of_columns_raises(write):
    with pytest.raises(ValueRangeError, match="at least one column"):
        read_columns(write("a b"), columns=[])


def test_new_columns_are_appended(write):
    corpus = read_columns(write("\r\na DT \r\ndog NN\r\n\r\n\r\nran VB"), columns=[0], keep_lines=True)
    assert corpus.token_lines.tolist() == [1, 2, 5]
    assert tagged(corpus, [["B", "I", "O"], ["1", "2", "3"]]) == "\na DT B 1\ndog NN I 2\n\n\nran VB O 3\n"
    assert tagged(corpus, []) == "\na DT \ndog NN\n\n\nran VB\n"
    assert tagged(read_columns(write("a\tb\n"), keep_lines=True), [["x"]]) == "a\tb\tx\n"
    corpus = read_columns(write("a\t\n"), separator="\t", keep_lines=True)
    assert tagged(corpus, [["x y"]], separator="\t") == "a\t\tx y\n"


def test_invalid_columns_are_not_written(write):
    corpus = read_columns(write("a b\n"), keep_lines=True)
    with pytest.raises(ValueRangeError, match="keep_lines=True"):
        tagged(read_columns(write("a b\n")), [["x"]])
    with pytest.raises(ShapeError, match=r"extra\[1\] must have a value for each of 1 tokens, got 2"):
        tagged(corpus, [["x"], ["x", "y"]])
    for value, separator in (("", None), ("x y", None), ("x\ty", "\t"), ("x\n", "\t")):
        with pytest.raises(ValueRangeError, match=r"extra\[0\] must have values that fit"):
            tagged(corpus, [[value]], separator=separator)


def test_corpus_from_sentences():
    corpus = Corpus.from_sentences([["a", "b"], [], ["c"]])
    assert corpus.sentences() == [["a", "b"], [], ["c"]]
    assert Corpus.from_sentences([]).sentences() == []
    assert Corpus.from_sentences([[["a", "X"], ("b", "Y")]]).columns == [["a", "b"], ["X", "Y"]]
    with pytest.raises(ShapeError, match=r"sentence 1, token 0: expected 2 columns, as in the first token, got 1: 'c'"):
        Corpus.from_sentences([[("a", "X")], ["c"]])
    with pytest.raises(ShapeError, match=r"columns\[0\] must have one string for each of the 2 tokens, got 1"):
        Corpus([["a"]], np.array([0, 2]))
    with pytest.raises(ShapeError, match=r"starts with 0 and never decreases"):
        Corpus([["a"]], np.array([0, 2, 1]))
    with pytest.raises(ShapeError, match=r"token_lines must have shape"):
        Corpus([["a"]], np.array([0, 1]), ["a"], np.array([0, 1]))


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), min_size=1, max_size=5).filter(
    lambda s: not any(c in s for c in "\t\n\v\f\r\x1c\x1d\x1e\x1f ") and s != "-DOCSTART-"
)


@given(
    st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(st.tuples(*[WORD] * n), min_size=1), min_size=1)), st.data()
)
def test_round_trip(tmp_path_factory, sentences, data):
    path = tmp_path_factory.mktemp("columns") / "file"
    path.write_bytes("\n\n".join("\n".join(" ".join(token) for token in s) for s in sentences).encode())
    corpus = read_columns(path, keep_lines=True)
    expected = Corpus.from_sentences(sentences)
    assert corpus.columns == expected.columns
    assert corpus.offsets.tolist() == expected.offsets.tolist()
    extra = data.draw(st.lists(WORD, min_size=expected.n_tokens, max_size=expected.n_tokens))
    path.write_bytes(tagged(corpus, [extra]).encode())
    again = read_columns(path)
    assert again.columns == [*expected.columns, extra]
    assert again.offsets.tolist() == expected.offsets.tolist()


@pytest.mark.parametrize(
    ("name", "sentences", "tokens", "types"), [("train", 8936, 211727, 19122), ("test", 2012, 47377, 8118)]
)
def test_conll2000(data_dir, name, sentences, tokens, types):
    path = data_dir / "conll2000" / f"{name}.txt"
    corpus = read_columns(path, keep_lines=True)
    assert (len(corpus), corpus.n_tokens, len(set(corpus.columns[0]))) == (sentences, tokens, types)
    assert len(set(corpus.columns[2])) == (22 if name == "train" else 19)
    assert tagged(corpus, []) == path.read_text(encoding="utf-8")
    lines = tagged(corpus, [corpus.columns[2]]).splitlines()
    assert lines[0].split() == ["Confidence", "NN", "B-NP", "B-NP"] or name == "test"
    assert sum(len(line.split()) == 4 for line in lines) == tokens


def test_boundaries_of_documents_end_a_sentence(write):
    path = write("#begin document (a); part 0\na b\n#end document\n# b\nc d\n")
    assert read_columns(path).sentences() == [["a"], ["#", "c"]]


ODD = st.sampled_from(
    [
        "a",
        "bb",
        "\u00e9t\u00e9",
        "10\u00a0000",
        "\U0001f600",
        "-DOCSTART-",
        "#begin",
        "#end",
        "document",
        "#",
        "x" * 70,
        "\0",
    ]
)
BLANKS = st.sampled_from([" ", "\t", "  ", " \t", "\x0b", "\x0c", "\r", "\x1c", "\x1f", "\u2028", ""])
LINE = st.lists(st.tuples(BLANKS, ODD, BLANKS), max_size=3).map(lambda parts: "".join("".join(p) for p in parts))
REGULAR = st.tuples(st.sampled_from("abc"), st.sampled_from([" ", "\t"]), ODD, BLANKS).map("".join)


def outcome(path, **options):
    """Return what reading and writing give, or the error."""
    try:
        corpus = read_columns(path, keep_lines=True, **options)
        labels = Column(["N", "V"], np.array([len(word) % 2 for word in corpus.columns[0]], int))
        texts = [tagged(corpus, [values], separator=options.get("separator")) for values in (labels, list(labels))]
    except (DataError, ValueRangeError) as error:
        return type(error), str(error)
    columns, lines = [list(column) for column in corpus.columns], lines_of(corpus.raw)
    return columns, corpus.offsets.tolist(), corpus.token_lines.tolist(), lines, *texts


@given(
    st.one_of(st.lists(LINE, max_size=6), st.lists(st.one_of(REGULAR, st.just(""), BLANKS), max_size=9)),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from([None, "\t", " ", ", "]),
    st.sampled_from([None, [0], [1, 0], [-1, 0, -1]]),
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff"]),
)
def test_kernels_read_and_write_what_plain_code_does(tmp_path_factory, lines, end, ended, separator, columns, first):
    path = tmp_path_factory.mktemp("columns") / "a"
    path.write_bytes(first + end.join(lines).encode() + (end.encode() if ended else b""))
    expected = plainly(path, separator, columns)
    options = {"separator": separator, "columns": columns}
    assert outcome(path, **options) == expected
    parts = list(excerpts(path, blank_lines=True, first=2, most=2)) if not isinstance(expected[0], type) else []
    together = [outcome(part, **options) for part in parts]
    assert [line for part in together for line in part[3]] == (expected[3] if parts else [])
    if options["separator"] is not None:
        assert "".join(part[4] for part in together) == (expected[4] if parts else "")
    for written in [expected, *together] if parts else []:
        assert written[4] == written[5]  # by the kernel, and from strings


def plainly(path, separator, columns):
    """Return what `outcome` should return, or the error."""
    split, lines, tokens, places, ends, width = splitter(separator), [], [], [], [0], 0
    try:
        with open_text(path) as file:
            for number, line in enumerate(file, start=1):
                lines.append(line)
                fields = split(line)
                edges = (["#begin", "document"], ["#end", "document"])
                if not fields or fields[0] == "-DOCSTART-" or fields[:2] in edges:
                    ends += [len(tokens)] * (len(tokens) > ends[-1])
                    continue
                if width and len(fields) != width:
                    raise DataError(
                        f"{path}:{number}: expected {width} column{'s' * (width != 1)}, as in line {places[0] + 1}, "
                        f"got {len(fields)}: {shorten(line)}. Is the separator right?"
                    )
                width = len(fields)
                for c in columns or ():
                    if not -width <= c < width:
                        raise DataError(
                            f"{path}:{number}: expected a column {c}, but there are only {width}, 0 to {width - 1}: "
                            f"{shorten(line)}. Columns are counted from 0. Is the separator right?"
                        )
                tokens.append(fields)
                places.append(number - 1)
        if not tokens:
            raise no_sentence(str(path), "one token per line, with its columns")
    except DataError as error:
        return DataError, str(error)
    ends += [len(tokens)] * (len(tokens) > ends[-1])
    chosen = range(width) if columns is None else columns
    first = lines[places[0]].strip()
    between = ("\t" if "\t" in first else " ") if separator is None else separator
    labels = {line: "NV"[len(fields[chosen[0]]) % 2] for line, fields in zip(places, tokens, strict=True)}
    text = ""
    for n, line in enumerate(lines):
        stripped = line.rstrip("\t\v\f\r ") if separator is None else line
        text += f"{stripped}{between}{labels[n]}\n" if n in labels else f"{line}\n"
    return [[fields[c] for fields in tokens] for c in chosen], ends, places, lines, text, text


def test_many_distinct_strings(write, monkeypatch):
    monkeypatch.setattr(columns_module, "_FEW", 2)
    words = [f"w{k % 50}" for k in range(200)]
    assert read_columns(write("\n".join(words))).columns == [words]


def test_a_column_equals_a_list():
    column = Column(["a", "b", "c"], np.array([1, 0, 1]))
    assert column == ["b", "a", "b"]
    assert (column[0], column[1:], len(column), repr(column)) == ("b", ["a", "b"], 3, "['b', 'a', 'b']")
    assert column.occurring() == ["a", "b"]
    assert not column.in_order
    assert Column(["b", "a"], np.array([0, 1, 0])).in_order
    assert not Column(["b", "a", "c"], np.array([0, 1, 0])).in_order


@pytest.mark.parametrize("repeat", [1, 200])
@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"text": "We met Ada .", "label": [[7, 10, "PER"]]}', "JSON lines"),
        ('["We", "met"]', "JSON lines"),
        ("[", "JSON"),
        ('<?xml version="1.0"?>', "XML or HTML"),
        ("<!DOCTYPE html>", "XML or HTML"),
    ],
)
def test_other_formats_are_recognized(line, what, repeat, tmp_path):
    (tmp_path / "file.txt").write_text((line + "\n") * repeat)
    with pytest.raises(DataError, match=f"looks like {what}: "):
        read_columns(tmp_path / "file.txt")


def test_brackets_are_tokens(tmp_path):
    (tmp_path / "file.txt").write_text("{ (\n[ (\n<html> NN\n")
    assert read_columns(tmp_path / "file.txt").sentences(0) == [["{", "[", "<html>"]]
