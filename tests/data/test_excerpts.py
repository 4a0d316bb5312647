"""Files in parts: nothing is lost, parts end with sentences, and a pipe does not keep readers waiting."""

import gzip
import io
import os
import threading

import pytest

from trelliswork.data import bundled, read_columns
from trelliswork.data.files import Excerpt, open_blocks, open_text
from trelliswork.data.reading.shares import excerpts
from trelliswork.data.tokenize import read_raw_text, safe_end
from trelliswork.errors import DataError

TEXT = "".join(f"{s}\n" + "\n" * (k % 3 == 0) for k, s in enumerate(bundled.load("dev")[:30]))
RAW = (
    'Mr. Smith paid $3.50. He\nleft (early)! The U.S. team won.\n\n  \nIt\'s 5 p.m. now.\nThey said: "Go."\n'
    "Nobody went. Did\nshe? yes. No one\nknows.\nThe end.\n"
)


def write(path, text):
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("size", [1, 7, 10**9])
@pytest.mark.parametrize("blank_lines", [True, False])
def test_parts_are_the_file(tmp_path, size, blank_lines):
    path = write(tmp_path / "a", TEXT)
    parts = list(excerpts(path, blank_lines=blank_lines, first=size, most=size))
    assert [line for part in parts for line in part.lines] == TEXT.splitlines()
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    at = 0
    for part in parts:
        assert part.before == at
        assert part.notes is parts[0].notes
        at += len(part.lines)
        if blank_lines and not part.last:
            assert part.lines[-1] == ""
    assert (len(parts) > 1) == (size < 10**9)


def test_parts_double(tmp_path):
    path = write(tmp_path / "a", "a\n" * 2000)
    sizes = [len(part.lines) for part in excerpts(path, blank_lines=False, first=20, most=200)]
    assert sizes[:6] == [10, 20, 40, 80, 100, 100]


def read_all(parts):
    for part in parts:
        read_columns(part, columns=[0])


def test_errors_in_parts_count_lines_from_the_start(tmp_path):
    path = write(tmp_path / "a", "\na A\n\nb B\n\nc\n")
    parts = list(excerpts(path, blank_lines=True, first=1, most=1))
    with pytest.raises(DataError, match=r"a:6: expected 2 columns, as in line 2, got 1"):
        read_all(parts)
    bad = excerpts(write(tmp_path / "b", "a\n\n\x00\n"), blank_lines=True, first=1)
    with pytest.raises(DataError, match="b:3: expected text, got a NUL"):
        list(bad)
    section = Excerpt(path, start=5)  # after the first sentence
    parts = list(excerpts(section, blank_lines=True, first=1, most=1))
    with pytest.raises(DataError, match=r"a:6: expected 2 columns, as in line 4, got 1"):
        read_all(parts)


@pytest.mark.parametrize("size", [1, 3, 10**9])
def test_raw_text_in_parts_is_split_as_a_whole(tmp_path, size):
    path = write(tmp_path / "raw", RAW * 3)
    whole = read_raw_text(path)
    parts = [read_raw_text(part) for part in excerpts(path, blank_lines=True, cut=safe_end, first=size, most=size)]
    assert (len(parts) > 1) == (size < 10**9)
    assert [s for part in parts for s in part.sentences(0)] == whole.sentences(0)
    assert [x for part in parts for x in part.starts.tolist()] == whole.starts.tolist()
    assert [x for part in parts for x in part.stops.tolist()] == whole.stops.tolist()
    spaces = [part.space_after(i) for part in parts for i in range(part.n_tokens)]
    assert spaces == [whole.space_after(i) for i in range(whole.n_tokens)]
    texts = [part.sentence_text(n) for part in parts for n in range(len(part))]
    assert texts == [whole.sentence_text(n) for n in range(len(whole))]


@pytest.mark.parametrize(
    ("lines", "some"),
    [
        (RAW.splitlines()[4:], True),
        (["He left.", "(", "'", "and so on)."], False),
        (["No.", "He left. She", "too."], True),
    ],
)
def test_lines_of_raw_text_that_can_be_split_alone(lines, some):
    whole = split(lines)
    for n in range(1, len(lines) + 1):
        end = safe_end(lines[:n])
        assert end < n
        first = split(lines[:end])
        assert [len(row) for row in first] == [len(row) for row in whole][: len(first)]
        pieces = [piece.text for part in (lines[:end], lines[end:]) for row in split(part) for piece in row]
        assert pieces == [piece.text for row in whole for piece in row]
    assert (safe_end(lines) > 0) == some


def split(lines):
    from trelliswork.data.tokenize import tokenize

    return tokenize("\n".join(lines))


def test_a_paragraph_without_an_end_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("trelliswork.data.reading.shares.LONGEST", 50)
    monkeypatch.setattr("trelliswork.data.files._BLOCK", 100)
    path = write(tmp_path / "endless", "and so on\n" * 500)
    parts = list(excerpts(path, blank_lines=True, cut=safe_end, first=10, most=10))
    assert max(len(part.lines) for part in parts) < 300
    assert sum(len(part.lines) for part in parts) == 500


class Pipe:
    """A pipe whose reader is ``path`` and to which the test writes."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        self.path = f"/dev/fd/{self.reader}"

    def __enter__(self):
        return self

    def write(self, data):
        os.write(self.writer, data)

    def close(self):
        os.close(self.writer)

    def __exit__(self, *_):
        os.close(self.reader)


def test_blocks_of_a_pipe_come_as_they_arrive():
    with Pipe() as pipe:
        pipe.write(b"one\ntwo\nthr")
        with open_blocks(pipe.path) as blocks:
            assert next(blocks) == (b"one\ntwo\n", True)
            pipe.write(b"e")
            assert next(blocks) == (b"", True)  # not a line yet, and nothing more for now
            pipe.write(b"e\r\n")
            assert next(blocks) == (b"three\n", True)
            pipe.write(b"last\r")
            pipe.close()
            assert list(blocks) == [(b"last", False)]


def test_a_pause_ends_a_part():
    with Pipe() as pipe:
        pipe.write(b"a\nb\n\nc\n")
        parts = excerpts(pipe.path, blank_lines=True)
        assert next(parts).lines == ["a", "b", ""]
        pipe.write(b"d\n\n")
        assert next(parts).lines == ["c", "d", ""]
        pipe.close()
        last = next(parts)
        assert (last.lines, last.last) == ([], True)


def test_gzip_from_a_pipe_is_read_as_it_arrives():
    packed = gzip.compress(b"first line\n") + gzip.compress(b"second line\n" * 50_000)
    with Pipe() as pipe:

        def feed():
            for at in range(0, len(packed), 1000):
                pipe.write(packed[at : at + 1000])
            pipe.close()

        thread = threading.Thread(target=feed)
        thread.start()
        with open_text(pipe.path) as lines:
            assert next(lines) == "first line"
            assert sum(1 for _ in lines) == 50_000
        thread.join()


def test_standard_input_in_memory(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    (part,) = excerpts("-", blank_lines=True)
    assert part.lines == TEXT.splitlines()
