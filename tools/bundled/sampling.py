"""Reproducible random choice: tables of integer weights and one seeded generator.

Only ``random.Random.random`` is used, whose sequence Python guarantees; the other methods of that class may
change between versions.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class Table(Generic[T]):
    """Items with cumulative integer weights, ready to draw from in O(log n)."""

    __slots__ = ("cumulative", "items", "total")

    def __init__(self, pairs: Iterable[tuple[T, int]]) -> None:
        kept = [(item, weight) for item, weight in pairs if weight > 0]
        self.items = tuple(item for item, _ in kept)
        self.cumulative = tuple(accumulate(weight for _, weight in kept))
        self.total = self.cumulative[-1]


def weighted(weights: dict[T, int]) -> Table[T]:
    """Return a table from ``{item: weight}``."""
    return Table(weights.items())


def zipf(items: Iterable[T], shift: int = 4) -> Table[T]:
    """Return a table in which the item at rank r (from 0) has weight 1 / (r + ``shift``), as an integer."""
    return Table((item, 1_000_000 // (rank + shift)) for rank, item in enumerate(items))


@dataclass(frozen=True, slots=True)
class WordTable(Generic[T]):
    """Words of one class: known ones by rank, and held-back ones, all equally likely."""

    known: Table[T]
    held_back: tuple[T, ...] = ()


class Draw:
    """The seeded random generator of one corpus.

    ``unseen`` is the probability that an open-class word comes from the held-back part of its table.
    """

    __slots__ = ("_random", "_recent", "_unseen", "in_past")

    def __init__(self, seed: int, unseen: float) -> None:
        self._random = Random(seed).random
        self._unseen = unseen
        self._recent: list[object] = []
        self.in_past = True  # whether the sentence is in the past tense

    def start_sentence(self) -> None:
        """Choose the tense, and forget the words used so far, so that they can be used again."""
        self._recent.clear()
        self.in_past = self.chance(64)

    def chance(self, percent: float) -> bool:
        """Return True with a probability of ``percent`` percent."""
        return self._random() * 100 < percent

    def below(self, n: int) -> int:
        """Return an integer from 0 to n - 1."""
        return int(self._random() * n)

    def uniform(self, items: Sequence[T]) -> T:
        """Return one of the items, all equally likely."""
        return items[int(self._random() * len(items))]

    def pick(self, table: Table[T]) -> T:
        """Return one item of the table by its weight."""
        return table.items[bisect_right(table.cumulative, int(self._random() * table.total))]

    def word(self, table: WordTable[T]) -> T:
        """Return a word, sometimes a held-back one, preferably one that this sentence does not have yet."""
        held_back = table.held_back if self._random() < self._unseen else ()
        for _ in range(4):
            word = self.uniform(held_back) if held_back else self.pick(table.known)
            if word not in self._recent:
                break
        self._recent.append(word)
        return word
