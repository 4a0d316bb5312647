"""Plain text: one sentence per line."""

import gzip
import io
import sys

import pytest

from trelliswork.data import read_text
from trelliswork.errors import DataError


def test_sentences(tmp_path, monkeypatch):
    path = tmp_path / "text"
    content = "\ufeffthe  dog\truns \r\n\r\n \nit\u00a0rains".encode()
    expected = [["the", "dog", "runs"], ["it\u00a0rains"]]
    for packed in (content, gzip.compress(content)):
        path.write_bytes(packed)
        assert read_text(path).sentences() == expected
        assert read_text(str(path)).source == str(path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    corpus = read_text("-")
    assert corpus.sentences() == expected
    assert corpus.source == "<stdin>"


def test_equal_words_are_one_object(tmp_path):
    path = tmp_path / "text"
    path.write_text("dog\ndog")
    first, second = read_text(path).columns[0]
    assert first is second


def test_errors(tmp_path):
    path = tmp_path / "text"
    path.write_text(" \n\n")
    with pytest.raises(DataError, match="text: expected at least one sentence"):
        read_text(path)
    path.write_bytes(b"a\nb c\xff")
    with pytest.raises(DataError, match="text:2: expected UTF-8, but byte 4 of the line is 0xff"):
        read_text(path)
    with pytest.raises(DataError, match="got a directory"):
        read_text(tmp_path)


@pytest.mark.parametrize(("name", "sentences", "tokens"), [("valid", 3370, 70390), ("test", 3761, 78669)])
def test_penn_treebank(data_dir, name, sentences, tokens):
    corpus = read_text(data_dir / "ptb-lm" / f"ptb.{name}.txt")
    assert (len(corpus), corpus.n_tokens) == (sentences, tokens)


def test_wikitext(data_dir):
    corpus = read_text(data_dir / "wikitext-2" / "wiki.valid.tokens")
    assert corpus.n_tokens == 213886
