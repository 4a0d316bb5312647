"""Input of a parser as arrays: sentences with tags, heads and labels that may be unknown, evidence."""

import numbers
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.padding import pad
from trelliswork.data import Corpus
from trelliswork.data.corpus import chosen_tokens
from trelliswork.data.files import shorten
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.tree import Potentials, eisner, matrix_tree
from trelliswork.inference.tree.passes import Passes

Sentences = Corpus | Sequence[Sequence[Any]]
Head = int | None
Arcs = Sequence[Sequence[Head | tuple[Head, str | None]]]
Evidence = Sequence[Sequence[int | AbstractSet[int] | None]]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
UNKNOWN = -1


@dataclass(frozen=True)
class TreeKind:
    """Kind of trees, and the passes over them."""

    projective: bool
    single_root: bool

    @property
    def engine(self) -> Passes:
        """``inference.tree.eisner`` or ``matrix_tree``."""
        return eisner if self.projective else matrix_tree

    def potentials(self, log_arc: Doubles, lengths: Integers) -> Potentials:
        """Return scores as input of the engine."""
        return Potentials(log_arc, lengths, self.single_root)


def only_given(log_arc: Doubles, heads: Integers) -> Doubles:
    """Return scores with -inf for the arcs that contradict the known heads (B, n)."""
    allowed = log_arc.copy()
    rows, words = np.nonzero(heads >= 0)
    kept = log_arc[rows, heads[rows, words], words + 1]
    allowed[rows, :, words + 1] = -np.inf
    allowed[rows, heads[rows, words], words + 1] = kept
    return allowed


@dataclass(frozen=True)
class Columns:
    """Words and up to two columns of tags, flat; ``offsets`` are the boundaries of the sentences."""

    words: list[str]
    tags: list[list[str]]
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> Integers:
        """Number of words of each sentence."""
        return np.diff(self.offsets)

    def sentences(self, column: list[Any]) -> list[list[Any]]:
        """Split a flat column into sentences."""
        return [column[a:b] for a, b in pairwise(self.offsets.tolist())]


def read_sentences(X: Sentences) -> Columns:
    """Read sentences of words, of (word, tag) or of (word, tag, second tag), or a ``Corpus`` with these columns."""
    corpus = X if isinstance(X, Corpus) else Corpus.from_sentences(X)
    if not 1 <= len(corpus.columns) <= 3:
        raise ShapeError(
            f"tokens must be words, (word, tag) or (word, tag, second tag), got {len(corpus.columns)} columns."
        )
    return Columns(list(corpus.columns[0]), [list(column) for column in corpus.columns[1:]], corpus.offsets)


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
    """Known heads and labels."""

    heads: Integers  # (n_tokens,) -1 if unknown
    offsets: NDArray[np.int64]  # (n_sentences + 1,)
    labels: list[str | None] | None = None  # of each arc, None if unknown; None instead of the list if none is known
    n_dropped: int = 0  # given heads that are treated as unknown, because no tree of the kind has all of them

    def rows(self, sentences: Integers) -> Integers:
        """Return the heads (B, n) of some sentences; -1 if unknown and in the padding."""
        return pad(self.heads[chosen_tokens(self.offsets, sentences)[0]], np.diff(self.offsets)[sentences], UNKNOWN)

    def accuracy(self, heads: Integers, labels: Sequence[str | None] | None = None) -> float:
        """Return the UAS of flat heads, or with labels their LAS, of the words whose head (and label) is known."""
        known, right = self.heads >= 0, heads == self.heads
        if labels is not None:
            assert self.labels is not None
            known &= [label is not None for label in self.labels]
            right &= [one == label for one, label in zip(labels, self.labels, strict=True)]
        return float(right[known].sum() / max(known.sum(), 1))

    def possible(self, kind: TreeKind) -> "Gold":
        """Keep as many of the heads as one tree of this kind can have; O(n^3) per sentence."""
        heads, lengths = self.heads.copy(), np.diff(self.offsets)
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]
        for at in range(0, len(order), 128):
            batch = order[at : at + 128]
            given = self.rows(batch)
            rows, words = np.nonzero(given >= 0)
            n = given.shape[1]
            score = np.zeros((len(batch), n + 1, n + 1))
            score[rows, given[rows, words], words + 1] = 1
            best, _ = kind.engine.best(kind.potentials(score, lengths[batch]))
            rows, words = np.nonzero((given >= 0) & (best != given))
            heads[self.offsets[batch[rows]] + words] = UNKNOWN
        return replace(self, heads=heads, n_dropped=int((heads != self.heads).sum()))


