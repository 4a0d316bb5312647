r"""N-gram models in the ARPA format, which KenLM, SRILM and others read and write; plain or gzip.

After ``\data\`` come the numbers of n-grams; then, for each order, ``\m-grams:`` and one line per n-gram: log10 of its
probability, its words, and log10 of its back-off weight, which is 0 if it is missing.
"""

from __future__ import annotations

import gzip
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.files import Readable, open_text, replacing, shorten, source_name, sync
from trelliswork.data.vocabulary import END, START, UNKNOWN
from trelliswork.errors import DataError
from trelliswork.models.baselines.kneser_ney import KneserNey, ListedOrder

LOG_10 = math.log(10.0)
ZERO = -99.0  # log10 of an impossible event, as SRILM writes it
_HEADER = re.compile(r"ngram\s+(\d+)\s*=\s*(\d+)")
_SECTION = re.compile(r"\\(\d+)-grams:")
_OTHER_UNKNOWN = "<UNK>"  # in files of some tools


def read_arpa(path: Readable) -> KneserNey:
    """Return the n-gram model of an ARPA file, plain or gzip, with the probabilities of the file."""
    return KneserNey.from_orders(*read_orders(path), source_name(path))


def read_orders(path: Readable) -> tuple[list[str], list[ListedOrder]]:
    """Return the words and n-grams of an ARPA file.

    Parameters
    ----------
    path : str or path
        A plain or gzip file in UTF-8; ``-`` is the standard input.

    Returns
    -------
    words : list of str
        Item 0 is ``<s>``, the others are in the order of the file; ``<UNK>`` is read as ``<unk>``.
    orders : list of ListedOrder
        The n-grams of orders 1, 2, ...

    Raises
    ------
    DataError
        If a line does not follow the format, a number of n-grams is not the announced one, a word is not a unigram, or
        the first words of an n-gram are not listed.
    """
    with open_text(path) as lines:
        return _Reader(lines, source_name(path)).read()


