r"""N-gram tables for queries and for files, the same in both: arrays that are mapped into memory and need no parsing.

An n-gram has two numbers, its probability (or the part of it that order m adds) and the factor of the order below after
it. Both are ratios of small counts, so few of them are different: a table lists the different ones, exact, and an
n-gram has their codes. A node of 8 bytes packs the two codes and the first of the n-grams that extend it. The highest
order has the code of the probability alone. Last words have 2 bytes (4 beyond 65,536 words).

The words are numbered so that those that follow a context are spread evenly: word i, the i-th most frequent one, has
the number ``i * stride mod C``, with a stride of about 0.618 C (multiples of the golden ratio are the most even ones).
A search starts where the word would be in an even spread, and mostly ends within the same cache line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.spooled import release, room
from trelliswork.data.storage import Arrays
from trelliswork.errors import DataError
from trelliswork.models.baselines.kernels.queries import (
    SHARE,
    Codebook,
    Coded,
    Level,
    Store,
    are_codes_sound,
    encode,
    falls,
    falls_between,
    pack,
)
from trelliswork.models.baselines.ngrams import NgramTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_PART = 1 << 20  # n-grams of files that are in memory at a time
_CODES = 1 << 16  # room for codes of an order at first
_FALLBACK = (0.5, 1.0, 1.5)  # discounts for texts so small that counts of counts are missing
_ARRAYS = ("words", "nodes", "codes", "values")  # in files
_NOTHING = np.empty(0, np.float64)


def discounts(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return D by count, 0 to 3 and more (4,); ``D[0]`` is 0."""
    n = np.zeros(6)
    for a in range(0, len(counts), _PART):
        n += np.bincount(np.minimum(counts[a : a + _PART], 5), minlength=6)
        release(counts)
    n1, n2, n3, n4 = n[1:5].tolist()
    by_count = list(_FALLBACK)
    if min(n1, n2) > 0:
        y = n1 / (n1 + 2 * n2)
        for j, (here, more) in enumerate(((n1, n2), (n2, n3), (n3, n4))):
            estimate = j + 1 - (j + 2) * y * more / here if here > 0 and more > 0 else 0.0
            if estimate > 0:  # no discount would leave no mass for new words
                by_count[j] = estimate
    return np.array([0.0, *by_count])


def even_stride(C: int) -> int:
    """Return a number near 0.618 C without a common divisor with C."""
    stride = max(1, round(C * (math.sqrt(5) - 1) / 2))
    while math.gcd(stride, C) > 1:
        stride += 1
    return stride


