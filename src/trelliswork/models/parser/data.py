"""What users give a parser, as arrays: sentences with tags, heads that may be unknown, labels, evidence."""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Corpus
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.models.parser.first_order import Integers, TreeKind

Sentences = Corpus | Sequence[Sequence[Any]]
Heads = Sequence[Sequence[int | None]]
Names = Sequence[Sequence[str | None]]
Evidence = Sequence[Sequence[int | AbstractSet[int] | None]]
UNKNOWN = -1


@dataclass(frozen=True)
class Columns:
    """Words and up to two columns of tags, flat, cut into sentences by offsets."""

    words: list[str]
    tags: list[list[str]]
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> Integers:
        """Words of each sentence."""
        return np.diff(self.offsets)

    def sentences(self, column: list[str]) -> list[list[str]]:
        """A flat column, sentence by sentence."""
        ends = self.offsets.tolist()
        return [column[a:b] for a, b in pairwise(ends)]


def read_sentences(X: Sentences) -> Columns:
    """Sentences of words, or of (word, tag) or (word, tag, second tag); or a ``Corpus`` with these columns."""
    if isinstance(X, str) or (not isinstance(X, Corpus) and any(isinstance(sentence, str) for sentence in X)):
        raise ShapeError("X must be a list of sentences, each a list of words or tuples: wrap a sentence in a list.")
    corpus = X if isinstance(X, Corpus) else Corpus.from_sentences(X)
    if not 1 <= len(corpus.columns) <= 3:
        raise ShapeError(
            f"tokens must be words, (word, tag) or (word, tag, second tag), got {len(corpus.columns)} columns."
        )
    return Columns(corpus.columns[0], list(corpus.columns[1:]), corpus.offsets)


def _flat(name: str, rows: Sequence[Sequence[Any]], offsets: NDArray[np.int64]) -> list[Any]:
    sizes = np.diff(offsets).tolist()
    if len(rows) != len(sizes):
        raise ShapeError(f"{name} must have an entry for each of the {len(sizes)} sentences, got {len(rows)}.")
    for n, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        if len(row) != size:
            raise ShapeError(f"{name}[{n}] must have an entry for each of the {size} words, got {len(row)}.")
    return list(chain.from_iterable(rows))


@dataclass(frozen=True)
class Gold:
    """Heads that training knows.

    Attributes
    ----------
    heads : ndarray (n_tokens,)
        -1 where unknown.
    offsets : ndarray (n_sentences + 1,)
    n_dropped : int
        Heads that were given but that no tree of the wanted kind has together: they count as unknown.
    """

    heads: Integers
    offsets: NDArray[np.int64]
    n_dropped: int = 0

    def rows(self, sentences: Integers, n: int) -> Integers:
        """Heads (B, n) of some sentences; -1 where unknown and in the padding."""
        return padded(self.heads, self.offsets, sentences, n)

    def possible(self, kind: TreeKind) -> "Gold":
        """As many of the heads as one tree of this kind can have; the others become unknown. Time O(n^3) each."""
        heads, lengths = self.heads.copy(), np.diff(self.offsets)
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]
        for at in range(0, len(order), 128):
            some = order[at : at + 128]
            n = int(lengths[some].max())
            given = self.rows(some, n)
            rows, words = np.nonzero(given >= 0)
            score = np.zeros((len(some), n + 1, n + 1))
            score[rows, given[rows, words], words + 1] = 1
            found, _ = kind.engine.best(kind.potentials(score, lengths[some]))
            lost = (given >= 0) & (found != given)
            rows, words = np.nonzero(lost)
            heads[self.offsets[some[rows]] + words] = UNKNOWN
        return Gold(heads, self.offsets, int((heads != self.heads).sum()))


def padded(values: Integers, offsets: NDArray[np.int64], sentences: Integers, n: int) -> Integers:
    """Flat values of sentences as rows (B, n), -1 in the padding."""
    at = offsets[sentences][:, None] + np.arange(n)
    inside = np.arange(n) < (offsets[sentences + 1] - offsets[sentences])[:, None]
    return np.where(inside, values[np.where(inside, at, 0)], UNKNOWN) if len(values) else np.full(inside.shape, UNKNOWN)


