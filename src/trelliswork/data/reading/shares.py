"""Parts of input files: the share of each process of a group, and excerpts, one after another, as they arrive.

The bytes of all files, one after another, are divided evenly. A plain file is cut where a sentence starts, so that
nothing is read twice and nothing is left out; a gzip file cannot be cut and goes to one process as a whole. The shares
in order of rank are the files in their order.

Excerpts are whole sentences, so that a program can write while it reads.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from trelliswork.data.files import GZIP, Excerpt, Readable, lines_of, open_blocks, source_name
from trelliswork.errors import DataError

FIRST, MOST = 1 << 12, 1 << 17  # bytes, about, of the first part and of the largest ones
LONGEST = 10_000  # lines of a paragraph without a place to cut
_BLANK = re.compile(rb"^[ \t]*\n", re.MULTILINE)


def shares(files: Sequence[str | os.PathLike[str]], rank: int, size: int, *, blank_lines: bool | None) -> list[Excerpt]:
    """Return the share of one of ``size`` processes.

    Parameters
    ----------
    files : list of paths
        Plain or gzip files.
    blank_lines : bool or None
        Whether blank lines separate sentences, as in column files; otherwise each line is a sentence. None: a sentence
        may be on several lines, as a tree, and files are not cut.
    """
    sizes = [_size(path) for path in files]
    total = sum(sizes)
    low, high = rank * total // size, (rank + 1) * total // size
    own: list[Excerpt] = []
    begin = 0
    for path, n in zip(files, sizes, strict=True):
        with Path(path).open("rb") as file:
            if blank_lines is None or file.read(len(GZIP)) == GZIP:
                start, stop = (0, n) if low <= begin < high else (0, 0)
            else:
                start, stop = (_start(file, min(max(edge - begin, 0), n), n, blank_lines) for edge in (low, high))
        if stop > start:
            own.append(Excerpt(os.fspath(path), start, None if start == 0 and stop == n else stop))
        begin += n
    return own


def _size(path: str | os.PathLike[str]) -> int:
    try:
        if not Path(path).is_file():
            what = "a directory" if Path(path).is_dir() else "no file"
            raise DataError(f"{os.fspath(path)}: {what}: processes can share only files. Name files.")
        return Path(path).stat().st_size
    except OSError as error:
        raise DataError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}.") from None


def _start(file: IO[bytes], at: int, size: int, blank_lines: bool) -> int:
    """Return the position of the first sentence that starts at byte ``at`` or later; the size if there is none."""
    if at in (0, size):
        return at
    file.seek(at - 1)  # the byte before may end a line
    file.readline()
    while blank_lines:
        here = file.tell()
        line = file.readline()
        if not line:
            return here
        if not line.strip():
            return file.tell()
    return file.tell()


def excerpts(
    path: Readable,
    *,
    blank_lines: bool,
    cut: Callable[[list[str]], int] | None = None,
    first: int = FIRST,
    most: int = MOST,
) -> Iterator[Excerpt]:
    """Yield a file in parts of whole sentences: small ones first, and when a pipe has nothing more for now.

    Parameters
    ----------
    path : str or path
        A plain or gzip file, or an `Excerpt` of one; ``-`` is the standard input. A text is yielded as it is.
    blank_lines : bool
        Whether blank lines separate sentences; otherwise each line is a sentence.
    cut : callable, optional
        For text whose sentences may be on several lines: the number of lines, of some after a blank one, that can be
        read without those that follow.
    first, most : int
        Number of bytes, about, of the first part and of the largest ones; parts double in size.

    Yields
    ------
    Excerpt
        The last one, which may be empty, is marked as such. All have the same ``notes``.
    """
    whole = path if isinstance(path, Excerpt) else Excerpt(source_name(path))
    if whole.text is not None:
        yield whole
        return
    size, pending, held, searched = first, list[bytes](), 0, 0
    before = characters = 0  # lines and characters of earlier parts

    def part(text: bytes, last: bool = False) -> Excerpt:
        nonlocal before, characters, searched
        made = replace(whole, text=text, before=before, characters=characters, last=last)  # with the same notes
        before, characters, searched = before + text.count(b"\n"), characters + len(text.decode()) if cut else 0, 0
        return made

    with open_blocks(path) as blocks:
        for block, waits in blocks:
            done = 0
            while held + len(block) - done >= size:
                end = _next_end(block, done + max(0, size - held), blank_lines)
                if end < 0:
                    break
                yield part(b"".join([*pending, block[done:end]]))
                pending, held, done, size = [], 0, end, min(2 * size, most)
            pending.append(block[done:])
            held += len(block) - done
            if not held or not (waits or (cut and held >= size)):
                continue
            text = b"".join(pending)
            end = len(text)
            if blank_lines:
                end = max((blank.end() for blank in _BLANK.finditer(text)), default=0)
            if not end and cut and (waits or held >= 2 * searched):  # a long paragraph
                searched, lines = held, lines_of(text)
                n = cut(lines) or (len(lines) if len(lines) > LONGEST else 0)
                end = held - len(text.split(b"\n", n)[n]) if n else 0
            if end:
                yield part(text[:end])
            pending, held = [text[end:]], len(text) - end
        yield part(b"".join(pending), last=True)


def _next_end(text: bytes, at: int, blank_lines: bool) -> int:
    """Return the end of the first line, or blank line, that ends at a byte or after it; -1 if there is none."""
    if not blank_lines:
        return text.find(b"\n", at - 1) + 1 or -1
    blank = _BLANK.search(text, max(0, at - 1))
    return blank.end() if blank else -1