class CompactTables:
    """The n-grams of all orders.

    Parameters
    ----------
    store : Store
        The arrays of all orders.
    n_words : int
        Number of words of order 1 that were seen.
    stride : int
        Numbers of words in the tables are ``id * stride mod C``.
    interpolated : bool
        Whether probabilities of an order are added to those of the order below.
    """

    def __init__(self, store: Store, sizes: Sequence[int], n_words: int, stride: int, interpolated: bool) -> None:
        self.store, self.n_words, self.stride, self.interpolated = store, n_words, stride, interpolated
        self.C, self.levels = sizes[0], _levels(store, sizes)
        self.numbers = np.arange(self.C) * stride % self.C  # of the words with each id
        self.ids = np.empty(self.C, np.int64)  # of the words with each number
        self.ids[self.numbers] = np.arange(self.C)

    @classmethod
    def counted(cls, tables: list[NgramTable], stride: int, limit: int) -> CompactTables:
        """Return tables with modified Kneser-Ney probabilities of counts; empties the list of their tables.

        ``stride`` is that of the ids in the counts. Arrays of more than ``limit`` bytes are in temporary files.
        """
        counts = tables[0].counts
        C, n_seen, top = len(counts), int((counts > 0).sum()), len(tables)
        capped, D = np.minimum(counts, 3), discounts(counts)
        lost, total = float((D * np.bincount(capped, minlength=4)).sum()), float(counts.sum())
        share = (counts - D[capped]) / total + lost / total / C
        sizes = [C, *(len(table.keys) for table in tables[1:])]
        writer, codes, bits = _Writer(sizes, limit), np.empty(0, np.uint32), 0
        for m in range(2, top + 1):
            table, tables[m - 1] = tables[m - 1], NgramTable(np.empty(0, np.int64), np.empty(0, np.int64))
            coded, shares, rests = _coded(table, C, sizes[m - 2], writer.words_of(m), limit)
            del table
            _fill_level(writer, m - 1, (codes, share, bits), rests, coded)
            codes, share, bits = coded.shares, shares, _bits(len(shares))
        if top == 1:
            writer.nodes[:] = 0
            writer.add(share, np.ones(C), 0, 0)
        else:
            writer.codes = room(sizes[-1], np.uint16 if bits <= 16 else np.uint32, limit)
            writer.codes[:] = codes
            writer.add(share, _NOTHING, bits, 0)
        return cls(writer.store(), sizes, n_seen, stride, interpolated=True)

    @classmethod
    def listed(cls, keys: Sequence[Ints], p: Sequence[Floats], rest: Sequence[Floats]) -> CompactTables:
        """Return the tables of a back-off model: n-grams as in `NgramTable`, probabilities, and weights after them."""
        C, sizes = len(keys[0]), [len(own) for own in keys]
        writer = _Writer(sizes, sum(sizes) << 4)
        for m, (own, values, weights) in enumerate(zip(keys, p, rest, strict=True), start=1):
            if m > 1:
                writer.words_of(m)[:] = own % C
            if m < len(keys):
                writer.nodes_of(m)[:] = np.searchsorted(keys[m], np.arange(len(own) + 1) * C)
            elif m == 1:
                writer.nodes[:] = 0
            writer.add(values, weights if m < len(keys) or m == 1 else _NOTHING, 0, 0)
        return cls(writer.store(), sizes, int((p[0] > 0).sum()), 1, interpolated=False)

    @classmethod
    def restored(cls, plain: dict[str, Any], arrays: Arrays) -> CompactTables:
        """Return the tables of a file; DataError if they are damaged."""
        try:
            n_words, stride, interpolated = int(plain["n_words"]), int(plain["stride"]), bool(plain["interpolated"])
            sizes, numbers = [int(n) for n in plain["sizes"]], [[int(n) for n in row] for row in plain["numbers"]]
            words, nodes, codes, values = (arrays[name] for name in _ARRAYS)
            store = Store(words, nodes, codes, values, _orders(sizes, numbers))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            raise DataError("the tables are incomplete: train again.") from None
        if not _possible(store, sizes, numbers):
            raise DataError("the tables of n-grams are damaged: train again.")
        C, levels = sizes[0], _levels(store, sizes)
        if not 0 < stride <= C or math.gcd(stride, C) > 1:
            raise DataError(f"the stride {stride} does not fit {C} words: train again.")
        for m, (below, level) in enumerate(pairwise(levels), start=2):
            between, every = falls_between(below, sizes[m - 2], level.words), falls(level.words, C)
            if min(between, every) < 0 or between != every:  # words rise after each context
                raise DataError(f"the table of order {m} is damaged: train again.")
        if len(levels) == 1:
            is_sound = falls_between(levels[0], C, levels[0].words) >= 0
        else:
            is_sound = not levels[-1].share_bits or are_codes_sound(levels[-1])
        if not is_sound:
            raise DataError(f"the table of order {len(levels)} is damaged: train again.")
        return cls(store, sizes, n_words, stride, interpolated)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the numbers and arrays that ``restored`` takes."""
        plain = {"n_words": self.n_words, "stride": self.stride, "interpolated": self.interpolated}
        numbers = [[len(one.share), len(one.rest), one.share_bits, one.rest_bits] for one in self.levels]
        return plain | {"sizes": [self.C, *self.sizes()[1:]], "numbers": numbers}, {
            name: getattr(self.store, name) for name in _ARRAYS
        }

    def sizes(self) -> list[int]:
        """Return the number of n-grams of each order, from 1 on."""
        return [self.n_words, *(len(level.words) for level in self.levels[1:])]

    def after(self, context: Ints) -> Floats:
        """Return p(word | context) of all words (C,), by id."""
        p = self.levels[0].share[self.numbers]
        for m, level in enumerate(self.levels[1:], start=2):
            at = self._find(context[-(m - 1) :]) if len(context) >= m - 1 else -1
            if at < 0:
                break
            below = self.levels[m - 2]
            a, b = self._children(below, at)
            p = p * _values(below, slice(at, at + 1), rest=True)
            ids, share = self.ids[level.words[a:b]], _values(level, slice(a, b))
            p[ids] = p[ids] + share if self.interpolated else share
        return p

    def plain_orders(self) -> list[tuple[Ints, Floats, Floats]]:
        """Return keys as in `NgramTable`, with ids of words, and the two numbers of each n-gram, for each order."""
        C, top = self.C, len(self.levels)
        orders = []
        order = self.numbers  # n-grams of the tables in the order of their keys
        for m, level in enumerate(self.levels, start=1):
            if m == 1:
                keys = np.arange(C)
            else:
                below = self.levels[m - 2]
                first = (below.nodes >> np.uint64(below.share_bits + below.rest_bits)).astype(np.int64)
                place = np.empty(len(order), np.int64)
                place[order] = np.arange(len(order))
                keys = np.repeat(place, np.diff(first)) * C + self.ids[level.words]
                order = np.argsort(keys, kind="stable")
                keys = keys[order]
            rest = np.ones(len(keys)) if m == top else _values(level, order, rest=True)
            orders.append((keys, _values(level, order), rest))
        return orders

    def _children(self, level: Level, i: int) -> tuple[int, int]:
        first = level.nodes[i : i + 2] >> np.uint64(level.share_bits + level.rest_bits)
        return int(first[0]), int(first[1])

    def _find(self, context: Ints) -> int:
        """Return the index of some words in the table of their order, -1 if they are not listed."""
        first, *others = self.numbers[context].tolist()
        at: int = first
        for below, level, word in zip(self.levels, self.levels[1:], others, strict=False):
            a, b = self._children(below, at)
            at = a + int(np.searchsorted(level.words[a:b], word))
            if at == b or level.words[at] != word:
                return -1
        return at


def _width(C: int) -> Any:
    return np.uint16 if C <= 1 << 16 else np.uint32


def _bits(n: int) -> int:
    return max(1, (n - 1).bit_length())


class _Writer:
    """The arrays of a store while it is filled; those of more than ``limit`` bytes are in temporary files."""

    def __init__(self, sizes: Sequence[int], limit: int) -> None:
        self._sizes, self._numbers, self._values = sizes, list[Sequence[int]](), list[Floats]()
        self._words_at, self._nodes_at = _places(sizes)
        self.words = room(self._words_at[-1], _width(sizes[0]), limit)
        self.nodes = room(self._nodes_at[-1], np.uint64, limit)
        self.codes: Any = np.empty(0, np.uint16)

    def words_of(self, m: int) -> Any:
        """Return the last words of order m, from 2 on."""
        return self.words[self._words_at[m - 1] : self._words_at[m]]

    def nodes_of(self, m: int) -> Any:
        """Return the nodes of an order below the highest."""
        return self.nodes[self._nodes_at[m - 1] : self._nodes_at[m]]

    def add(self, share: Floats, rest: Floats, share_bits: int, rest_bits: int) -> None:
        """Add the numbers of the next order, from 1 on."""
        self._numbers.append((len(share), len(rest), share_bits, rest_bits))
        self._values += [share, rest]

    def store(self) -> Store:
        """Return the arrays."""
        return Store(
            self.words, self.nodes, self.codes, np.concatenate(self._values), _orders(self._sizes, self._numbers)
        )


def _places(sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return where the words, and the nodes of 8 bytes, of each order begin, and where the last ones end."""
    words, nodes = [0, *sizes[1:]], [n + 1 for n in sizes[:-1]] or [sizes[0] + 1]
    return [0, *np.cumsum(words).tolist()], [0, *np.cumsum(nodes).tolist()]