class _Reader:
    """The lines of a file with their numbers, and what has been read so far."""

    def __init__(self, lines: Iterable[str], source: str) -> None:
        self._lines = enumerate(lines, start=1)
        self._source, self._number = source, 0

    def read(self) -> tuple[list[str], list[ListedOrder]]:
        line = self._next()
        while line is not None and line != "\\data\\":
            line = self._next()  # text before the header is a comment
        if line is None:
            raise DataError(
                f"{self._source}: expected the line \\data\\ of an ARPA file, got none. Is it an ARPA file?"
            )
        sizes, line = self._sizes()
        words, ids = [START], {START: 0, END: 0}
        orders: list[ListedOrder] = []
        for m, size in enumerate(sizes, start=1):
            title = _SECTION.fullmatch(line or "")
            if title is None or int(title[1]) != m:
                raise self._error(f"expected \\{m}-grams:, got {shorten(line or 'the end of the file')}")
            order, line = self._order(m, size, m == len(sizes), words, ids, orders)
            orders.append(order)
        if line != "\\end\\":
            raise self._error(f"expected \\end\\, got {shorten(line or 'the end of the file')}")
        return words, orders

    def _error(self, text: str) -> DataError:
        return DataError(f"{self._source}:{self._number}: {text}. The file is damaged or not an ARPA file.")

    def _next(self) -> str | None:
        """Return the next line that is not blank, ``None`` at the end."""
        for number, line in self._lines:
            self._number, kept = number, line.strip()
            if kept:
                return kept
        return None

    def _sizes(self) -> tuple[list[int], str | None]:
        sizes: list[int] = []
        line = self._next()
        while line is not None and (entry := _HEADER.fullmatch(line)):
            if len(entry[1]) > 3 or len(entry[2]) > 15 or int(entry[1]) != len(sizes) + 1:
                raise self._error(f"expected ngram {len(sizes) + 1}=NUMBER, got {shorten(line)}")
            sizes.append(int(entry[2]))
            line = self._next()
        if not sizes:
            raise self._error(f"expected ngram 1=NUMBER, got {shorten(line or 'the end of the file')}")
        return sizes, line

    def _order(
        self, m: int, size: int, highest: bool, words: list[str], ids: dict[str, int], below: Sequence[ListedOrder]
    ) -> tuple[ListedOrder, str | None]:
        """Return the n-grams of order m, and the line after them."""
        values: list[tuple[float, float]] = []
        grams: list[int] = []
        start = self._number
        line = self._next()
        while line is not None and not line.startswith("\\"):
            fields = line.split("\t")
            if len(fields) < 2 or len(fields) > 3 or " " in fields[0]:  # some tools write spaces only
                fields = line.split()
                if len(fields) in (m + 1, m + 2):
                    fields = [fields[0], " ".join(fields[1 : m + 1]), *fields[m + 1 :]]
            gram = fields[1].split() if len(fields) in (2, 3) else []
            if len(gram) != m:
                raise self._error(
                    f"expected log10 p, {m} word{'s' * (m > 1)} and a back-off weight, got {shorten(line)}"
                )
            try:
                value = float(fields[0]), float(fields[2]) if len(fields) == 3 and not highest else 0.0
            except ValueError:
                raise self._error(f"expected numbers before and after the words, got {shorten(line)}") from None
            if not value[0] <= 1e-4 or not -math.inf < value[1] < math.inf:  # rounding may exceed 0
                raise self._error(f"expected log10 of a probability and a finite weight, got {shorten(line)}")
            if m == 1:
                self._word(gram[0], words, ids, grams)
            else:
                try:
                    grams += [ids[word] for word in gram]
                except KeyError as error:
                    raise self._error(f"expected words of the 1-grams, got {shorten(error.args[0])}") from None
            values.append(value)
            line = self._next()
        if len(values) != size:
            raise self._error(f"expected {size} {m}-grams, as \\data\\ says, got {len(values)}")
        pairs = np.array(values).reshape(-1, 2) * LOG_10
        log_p, log_rest = np.minimum(pairs[:, 0], 0.0), pairs[:, 1]
        log_p[log_p <= ZERO * LOG_10] = -np.inf
        rows = np.array(grams, np.int64).reshape(-1, m)
        if m == 1:
            return self._words(rows[:, 0], log_p, log_rest, len(words)), line
        keys = self._prefixes(rows, below, len(words), start) * len(words) + rows[:, -1]
        by_key = np.argsort(keys, kind="stable")
        if (np.diff(keys[by_key]) == 0).any():
            raise self._error(f"one of the {m}-grams occurs twice")
        return ListedOrder(keys[by_key], log_p[by_key], log_rest[by_key]), line

    def _word(self, word: str, words: list[str], ids: dict[str, int], grams: list[int]) -> None:
        """Number the word of a unigram: -1 for ``<s>``, whose probability means nothing."""
        if word == START:
            grams.append(-1)
            return
        if word == _OTHER_UNKNOWN:
            ids[_OTHER_UNKNOWN], word = len(words), UNKNOWN
        if word != END:
            if word in ids:
                raise self._error(f"the word {shorten(word)} occurs twice")
            ids[word] = len(words)
            words.append(word)
        grams.append(ids[word])

    def _words(
        self, ids: NDArray[np.int64], log_p: NDArray[np.float64], log_rest: NDArray[np.float64], C: int
    ) -> ListedOrder:
        """Return the unigrams by word: 0 has the probability of ``</s>`` and the weight of ``<s>``."""
        if not (ids == 0).any():
            raise self._error(f"expected a 1-gram {END}, got none: every sentence would be impossible")
        order = ListedOrder(np.arange(C), np.full(C, -np.inf), np.zeros(C))
        order.log_p[ids[ids >= 0]] = log_p[ids >= 0]
        order.log_rest[ids[ids > 0]] = log_rest[ids > 0]
        order.log_rest[0] = log_rest[ids < 0].sum()  # none if <s> is not listed
        return order

    def _prefixes(self, rows: NDArray[np.int64], below: Sequence[ListedOrder], C: int, start: int) -> NDArray[np.int64]:
        """Return the index of the first words of each n-gram in the order below."""
        at = rows[:, 0]
        for k, order in enumerate(below[1:], start=1):
            keys = at * C + rows[:, k]
            at = np.searchsorted(order.keys, keys)
            missing = np.flatnonzero(
                (at == len(order.keys)) | (order.keys[np.minimum(at, len(order.keys) - 1)] != keys)
            )
            if len(missing):
                self._number = start + 1 + int(missing[0])
                raise self._error(f"expected an n-gram whose first {k + 1} words are listed too, got another")
        return at


