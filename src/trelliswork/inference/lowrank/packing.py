"""Sentences of different lengths as one array, position by position: no padding."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, ValueRangeError

Ints = NDArray[np.int64]
LEAST_SENTENCES = 16  # per group: fewer make thin matrix products
MOST_GROUPS = 4  # one thread works on a group


class Moves(NamedTuple):
    """The pairs of blocks that adjacent words need, each once."""

    blocks: Ints  # (W,) block of the states that emit each row of the emission table
    pairs: Ints  # (M, 2) block before and block after, sorted
    into: Ints  # (N,) number of the pair that leads into each word; any number for first words


def moves(words: Ints, offsets: Ints, blocks: Ints) -> Moves:
    """Return the moves between the blocks (W,) of the words of sentences.

    Examples
    --------
    >>> found = moves(np.array([0, 1, 0, 2, 2]), np.array([0, 3, 5]), np.array([0, 1, 1]))
    >>> found.pairs.tolist(), found.into.tolist()
    ([[0, 1], [1, 0], [1, 1]], [0, 0, 1, 0, 2])
    """
    C = int(blocks.max(initial=0)) + 1
    of_word = blocks[words]
    codes = np.roll(of_word, 1) * C + of_word
    inner = np.ones(len(words), bool)
    inner[offsets[:-1]] = False
    distinct = np.unique(codes[inner])
    into = np.zeros(len(words), np.int64)
    into[inner] = np.searchsorted(distinct, codes[inner])
    return Moves(blocks, np.stack(np.divmod(distinct, C), axis=1), into)


def one_block(n_rows: int, n_words: int) -> Moves:
    """Return the moves of a model with one block."""
    return Moves(np.zeros(n_rows, np.int64), np.zeros((1, 2), np.int64), np.zeros(n_words, np.int64))


@dataclass(frozen=True)
class Packed:
    """Words of some sentences, longest first; all first words, then all second words, and so on."""

    at: Ints  # (N,) index of each word in the caller's arrays
    sizes: Ints  # (T,): ``sizes[t]`` sentences have a word at position t: the first ones
    offsets: Ints  # (T + 1,): position t is ``at[offsets[t] : offsets[t + 1]]``
    order: Ints  # (B,) index of each sentence in the caller's order

    @property
    def n_sentences(self) -> int:
        """Number of sentences."""
        return len(self.order)


def pack(offsets: Ints, which: Ints | None = None) -> Packed:
    """Pack sentences ``which`` (all by default), sentence n being words ``offsets[n]`` to ``offsets[n + 1] - 1``.

    Examples
    --------
    >>> pack(np.array([0, 2, 5])).at.tolist()
    [2, 0, 3, 1, 4]
    """
    offsets = np.asarray(offsets, np.int64)
    which = np.arange(len(offsets) - 1) if which is None else np.asarray(which, np.int64)
    if len(which) == 0:
        raise ShapeError("no sentence to pack: at least one is required.")
    lengths = np.diff(offsets)[which]
    if lengths.min() < 1:
        raise ValueRangeError(f"sentence {which[lengths.argmin()]} has no words: leave empty sentences out.")
    order = which[np.argsort(-lengths, kind="stable")]
    lengths = np.sort(lengths)[::-1]
    T = int(lengths[0])
    sizes = np.searchsorted(-lengths, -np.arange(T), side="left")  # the number of sentences longer than t
    starts = offsets[order]
    at = np.concatenate([starts[:n] + t for t, n in enumerate(sizes)])
    return Packed(at, sizes.astype(np.int64), np.concatenate([[0], np.cumsum(sizes)]), order)


def groups(offsets: Ints) -> list[Packed]:
    """Return packed groups of sentences of similar lengths, for threads; the groups depend on the sentences alone."""
    order = np.argsort(-np.diff(offsets), kind="stable")
    n = max(1, min(MOST_GROUPS, len(order) // LEAST_SENTENCES))
    return [pack(offsets, order[k::n]) for k in range(n)]