def is_whole(value: object) -> bool:
    """True for whole numbers of Python and NumPy, but not for True and False."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def read_heads(heads: Heads, offsets: NDArray[np.int64]) -> Gold:
    """Heads as users give them: numbers from 0 (the root), ``None`` or -1 where unknown; cycles are an error."""
    flat = _flat("heads", heads, offsets)
    for head in flat:
        if head is not None and not is_whole(head):
            raise ValueRangeError(f"heads must be whole numbers, or None where unknown, got {head!r}.")
    found = np.array([UNKNOWN if head is None else head for head in flat], np.int64)
    lengths = np.diff(offsets)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    word = np.arange(len(found)) - offsets[:-1][owner] + 1
    bad = np.flatnonzero((found < UNKNOWN) | (found > lengths[owner]) | (found == word))
    if bad.size:
        i = bad[0]
        raise ValueRangeError(
            f"sentence {owner[i]}, word {word[i]}: its head must be 0 (the root) or another word of 1 to "
            f"{lengths[owner[i]]}, or None where unknown, got {found[i]}."
        )
    _check_cycles(found, offsets, owner, word)
    return Gold(found, offsets)


def read_trees(heads: Heads, offsets: NDArray[np.int64]) -> Gold:
    """Heads as `read_heads` takes them, none of which may be unknown."""
    found = read_heads(heads, offsets)
    unknown = np.flatnonzero(found.heads < 0)
    if unknown.size:
        n = int(np.searchsorted(offsets, unknown[0], side="right")) - 1
        raise ValueRangeError(
            f"sentence {n}, word {unknown[0] - offsets[n] + 1}: its head is unknown, but whole trees are wanted here."
        )
    return found


def _check_cycles(heads: Integers, offsets: NDArray[np.int64], owner: Integers, word: Integers) -> None:
    """Climb from all words at once; who has not arrived after n steps goes round."""
    above, longest = word.copy(), int(np.diff(offsets).max(initial=0))
    for _ in range(longest):
        climbing = above > 0
        if not climbing.any():
            return
        above[climbing] = heads[offsets[owner[climbing]] + above[climbing] - 1]
    stuck = np.flatnonzero(above > 0)
    if stuck.size:
        i = stuck[0]
        raise ValueRangeError(f"sentence {owner[i]}: word {word[i]} hangs from a cycle of heads, which is no tree.")


def read_labels(labels: Names, offsets: NDArray[np.int64]) -> list[str | None]:
    """Labels of arcs, flat; ``None`` where unknown."""
    flat = _flat("labels", labels, offsets)
    wrong = next((label for label in flat if label is not None and not isinstance(label, str)), None)
    if wrong is not None:
        raise ValueRangeError(f"labels must be strings, or None where unknown, got {wrong!r}.")
    return flat


def read_evidence(known: Evidence, offsets: NDArray[np.int64]) -> list[frozenset[int] | None]:
    """For each word the heads it may have, ``None`` for all."""
    found: list[frozenset[int] | None] = []
    lengths = np.repeat(np.diff(offsets), np.diff(offsets)).tolist()
    for i, (given, n) in enumerate(zip(_flat("known", known, offsets), lengths, strict=True)):
        if given is None or (is_whole(given) and given == UNKNOWN):
            found.append(None)
            continue
        several = isinstance(given, Collection) and not isinstance(given, str | bytes)
        heads: list[Any] = list(given) if several else [given]
        if not heads or not all(is_whole(h) and 0 <= h <= n for h in heads):
            raise ValueRangeError(
                f"known, token {i}: a head from 0 to {n}, a set of such heads, or None is wanted, got {given!r}."
            )
        found.append(frozenset(int(h) for h in heads))
    return found


def without_empty(
    columns: Columns, gold: Gold, names: list[str | None] | None
) -> tuple[Columns, Gold, list[str | None] | None]:
    """Leave empty sentences out; an error if nothing is left."""
    ends = columns.offsets[np.concatenate([[True], columns.lengths > 0])]
    if len(ends) < 2:
        raise ValueRangeError("there is no sentence to learn from: X is empty.")
    return Columns(columns.words, columns.tags, ends), Gold(gold.heads, ends), names
