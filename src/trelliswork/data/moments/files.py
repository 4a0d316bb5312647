"""Text larger than memory as blocks of ids: read, tokenised on several threads, numbered in the order of the text."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.data.corpus import Corpus
from trelliswork.data.kernels.moments import END, FINE, FULL, tokenize
from trelliswork.errors import DataError, ValueRangeError

Source = str | os.PathLike[str] | Corpus | Iterable[Any]
Ids = NDArray[np.int32]
Progress = Callable[[int], None]

PAD = "<S>"
BLOCK = 1 << 21  # bytes of text
TOKENS = 1 << 18  # tokens of a block of sentences at hand
BATCH = 8  # blocks that are worked on together
_BOM = b"\xef\xbb\xbf"


def paths_listed(source: Any) -> Any:
    """An iterator of paths, such as ``folder.glob("*.txt")``, as a list; any other source as it is."""
    if isinstance(source, Corpus | Sequence | os.PathLike) or not isinstance(source, Iterable):
        return source
    items = iter(source)
    first = list(islice(items, 1))
    if first and isinstance(first[0], os.PathLike):
        return [*first, *items]
    return chain(first, items) if items is source else source


def files_of(source: Source) -> list[Path] | None:
    """The files of a source: one, several, all in a directory (by name, hidden ones not); None if it is sentences."""
    if isinstance(source, Corpus):
        return None
    if isinstance(source, str | os.PathLike):
        source = [source]
    elif not isinstance(source, Sequence) or not source or not isinstance(source[0], str | os.PathLike):
        return None
    found: list[Path] = []
    for name in source:
        path = Path(name)
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
            if not inside:
                raise DataError(f"{path}: text files wanted, but this directory has none.")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise DataError(f"{path}: there is no such file or directory. Is the path right?")
    return found


@dataclass
class Numbering:
    """Words as bytes to ids in order of appearance, and how often each occurs."""

    ids: dict[bytes, int]
    fixed: int | None = None  # with a given vocabulary: what an unlisted word is, -1 if that is an error

    def number(self, words: list[bytes], where: Callable[[int], str]) -> Ids:
        """The ids of the words of a block; ``where(k)`` says in which file and line the k-th stands first."""
        ids, out = self.ids, np.empty(len(words), np.int32)
        for k, word in enumerate(words):
            found = ids.get(word)
            if found is None:
                _check_word(word, partial(where, k))
                if self.fixed is None:
                    found = ids[word] = len(ids)
                elif self.fixed >= 0:
                    found = self.fixed
                else:
                    raise DataError(
                        f"{where(k)}: {word.decode(errors='replace')!r} is not in the vocabulary, which has no word "
                        "for unknown ones: count the first text with min_count=2 or max_words, or take this word out."
                    )
            out[k] = found
        return out


def _check_word(word: bytes, where: Callable[[], str]) -> None:
    if word == PAD.encode():
        raise DataError(
            f"{where()}: {PAD} marks the place between sentences and cannot be a word: rename it in the text."
        )
    try:
        word.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where()}: UTF-8 wanted, but a word has the byte 0x{word[error.start]:02x}: "
            f"{word.decode(errors='backslashreplace')!r}. Convert the file to UTF-8."
        ) from None


def _encoded(word: str, place: str) -> bytes:
    try:
        return word.encode()
    except (AttributeError, UnicodeEncodeError):
        raise DataError(f"{place}: a word that is Unicode text is wanted, got {word!r}.") from None


def file_blocks(files: list[Path], numbering: Numbering, progress: Progress) -> Iterator[Ids]:
    """The ids of text files, block by block; ``progress`` is told how many bytes of the files have been read."""
    blocks = chain.from_iterable(_bytes_of(path, progress) for path in files)
    while batch := list(islice(blocks, BATCH)):
        found: list[tuple[Ids, list[bytes], NDArray[np.int64]] | None] = [None] * len(batch)

        def work(start: int, stop: int, batch: list = batch, found: list = found) -> None:
            for k in range(start, stop):
                found[k] = _tokenize(*batch[k])

        threads.run(work, [(k, k + 1) for k in range(len(batch))])
        for (text, path, line), block in zip(batch, found, strict=True):
            assert block is not None
            ids, words, starts = block

            def where(k: int, text: bytes = text, path: Path = path, line: int = line, at: Any = starts) -> str:
                number = line + text.count(b"\n", 0, int(at[k]))
                return f"{path}:{number}"

            new = numbering.number(words, where)
            ids[ids >= 0] = new[ids[ids >= 0]]
            if len(ids):
                yield ids


def _tokenize(text: bytes, path: Path, line: int) -> tuple[Ids, list[bytes], NDArray[np.int64]]:
    """A stream of ids of a block's own words; its words; where each stands first."""
    array = np.frombuffer(text, np.uint8)
    size = 1 << 16
    while True:
        table = np.full(size, -1, np.int32)
        hashes = np.empty(size // 2, np.uint64)
        starts, stops = np.empty(size // 2, np.int64), np.empty(size // 2, np.int64)
        out = np.empty(len(text) + 2, np.int32)
        n, n_words, status = tokenize(array, table, hashes, starts, stops, out)
        if status != FULL:
            break
        size *= 4
    if status != FINE:
        at = line + text.count(b"\n", 0, status)
        raise DataError(f"{path}:{at}: a NUL byte. Text was wanted: is it a binary file, or UTF-16?")
    words = [text[a:b] for a, b in zip(starts[:n_words].tolist(), stops[:n_words].tolist(), strict=True)]
    return out[:n].copy(), words, starts


def _bytes_of(path: Path, progress: Progress) -> Iterator[tuple[bytes, Path, int]]:
    """Blocks of a plain or gzip file that end with a line, and the number of their first line."""
    line, told = 1, 0
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if packed else raw
            while block := file.read(BLOCK) + file.readline():
                if line == 1:
                    block = block.removeprefix(_BOM)
                yield block, path, line
                line += block.count(b"\n")
                progress(raw.tell() - told)
                told = raw.tell()
    except EOFError:
        raise DataError(f"{path}: the gzip file is cut off after line {line} or later. Copy it again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged after line {line}: {error}. Copy it again.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}.") from None


def sentence_blocks(sentences: Iterable[Sequence[str]], numbering: Numbering, progress: Progress) -> Iterator[Ids]:
    """The ids of sentences at hand, block by block; ``progress`` is told how many sentences were read."""
    if isinstance(sentences, Corpus):
        sentences = sentences.sentences(0)
    flat: list[int] = []
    known: dict[str, int] = {}
    n_read = 0
    for n, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise ValueRangeError(
                f"sentence {n} must be a list of words, got the string {sentence[:40]!r}: split it "
                "(or, if it is a file, give files as a list)."
            )
        for t, word in enumerate(sentence):
            found = known.get(word)
            if found is None:
                place = f"sentence {n}, token {t}"
                found = known[word] = int(numbering.number([_encoded(word, place)], [place].__getitem__)[0])
            flat.append(found)
        if len(sentence):
            flat.append(END)
        n_read += 1
        if len(flat) >= TOKENS:
            yield np.array(flat, np.int32)
            progress(n_read)
            flat, n_read = [], 0
    if flat:
        yield np.array(flat, np.int32)
    progress(n_read)


class Spool:
    """Blocks of ids to be read again: in memory as long as they are few, else in a temporary file."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.sizes: list[int] = []
        self.blocks: list[Ids] = []
        self.file: IO[bytes] | None = None

    def append(self, block: Ids) -> None:
        """Keep a block."""
        self.sizes.append(len(block))
        if self.file is None:
            self.blocks.append(block)
            if 4 * sum(self.sizes) > self.limit:
                self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
                for held in self.blocks:
                    held.tofile(self.file)
                self.blocks = []
        else:
            block.tofile(self.file)

    def __iter__(self) -> Iterator[Ids]:
        if self.file is None:
            yield from (block.copy() for block in self.blocks)
            return
        self.file.seek(0)
        for size in self.sizes:
            yield np.frombuffer(self.file.read(4 * size), np.int32).copy()

    def close(self) -> None:
        """Give the file back."""
        if self.file is not None:
            self.file.close()