def _orders(sizes: Sequence[int], numbers: Sequence[Sequence[int]]) -> Ints:
    """Return the table of a store from the shares, the rests, and the bits of both codes, of each order."""
    (words_at, nodes_at), rows, at = _places(sizes), [], 0
    for m, (n_shares, n_rests, share_bits, rest_bits) in enumerate(numbers):
        rows.append([words_at[m], nodes_at[min(m, len(nodes_at) - 1)], at, at + n_shares, share_bits, rest_bits])
        at += n_shares + n_rests
    return np.array(rows, np.int64)


def _levels(store: Store, sizes: Sequence[int]) -> list[Level]:
    """Return views of the orders of a store."""
    levels, n_values = [], len(store.values)
    for m, (n, row) in enumerate(zip(sizes, store.orders.tolist(), strict=True), start=1):
        words, nodes, share, rest, share_bits, rest_bits = row
        end = store.orders[m, SHARE] if m < len(sizes) else n_values
        is_highest = m == len(sizes) and m > 1
        levels.append(
            Level(
                store.words[words : words + n] if m > 1 else store.words[:0],
                store.codes if is_highest else store.nodes[nodes : nodes + n + 1],
                store.values[share:rest],
                store.values[rest:end],
                share_bits,
                rest_bits,
            )
        )
    return levels


