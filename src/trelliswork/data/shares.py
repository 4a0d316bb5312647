"""Shares of input files: each process of a group reads its own files, or its own part of a file.

The bytes of all files, one after another, are divided evenly. A plain file is cut where a sentence starts, so that
nothing is read twice and nothing is left out; a gzip file cannot be cut and goes to one process as a whole. The shares
in order of rank are the files in their order.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from trelliswork.data.files import GZIP, Section
from trelliswork.errors import DataError


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