def write_arpa(model: KneserNey, path: str | Path) -> None:
    """Write a model to an ARPA file, which KenLM and SRILM read; gzip if the name ends in ``.gz``.

    Probabilities are interpolated ones, so that back-off gives the same numbers as interpolation; log10 of probability
    0 is -99. The file is written completely or not at all. DataError if a word has white space, or the file cannot be
    written.
    """
    words, orders = [*model.vocabulary_], model.orders()
    for word in words:
        if len(word.split()) != 1 or word in (END, "\\end\\") or not word.isprintable():
            raise DataError(f"{path}: the word {shorten(word)} does not fit into an ARPA file.")
    target = Path(path).resolve()
    if target.is_dir():
        raise DataError(f"{path}: expected a file to write, got a directory. Add a file name.")
    with replacing(target) as fresh:
        try:
            raw = fresh.open("xb")
        except OSError as error:
            raise DataError(f"{path}: cannot be written: {error.strerror or error}: {fresh.parent}.") from None
        with raw:
            packed = gzip.GzipFile("", "wb", 6, raw, mtime=0) if target.name.endswith(".gz") else None
            with io.TextIOWrapper(cast(io.BufferedWriter, packed or raw), "utf-8", newline="\n") as file:
                file.writelines(_lines(words, orders))
                file.flush()
                if packed is not None:
                    packed.close()
                sync(raw)


def _lines(words: Sequence[str], orders: Sequence[ListedOrder]) -> Iterator[str]:
    """Yield the lines of a file with their ends."""
    C, highest = len(words), len(orders)
    has_words = orders[0].log_p > -np.inf  # of probability 0: only those that are contexts
    has_words |= orders[0].log_rest != 0
    for order in orders[1:2]:
        has_words[order.keys // C] = True
        has_words[order.keys % C] = True
    has_words[0] = True
    yield "\\data\\\n"
    yield f"ngram 1={int(has_words.sum()) + 1}\n"
    yield from (f"ngram {m}={len(order.keys)}\n" for m, order in enumerate(orders[1:], start=2))
    names: list[str] = [START, *words[1:]]
    last = [END, *words[1:]]
    for m, order in enumerate(orders, start=1):
        log_p = np.where(order.log_p > -np.inf, order.log_p / LOG_10, ZERO).tolist()
        rest = np.maximum(order.log_rest / LOG_10, ZERO).tolist()
        yield f"\n\\{m}-grams:\n"
        if m == 1:
            tail = f"\t{rest[0]:.9g}" if highest > 1 else ""
            yield f"{ZERO:g}\t{START}{tail}\n"
            rows = zip(log_p, last, [0.0, *rest[1:]], has_words.tolist(), strict=True)
            for p, name, weight, listed in rows:
                if listed:
                    yield f"{p:.9g}\t{name}\t{weight:.9g}\n" if highest > 1 else f"{p:.9g}\t{name}\n"
            continue
        prefix, word = np.divmod(order.keys, C)
        before = [names[k] for k in prefix.tolist()]
        ends = word.tolist()
        if m == highest:
            for p, name, k in zip(log_p, before, ends, strict=True):
                yield f"{p:.9g}\t{name} {last[k]}\n"
        else:
            names = [f"{name} {last[k]}" for name, k in zip(before, ends, strict=True)]
            for p, name, weight in zip(log_p, names, rest, strict=True):
                yield f"{p:.9g}\t{name}\t{weight:.9g}\n"
    yield "\n\\end\\\n"
