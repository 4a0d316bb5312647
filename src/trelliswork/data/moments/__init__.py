r"""The moments of a corpus: counts of words, and of pairs of words at distances 1 to K.

A Markov random field of order K learns from nothing else (Jernite, Rush and Sontag, 2015, section 3). Sentences form a
circle with K pads ``<s>`` (id 0) between them, so that there are :math:`N = \sum_i (M_i + K)` positions and as many
pairs at each distance, and no pair reaches from one sentence into another.

The text is read once; its ids are stored until the vocabulary is known, on disk if they are many. Pairs are counted by
sorting blocks and merging the sorted runs, on disk beyond a limit, a bounded number of them at a time: beside that
limit, memory grows with the number of distinct words and pairs only, not with the text. All sums are integers, so
results depend neither on threads nor on the size of the blocks.

In a group of processes each rank counts its own sentences; then each merges a range of the pairs of all ranks, and all
get the result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from trelliswork.compute.sharing import current
from trelliswork.data.ids import BATCH, MEMORY, Callback, Ids, Source, Unknown, in_parallel, no_text, stream_ids
from trelliswork.data.moments.runs import Run, Runs, finish
from trelliswork.data.storage import MOMENTS, load_model, save_model
from trelliswork.data.vocabulary import Vocabulary
from trelliswork.errors import DataError, ValueRangeError

_BYTES = 16  # per token and distance, and for three more, while pairs are sorted and counted


@dataclass(frozen=True, eq=False)
class Moments:
    """Counts of words and of pairs of words.

    Attributes
    ----------
    vocabulary : Vocabulary
        C words; id 0 is the pad ``<s>``. Most frequent words first.
    K : int
        Maximum distance.
    unary : ndarray (C,)
        Count of each word; ``unary[0]`` counts K pads per sentence. Sums to N.
    pairs : tuple of K csr_matrix (C, C) of float64
        ``pairs[l - 1][x, y]`` counts y at l positions after x. Each matrix sums to N, its rows and columns to
        ``unary``.
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
        """Number of sentences that are not empty."""
        return int(self.lengths.sum())

    @property
    def n_tokens(self) -> int:
        """Number of words, without pads."""
        return int(self.lengths @ np.arange(len(self.lengths)))

    @property
    def n_positions(self) -> int:
        """N: number of words, and K pads per sentence."""
        return self.n_tokens + self.K * self.n_sentences

    @property
    def n_pairs(self) -> int:
        """Number of distinct pairs at all distances together."""
        return sum(matrix.nnz for matrix in self.pairs)

    def merged(self, other: Moments) -> Moments:
        """Return the moments of two texts together, counted with the same vocabulary and K."""
        if self.K != other.K:
            raise ValueRangeError(f"both moments must have the same K, got {self.K} and {other.K}: count one again.")
        if self.vocabulary.items != other.vocabulary.items:
            raise ValueRangeError(
                f"both moments must have the same vocabulary, got two of {len(self.vocabulary)} and "
                f"{len(other.vocabulary)} words: count the second text with vocabulary= (--vocabulary) of the first."
            )
        pairs = tuple(csr_matrix(a + b) for a, b in zip(self.pairs, other.pairs, strict=True))
        lengths = _added(self.lengths, other.lengths)
        return Moments(self.vocabulary, self.K, self.unary + other.unary, pairs, lengths)

    def save(self, path: str | Path) -> None:
        """Write a directory: ``moments.json`` and a safetensors file of counts; see `Estimator.save`."""
        description = {"K": self.K, "words": self.vocabulary.items, "unknown": self.vocabulary.unknown_word}
        arrays: dict[str, NDArray[Any]] = {"unary": self.unary, "lengths": self.lengths}
        for k, matrix in enumerate(self.pairs, start=1):
            arrays |= {
                f"pairs.{k}.counts": matrix.data,
                f"pairs.{k}.right": matrix.indices,
                f"pairs.{k}.rows": matrix.indptr,
            }
        save_model(path, "moments", description, arrays, layout=MOMENTS)

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True) -> Moments:
        """Read moments written by ``save``; checksums are compared unless ``verify`` is false."""
        description, arrays = load_model(path, "moments", layout=MOMENTS, verify=verify)
        try:
            vocabulary, K = Vocabulary.restored(description["words"], description["unknown"]), description["K"]
            C = len(vocabulary)
            pairs = tuple(
                _restored(arrays[f"pairs.{k}.counts"], arrays[f"pairs.{k}.right"], arrays[f"pairs.{k}.rows"], C)
                for k in range(1, K + 1)
            )
            moments = cls(vocabulary, K, arrays["unary"], pairs, arrays["lengths"])
            fits = all(float(matrix.sum()) == moments.n_positions for matrix in pairs) and len(moments.unary) == C
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: incomplete or damaged ({error}): {MOMENTS.remedy}.") from None
        if not fits:
            raise DataError(f"{path}: the counts are inconsistent, the files are damaged: {MOMENTS.remedy}.")
        return moments