def _coded(table: NgramTable, C: int, n_contexts: int, words: NDArray[Any], limit: int) -> tuple[Coded, Floats, Floats]:
    """Return the n-grams of an order with codes, and the numbers of the codes: shares, and rests of the contexts."""
    D, n, size = discounts(table.counts), len(table.keys), _CODES
    coded = Coded(
        words,
        room(n, np.uint32, limit),
        room(n_contexts, np.uint32, limit),
        room(n_contexts + 1, np.int64, limit),
    )
    while True:
        books = [Codebook(np.empty(size), np.full(2 * size, -1), np.zeros(1, np.int64)) for _ in range(2)]
        at = 0
        for a in range(0, max(n_contexts, 1), _PART):
            b = min(a + _PART, n_contexts)
            at = encode(a, b, at, (table.keys, table.counts), C, D, *books, coded)
            for array in (table.keys, table.counts, *coded):
                release(array)
            if at < 0:
                break
        else:
            shares, rests = (book.values[: book.n[0]].copy() for book in books)
            return coded, shares, rests
        size *= 4


def _fill_level(writer: _Writer, m: int, own: tuple[Any, Floats, int], rest: Floats, above: Coded) -> None:
    """Fill an order below the highest; without room for two codes in a node, each n-gram lists its numbers.

    ``own`` are the codes of its shares, the shares and the bits of a code, ``above`` the n-grams that extend it.
    """
    (codes, share, bits), rests, rest_bits = own, above.rests, _bits(len(rest))
    if bits + rest_bits + len(above.words).bit_length() > 64:
        share, rest, bits, rest_bits = share[codes] if bits else share, rest[rests], 0, 0
    nodes = writer.nodes_of(m)
    for a in range(0, len(nodes), _PART):
        part, ends = slice(a, a + _PART), slice(a, a + _PART + 1)
        pack(codes[part], rests[part], above.first[ends], bits, rest_bits, nodes[ends])
        for array in (codes, rests, above.first, nodes):
            release(array)
    writer.add(share, rest, bits, rest_bits)


def _values(level: Level, where: Any, rest: bool = False) -> Floats:
    """Return one of the two numbers of n-grams."""
    values, bits = (level.rest, level.rest_bits) if rest else (level.share, level.share_bits)
    if not bits:
        return values[where]
    codes = level.nodes[where] >> (level.nodes.dtype.type(level.share_bits if rest else 0))
    return values[(codes & codes.dtype.type((1 << bits) - 1)).astype(np.int64)]


def _possible(store: Store, sizes: Sequence[int], numbers: Sequence[Sequence[int]]) -> bool:
    """Return whether the arrays have the right types and lengths, and numbers that are possible."""
    narrow, top = (np.uint16, np.uint32), len(sizes)
    if store.words.dtype not in narrow or store.nodes.dtype != np.uint64 or store.codes.dtype not in narrow:
        return False
    if store.values.dtype != np.float64 or any(array.ndim != 1 for array in store[:4]):
        return False
    if len(numbers) != top or min(sizes) < 0 or sizes[0] < 1 or min(map(min, numbers)) < 0:
        return False
    for m, (n, (n_shares, n_rests, share_bits, rest_bits)) in enumerate(zip(sizes, numbers, strict=True), start=1):
        has_rests = m < top or m == 1
        if (not share_bits and n_shares != n) or (has_rests and not rest_bits and n_rests != n):
            return False
        if share_bits + rest_bits > 63 or (m == 1 and share_bits):
            return False
    words_at, nodes_at = _places(sizes)
    n_codes, n_values = sizes[-1] if top > 1 and numbers[-1][2] else 0, sum(row[0] + row[1] for row in numbers)
    if [len(array) for array in store[:4]] != [words_at[-1], nodes_at[-1], n_codes, n_values]:
        return False
    for level in _levels(store, sizes):
        if not ((level.share >= 0).all() and (level.share <= 1.0 + 1e-3).all()):
            return False
        if not ((level.rest >= 0).all() and (level.rest < np.inf).all()):
            return False
    return True
