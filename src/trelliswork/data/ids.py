r"""Text to ids: the one way from sentences, corpora and text files to a vocabulary and arrays of word ids.

`read_ids` returns arrays in memory, `stream_ids` blocks of ids for text larger than memory. Both follow the same rules:

Source
    A `Path`, a list of paths or a directory of text files (UTF-8, plain or gzip, one sentence per line, ASCII white
    space between words; blank lines are ignored), a `Corpus` (its first column), or an iterable of sentences, each a
    list of words. A string is neither a file nor a sentence; `Lines` are sentences as strings, like lines of a file.
Vocabulary
    Without ``vocabulary`` it is chosen from the text: most frequent words first, ties in order of appearance. Words
    seen fewer than ``min_count`` times, and all but the ``max_words`` most frequent ones, are left out.
Unknown words
    Words that were left out are ``<unk>``, which is listed if words were left out or if it occurs in the text. With
    ``unknown="symbol"`` it is listed in any case; if it would have no occurrence, every second word that was seen once
    is left out, since words seen once are the best estimate of how often and where unknown words occur. With a given
    ``vocabulary``, unlisted words are its unknown word (or stand-in); if it has none, they are an error that names file
    and line, or sentence and token.
Sentence edges
    Id 0 is ``<s>``, and ``<s>`` and ``</s>`` cannot be words of the text. `TextIds.with_edges` inserts it before and
    after each sentence.

A model chooses its vocabulary from the training text and uses it for all other text:

>>> train = read_ids([["the", "dog", "runs"], ["the", "cat", "runs"]], min_count=2)
>>> train.vocabulary.items, train.ids.tolist(), train.offsets.tolist()
(['<s>', 'the', 'runs', '<unk>'], [1, 3, 2, 1, 3, 2], [0, 3, 6])
>>> test = read_ids([["the", "mouse"], []], vocabulary=train.vocabulary, keep_empty=True)
>>> test.ids.tolist(), test.offsets.tolist()
([1, 3], [0, 2, 2])
>>> test.with_edges().ids.tolist()
[0, 1, 3, 0, 0, 0]

A model that needs the words themselves gets them from `read_sentences`. A vocabulary stored in a file is read by
`Vocabulary.restored`.
"""

from __future__ import annotations

import os
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.sharing import current
from trelliswork.data.corpus import Corpus
from trelliswork.data.files import Excerpt, lines_before, no_sentence, open_blocks, shorten
from trelliswork.data.kernels.bytes import no_strings
from trelliswork.data.kernels.ids import BREAK, tokenize
from trelliswork.data.text import Lines, read_text
from trelliswork.data.vocabulary import END, START, UNKNOWN, Vocabulary
from trelliswork.errors import DataError, ShapeError, ValueRangeError

Source = os.PathLike[str] | Excerpt | Corpus | Iterable[Any]  # `Lines` are among the iterables
Ids = NDArray[np.int32]
Counts = NDArray[np.int64]
Unknown = Literal["symbol", "error"]  # what unlisted words are
T = TypeVar("T")
R = TypeVar("R")

MEMORY = 1 << 30  # bytes
BLOCK = 1 << 21  # bytes of text that are tokenized at a time, if the memory allows
TOKENS = 1 << 18  # tokens per block of sentences in memory, if the memory allows
BATCH = 8  # blocks that are processed in parallel


@dataclass
class CountStep:
    """Progress of reading and counting."""

    done: int = 0  # bytes that have been read; of sentences in memory: sentences
    total: int = 0  # 0 if it is unknown
    n_tokens: int = 0  # words whose pairs have been counted
    seconds: float = 0.0


Callback = Callable[[CountStep], object]


@dataclass(frozen=True, eq=False)
class TextIds:
    """Sentences as arrays of word ids, one after another: sentence n is ``ids[offsets[n] : offsets[n + 1]]``."""

    vocabulary: Vocabulary
    ids: NDArray[np.int64]  # (n_tokens,)
    offsets: NDArray[np.int64]  # (n_sentences + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sentences(self) -> list[NDArray[np.int64]]:
        """Return the ids of each sentence."""
        return np.split(self.ids, self.offsets[1:-1]) if len(self) else []

    def with_edges(self) -> TextIds:
        """Return the text with the id 0 before and after each sentence."""
        offsets = self.offsets + 2 * np.arange(len(self.offsets))
        inside = np.ones(int(offsets[-1]), bool)
        inside[offsets[:-1]] = inside[offsets[1:] - 1] = False
        ids = np.zeros(len(inside), np.int64)
        ids[inside] = self.ids
        return TextIds(self.vocabulary, ids, offsets)


@dataclass
class IdStream:
    """A text as a vocabulary and blocks of ids, and the progress of reading it.

    A block is whole sentences, one after another, with ``BREAK`` (-1) after each. Blocks can be iterated once.
    """

    vocabulary: Vocabulary
    blocks: Iterator[Ids]
    step: CountStep