def _restored(counts: NDArray[Any], right: NDArray[Any], rows: NDArray[Any], C: int) -> csr_matrix:
    """Return the matrix (C, C) of saved counts; ValueError for a damaged one, which SciPy's code would not survive."""
    fits = counts.ndim == right.ndim == rows.ndim == 1 and len(rows) == C + 1 and len(counts) == len(right) == rows[-1]
    fits = fits and rows[0] == 0 and bool((rows[1:] >= rows[:-1]).all())
    if not fits or not (((right >= 0) & (right < C)).all() and ((counts >= 0) & (counts < np.inf)).all()):
        raise ValueError("pairs are not a matrix of counts")
    return csr_matrix((counts, right, rows), (C, C))


def count_moments(
    source: Source,
    K: int,
    *,
    vocabulary: Vocabulary | None = None,
    min_count: int = 1,
    max_words: int | None = None,
    unknown: Unknown = "error",
    callback: Callback | None = None,
    memory_limit: int = MEMORY,
) -> Moments:
    r"""Count the words of a text and their pairs at distances 1 to K.

    Parameters
    ----------
    source : Path, sequence or iterator of Path, Corpus or iterable of sentences
        Text files (UTF-8, one sentence per line, ASCII white space between words; plain or gzip), directories of them,
        or lists of words. A list of strings is a list of files. Blank lines are ignored.
    K : int
        Maximum distance.
    vocabulary : Vocabulary, optional
        The vocabulary of other moments. Unlisted words are its unknown word, or an error if it has none.
    min_count, max_words : int
        Minimum count of a listed word, and maximum number of listed words (the unknown word not counted).
    unknown : {"error", "symbol"}
        What words of another text are that this one lacks. With "error", ``<unk>`` is listed only if it occurs in the
        text or words are left out. With "symbol" it is listed in any case, and every second word that was seen once is
        left out if no word is otherwise.
    callback : callable, optional
        Called with a `CountStep` after each block of text.
    memory_limit : int
        Bytes for reading, sorting and merging; ids and runs beyond it go to temporary files. The words and the result
        itself must fit into memory.

    Returns
    -------
    Moments

    Raises
    ------
    DataError
        If a file cannot be read, is not UTF-8 text, has no sentence or contains a word that is not allowed.

    Notes
    -----
    Time O(N K log N) for sorting, memory 12 bytes for each distinct pair, about 200 for each distinct word and
    ``memory_limit``.

    Examples
    --------
    >>> moments = count_moments([["a", "b"], ["b"]], K=1)
    >>> list(moments.vocabulary), moments.unary.tolist(), moments.n_positions
    (['<s>', 'b', 'a'], [2.0, 2.0, 1.0], 5)
    >>> moments.pairs[0].toarray().tolist()  # rows are left words
    [[0.0, 1.0, 1.0], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if K < 1:
        raise ValueRangeError(f"K must be 1 or more, got {K}.")
    started = time.perf_counter()
    text = stream_ids(
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
    kinds = [Runs(2, 1, memory_limit // K) for _ in range(K)]
    for batch in _batches(text.blocks, memory_limit // (4 * _BYTES * (K + 3))):
        for block in batch:
            words += np.bincount(block[block >= 0], minlength=C)
            lengths = _added(lengths, np.bincount(np.diff(np.flatnonzero(block < 0), prepend=-1) - 1))
        blocks = in_parallel(lambda block: _runs(block, C, K), batch)
        in_parallel(lambda k, blocks=blocks: kinds[k].add(runs[k] for runs in blocks), range(K))  # type: ignore[misc]
        text.step.n_tokens = int(words.sum())
        text.step.seconds = time.perf_counter() - started
        if callback is not None:
            callback(text.step)
    words, lengths = current().sum(words), _total(lengths)
    if not lengths.any():
        raise no_text(source)
    finish(kinds)
    parts = in_parallel(lambda runs: _part(runs, C), kinds)
    pairs = [_matrix(*part, C) for part in parts]
    unary = words.astype(np.float64)
    unary[0] += K * lengths.sum()
    return Moments(text.vocabulary, K, unary, tuple(pairs), lengths)


def _added(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add two histograms of different lengths."""
    longer, shorter = (a.copy(), b) if len(a) > len(b) else (b.copy(), a)
    longer[: len(shorter)] += shorter
    return longer


