r"""The moments of a corpus: how often each word occurs, and each pair of words at distances 1 to K.

They are all that a Markov random field of order K learns from (Jernite, Rush and Sontag, 2015, section 3). Sentences
stand in a circle with K pads ``<S>`` (id 0) between them, so that there are :math:`N = \sum_i (M_i + K)` positions and
as many pairs at each distance, and no pair reaches from one sentence into another.

The text is read once; its ids are kept until the vocabulary is known, on disk if they are many. Pairs are counted by
sorting blocks and merging the sorted runs, on disk beyond a limit: memory is bounded by the number of distinct pairs.
All sums are whole numbers, so results depend neither on threads nor on how the text was cut.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from trelliswork.compute import threads
from trelliswork.data.kernels.moments import count_ids, longest, pair_keys, squeeze
from trelliswork.data.moments.files import BATCH, Ids, Source
from trelliswork.data.moments.runs import Run, RunStore
from trelliswork.data.moments.storage import load_arrays, save_arrays
from trelliswork.data.moments.text import MEMORY, Callback, number_text, open_vocabulary, unknown_word
from trelliswork.data.vocabulary import Vocabulary
from trelliswork.errors import DataError, ValueRangeError


@dataclass(frozen=True, eq=False)
class Moments:
    """Counts of words and of pairs of words.

    Attributes
    ----------
    vocabulary : Vocabulary
        C words; id 0 is ``<S>``, the pad. Most frequent words first.
    K : int
        The largest distance.
    unary : ndarray (C,)
        How often each word occurs; ``unary[0]`` is K pads a sentence. Sums to N.
    pairs : tuple of K csr_matrix (C, C) of float64
        ``pairs[l - 1][x, y]``: how often y stands l positions after x. Each sums to N, its rows and columns
        to ``unary``.
    lengths : ndarray of int64
        ``lengths[m]`` sentences have m words.
    """

    vocabulary: Vocabulary
    K: int
    unary: NDArray[np.float64]
    pairs: tuple[csr_matrix, ...]
    lengths: NDArray[np.int64]

    @property
    def n_sentences(self) -> int:
        """Sentences that are not empty."""
        return int(self.lengths.sum())

    @property
    def n_tokens(self) -> int:
        """Words, pads not counted."""
        return int(self.lengths @ np.arange(len(self.lengths)))

    @property
    def n_positions(self) -> int:
        """N: words and K pads a sentence."""
        return self.n_tokens + self.K * self.n_sentences

    @property
    def n_pairs(self) -> int:
        """Distinct pairs, all distances together."""
        return sum(matrix.nnz for matrix in self.pairs)

    def merged(self, other: Moments) -> Moments:
        """The moments of two texts together, counted with the same vocabulary and K."""
        if self.K != other.K:
            raise ValueRangeError(
                f"moments of one K are wanted, got K={self.K} and K={other.K}: count one of them again."
            )
        if self.vocabulary.items != other.vocabulary.items:
            raise ValueRangeError(
                f"moments of one vocabulary are wanted, got two of {len(self.vocabulary)} and {len(other.vocabulary)} "
                "words: count the second text with vocabulary= (--vocabulary) of the first."
            )
        lengths = np.zeros(max(len(self.lengths), len(other.lengths)), np.int64)
        lengths[: len(self.lengths)] += self.lengths
        lengths[: len(other.lengths)] += other.lengths
        pairs = tuple(csr_matrix(a + b) for a, b in zip(self.pairs, other.pairs, strict=True))
        return Moments(self.vocabulary, self.K, self.unary + other.unary, pairs, lengths)

    def save(self, path: str | Path) -> None:
        """Write a directory (``moments.json``, ``moments.safetensors``), all or nothing."""
        plain = {"K": self.K, "words": self.vocabulary.items, "unknown": unknown_word(self.vocabulary)}
        arrays: dict[str, NDArray[Any]] = {"unary": self.unary, "lengths": self.lengths}
        for k, matrix in enumerate(self.pairs, start=1):
            arrays |= {
                f"pairs.{k}.counts": matrix.data,
                f"pairs.{k}.right": matrix.indices,
                f"pairs.{k}.rows": matrix.indptr,
            }
        save_arrays(path, plain, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Moments:
        """Read what ``save`` wrote."""
        plain, arrays = load_arrays(path)
        try:
            vocabulary = open_vocabulary(plain["words"], plain["unknown"])
            C = len(vocabulary)
            pairs = tuple(
                csr_matrix((arrays[f"pairs.{k}.counts"], arrays[f"pairs.{k}.right"], arrays[f"pairs.{k}.rows"]), (C, C))
                for k in range(1, plain["K"] + 1)
            )
            found = cls(vocabulary, plain["K"], arrays["unary"], pairs, arrays["lengths"])
            whole = all(int(matrix.sum()) == found.n_positions for matrix in pairs) and len(found.unary) == C
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: incomplete or damaged ({error}): count again.") from None
        if not whole:
            raise DataError(f"{path}: the counts do not fit each other: the files are damaged, count again.")
        return found


def count_moments(
    source: Source,
    K: int,
    *,
    vocabulary: Vocabulary | None = None,
    min_count: int = 1,
    max_words: int | None = None,
    unknown: str | None = "<unk>",
    callback: Callback | None = None,
    memory_limit: int = MEMORY,
) -> Moments:
    r"""Count the words of a text and their pairs at distances 1 to K.

    Parameters
    ----------
    source : path, sequence of paths, iterator of ``Path``, Corpus or iterable of sentences
        Text files (UTF-8, one sentence a line, ASCII white space between words; plain or gzip), directories of them, or
        lists of words. A list of strings is files. Blank lines are no sentences.
    K : int
    vocabulary : Vocabulary, optional
        That of other moments: then nothing is chosen here. Unlisted words are its unknown word, or an error if it has
        none.
    min_count, max_words : int
        Rarer words, and all but the so many most frequent ones (the unknown word not counted), are unknown.
    unknown : str or None
        What unknown words are called. It is listed if it occurs in the text or words were left out.
    callback : callable, optional
        Told a `CountStep` now and then.
    memory_limit : int
        Bytes of ids and runs held in memory; beyond, they go to temporary files. The result itself must fit.

    Returns
    -------
    Moments

    Raises
    ------
    DataError
        If a file cannot be read, is not UTF-8 text, has no sentence or has a word that must not be there.

    Notes
    -----
    Time O(N K log N) in sorting, memory 16 bytes for each distinct pair and ``memory_limit``.

    Examples
    --------
    >>> moments = count_moments([["a", "b"], ["b"]], K=1)
    >>> list(moments.vocabulary), moments.unary.tolist(), moments.n_positions
    (['<S>', 'b', 'a'], [2.0, 2.0, 1.0], 5)
    >>> moments.pairs[0].toarray().tolist()  # a row is the left word
    [[0.0, 1.0, 1.0], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if K < 1:
        raise ValueRangeError(f"K must be 1 or more, got {K}.")
    began = time.perf_counter()
    text = number_text(
        source,
        vocabulary=vocabulary,
        min_count=min_count,
        max_words=max_words,
        unknown=unknown,
        callback=callback,
        memory_limit=memory_limit,
    )
    C = len(text.vocabulary)
    words, lengths = np.zeros(C, np.int64), np.zeros(1, np.int64)
    with RunStore(K, memory_limit) as store:
        while batch := list(islice(text.blocks, BATCH)):
            sizes = [max(len(lengths), longest(block) + 1) for block in batch]
            lengths = np.concatenate([lengths, np.zeros(max(sizes) - len(lengths), np.int64)])
            for block in batch:
                count_ids(block, words, lengths)
            _add_pairs(batch, C, store)
            text.step.n_tokens = int(words.sum())
            text.step.seconds = time.perf_counter() - began
            if callback is not None:
                callback(text.step)
        if not lengths.any():
            raise DataError("at least one sentence wanted, but the text has none. Is it the right file?")
        found: list[csr_matrix] = [None] * K
        threads.run(partial(_collect, store, C, found), [(k, k + 1) for k in range(K)])
    unary = words.astype(np.float64)
    unary[0] += K * lengths.sum()
    return Moments(text.vocabulary, K, unary, tuple(found), lengths)


def _add_pairs(batch: list[Ids], C: int, store: RunStore) -> None:
    """Sort the pairs of some blocks, and take them into the store."""
    K = len(store.kinds)
    runs: list[list[Run]] = [[] for _ in batch]

    def sort(start: int, stop: int) -> None:
        for b in range(start, stop):
            ids = batch[b]
            n_sentences = int((ids < 0).sum())
            keys = np.empty((K, len(ids) + (K - 1) * n_sentences), np.int64)
            pair_keys(ids, C, keys)
            for k in range(K):
                keys[k].sort()
                counts = np.empty(keys.shape[1], np.int64)
                n = squeeze(keys[k], counts)
                runs[b].append((keys[k, :n].copy(), counts[:n].copy()))

    def take(start: int, stop: int) -> None:
        for k in range(start, stop):
            for of_block in runs:
                store.kinds[k].add(of_block[k])

    threads.run(sort, [(b, b + 1) for b in range(len(batch))])
    threads.run(take, [(k, k + 1) for k in range(K)])
    store.spill_if_full()


def _collect(store: RunStore, C: int, found: list[csr_matrix], start: int, stop: int) -> None:
    for k in range(start, stop):
        keys, counts = store.kinds[k].collect()
        rows = np.searchsorted(keys, np.arange(C + 1) * C)
        index = np.int32 if len(keys) < 2**31 else np.int64
        found[k] = csr_matrix((counts.astype(np.float64), (keys % C).astype(index), rows.astype(index)), (C, C))
