"""CRFsuite's attribute files: names and weights as CRFsuite reads them."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.written import crfsuite_text
from trelliswork.data import AttributeCorpus, read_crfsuite
from trelliswork.errors import DataError, ShapeError


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "train.crfsuite"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def items(corpus):
    """Sentences of tokens ``(label, [(name, weight), ...])``."""
    values = np.ones(len(corpus.attributes)) if corpus.values is None else corpus.values
    pairs = [(corpus.names[k], v) for k, v in zip(corpus.attributes, values.tolist(), strict=True)]
    ptr, ends = corpus.token_ptr.tolist(), corpus.offsets.tolist()
    tokens = [(label, pairs[ptr[i] : ptr[i + 1]]) for i, label in enumerate(corpus.labels)]
    return [tokens[ends[n] : ends[n + 1]] for n in range(len(corpus))]


def test_labels_and_attributes(write):
    text = "B\tw=a\tp=x\nI\tw=b\tp=x\n\n\nO\nO\tw=a\tw=a"
    for content in (text, "\ufeff" + text.replace("\n", "\r\n"), gzip.compress(text.encode())):
        corpus = read_crfsuite(write(content))
        assert corpus.labels == ["B", "I", "O", "O"]
        assert corpus.offsets.tolist() == [0, 2, 4]
        assert corpus.token_ptr.tolist() == [0, 2, 4, 4, 6]
        assert corpus.attributes.tolist() == [0, 1, 2, 1, 0, 0]
        assert corpus.names == ["w=a", "p=x", "w=b"]
        assert corpus.values is None
        assert len(corpus) == 2
        assert corpus.n_tokens == 4
    assert corpus.attributes.dtype == np.int32
    assert corpus.token_ptr.dtype == corpus.offsets.dtype == np.int64


def test_weights(write):
    corpus = read_crfsuite(write("A\ta\tb\nA\ta:2.5\tb:-1e-3\nA\tb\ta:1\n"))
    assert corpus.values.dtype == np.float64
    assert corpus.values.tolist() == [1, 1, 2.5, -1e-3, 1, 1]
    assert corpus.attributes.tolist() == [0, 1, 0, 1, 1, 0]
    assert read_crfsuite(write("A\ta:1\tb:1.0\n")).values is None
    assert read_crfsuite(write("A\n")).attributes.shape == (0,)


@pytest.mark.parametrize(
    ("written", "name", "weight"),
    [
        (r"a\:b", "a:b", 1),
        (r"a\:2", "a:2", 1),
        (r"a\:b:2", "a:b", 2),
        (r"a\\:2", "a\\", 2),
        (r"a\\\:2", "a\\:2", 1),
        (r"a\\\\", "a\\\\", 1),
        (r"a\b", r"a\b", 1),
        (r"a\b:3", r"a\b", 3),
        ("a\\", "a\\", 1),
        (r"\:", ":", 1),
        ("a b:0", "a b", 0),
        ("#x:2", "#x", 2),
    ],
)
def test_escapes(write, written, name, weight):
    corpus = read_crfsuite(write(f"L\t{written}\n"))
    assert items(corpus) == [[("L", [(name, weight)])]]
    assert items(read_crfsuite(write(crfsuite_text(corpus)))) == items(corpus)


def test_two_ways_to_write_one_name(write):
    corpus = read_crfsuite(write("L\ta\\b\ta\\\\b\ta\\b:2\nL\tx\\\\y\tx\\y\n"))
    assert corpus.names == ["a\\b", "x\\y"]
    assert corpus.attributes.tolist() == [0, 0, 0, 1, 1]


def test_labels(write):
    assert read_crfsuite(write("B\\:x\ta\nB\\:x\ta\n")).labels == ["B:x", "B:x"]
    assert read_crfsuite(write("\ta\n\tb\n\n \ta\n \n\tc\n")).labels == ["", "", " ", ""]
    assert read_crfsuite(write("\ta\n\tb\n\n \ta\n \n\tc\n")).offsets.tolist() == [0, 2, 3, 4]


def test_consecutive_tabs_count_as_one(write):
    corpus = read_crfsuite(write("L\t\ta\t\t\tb:2\t\nL\tc\t\n"))
    assert items(corpus) == [[("L", [("a", 1), ("b", 2)]), ("L", [("c", 1)])]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "L\ta\nL\tw=:\n",
            r"train.crfsuite:2: expected a finite number after the colon, .* got '' in 'w=:'. A colon in a",
        ),
        ("L\ta:b\n", r"train.crfsuite:1: expected a finite number .* got 'b' in 'a:b'"),
        ("L\ta:nan\n", r"got 'nan' in"),
        ("L\ta:1\tb:inf\n", r"got 'inf' in"),
        ("L\ta:1e999\n", r"got '1e999' in"),
        ("L\ta:1_0\n", r"got '1_0' in"),
        ("L\ta:1:2\n", r"got '1:2' in"),
        ("L\ta\t:2\n", r"train.crfsuite:1: expected a name before the colon, .* got ':2'"),
        ("L\t:2\n", r"train.crfsuite:1: expected a name before the colon"),
        ("L\ta\n\nB:x\ta\n", r"train.crfsuite:3: a colon in a label must be written \\:, got 'B:x'"),
        ("@weight:2\tL\ta\n", r"train.crfsuite:1: expected a label, got the declaration '@weight:2'"),
        ("L\ta\nL\t" + "x" * 100 + ":y\n", r"train.crfsuite:2: .* got 'y' in 'x{60}\.\.\.'"),
        ("\n\n", r"train.crfsuite: expected at least one sentence"),
        (b"L\ta\nL\t\xff", r"train.crfsuite:2: expected UTF-8, but byte 3 of the line is 0xff"),
        ("L\ta\0\n", r"train.crfsuite:1: expected text, got a NUL byte"),
    ],
)
def test_errors(write, content, message):
    with pytest.raises(DataError, match=message):
        read_crfsuite(write(content))


def corpus_of(sentences):
    names, labels, ids, values, ptr, ends = {}, [], [], [], [0], [0]
    for sentence in sentences:
        for label, attributes in sentence:
            labels.append(label)
            ids += [names.setdefault(name, len(names)) for name, _ in attributes]
            values += [value for _, value in attributes]
            ptr.append(len(ids))
        ends.append(len(labels))
    weights = None if all(v == 1 for v in values) else np.array(values)
    return AttributeCorpus(labels, np.array(ends), np.array(ptr), np.array(ids, dtype=np.int32), weights, list(names))


def test_arrays_that_do_not_fit_together():
    with pytest.raises(ShapeError, match=r"labels must have 2 entries and token_ptr 3, got 1 and 2"):
        AttributeCorpus(["L"], np.array([0, 2]), np.array([0, 0]), np.empty(0, np.int32), None, [])
    with pytest.raises(ShapeError, match=r"token_ptr ends at 1"):
        AttributeCorpus(["L"], np.array([0, 1]), np.array([0, 1]), np.empty(0, np.int32), None, [])


LETTER = st.sampled_from("ab:\\ =_#1.é\u00a0\u2028\x85\v") | st.characters(
    codec="utf-8", exclude_characters="\t\n\r\0\ufeff"
)
NAME = st.text(LETTER, min_size=1, max_size=6)
LABEL = NAME.filter(lambda s: s.strip("\v\f "))
WEIGHT = st.just(1.0) | st.floats(allow_nan=False, allow_infinity=False)
TOKEN = st.tuples(LABEL, st.lists(st.tuples(NAME, WEIGHT), max_size=5))


@given(st.lists(st.lists(TOKEN, min_size=1, max_size=4), min_size=1, max_size=4))
def test_round_trip(tmp_path_factory, sentences):
    path = tmp_path_factory.mktemp("crfsuite") / "file"
    path.write_bytes(crfsuite_text(corpus_of(sentences)).encode())
    again = read_crfsuite(path)
    assert items(again) == sentences
    assert again.names == corpus_of(sentences).names


def test_conll2000_attributes(data_dir, tmp_path):
    path = tmp_path / "test.crfsuite"
    with path.open("w", encoding="utf-8") as file:
        for line in (data_dir / "conll2000" / "test.txt").read_text(encoding="utf-8").splitlines():
            word, tag, label = line.replace("\\", "\\\\").replace(":", "\\:").split() if line else ("", "", "")
            file.write(f"{label}\tw={word}\tt={tag}\twt={word}|{tag}\n" if line else "\n")
    corpus = read_crfsuite(path)
    assert (len(corpus), corpus.n_tokens, len(corpus.attributes)) == (2012, 47377, 3 * 47377)
    assert sum(name.startswith("w=") for name in corpus.names) == 8118
    assert "w=:" in corpus.names
    assert crfsuite_text(corpus) == path.read_text(encoding="utf-8")
