"""Reading and writing text files: plain or gzip, ``-`` for the standard streams, errors that name file and line."""

import gzip
import io
import json
import os
import re
import secrets
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO, cast

from trelliswork.errors import DataError, ValueRangeError

GZIP = b"\x1f\x8b"  # first bytes of a gzip file
BOM = b"\xef\xbb\xbf"  # byte order mark of UTF-8
_BLOCK = 1 << 18
_SHOWN = 60
_LONGEST = 100  # characters of a file name that a temporary name repeats
_BLANKS = re.compile(r"[\t-\r\x1c-\x20]+")  # white space of str.split() in an ASCII string


@dataclass(frozen=True)
class Section:
    """The bytes ``start`` to ``stop`` of a plain file, whole lines; up to the end without ``stop``."""

    path: str
    start: int = 0
    stop: int | None = None

    def __str__(self) -> str:
        return self.path

    @property
    def size(self) -> int:
        """Number of bytes."""
        return (Path(self.path).stat().st_size if self.stop is None else self.stop) - self.start

    def lines_before(self) -> int:
        """Return the number of lines before the section, by reading them: for messages only."""
        with Path(self.path).open("rb") as file:
            left, n = self.start, 0
            while left and (block := file.read(min(left, _BLOCK))):
                left -= len(block)
                n += block.count(b"\n")
        return n


