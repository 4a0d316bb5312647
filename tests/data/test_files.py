"""Files: plain and gzip, errors with file and line, atomic writing."""

import gzip
import io
import os
import sys

import pytest

from trelliswork.data.files import atomic_write, open_text
from trelliswork.errors import DataError, TrellisworkError


def lines_of(path):
    with open_text(path) as file:
        return list(file)


def written(folder, content, name="train.txt"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n\r\nc\r", ["a", "b", "", "c"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        (b"\xef\xbb\xbf", []),
        (b"\n\n", ["", ""]),
        ("\u2028x\x85y\x0cz\n".encode(), ["\u2028x\x85y\x0cz"]),
    ],
)
def test_lines(tmp_path, content, expected):
    assert lines_of(written(tmp_path, content)) == expected
    assert lines_of(written(tmp_path, gzip.compress(content), "packed")) == expected
    assert lines_of(str(written(tmp_path, gzip.compress(content[:1]) + gzip.compress(content[1:]), "two"))) == expected


def test_blocks_end_with_lines(tmp_path):
    expected = [f"{i} {'ä' * (i % 50)}" for i in range(20_000)]  # several blocks
    content = "\n".join(expected).encode()
    assert lines_of(written(tmp_path, content)) == expected
    bad = content.replace(b"\n15000 ", b"\n15000 \xff")
    with pytest.raises(DataError, match=r"train.txt:15001: expected UTF-8, but byte 7 of the line is 0xff"):
        lines_of(written(tmp_path, bad))
    with pytest.raises(DataError, match=r"train.txt:15001: expected text, got a NUL byte"):
        lines_of(written(tmp_path, bad.replace(b"\xff", b"\0")))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(monkeypatch, pack):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    for stream in (io.BytesIO, Pipe):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream(pack(b"one\ntwo"))))
        assert lines_of("-") == ["one", "two"]
        assert not sys.stdin.buffer.closed
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(b"a\n\xff"))))
    with pytest.raises(DataError, match="<stdin>:2: expected UTF-8"):
        lines_of("-")


def test_other_encodings(tmp_path):
    path = written(tmp_path, "a\ncafé\nb\n".encode("latin-1"))
    with pytest.raises(
        DataError, match=r"train.txt:2: expected UTF-8, but byte 4 of the line is 0xe9: 'caf\\\\xe9'.*iconv"
    ):
        lines_of(path)


def test_unreadable_files(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"nowhere.txt: no such file"):
        lines_of(tmp_path / "nowhere.txt")
    with pytest.raises(DataError, match=r"expected a file, got a directory") as caught:
        lines_of(tmp_path)
    assert isinstance(caught.value, TrellisworkError)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(DataError, match=r"cannot be read: Not a directory"):
        lines_of(written(tmp_path, b"a") / "b")


def test_damaged_gzip(tmp_path):
    packed = gzip.compress(b"a b\n" * 1000 + os.urandom(5000).hex().encode())
    for size in (1000, len(packed) - 4):
        with pytest.raises(DataError, match=r"train.gz: the gzip file is truncated"):
            lines_of(written(tmp_path, packed[:size], "train.gz"))
    flipped = bytearray(packed)
    flipped[-6] ^= 1  # the check sum
    with pytest.raises(DataError, match=r"train.gz: the gzip file is damaged"):
        lines_of(written(tmp_path, bytes(flipped), "train.gz"))
    with pytest.raises(DataError, match=r"train.gz: the gzip file is damaged"):
        lines_of(written(tmp_path, packed[:10] + b"\xff" * 100, "train.gz"))


def write_half(path):
    with atomic_write(path) as file:
        file.write("half")
        file.flush()
        raise RuntimeError("in the middle")


def test_atomic_write(tmp_path):
    path = tmp_path / "out.txt"
    with atomic_write(path) as file:
        file.write("één\n")
        assert not path.exists()
    assert path.read_bytes() == "één\n".encode()
    path.chmod(0o640)
    with pytest.raises(RuntimeError, match="in the middle"):
        write_half(str(path))
    assert path.read_bytes() == "één\n".encode()
    link = tmp_path / "link"
    link.symlink_to(path)
    with atomic_write(link) as file:
        file.write("new\n")
    assert link.is_symlink()
    assert path.read_text() == "new\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "out.txt"]


def test_atomic_write_elsewhere(tmp_path, capsys):
    with atomic_write("-") as file:
        file.write("shown\n")
    assert capsys.readouterr().out == "shown\n"
    with atomic_write(os.devnull) as file:
        file.write("gone\n")
    with pytest.raises(DataError, match="got a directory"), atomic_write(tmp_path):
        pass
    message = r"out.txt: cannot be written: No such file or directory: .*none"
    with pytest.raises(DataError, match=message), atomic_write(tmp_path / "none" / "out.txt"):
        pass
