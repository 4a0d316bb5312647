"""Opening and writing text files: plain or gzip, ``-`` for the standard streams, errors that name file and line."""

from __future__ import annotations

import gzip
import io
import os
import re
import secrets
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from trelliswork.errors import DataError, ValueRangeError

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 18
_SHOWN = 60
_BLANKS = re.compile(r"[\t-\r\x1c-\x20]+")  # what str.split() takes as white space in an ASCII string


def source_name(path: str | os.PathLike[str]) -> str:
    """Return how messages name a file: the path as it was given, ``<stdin>`` for ``-``."""
    return "<stdin>" if os.fspath(path) == "-" else os.fspath(path)


def shorten(text: str) -> str:
    """Return the text in quotes, cut where it is long: what a message shows of a line."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def fields_of(line: str) -> list[str]:
    """Split a line at runs of ASCII white space.

    A no-break space and its kin stay inside a field: they belong to words, as in the French ``10 000``.
    """
    if line.isascii():
        return line.split()
    return [field for field in _BLANKS.split(line) if field]


def splitter(separator: str | None) -> Callable[[str], list[str]]:
    """Return the function that cuts a line into fields: at white space (None), or at a separator.

    Raises
    ------
    ValueRangeError
        If the separator is empty or a line end.
    """
    if separator is None:
        return fields_of
    if not separator or "\n" in separator or "\r" in separator:
        raise ValueRangeError(f"separator must be None (white space) or a string such as '\\t', got {separator!r}.")
    return lambda line: line.split(separator) if line.strip("\t\v\f\r ") else []


@contextmanager
def open_text(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> Iterator[Iterator[str]]:
    r"""Open a text file for reading, line by line.

    Gzip is known by its first bytes, whatever the file is called. ``\n`` and ``\r\n`` end a line, nothing else does;
    a byte order mark at the start is skipped.

    Parameters
    ----------
    path : str or path
        ``-`` is the standard input.
    encoding : str
        One in which a line end is the byte 10, such as UTF-8, Latin-1 or Shift JIS.

    Yields
    ------
    iterator of str
        The lines, without their ends.

    Raises
    ------
    DataError
        If the file is missing, a directory, not readable, not in this encoding, holds a NUL byte or is a damaged gzip.
    ValueRangeError
        If the encoding is not known or has longer line ends.
    """
    try:
        plain = "\n".encode(encoding) == b"\n"
    except LookupError:
        raise ValueRangeError(f"encoding {encoding!r} is not known. Python calls them 'utf-8', 'latin-1'.") from None
    if not plain:
        raise ValueRangeError(f"encoding {encoding!r} cannot be read line by line. Convert the file to UTF-8 first.")
    name = source_name(path)
    with ExitStack() as stack:
        raw: BinaryIO
        if name == "<stdin>":
            raw = sys.stdin.buffer  # not ours to close
        else:
            try:
                raw = stack.enter_context(Path(path).open("rb"))
            except FileNotFoundError:
                raise DataError(f"{name}: there is no such file. Is the path right?") from None
            except IsADirectoryError:
                raise DataError(f"{name}: a file was wanted, this is a directory. Name a file in it.") from None
            except OSError as error:
                raise DataError(f"{name}: cannot be read: {error.strerror or error}.") from None
        yield _lines(raw, name, encoding)


def _lines(raw: BinaryIO, name: str, encoding: str) -> Iterator[str]:
    """Yield the lines of a stream; decode block by block, and line by line only to say where it went wrong."""
    head = raw.read(2)
    if head == _GZIP:
        if raw.seekable():
            raw.seek(-2, os.SEEK_CUR)
        else:
            raw = io.BytesIO(head + raw.read())  # a pipe: only the packed bytes are held
        raw, head = cast(BinaryIO, gzip.GzipFile(fileobj=raw)), b""
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig"):
        encoding = "utf-8"
        if head == _BOM[:2] or not head:
            head += _read(raw, name, 0, 3 - len(head))
            head = head.removeprefix(_BOM)
    number = 0  # lines yielded so far
    while True:
        block = head + _read(raw, name, number)
        head = b""
        if not block:
            return
        try:
            text = block.decode(encoding)
        except UnicodeDecodeError:
            raise _undecodable(block, name, number, encoding) from None
        if "\0" in text:
            line = number + 1 + text.count("\n", 0, text.index("\0"))
            raise DataError(f"{name}:{line}: a NUL byte. Text was wanted: is it a binary file, or UTF-16?")
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        number += len(lines)
        yield from lines


def _read(raw: BinaryIO, name: str, number: int, size: int | None = None) -> bytes:
    """Read ``size`` bytes, or a block that ends with a line end, from a stream that may be a damaged gzip."""
    try:
        if size is not None:
            return raw.read(size)
        return raw.read(_BLOCK) + raw.readline()
    except EOFError:
        raise DataError(f"{name}: the gzip file is cut off after line {number} or later. Copy it again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{name}: the gzip file is damaged after line {number}: {error}. Copy it again.") from None


def _undecodable(block: bytes, name: str, number: int, encoding: str) -> DataError:
    """Return the error for the first line of a block that cannot be decoded."""
    for line, bad in enumerate(block.split(b"\n"), start=number + 1):
        try:
            bad.decode(encoding)
        except UnicodeDecodeError as error:
            at = error.start
            shown = shorten(bad.decode(encoding, errors="backslashreplace"))
            return DataError(
                f"{name}:{line}: {encoding.upper()} wanted, but byte {at + 1} of the line is 0x{bad[at]:02x}: {shown}. "
                "Give the encoding of the file, such as encoding='latin-1', or convert it to UTF-8."
            )
    return DataError(f"{name}: {encoding.upper()} wanted, but the file is something else. Give its encoding.")


def no_sentence(source: str, wanted: str) -> DataError:
    """Return the error for a file in which there is no sentence."""
    return DataError(f"{source}: at least one sentence wanted ({wanted}), but there is none. Is it the right file?")


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    r"""Write a UTF-8 text file that is there whole or not at all.

    The text goes to a temporary file in the same directory, which takes the place of ``path`` at the end. After an
    exception it is removed, and an old file stays as it was. Line ends are ``\n``. An old file's permissions are kept,
    a symbolic link is followed; what is no regular file (a pipe, ``/dev/null``) is written directly.

    Parameters
    ----------
    path : str or path
        ``-`` is the standard output.

    Yields
    ------
    text stream

    Raises
    ------
    DataError
        If the file cannot be created: no such directory, no permission, or ``path`` is a directory.
    """
    name = os.fspath(path)
    if name == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    target = Path(name).resolve()
    if target.is_dir():
        raise DataError(f"{name}: a file to write was wanted, this is a directory. Add a file name.")
    special = target.exists() and not target.is_file()
    place = target if special else target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        file = place.open("w" if special else "x", encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"{name}: cannot be written: {error.strerror or error}: {target.parent}.") from None
    if special:
        with file:
            yield file
        return
    try:
        with file:
            yield file
        if target.exists():
            place.chmod(target.stat().st_mode & 0o7777)
        place.replace(target)
    except BaseException:
        place.unlink(missing_ok=True)
        raise
