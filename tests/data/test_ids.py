"""Text to ids: files, corpora and sentences give the same ids; unknown words, edges, errors."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trelliswork.data import Corpus, Vocabulary
from trelliswork.data import ids as ids_module
from trelliswork.data.files import fields_of
from trelliswork.data.ids import files_of, read_ids, read_sentences, stream_ids
from trelliswork.data.vocabulary import UNKNOWN, word_shape
from trelliswork.errors import DataError, ShapeError, ValueRangeError

TEXT = [["the", "dog", "saw", "the", "cat"], ["the", "Dog"], ["cats"]]


@pytest.fixture
def files(tmp_path):
    lines = [" ".join(sentence) for sentence in TEXT]
    (tmp_path / "a.txt").write_text("\n".join(lines[:1]) + "\n\n", encoding="utf-8")
    (tmp_path / "b.gz").write_bytes(gzip.compress("\r\n".join(lines[1:]).encode()))
    return tmp_path


def words_of(text):
    return [text.vocabulary.strings(sentence.tolist()) for sentence in text.sentences()]


def test_all_sources_give_the_same_ids(files):
    expected = read_ids(TEXT)
    assert expected.vocabulary.items == ["<s>", "the", "dog", "saw", "cat", "Dog", "cats"]
    assert expected.ids.tolist() == [1, 2, 3, 1, 4, 1, 5, 6]
    assert expected.offsets.tolist() == [0, 5, 7, 8]
    sources = [files, [files / "a.txt", files / "b.gz"], Corpus.from_sentences(TEXT), iter(TEXT)]
    for source in [*sources, (path for path in sorted(files.iterdir()))]:
        text = read_ids(source)
        assert text.vocabulary.items == expected.vocabulary.items
        assert text.ids.tolist() == expected.ids.tolist()
        assert text.offsets.tolist() == expected.offsets.tolist()
    assert read_sentences(files) == read_sentences(Corpus.from_sentences(TEXT)) == read_sentences(TEXT) == TEXT


def test_rare_words_are_unknown(files):
    for source in (TEXT, files):
        text = read_ids(source, min_count=2)
        assert words_of(text) == [["the", UNKNOWN, UNKNOWN, "the", UNKNOWN], ["the", UNKNOWN], [UNKNOWN]]
        assert text.vocabulary.unknown_word == UNKNOWN
        assert read_ids(source, max_words=2).vocabulary.items == ["<s>", "the", "dog", UNKNOWN]
    assert read_ids(TEXT).vocabulary.unknown_word is None
    assert read_ids([*TEXT, [UNKNOWN]]).vocabulary.unknown_word == UNKNOWN
    for text, min_count in ((TEXT, 2), (TEXT * 2, 1)):  # words are left out anyway, or no word was seen once
        opened = read_ids(text, min_count=min_count, unknown="symbol")
        assert opened.vocabulary.items[-1] == opened.vocabulary.unknown_word == UNKNOWN
        assert opened.ids.tolist() == read_ids(text, min_count=min_count).ids.tolist()
        assert opened.vocabulary.id("new") == len(opened.vocabulary) - 1


def test_an_open_vocabulary_learns_unknown_words_from_words_seen_once(files):
    for source in (TEXT, files):
        text = read_ids(source, unknown="symbol")
        assert text.vocabulary.items == ["<s>", "the", "dog", "cat", "cats", UNKNOWN]
        assert words_of(text) == [["the", "dog", UNKNOWN, "the", "cat"], ["the", UNKNOWN], ["cats"]]
    listed = read_ids([*TEXT, [UNKNOWN]], unknown="symbol")
    assert listed.vocabulary.items == ["<s>", "the", "dog", "saw", "cat", "Dog", "cats", UNKNOWN]


def test_given_vocabulary_decides_about_unlisted_words(files):
    for unknown, expected in ((UNKNOWN, UNKNOWN), (word_shape, "<capital>")):
        vocabulary = Vocabulary(["<s>", "the", "dog", "<capital>"], unknown=unknown)
        for source in (TEXT, files):
            assert words_of(read_ids(source, vocabulary=vocabulary))[1] == ["the", expected]
    closed = Vocabulary(["<s>", "the", "dog"])
    with pytest.raises(DataError, match="sentence 0, token 2: 'saw' is not in the vocabulary"):
        read_ids(TEXT, vocabulary=closed)
    with pytest.raises(DataError, match=r"a\.txt:1: 'saw' is not in the vocabulary"):
        read_ids(files / "a.txt", vocabulary=closed)


def test_edges(files):
    for source in (TEXT, files):
        text = read_ids(source)
        assert text.vocabulary.items == ["<s>", "the", "dog", "saw", "cat", "Dog", "cats"]
        assert words_of(text) == TEXT
        whole = text.with_edges()
        assert [s.tolist() for s in whole.sentences()] == [[0, 1, 2, 3, 1, 4, 0], [0, 1, 5, 0], [0, 6, 0]]
        assert whole.offsets.tolist() == [0, 7, 11, 14]
    for word in ("<s>", "</s>"):
        with pytest.raises(DataError, match=f"sentence 0, token 1: {word} marks sentence edges"):
            read_ids([["a", word]])
        with pytest.raises(DataError, match="corpus, sentence 0, token 1"):
            read_ids(Corpus([["a", word]], np.array([0, 2]), source="corpus"))
    with pytest.raises(ValueRangeError, match="must list <s> first"):
        read_ids(TEXT, vocabulary=Vocabulary(["the"], unknown=UNKNOWN))


def test_empty_sentences():
    assert len(read_ids([["a"], [], ["b"]])) == 2
    text = read_ids([["a"], [], ["b"], []], keep_empty=True)
    assert [s.tolist() for s in text.sentences()] == [[1], [], [2], []]
    assert text.with_edges().ids.tolist() == [0, 1, 0, 0, 0, 0, 2, 0, 0, 0]
    nothing = read_ids([], vocabulary=Vocabulary(["<s>", "a"]))
    assert (len(nothing), nothing.sentences(), nothing.with_edges().ids.tolist()) == (0, [], [])
    with pytest.raises(DataError, match="at least one sentence"):
        read_ids([])


def test_streams_do_not_depend_on_the_size_of_blocks(files, monkeypatch):
    expected = np.concatenate(list(stream_ids(TEXT, min_count=2).blocks)).tolist()
    monkeypatch.setattr(ids_module, "BLOCK", 10)
    monkeypatch.setattr(ids_module, "TOKENS", 2)
    for source in (TEXT, files):
        for limit in (1 << 20, 4):
            stream = stream_ids(source, min_count=2, memory_limit=limit)
            blocks = list(stream.blocks)
            assert len(blocks) > 1
            assert all(block[-1] == -1 for block in blocks)
            assert np.concatenate(blocks).tolist() == expected


def test_wrong_sources_raise(tmp_path):
    with pytest.raises(DataError, match="no such file or directory"):
        read_ids(tmp_path / "none")
    for text in ("no file has this name", "a " * 3000):
        for source in (text, [text], [text, text]):
            with pytest.raises(ShapeError, match=r"list of words, as from split\(\), and a file a Path") as error:
                read_ids(source)
            assert len(str(error.value)) < 300
    with pytest.raises(DataError, match="expected a directory with text files"):
        read_ids(tmp_path)
    with pytest.raises(ValueRangeError, match="sentence 1 must be a list of words, got the string 'a b'"):
        read_ids([["a"], "a b"])
    with pytest.raises(DataError, match=r"sentence 0, token 1: expected a word of Unicode text \(str\), got 3"):
        read_ids([["a", 3]])
    with pytest.raises(ValueRangeError, match="must be positive"):
        read_ids(TEXT, min_count=0)
    assert files_of(TEXT) is None


@settings(max_examples=30)
@given(st.binary(max_size=60))
def test_bytes_are_split_as_python_splits_them(content):
    clean = content.replace(b"\0", b"").decode("latin-1").encode()
    ids, words, _ = ids_module.tokenized(clean)
    lines = [fields_of(line) for line in clean.decode().split("\n")]
    joined = " ".join("\n" if i < 0 else words[i].decode() for i in ids)
    assert joined == " ".join(word for line in lines if line for word in [*line, "\n"])