def _is_integer(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def read_arcs(y: Arcs, offsets: NDArray[np.int64], name: str = "y") -> Gold:
    """Read heads, or pairs of head and label.

    A head is 0 for the root, ``None`` or -1 if unknown; a label is ``None`` if unknown. Cycles are an error.
    """
    flat = [token if isinstance(token, tuple | list) else (token, None) for token in _flat(name, y, offsets)]
    for token in flat:
        if len(token) != 2 or not (token[0] is None or _is_integer(token[0])):
            raise ValueRangeError(
                f"{name} must hold heads, or pairs (head, label), with integers for heads, None if unknown; got "
                f"{shorten(token[0] if len(token) == 2 else token)}."
            )
        if not (token[1] is None or isinstance(token[1], str)):
            raise ValueRangeError(f"labels must be strings, None if unknown, got {shorten(token[1])}.")
    heads = np.array([UNKNOWN if head is None else head for head, _ in flat], np.int64)
    lengths = np.diff(offsets)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    word = np.arange(len(heads)) - offsets[:-1][owner] + 1
    bad = np.flatnonzero((heads < UNKNOWN) | (heads > lengths[owner]) | (heads == word))
    if bad.size:
        i = bad[0]
        raise ValueRangeError(
            f"sentence {owner[i]}, word {word[i]}: its head must be 0 (the root), another word of 1 to "
            f"{lengths[owner[i]]}, or None if unknown, got {heads[i]}."
        )
    _check_cycles(heads, offsets, owner, word)
    labels = [label for _, label in flat]
    return Gold(heads, offsets, labels if any(label is not None for label in labels) else None)


def read_gold(y: Arcs, offsets: NDArray[np.int64], name: str = "y", use: str = "compare with") -> Gold:
    """Read heads and labels like `read_arcs`; it is an error if no head is known."""
    gold = read_arcs(y, offsets, name)
    if (gold.heads < 0).all():
        raise ValueRangeError(f"{name} must have at least one head to {use}, got None for all words.")
    return gold


def read_trees(y: Arcs, offsets: NDArray[np.int64], name: str = "y") -> Gold:
    """Read heads and labels like `read_arcs`; unknown heads, and unknown labels among known ones, are an error."""
    gold = read_arcs(y, offsets, name)
    unknown = gold.heads < 0
    missing = np.flatnonzero(unknown | [label is None for label in gold.labels] if gold.labels else unknown)
    if missing.size:
        i = int(missing[0])
        n = int(np.searchsorted(offsets, i, side="right")) - 1
        what = "head is unknown" if unknown[i] else "label is unknown, unlike those of other words"
        raise ValueRangeError(f"sentence {n}, word {i - offsets[n] + 1}: its {what}, but complete trees are needed.")
    return gold


def _check_cycles(heads: Integers, offsets: NDArray[np.int64], owner: Integers, word: Integers) -> None:
    """Climb from all words at once; a word that has not arrived at the root after n steps is below a cycle."""
    above, longest = word.copy(), int(np.diff(offsets).max(initial=0))
    for _ in range(longest):
        climbing = above > 0
        if not climbing.any():
            return
        above[climbing] = heads[offsets[owner[climbing]] + above[climbing] - 1]
    stuck = np.flatnonzero(above > 0)
    if stuck.size:
        i = stuck[0]
        raise ValueRangeError(f"sentence {owner[i]}: the heads above word {word[i]} form a cycle, which is not a tree.")


def read_evidence(known: Evidence, offsets: NDArray[np.int64]) -> list[frozenset[int] | None]:
    """Return the possible heads of each word, ``None`` if all are."""
    allowed: list[frozenset[int] | None] = []
    lengths = np.repeat(np.diff(offsets), np.diff(offsets)).tolist()
    for i, (given, n) in enumerate(zip(_flat("known", known, offsets), lengths, strict=True)):
        if given is None or (_is_integer(given) and given == UNKNOWN):
            allowed.append(None)
            continue
        several = isinstance(given, Collection) and not isinstance(given, str | bytes)
        heads: list[Any] = list(given) if several else [given]
        if not heads or not all(_is_integer(h) and 0 <= h <= n for h in heads):
            raise ValueRangeError(
                f"known, token {i}: expected a head from 0 to {n}, a set of such heads, or None, got {shorten(given)}."
            )
        allowed.append(frozenset(int(h) for h in heads))
    return allowed


def read_training(X: Sentences, y: Arcs) -> tuple[Columns, Gold]:
    """Read sentences with tags and trees to learn from, without empty sentences; an error if none is left."""
    columns = read_sentences(X)
    if not columns.tags:
        raise ShapeError("sentences must have tags to learn from: (word, tag) or (word, tag, second tag).")
    offsets = columns.offsets[np.concatenate([[True], columns.lengths > 0])]
    if len(offsets) == 1:
        raise ValueRangeError("there is no sentence to learn from: X is empty.")
    gold = read_gold(y, columns.offsets, use="learn from")
    return replace(columns, offsets=offsets), replace(gold, offsets=offsets)


def read_development(X: Sentences, y: Arcs) -> tuple[Columns, Gold]:
    """Read sentences with trees to compare with."""
    columns = read_sentences(X)
    return columns, read_gold(y, columns.offsets, "y of dev")