def read_ids(source: Source, **options: Any) -> TextIds:
    """Read a text into memory as ids; the options are those of `stream_ids`."""
    stream = stream_ids(source, **options)
    flat = np.concatenate([np.zeros(0, np.int64), *stream.blocks])
    ends = np.flatnonzero(flat < 0)
    offsets = np.concatenate([[0], ends - np.arange(len(ends))])
    return TextIds(stream.vocabulary, flat[flat >= 0], offsets)


def stream_ids(
    source: Source,
    *,
    vocabulary: Vocabulary | None = None,
    min_count: int = 1,
    max_words: int | None = None,
    unknown: Unknown = "error",
    keep_empty: bool = False,
    callback: Callback | None = None,
    memory_limit: int = MEMORY,
) -> IdStream:
    """Read a text once, as blocks of ids, by the rules above.

    ``max_words`` does not count the unknown word. A given vocabulary lists ``<s>`` first. With ``keep_empty``, an empty
    list among sentences in memory is a sentence. ``callback`` receives a `CountStep` after each block. Until the
    vocabulary is known, a fourth of ``memory_limit`` bytes of ids are kept in memory; more go to a temporary file.
    """
    if min_count < 1 or (max_words is not None and max_words < 1):
        raise ValueRangeError(f"min_count and max_words must be positive, got {min_count} and {max_words}.")
    if vocabulary is not None and (not len(vocabulary) or vocabulary[0] != START):
        raise ValueRangeError(f"vocabulary must list {START} first, such as the vocabulary of other counts.")
    started, step = time.perf_counter(), CountStep()
    source = paths_listed(source)
    files = files_of(source)

    def progress(n: int) -> None:
        step.done += n
        step.seconds = time.perf_counter() - started
        if callback is not None:
            callback(step)

    numbering = Numbering(vocabulary)
    if files is not None:
        step.total = sum(path.size if isinstance(path, Excerpt) else path.stat().st_size for path in files)
        blocks = _file_blocks(files, numbering, progress, min(BLOCK, max(1, memory_limit // 64)))
    else:
        step.total = len(source) if isinstance(source, Sized) else 0
        size = min(TOKENS, max(1, memory_limit // 256))
        blocks = _sentence_blocks(source, numbering, progress, keep_empty, size)  # type: ignore[arg-type]
    if vocabulary is not None:
        return IdStream(vocabulary, blocks, step)
    counts, sizes = np.zeros(0, np.int64), list[int]()
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.SpooledTemporaryFile(max(1, memory_limit // 4)))
        for block in blocks:
            if len(counts) < len(numbering.ids):
                counts = np.concatenate([counts, np.zeros(2 * len(numbering.ids) - len(counts), np.int64)])
            counts += np.bincount(block[block >= 0], minlength=len(counts))
            sizes.append(len(block))
            file.write(block.tobytes())
        words, totals, places = _agreed(list(numbering.ids), counts[: len(numbering.ids)])
        del numbering, blocks  # many words take much memory
        if not words:
            raise no_text(source)
        vocabulary, chosen = _choose(words, totals, min_count, max_words, unknown)
        new = chosen if places is None else chosen[places]
        stack.pop_all()  # from here on _stored closes the file
    return IdStream(vocabulary, _stored(file, sizes, new), step)


def read_sentences(source: Source) -> list[Sequence[Any]]:
    """Return the sentences of a source as lists of words; sentences in memory are returned as they are."""
    source = paths_listed(source)
    files = files_of(source)
    if files is not None:
        return [sentence for file in files for sentence in read_text(file).sentences()]
    return list(source.sentences()) if isinstance(source, Corpus) else list(source)  # type: ignore[arg-type]


def paths_listed(source: Any) -> Any:
    """Return an iterator of paths, such as ``folder.glob("*.txt")``, as a list, and any other source unchanged."""
    if isinstance(source, Corpus | Lines | Sequence | os.PathLike | Excerpt) or not isinstance(source, Iterable):
        return source
    items = iter(source)
    first = list(islice(items, 1))
    if first and isinstance(first[0], os.PathLike):
        return [*first, *items]
    return chain(first, items) if items is source else source


def files_of(source: Source) -> list[Path | Excerpt] | None:
    """Return the files of a source, those of directories sorted by name without hidden ones; None for sentences."""
    if isinstance(source, Corpus):
        return None
    if isinstance(source, os.PathLike | Excerpt):
        source = [source]
    first = source if isinstance(source, str) else source[0] if isinstance(source, Sequence) and source else None
    if isinstance(first, str):
        raise ShapeError(
            f"a sentence must be a list of words, as from split(), and a file a Path, got the string {shorten(first)}."
        )
    if not isinstance(first, os.PathLike | Excerpt):
        return None
    files: list[Path | Excerpt] = []
    for given in source:
        if isinstance(given, Excerpt):
            files.append(given)
            continue
        path = Path(given)
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
            if not inside:
                raise DataError(f"{path}: expected a directory with text files, but it has none.")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise DataError(f"{path}: no such file or directory. Check the path.")
    return files


def no_text(source: Source) -> DataError:
    """Return the error for a source without sentences."""
    files = [str(path) for path in files_of(source) or ()]
    return no_sentence(", ".join(files[:3]) or "the text", "one per line")


class Numbering:
    """Ids of words, given as UTF-8 bytes: those of a vocabulary, or new ones in order of appearance."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        self.vocabulary = vocabulary
        self.ids: dict[bytes, int] = {}  # of new words; with a vocabulary, of those of its words that occurred

    def number(self, words: list[bytes], where: Callable[[int], str]) -> Ids:
        """Return the ids of words; ``where(k)`` is the place of word k for messages."""
        known, out = self.ids, np.empty(len(words), np.int32)
        for k, word in enumerate(words):
            number = known.get(word)
            try:
                out[k] = self.find(word) if number is None else number
            except DataError as error:
                raise DataError(f"{where(k)}: {error}") from None
        return out

    def find(self, word: bytes) -> int:
        """Return the id of a word for the first time."""
        name = word.decode()
        if name in (START, END):
            raise DataError(f"{name} marks sentence edges and cannot be a word. Rename it in the text.")
        number = len(self.ids) if self.vocabulary is None else self.vocabulary.index.get(name)
        if number is not None:
            self.ids[word] = number
            return number
        assert self.vocabulary is not None
        try:
            return self.vocabulary.id(name)  # not stored: there is no limit to the number of unknown words
        except KeyError:
            raise DataError(
                f"{shorten(name)} is not in the vocabulary, which has no unknown word. Train or count again "
                "with unknown='symbol', or remove the word from the text."
            ) from None


class _StringIds(dict[str, int]):
    """Ids of words as strings, each of which is numbered once."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering

    def __missing__(self, word: str) -> int:
        try:
            self[word] = number = self._numbering.find(word.encode())
        except (AttributeError, UnicodeEncodeError):
            raise DataError(f"expected a word of Unicode text (str), got {shorten(word)}.") from None
        return number


def in_parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return the results of a function for each item, computed on the threads of the pool."""
    results: list[Any] = [None] * len(items)

    def work(k: int, _: int) -> None:
        results[k] = function(items[k])

    threads.run(work, [(k, k + 1) for k in range(len(items))])
    return results


def renumbered(ids: Ids, new: Ids) -> Ids:
    """Return a stream of ids with other numbers for the words."""
    return np.append(new, np.int32(BREAK))[ids]


def tokenized(text: bytes, keep_empty: bool = False) -> tuple[Ids, list[bytes], list[int]]:
    """Return a text as a stream of ids of its words, the words, and the position of the first token of each.

    Each line is a sentence, blank ones only if ``keep_empty``.
    """
    array, room = np.frombuffer(text, np.uint8), 1 << min(15, max(7, len(text).bit_length() - 1))
    out = np.empty(len(text) + 2, np.int32)
    while True:
        strings = no_strings(1, room)
        n = tokenize(array, keep_empty, strings, out)
        if n >= 0:
            break
        room *= 4
    starts, stops = (places[0, : strings.counts[0]].tolist() for places in (strings.starts, strings.stops))
    return out[:n].copy(), [text[a:b] for a, b in zip(starts, stops, strict=True)], starts


def _file_blocks(
    files: list[Path | Excerpt], numbering: Numbering, progress: Callable[[int], None], size: int
) -> Iterator[Ids]:
    """Yield the ids of text files in blocks; ``progress`` receives the number of bytes read since the last call."""
    blocks = chain.from_iterable(_bytes_of(path, progress, size) for path in files)
    while batch := list(islice(blocks, BATCH)):
        done = in_parallel(lambda block: tokenized(block[0]), batch)
        for (text, path, line), (ids, words, starts) in zip(batch, done, strict=True):

            def where(k: int, text: bytes = text, path: Any = path, line: int = line, at: Any = starts) -> str:
                return f"{path}:{lines_before(path) + line + text.count(bytes([10]), 0, at[k])}"

            new = numbering.number(words, where)
            if len(ids):
                yield renumbered(ids, new)


def _bytes_of(
    path: Path | Excerpt, progress: Callable[[int], None], size: int
) -> Iterator[tuple[bytes, Path | Excerpt, int]]:
    """Yield blocks of whole lines of a file, about ``size`` bytes, and the number of their first line."""
    line = 1
    with open_blocks(path, size=size, progress=progress) as blocks:
        for block, _ in blocks:
            yield block, path, line
            line += block.count(b"\n")


class WordIndex(NamedTuple):
    """The words of a vocabulary as one text, and a hash table of them (`data.kernels.bytes.Strings` of one column)."""

    text: NDArray[np.uint8]
    table: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


_indexes: WeakKeyDictionary[Vocabulary, WordIndex | None] = WeakKeyDictionary()


def word_index(vocabulary: Vocabulary) -> WordIndex | None:
    """Return the index of a vocabulary, built when it is first needed; ``None`` if a word has white space or NUL."""
    if vocabulary not in _indexes:
        _indexes[vocabulary] = _built(vocabulary)
    return _indexes[vocabulary]


def _built(vocabulary: Vocabulary) -> WordIndex | None:
    try:
        joined = "\n".join(vocabulary.items).encode()
    except UnicodeEncodeError:
        return None
    n, text = len(vocabulary), np.frombuffer(joined, np.uint8)
    strings = no_strings(1, 2 * n + 1)  # few words to compare
    length = tokenize(text, False, strings, np.empty(len(text) + 2, np.int32))
    if b"\0" in joined or strings.counts[0] != n or length != 2 * n:
        return None
    return WordIndex(text, strings.table[0], *(array[0, :n] for array in strings[1:4]))


def _sentence_blocks(
    sentences: Iterable[Sequence[str]],
    numbering: Numbering,
    progress: Callable[[int], None],
    keep_empty: bool,
    size: int,
) -> Iterator[Ids]:
    """Yield the ids of sentences in memory in blocks of ``size`` tokens; ``progress`` gets the number of sentences."""
    source = ""
    if isinstance(sentences, Corpus):
        source = f"{sentences.source}, " if sentences.source else ""
        sentences = sentences.sentences()
    flat, known, n_read = array("i"), _StringIds(numbering), 0
    for n, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise ValueRangeError(
                f"{source}sentence {n} must be a list of words, got the string {shorten(sentence[:40])}: split it "
                "(or, if it is a file, give files as a list)."
            )
        start = len(flat)
        try:
            flat.extend(map(known.__getitem__, sentence))
        except (DataError, TypeError) as error:
            t = len(flat) - start
            what = error if isinstance(error, DataError) else f"expected a word, got {shorten(sentence[t])}."
            raise DataError(f"{source}sentence {n}, token {t}: {what}").at(n, t) from None
        if len(sentence) or keep_empty:
            flat.append(BREAK)
        n_read += 1
        if len(flat) >= size:
            yield np.array(flat, np.int32)
            progress(n_read)
            flat, n_read = array("i"), 0
    if flat:
        yield np.array(flat, np.int32)
    progress(n_read)


def _stored(file: IO[bytes], sizes: list[int], new: Ids) -> Iterator[Ids]:
    """Yield blocks of a temporary file with their ids in the vocabulary, and delete the file."""
    with file:
        file.seek(0)
        for size in sizes:
            yield renumbered(np.frombuffer(file.read(4 * size), np.int32), new)


def _agreed(words: list[bytes], counts: Counts) -> tuple[list[bytes], Counts, Counts | None]:
    """Return the words and counts of all ranks, in order of appearance, and the place of each of this rank's words."""
    if current().size == 1:
        return words, counts, None
    names = [word.decode(errors="surrogateescape") for word in words]
    every = current().count_names(dict(zip(names, counts.tolist(), strict=True)))
    place = dict(zip(every, range(len(every)), strict=True))
    together = [name.encode(errors="surrogateescape") for name in every]
    return together, np.array(list(every.values()), np.int64), np.array([place[name] for name in names], np.int64)


def _choose(
    words: list[bytes], counts: Counts, min_count: int, max_words: int | None, unknown: Unknown
) -> tuple[Vocabulary, Ids]:
    """Return the vocabulary, and the id of each word in it."""
    special, symbol = next((k for k, word in enumerate(words) if word == UNKNOWN.encode()), -1), unknown == "symbol"
    order = np.argsort(-counts, kind="stable")
    order = order[(counts[order] >= min_count) | (order == special)]
    if max_words is not None:
        kept = order[order != special][:max_words]
        order = order[np.isin(order, kept) | (order == special)]
    if symbol and special < 0 and len(order) == len(words):
        order = order[~np.isin(order, np.flatnonzero(counts == 1)[1::2])]
    n_cut = len(words) - len(order)
    listed = [START, *(words[k].decode() for k in order.tolist())]
    vocabulary = Vocabulary(listed, unknown=UNKNOWN if n_cut or special >= 0 or symbol else None)
    new = np.full(len(words), vocabulary.id(UNKNOWN) if n_cut else 0, np.int32)
    new[order] = np.arange(1, len(order) + 1)
    return vocabulary, new
