"""Sentences of different lengths as one array, position by position: no padding."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, ValueRangeError

Ints = NDArray[np.int64]
LEAST_SENTENCES = 16  # per group: fewer make thin matrix products
MOST_GROUPS = 4  # each has its own gradients to be summed


@dataclass(frozen=True)
class Packed:
    """Words of some sentences, longest first; all first words, then all second words, and so on."""

    words: Ints  # (N,) rows of the emission table
    sizes: Ints  # (T,): ``sizes[t]`` sentences have a word at position t: the first ones
    offsets: Ints  # (T + 1,): position t is ``words[offsets[t] : offsets[t + 1]]``
    order: Ints  # (B,) index of each sentence in the caller's order

    @property
    def n_sentences(self) -> int:
        """Number of sentences."""
        return len(self.order)

    @property
    def lengths(self) -> Ints:
        """Number of words of each sentence, in the packed order."""
        return (self.sizes[None] > np.arange(self.n_sentences)[:, None]).sum(axis=1)

    def rows(self, b: int) -> Ints:
        """Return the indices in ``words`` of sentence b (in the packed order)."""
        return self.offsets[:-1][self.sizes > b] + b


def pack(words: Ints, offsets: Ints, which: Ints | None = None) -> Packed:
    """Pack sentences ``which`` (all by default), sentence n being ``words[offsets[n] : offsets[n + 1]]``.

    Examples
    --------
    >>> pack(np.array([5, 6, 7, 8, 9]), np.array([0, 2, 5])).words.tolist()
    [7, 5, 8, 6, 9]
    """
    words, offsets = np.asarray(words, np.int64), np.asarray(offsets, np.int64)
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
    packed = np.concatenate([words[starts[:n] + t] for t, n in enumerate(sizes)])
    return Packed(packed, sizes.astype(np.int64), np.concatenate([[0], np.cumsum(sizes)]), order)


def groups(words: Ints, offsets: Ints) -> list[Packed]:
    """Return packed groups of sentences of similar lengths, for threads; the groups depend on the sentences alone."""
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    n = max(1, min(MOST_GROUPS, len(order) // LEAST_SENTENCES))
    return [pack(words, offsets, order[k::n]) for k in range(n)]


def merge(parts: list[Packed]) -> Packed:
    """Merge the sentences of several groups into one."""
    if len(parts) == 1:
        return parts[0]
    lengths = np.concatenate([part.lengths for part in parts])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    words = np.concatenate([part.words[part.rows(b)] for part in parts for b in range(part.n_sentences)])
    merged = pack(words, offsets)
    return replace(merged, order=np.concatenate([part.order for part in parts])[merged.order])
