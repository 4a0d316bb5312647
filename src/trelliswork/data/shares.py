"""Parts of input files: the share of each process of a group, and excerpts, one after another, as they arrive.

The bytes of all files, one after another, are divided evenly. A plain file is cut where a sentence starts, so that
nothing is read twice and nothing is left out; a gzip file cannot be cut and goes to one process as a whole. The shares
in order of rank are the files in their order.

Excerpts are whole sentences, so that a program can write while it reads.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from trelliswork.data.files import GZIP, Excerpt, RawLines, Readable, Section, open_blocks
from trelliswork.errors import DataError

FIRST, MOST = 1 << 9, 1 << 14  # tokens, about, of the first part and of the largest ones
LONGEST = 10_000  # lines of a paragraph without a place to cut


def shares(files: Sequence[str | os.PathLike[str]], rank: int, size: int, *, blank_lines: bool | None) -> list[Section]:
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
    own: list[Section] = []
    begin = 0
    for path, n in zip(files, sizes, strict=True):
        with Path(path).open("rb") as file:
            if blank_lines is None or file.read(len(GZIP)) == GZIP:
                start, stop = (0, n) if low <= begin < high else (0, 0)
            else:
                start, stop = (_start(file, min(max(edge - begin, 0), n), n, blank_lines) for edge in (low, high))
        if stop > start:
            own.append(Section(os.fspath(path), start, None if start == 0 and stop == n else stop))
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
    first: int | None = None,
    most: int | None = None,
) -> Iterator[Excerpt]:
    """Yield a file in parts of whole sentences: small ones first, and when a pipe has nothing more for now.

    Parameters
    ----------
    path : str or path
        A plain or gzip file, or a `Section` of one; ``-`` is the standard input. An `Excerpt` is yielded as it is.
    blank_lines : bool
        Whether blank lines separate sentences, and each line is a token; otherwise each line is a sentence.
    cut : callable, optional
        For text whose sentences may be on several lines: the number of lines, of some after a blank one, that can be
        read without those that follow.
    first, most : int
        Number of tokens, about, of the first part (512) and of the largest ones (16,384); parts double in size.

    Yields
    ------
    Excerpt
        The last one, which may be empty, is marked as such. All have the same ``notes``.
    """
    if isinstance(path, Excerpt):
        yield path
        return
    with open_blocks(path) as blocks:
        if blank_lines and cut is None:
            yield from _sentences(path, blocks, first or FIRST, most or MOST)
        else:
            yield from _parts(path, blocks, blank_lines, cut, first or FIRST, most or MOST)


def _sentences(
    path: str | os.PathLike[str] | Section, blocks: Iterable[tuple[bytes, bool]], size: int, most: int
) -> Iterator[Excerpt]:
    """Yield parts that end after a blank line, whose lines are not split."""
    import numpy as np

    from trelliswork.data.kernels.columns import cut

    notes: dict[str, Any] = {}
    pending: list[bytes] = []  # blocks after the last cut
    start = n_lines = 0  # of the next part, and how many are pending
    for block, waits in blocks:
        text, done = np.frombuffer(block, np.uint8), 0
        while n_lines + block.count(b"\n", done) >= size:
            end, n_lines = cut(text, done, n_lines, size)
            if end < 0:
                break
            yield Excerpt(path, RawLines(b"".join([*pending, block[done:end]])), start, last=False, notes=notes)
            pending, start, done, n_lines, size = [], start + n_lines, end, 0, min(2 * size, most)
        else:
            n_lines += block.count(b"\n", done)
        pending.append(block[done:])
        if waits and (end := _last_blank(joined := b"".join(pending))):
            lines = RawLines(joined[:end])
            yield Excerpt(path, lines, start, last=False, notes=notes)
            pending, start, n_lines = [joined[end:]], start + len(lines), joined.count(b"\n", end)
    yield Excerpt(path, RawLines(b"".join(pending)), start, notes=notes)


def _parts(
    path: "Readable",
    blocks: Iterable[tuple[bytes, bool]],
    blank_lines: bool,
    cut: Callable[[list[str]], int] | None,
    size: int,
    most: int,
) -> Iterator[Excerpt]:
    assert not isinstance(path, Excerpt)
    whole = Excerpt(path, [], last=False)
    pending: list[str] = []
    n_tokens = start = characters = searched = 0

    def part(n: int, last: bool = False) -> Excerpt:
        nonlocal pending, n_tokens, start, characters, searched
        lines, pending = pending[:n], pending[n:]
        made = Excerpt(path, lines, start, characters, last, whole.notes)
        start += n
        characters += sum(map(len, lines)) + n if cut else 0
        n_tokens, searched = sum(map(_words, pending)), 0
        return made

    for block, waits in blocks:
        for line in RawLines(block):
            pending.append(line)
            n_tokens += _words(line)
            if n_tokens >= size and (not blank_lines or not line.strip(" \t")):
                yield part(len(pending))
                size = min(2 * size, most)
        if not pending or not (waits or (cut and n_tokens >= size)):
            continue
        n = _last_blank_line(pending) if blank_lines else len(pending)
        if not n and cut and (waits or len(pending) >= 2 * searched):  # a long paragraph
            searched = len(pending)
            n = cut(pending) or (searched if searched > LONGEST else 0)
        if n:
            yield part(n)
    yield part(len(pending), last=True)


def _words(line: str) -> int:
    return line.count(" ") + 1


def _last_blank(text: bytes) -> int:
    """Return the end of the last blank line; 0 if there is none."""
    end = text.rfind(b"\n") + 1
    while end:
        start = text.rfind(b"\n", 0, end - 1) + 1
        if not text[start:end].strip(b" \t\n"):
            return end
        end = start
    return 0


def _last_blank_line(lines: list[str]) -> int:
    """Return the number of lines up to the last blank one; 0 if there is none."""
    return next((k for k in range(len(lines), 0, -1) if not lines[k - 1].strip(" \t")), 0)