def _batches(blocks: Iterator[Ids], n_tokens: int) -> Iterator[list[Ids]]:
    """Yield lists of at most ``BATCH`` blocks with at most ``n_tokens`` tokens together, or of a single block."""
    batch: list[Ids] = []
    for block in blocks:
        if batch and (len(batch) == BATCH or sum(map(len, batch)) + len(block) > n_tokens):
            yield batch
            batch = []
        batch.append(block)
    if batch:
        yield batch


def _runs(ids: Ids, C: int, K: int) -> list[Run]:
    """Sort and count the pairs of a block, by distance.

    With K pads before each sentence and after the last one, no pair reaches into another sentence.
    """
    padded = np.repeat(np.append(np.full(K, -1, np.int32), ids), np.append(np.ones(K, int), np.where(ids < 0, K, 1)))
    padded = np.maximum(padded, 0).astype(np.int64)
    left, n = padded[:-K] * C, len(padded) - K
    return [np.stack(np.unique(left + padded[k : n + k], return_counts=True), axis=1) for k in range(1, K + 1)]


def _part(runs: Runs, C: int) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int64]]:
    """Return counts, right words and the number of pairs of each left word, of the pairs of this rank."""
    n = len(runs.run)
    data, right, rows = np.empty(n), np.empty(n, np.int32), np.zeros(C, np.int64)
    at = 0
    for run in runs.slices():
        keys = run[:, 0]
        data[at : at + len(keys)] = run[:, 1]
        right[at : at + len(keys)] = keys % C
        first, last = int(keys[0]) // C, int(keys[-1]) // C
        rows[first : last + 1] += np.bincount(keys // C - first)
        at += len(keys)
    return data, right, rows


def _matrix(data: NDArray[np.float64], right: NDArray[np.int32], rows: NDArray[np.int64], C: int) -> csr_matrix:
    """Return the counts of pairs at one distance as a matrix, from the parts of all ranks."""
    narrow = np.uint32 if current().maximum(data.max(initial=0.0, keepdims=True))[0] < 2**32 else np.float64  # to send
    data = current().concatenated(data.astype(narrow, copy=False)).astype(np.float64, copy=False)
    right, rows = current().concatenated(right), current().sum(rows)
    index = np.int32 if len(data) < 2**31 else np.int64
    ends = np.concatenate([np.zeros(1, index), np.cumsum(rows, dtype=index)])
    return csr_matrix((data, right.astype(index, copy=False), ends), (C, C))


def _total(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the histogram of all ranks."""
    n = int(current().maximum(np.array([len(lengths)]))[0])
    return current().sum(_added(lengths, np.zeros(n, np.int64)))