class Strings(Sequence[str]):
    """A sequence that equals a list of strings, which is made when it is first needed."""

    @cached_property
    def strings(self) -> list[str]:
        """The strings as a list."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.strings)

    def __getitem__(self, index: Any) -> Any:
        return self.strings[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.strings)

    def __eq__(self, other: object) -> bool:
        return self.strings == (other.strings if isinstance(other, Strings) else other)

    __hash__ = None  # type: ignore[assignment]  # as that of a list

    def __repr__(self) -> str:
        return repr(self.strings)


class RawLines(Strings):
    """Lines of a text in UTF-8, each with a line feed at its end (the last one perhaps without)."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    @cached_property
    def strings(self) -> list[str]:
        """The lines without their ends."""
        lines = self.text.decode().split("\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def __len__(self) -> int:
        return self.text.count(b"\n") + bool(self.text and not self.text.endswith(b"\n"))


@dataclass(frozen=True)
class Excerpt:
    """Some lines of a file that is read in parts, whole sentences; a reader takes it like a file of its own."""

    file: "str | os.PathLike[str] | Section"
    lines: RawLines
    start: int = 0  # lines of the file before
    characters: int = 0  # before, with line ends
    last: bool = True  # whether the file ends here
    notes: dict[str, Any] = field(default_factory=dict)  # what readers keep for later parts of the same file

    def __str__(self) -> str:
        return str(self.file)

    def lines_before(self) -> int:
        """Return the number of lines of the whole file before the excerpt."""
        return self.start + (self.file.lines_before() if isinstance(self.file, Section) else 0)

    def joined(self, following: "Excerpt") -> "Excerpt":
        """Return this excerpt and the following one as one."""
        lines = RawLines(self.lines.text + following.lines.text)
        return Excerpt(self.file, lines, self.start, self.characters, following.last, self.notes)


class _Bounded(io.RawIOBase):
    """A section of an open file as a stream."""

    def __init__(self, file: BinaryIO, section: Section) -> None:
        self._file, self._left = file, section.size
        file.seek(section.start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


class _After(io.RawIOBase):
    """A stream of which some bytes have been read already; a read returns what has arrived."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, cast(io.BufferedReader, rest)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._rest.read1(len(buffer))
        self._head = self._head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


Readable = str | os.PathLike[str] | Section | Excerpt


def source_name(path: Readable) -> str:
    """Return the name of a file in messages: the path as it was given, ``<stdin>`` for ``-``."""
    name = str(path) if isinstance(path, Section | Excerpt) else os.fspath(path)
    return "<stdin>" if name == "-" else name


def lines_before(path: "Readable | None") -> int:
    """Return the number of lines of a file before a part of it."""
    return path.lines_before() if isinstance(path, Section | Excerpt) else 0


@contextmanager
def counting_lines_before(path: Readable) -> Iterator[None]:
    """Correct the line numbers in errors about a section or excerpt that does not start its file."""
    try:
        yield
    except DataError as error:
        before = lines_before(path)
        if before:
            number = rf"(?<={re.escape(source_name(path))}:)\d+|(?<=as in line )-?\d+|(?<=after line )\d+"
            text = re.sub(number, lambda found: str(int(found.group()) + before), str(error))
            error.args = (text, *error.args[1:])
        raise


def shorten(value: object) -> str:
    """Return a value as Python writes it, a text in quotes, for a message; truncated if it is long."""
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}...")
    text = repr(value)
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}..."


def whole_number(text: str) -> int | None:
    """Return the number that ASCII digits write; ``None`` for other text, and for more than 18 digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def fields_of(line: str) -> list[str]:
    """Split a line at runs of ASCII white space.

    No-break spaces and the like do not separate fields: they are part of words, as in the French ``10 000``.
    """
    if line.isascii():
        return line.split()
    return [field for field in _BLANKS.split(line) if field]


def splitter(separator: str | None) -> Callable[[str], list[str]]:
    """Return the function that splits a line into fields, at white space (None) or at a separator."""
    if separator is None:
        return fields_of
    if not separator or "\n" in separator or "\r" in separator:
        raise ValueRangeError(f"separator must be None (white space) or a string such as '\\t', got {separator!r}.")
    return lambda line: line.split(separator) if line.strip("\t\v\f\r ") else []


@contextmanager
def open_text(path: Readable, *, encoding: str = "utf-8") -> Iterator[Iterator[str]]:
    r"""Open a text file, ``-`` for the standard input, and yield an iterator over its lines without their ends.

    A `Section` or `Excerpt` is opened like a file of its own; line numbers in errors are those of the whole file.

    Gzip files are recognized by their first bytes, whatever their name. Only ``\n`` and ``\r\n`` end a line. A byte
    order mark at the start is skipped. In the encoding, a line end must be the byte 10, as in UTF-8, Latin-1 or Shift
    JIS. DataError if the file cannot be read, is not in this encoding, contains a NUL byte or is a damaged gzip file.
    """
    if isinstance(path, Excerpt):
        with counting_lines_before(path):
            yield iter(path.lines)
        return
    with open_blocks(path, encoding=encoding) as blocks:
        yield chain.from_iterable(RawLines(block) for block, _ in blocks)


@contextmanager
def open_blocks(
    path: str | os.PathLike[str] | Section,
    *,
    encoding: str = "utf-8",
    size: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Iterator[tuple[bytes, bool]]]:
    """Open a text file as `open_text` does, and yield an iterator over blocks of lines, in UTF-8, as they arrive.

    With each block comes whether the next one has not arrived yet: a program that reads a pipe may then write what it
    has. Files never keep it waiting. A line ends with a line feed, the last one perhaps without. Blocks have about
    ``size`` bytes, by default what has arrived. ``progress`` receives the number of bytes that were read for each.
    """
    try:
        plain = "\n".encode(encoding) == b"\n"
    except LookupError:
        raise ValueRangeError(f"encoding {encoding!r} is unknown. Use a name such as 'utf-8' or 'latin-1'.") from None
    if not plain:
        raise ValueRangeError(f"encoding {encoding!r} cannot be read line by line. Convert the file to UTF-8 first.")
    name = source_name(path)
    with ExitStack() as stack:
        raw: BinaryIO
        if name == "<stdin>":
            raw = sys.stdin.buffer  # not ours to close
        else:
            try:
                raw = stack.enter_context(Path(name).open("rb"))
            except FileNotFoundError:
                raise DataError(f"{name}: no such file. Check the path.") from None
            except IsADirectoryError:
                raise DataError(f"{name}: expected a file, got a directory. Name a file in it.") from None
            except OSError as error:
                raise DataError(f"{name}: cannot be read: {error.strerror or error}.") from None
        file, inside = raw, isinstance(path, Section) and path.start > 0
        if isinstance(path, Section) and (inside or path.stop is not None):
            raw = cast(BinaryIO, io.BufferedReader(_Bounded(raw, path)))
        with counting_lines_before(path):
            blocks = _blocks(raw, name, encoding, inside, size)
            yield blocks if progress is None else _counted(blocks, file, progress)


def _counted(
    blocks: Iterator[tuple[bytes, bool]], file: BinaryIO, progress: Callable[[int], object]
) -> Iterator[tuple[bytes, bool]]:
    """Yield blocks, and report how far the file was read for each."""
    done = file.tell()
    for block in blocks:
        progress(file.tell() - done)
        done = file.tell()
        yield block


def _blocks(raw: BinaryIO, name: str, encoding: str, inside: bool, size: int | None) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of a stream in blocks, checked block by block, and line by line only to locate an error.

    A stream that starts ``inside`` a file has neither the head of a gzip file nor a byte order mark.
    """
    pipe = _pipe(raw)
    head = b"" if inside else raw.read(2)
    if head == GZIP:
        if raw.seekable():
            raw.seek(-2, os.SEEK_CUR)
        else:
            raw = cast(BinaryIO, _After(head, raw))
        raw, head = cast(BinaryIO, gzip.GzipFile(fileobj=raw)), b""
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig"):
        encoding = "utf-8"
        if not inside and (head == BOM[:2] or not head):
            with gzip_errors(name, 0):
                head += raw.read(3 - len(head))
            head = head.removeprefix(BOM)
    number = 0  # lines yielded so far
    begun = [head]  # of a line
    read = cast(io.BufferedReader, raw).read1 if size is None else raw.read  # which waits for a full block
    while True:
        with gzip_errors(name, number):
            block = read(size or _BLOCK)
        waits = pipe is not None and bool(block) and not _has_arrived(pipe)
        end = block.rfind(b"\n") + 1
        begun.append(block[:end] if end else block)
        if block and not end:
            if waits:
                yield b"", True
            continue
        rest, block = block[end:], b"".join(begun)
        begun = [rest]
        if not block:
            return
        try:
            text = block.decode(encoding)
        except UnicodeDecodeError:
            raise _undecodable(block, name, number, encoding) from None
        if "\0" in text:
            raise nul_byte(name, number + 1 + text.count("\n", 0, text.index("\0")))
        if encoding != "utf-8":
            block = text.encode()
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").removesuffix(b"\r")
        number += block.count(b"\n")
        yield block, waits


def _pipe(raw: BinaryIO) -> int | None:
    """Return the number of a stream that may keep a reader waiting, such as a pipe; ``None`` for a file."""
    try:
        number = raw.fileno()
        return None if stat.S_ISREG(os.fstat(number).st_mode) else number
    except (OSError, AttributeError):  # in memory
        return None


def _has_arrived(number: int) -> bool:
    """Return whether a stream has more to read now, or has ended; False if the system cannot tell."""
    import select

    try:
        return bool(select.select([number], [], [], 0)[0])
    except (OSError, ValueError):
        return False


@contextmanager
def gzip_errors(name: str, number: int) -> Iterator[None]:
    """Turn the errors of a damaged gzip file, read up to line ``number``, into DataError."""
    try:
        yield
    except EOFError:
        raise DataError(f"{name}: the gzip file is truncated after line {number} or later. Copy it again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{name}: the gzip file is damaged after line {number}: {error}. Copy it again.") from None


def nul_byte(name: str, line: int) -> DataError:
    """Return the error for a NUL byte in a text file."""
    return DataError(f"{name}:{line}: expected text, got a NUL byte. Is it a binary file, or UTF-16?")


def _undecodable(block: bytes, name: str, number: int, encoding: str) -> DataError:
    """Return the error for the first line of a block that cannot be decoded."""
    for line, bad in enumerate(block.split(b"\n"), start=number + 1):
        try:
            bad.decode(encoding)
        except UnicodeDecodeError as error:
            at = error.start
            shown = shorten(bad.decode(encoding, errors="backslashreplace"))
            return DataError(
                f"{name}:{line}: expected {encoding.upper()}, but byte {at + 1} of the line is 0x{bad[at]:02x}: "
                f"{shown}. Convert it to UTF-8 (iconv -f latin1 -t utf8), or in Python give its encoding ('latin-1')."
            )
    return DataError(f"{name}: expected {encoding.upper()}, but the file has another encoding. Give its encoding.")


def no_sentence(source: str, layout: str) -> DataError:
    """Return the error for a file without sentences, which should have the given layout."""
    return DataError(f"{source}: expected at least one sentence ({layout}), got none. Is it the right file?")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path``; the file written there replaces ``path`` at the end, in one step.

    The writer calls ``sync`` before. After an exception the file is deleted and ``path`` is unchanged.
    """
    fresh = path.with_name(f".{path.name[:_LONGEST]}.{secrets.token_hex(4)}.tmp")
    try:
        yield fresh
        fresh.replace(path)
        with suppress(OSError):  # some systems cannot sync the names in a directory
            handle = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    finally:
        with suppress(OSError):
            fresh.unlink()


def sync(file: IO[Any]) -> None:
    """Wait until the content of an open file is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def leftover_name(name: str) -> str:
    """Return the pattern of the temporary names of ``replacing`` for a pattern of file names."""
    return rf"\.(?:{name})\.[0-9a-f]{{8}}\.tmp"


def remove_leftovers(path: Path) -> None:
    """Delete temporary files of killed writers of ``path``; no other process may be writing it."""
    pattern = re.compile(leftover_name(re.escape(path.name)))
    with suppress(OSError):  # the next one tries again
        for other in path.parent.iterdir():
            if pattern.fullmatch(other.name):
                other.unlink()


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    r"""Write a UTF-8 text file, ``-`` for the standard output, completely or not at all.

    The text goes to a temporary file in the same directory, which replaces ``path`` at the end. After an exception it
    is deleted and an existing file is unchanged. Lines end with ``\n``. If the name ends in ``.gz``, it is a gzip file.
    The permissions of an existing file are kept, symbolic links are followed, and special files (a pipe, ``/dev/null``)
    are written directly. DataError if the file cannot be created.
    """
    name = os.fspath(path)
    if name == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    target = Path(name).resolve()
    if target.is_dir():
        raise DataError(f"{name}: expected a file to write, got a directory. Add a file name.")
    if target.exists() and not target.is_file():
        with _created(target, name, "w") as file:
            yield file
        return
    with replacing(target) as fresh:
        with _created(fresh, name, "x") as file:
            if name.endswith(".gz"):
                packed = gzip.GzipFile("", "wb", fileobj=file.buffer, mtime=0)
                with io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text:
                    yield text
            else:
                yield file
            sync(file)
        if target.exists():
            fresh.chmod(target.stat().st_mode & 0o7777)


def _created(place: Path, name: str, mode: str) -> TextIO:
    try:
        return cast(TextIO, place.open(mode, encoding="utf-8", newline="\n"))
    except OSError as error:
        raise DataError(f"{name}: cannot be written: {error.strerror or error}: {place.parent}.") from None


def check_is_columns(line: str, source: str) -> None:
    """Raise a `DataError` if the first line of a file of columns shows that it is JSON, XML or HTML."""
    text, what = line.strip(), ""
    if text[:1] in ("{", "["):
        try:
            what = "JSON lines" if isinstance(json.loads(text), dict | list) else ""
        except ValueError:
            what = "JSON" if len(text) == 1 else ""
    elif text.lower().startswith(("<?xml", "<!doctype", "<html")):
        what = "XML or HTML"
    if what:
        raise DataError(
            f"{source} looks like {what}: {shorten(text)}. Expected columns: one token per line with its label, and "
            "an empty line between sentences."
        )
