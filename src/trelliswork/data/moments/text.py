"""A text as a vocabulary and blocks of ids: read once, kept until the vocabulary is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.kernels.moments import count_ids, longest, renumber
from trelliswork.data.moments.files import (
    PAD,
    Ids,
    Numbering,
    Source,
    Spool,
    file_blocks,
    files_of,
    paths_listed,
    sentence_blocks,
)
from trelliswork.data.vocabulary import Vocabulary
from trelliswork.errors import DataError, ValueRangeError

MEMORY = 1 << 30  # bytes


def open_vocabulary(words: Iterable[str], unknown: str | None) -> Vocabulary:
    """A vocabulary in which unlisted words are the word ``unknown``; without one, or if it is not listed, an error."""
    items = list(words)
    if unknown is None or unknown not in items:
        return Vocabulary(items)
    return Vocabulary(items, unknown=str, default=unknown)  # str: a word stands for itself, so the default is taken


def unknown_word(vocabulary: Vocabulary) -> str | None:
    """The word that unlisted ones are taken for, if there is one."""
    return vocabulary.default if vocabulary.unknown is not None else None


@dataclass
class CountStep:
    """How far counting is; what a progress bar shows.

    ``done`` of ``total`` bytes have been read (sentences if they are at hand; total 0 if it is not known), and the
    pairs of ``n_tokens`` words counted.
    """

    done: int = 0
    total: int = 0
    n_tokens: int = 0
    seconds: float = 0.0


Callback = Callable[[CountStep], object]


@dataclass
class IdText:
    """A text as a vocabulary and blocks of ids, a -1 after each sentence.

    ``blocks`` may be gone through once; blocks hold whole sentences.
    """

    vocabulary: Vocabulary
    blocks: Iterator[Ids]
    step: CountStep = field(default_factory=CountStep)


def number_text(
    source: Source,
    *,
    vocabulary: Vocabulary | None = None,
    min_count: int = 1,
    max_words: int | None = None,
    unknown: str | None = "<unk>",
    callback: Callback | None = None,
    memory_limit: int = MEMORY,
) -> IdText:
    """Read a text once and number its words; parameters as in `count_moments`."""
    if min_count < 1 or (max_words is not None and max_words < 1):
        raise ValueRangeError(f"min_count and max_words must be positive, got {min_count} and {max_words}.")
    began, step = time.perf_counter(), CountStep()
    source = paths_listed(source)
    files = files_of(source)
    if files is not None:
        step.total = sum(path.stat().st_size for path in files)
    elif isinstance(source, Sized):
        step.total = len(source)

    def progress(n: int) -> None:
        step.done += n
        step.seconds = time.perf_counter() - began
        if callback is not None:
            callback(step)

    if vocabulary is not None:
        if not len(vocabulary) or vocabulary[0] != PAD:
            raise ValueRangeError(f"a vocabulary with {PAD} first is wanted, such as that of other moments.")
        default = unknown_word(vocabulary)
        known = {word.encode(): k for k, word in enumerate(vocabulary) if k > 0}  # <S> is no word: it is refused
        numbering = Numbering(known, fixed=-1 if default is None else vocabulary.id(default))
        return IdText(vocabulary, _read(source, files, numbering, progress), step)
    numbering = Numbering({})
    counts = np.zeros(0, np.int64)
    spool = Spool(memory_limit // 4)
    for block in _read(source, files, numbering, progress):
        if len(counts) < len(numbering.ids):
            counts = np.concatenate([counts, np.zeros(2 * len(numbering.ids) - len(counts), np.int64)])
        count_ids(block, counts, np.zeros(longest(block) + 1, np.int64))
        spool.append(block)
    vocabulary, new = _choose(list(numbering.ids), counts[: len(numbering.ids)], min_count, max_words, unknown)
    return IdText(vocabulary, _again(spool, new), step)


def _read(
    source: Source, files: list[Path] | None, numbering: Numbering, progress: Callable[[int], None]
) -> Iterator[Ids]:
    if files is not None:
        return file_blocks(files, numbering, progress)
    return sentence_blocks(source, numbering, progress)  # type: ignore[arg-type]


def _again(spool: Spool, new: Ids) -> Iterator[Ids]:
    """The blocks kept, with their ids in the vocabulary."""
    try:
        for block in spool:
            renumber(block, new)
            yield block
    finally:
        spool.close()


def _choose(
    words: list[bytes], counts: NDArray[np.int64], min_count: int, max_words: int | None, unknown: str | None
) -> tuple[Vocabulary, Ids]:
    """The vocabulary, and what each word's id is in it."""
    if not words:
        raise DataError("at least one sentence wanted, but the text has none. Is it the right file?")
    special = -1 if unknown is None else next((k for k, word in enumerate(words) if word == unknown.encode()), -1)
    order = np.argsort(-counts, kind="stable")
    order = order[(counts[order] >= min_count) | (order == special)]
    if max_words is not None:
        kept = order[order != special][:max_words]
        order = order[np.isin(order, kept) | (order == special)]
    listed = [words[k].decode() for k in order.tolist()]
    n_cut = len(words) - len(order)
    if n_cut and unknown is None:
        raise ValueRangeError(
            f"min_count or max_words leaves {n_cut:,} words out: say with unknown= what to call them."
        )
    if n_cut and special < 0:
        assert unknown is not None
        listed.append(unknown)
    vocabulary = open_vocabulary([PAD, *listed], unknown)
    new = np.full(len(words), vocabulary.id(unknown) if n_cut and unknown else 0, np.int32)
    new[order] = np.arange(1, len(order) + 1)
    return vocabulary, new
