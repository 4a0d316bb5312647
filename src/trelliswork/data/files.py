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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, TextIO, cast

from trelliswork.errors import DataError, ValueRangeError

GZIP = b"\x1f\x8b"  # first bytes of a gzip file
BOM = b"\xef\xbb\xbf"  # byte order mark of UTF-8
_BLOCK = 1 << 18
_SHOWN = 60
_LONGEST = 100  # characters of a file name that a temporary name repeats
_BLANKS = re.compile(r"[\t-\r\x1c-\x20]+")  # white space of str.split() in an ASCII string


@dataclass(frozen=True)
class Excerpt:
    """Some lines of a file, whole sentences, which a reader takes like a file of its own.

    They are the bytes ``start`` to ``stop`` (the end, if it is None) of a plain file, or a ``text`` in UTF-8 that has
    been read from there on. Each line of it has a line feed at its end, the last one perhaps without.
    """

    path: str
    start: int = 0
    stop: int | None = None
    text: bytes | None = None
    before: int = 0  # lines from the start to the text
    characters: int = 0  # before the text, with line ends
    last: bool = True  # whether the file ends here
    notes: dict[str, Any] = field(default_factory=dict)  # what readers keep for later parts of the same file

    def __str__(self) -> str:
        return self.path

    @property
    def size(self) -> int:
        """Number of bytes."""
        return (Path(self.path).stat().st_size if self.stop is None else self.stop) - self.start

    @property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return lines_of(self.text or b"")

    def lines_before(self) -> int:
        """Return the number of lines of the whole file before the excerpt, by reading them: for messages only."""
        left, n = self.start, self.before
        if left:
            with Path(self.path).open("rb") as file:
                while left and (block := file.read(min(left, _BLOCK))):
                    left -= len(block)
                    n += block.count(b"\n")
        return n

    def joined(self, following: "Excerpt") -> "Excerpt":
        """Return the text of this excerpt and of the following one as one."""
        return replace(self, text=(self.text or b"") + (following.text or b""), last=following.last)


def lines_of(text: bytes) -> list[str]:
    """Return the lines of a text in UTF-8 without their ends."""
    lines = text.decode().split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


Readable = str | os.PathLike[str] | Excerpt


def source_name(path: Readable) -> str:
    """Return the name of a file in messages: the path as it was given, ``<stdin>`` for ``-``."""
    name = path.path if isinstance(path, Excerpt) else os.fspath(path)
    return "<stdin>" if name == "-" else name


def lines_before(path: "Readable | None") -> int:
    """Return the number of lines of a file before a part of it."""
    return path.lines_before() if isinstance(path, Excerpt) else 0


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
def open_text(path: Readable) -> Iterator[Iterator[str]]:
    r"""Open a text file in UTF-8, ``-`` for the standard input, and yield its lines without their ends.

    An `Excerpt` is opened like a file of its own; line numbers in errors are those of the whole file.

    Gzip files are recognized by their first bytes, whatever their name. Only ``\n`` and ``\r\n`` end a line. A byte
    order mark at the start is skipped. DataError if the file cannot be read, is not in UTF-8, contains a NUL byte or is
    a damaged gzip file.
    """
    with open_blocks(path) as blocks:
        yield chain.from_iterable(lines_of(block) for block, _ in blocks)


def whole_text(path: Readable) -> bytes:
    """Return a text file, each line with a line feed at its end, the last one perhaps without."""
    with open_blocks(path) as blocks:
        return b"".join(block for block, _ in blocks)


@contextmanager
def open_blocks(
    path: Readable, *, size: int | None = None, progress: Callable[[int], object] = lambda n: None
) -> Iterator[Iterator[tuple[bytes, bool]]]:
    """Open a text file as `open_text` does, and yield an iterator over blocks of lines as they arrive.

    With each block comes whether the next one has not arrived yet: a program that reads a pipe may then write what it
    has. Files never keep it waiting. A line ends with a line feed, the last one perhaps without. Blocks have about
    ``size`` bytes, by default what has arrived. ``progress`` receives the number of bytes that were read for each.
    """
    name = source_name(path)
    with ExitStack() as stack:
        stack.enter_context(counting_lines_before(path))
        if isinstance(path, Excerpt) and path.text is not None:
            yield iter([(path.text, False)])
            return
        if name == "<stdin>":
            raw: Any = sys.stdin.buffer  # not ours to close
            if not hasattr(raw, "peek"):  # in memory
                raw = io.BufferedReader(raw)
                stack.callback(raw.detach)
        else:
            try:
                raw = stack.enter_context(Path(name).open("rb"))
            except FileNotFoundError:
                raise DataError(f"{name}: no such file. Check the path.") from None
            except IsADirectoryError:
                raise DataError(f"{name}: expected a file, got a directory. Name a file in it.") from None
            except OSError as error:
                raise DataError(f"{name}: cannot be read: {error.strerror or error}.") from None
        part = path if isinstance(path, Excerpt) else Excerpt(name)
        yield _blocks(raw, part, size, progress)


def _blocks(
    raw: io.BufferedReader, part: Excerpt, size: int | None, progress: Callable[[int], object]
) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of a stream in blocks, checked block by block, and line by line only to locate an error.

    A part that does not start the file has neither the head of a gzip file nor a byte order mark.
    """
    name, pipe, file = source_name(part), _pipe(raw), raw
    left = sys.maxsize if part.stop is None else part.size
    if part.start:
        raw.seek(part.start)
    elif raw.peek(2).startswith(GZIP):
        raw = cast(io.BufferedReader, gzip.GzipFile(fileobj=raw))
    number, begun, done = 0, [b""], part.start  # lines yielded so far, the start of a line, and bytes reported
    read = raw.read1 if size is None else raw.read  # which waits for a full block
    while True:
        with gzip_errors(name, number):
            block = read(min(size or _BLOCK, left))
        left -= len(block)
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
            text = block.decode()
        except UnicodeDecodeError as error:
            raise _undecodable(block, name, number, error.start) from None
        if "\0" in text:
            line = number + 1 + text.count("\n", 0, text.index("\0"))
            raise DataError(f"{name}:{line}: expected text, got a NUL byte. Is it a binary file, or UTF-16?")
        if not number and not part.start:
            block = block.removeprefix(BOM)
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").removesuffix(b"\r")
        number += block.count(b"\n")
        if pipe is None and file.seekable():
            progress(file.tell() - done)
            done = file.tell()
        yield block, waits


def _pipe(raw: Any) -> int | None:
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


def _undecodable(block: bytes, name: str, number: int, at: int) -> DataError:
    """Return the error for a byte of a block, ``number`` lines from the start of the file, that is not UTF-8."""
    start, stop = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at) % (len(block) + 1)
    line, shown = number + 1 + block.count(b"\n", 0, at), shorten(block[start:stop].decode(errors="backslashreplace"))
    return DataError(
        f"{name}:{line}: expected UTF-8, but byte {at - start + 1} of the line is 0x{block[at]:02x}: {shown}. Convert "
        "the file to UTF-8 (iconv -f latin1 -t utf8)."
    )


def check_some(n: int, path: Readable, layout: str) -> None:
    """Raise an error for a file without sentences, which should have the given layout; an `Excerpt` may have none."""
    if not n and not isinstance(path, Excerpt):
        raise no_sentence(source_name(path), layout)


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
