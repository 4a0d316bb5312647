r"""Brown clusters: clusters of words with maximum mutual information of neighbors (Brown et al. 1992).

The class-based bigram model :math:`p(w \mid v) = p(c(w) \mid c(v)) \, p(w \mid c(w))` of maximum likelihood has, up to
a constant, the log-likelihood

.. math:: F = \sum_{c,d} f(N_{cd}) - \sum_c f(N_{c\cdot}) - \sum_d f(N_{\cdot d}), \quad f(n) = n \log n     \tag{1}

with :math:`N_{cd}` the number of pairs of clusters. Exchange (Kneser and Ney 1993; Martin, Liermann and Ney 1998)
moves one word at a time to the cluster that increases F most: with counts of pairs by word, a pass takes O(P C) for P
distinct pairs of word and neighboring cluster, whatever the length of the text. Here blocks of words are evaluated
together, on several threads, and then moved one by one if F still increases; blocks do not depend on the number of
threads, and so neither do the results.

The first clusters come from insertion: the C most frequent words are one cluster each, and every further word, in the
order of frequency, joins the best of them. The hierarchy of bit strings comes from merging: always the two clusters
whose merge decreases F least (Brown et al., section 3), in O(C^3).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.compute.sharing import current
from trelliswork.data.files import atomic_write, open_text, shorten, source_name, whole_number
from trelliswork.data.ids import Source
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError, NotFittedError
from trelliswork.features.kernels import brown as kernels
from trelliswork.features.kernels.brown import Clustering, Neighbors, Text

if TYPE_CHECKING:  # importing them takes longer than tagging a sentence
    from scipy import sparse

    from trelliswork.data.moments import Moments

Ints = NDArray[np.int64]
Progress = Callable[[int, int, float], None]
TABLE = 1 << 20  # counts whose n log n is looked up
LARGEST = 1 << 30  # bytes of unpacked clusters
SETTLED = 0.005  # fraction of words that move in the last pass


def bigrams(words: Ints, offsets: Ints, n_words: int) -> sparse.csr_matrix:
    """Count the pairs of adjacent words within sentences (V, V)."""
    inside = np.ones(len(words), bool)
    inside[offsets[:-1]] = False  # nothing precedes the first word of a sentence
    at = np.flatnonzero(inside)
    return pair_counts(words[at - 1], words[at], (n_words, n_words))


def pair_counts(rows: Ints, columns: Ints, shape: tuple[int, int], dtype: DTypeLike = np.float64) -> sparse.csr_matrix:
    """Count pairs of numbers; in a group of processes, those of all ranks."""
    from scipy import sparse

    counts = sparse.coo_matrix((np.ones(len(rows), dtype), (rows, columns)), shape=shape).tocsr()
    if current().size == 1:
        return counts
    own = counts.tocoo()
    keys, totals = current().count(own.row * np.int64(shape[1]) + own.col, own.data.astype(np.int64))
    return sparse.coo_matrix((totals.astype(dtype), np.divmod(keys, shape[1])), shape=shape).tocsr()


def brown_clusters(words: Ints, offsets: Ints, n_words: int, n_clusters: int) -> Ints:
    """Return the cluster of each word (V,), 0 to C-1; words that do not occur are put into the last one.

    Sentence n is ``words[offsets[n] : offsets[n + 1]]``; in a group of processes each rank has its own sentences.

    Examples
    --------
    >>> words = np.array([0, 2, 1, 2, 0, 3, 1, 3])  # words 0 and 1 have the same neighbors, and so have 2 and 3
    >>> first, second, third, fourth = brown_clusters(words, np.array([0, 8]), 4, 2)
    >>> bool(first == second), bool(third == fourth), bool(first == third)
    (True, True, False)
    """
    counts = bigrams(words, offsets, n_words)
    occurs = current().sum(np.bincount(words, minlength=n_words))
    order = np.argsort(-occurs, kind="stable")
    state = exchange(counts, order[occurs[order] > 0], n_clusters)
    of_word = state.of_word.copy()
    of_word[of_word < 0] = of_word.max()
    return of_word


def exchange(
    counts: sparse.csr_matrix,
    order: Ints,
    n_clusters: int,
    *,
    max_iter: int = 20,
    fixed: Sequence[int] = (),
    start: Ints | None = None,
    callback: Progress | None = None,
) -> Clustering:
    """Cluster words by exchange.

    Parameters
    ----------
    counts : csr_matrix (V, V)
        Counts of pairs of words.
    order : ndarray of int
        Words to cluster, most frequent first.
    n_clusters : int
        C; if there are fewer words, each is a cluster.
    max_iter : int
        Maximum number of passes over the words; the last one is that in which hardly any word moves.
    fixed : sequence of int
        Words that are not clustered: each is context with a cluster of its own, from C on.
    start : ndarray (V,), optional
        Clusters of some words, 0 to C-1, and -1 for those that are to be inserted; by default the C most frequent words
        start one cluster each.
    callback : callable, optional
        Called with the number of the pass (0: insertion), the number of words that moved, and the objective F.
    """
    check_count("n_clusters", n_clusters)
    order = np.asarray(order, np.int64)
    C = min(n_clusters, len(order)) if start is None else n_clusters
    text, table = _text(counts), xlogx_table(counts)
    K = C + len(fixed)
    now = Clustering(
        np.full(counts.shape[0], -1, np.int64), np.zeros(K, np.int64), *np.zeros((2, K, K), np.int64),
        *np.zeros((2, K), np.int64),
    )  # fmt: skip
    costs = np.diff(text.after.first) + np.diff(text.before.first)
    first = order[:C] if start is None else order[start[order] >= 0]
    best = np.concatenate([np.arange(C) if start is None else start[first], np.arange(C, K)])
    kernels.move(0, len(best), np.concatenate([first, np.asarray(fixed, np.int64)]), text, now, table, best)
    inserted = order[now.of_word[order] < 0]
    for done in range(max_iter + 1):
        moved, rest = 0, inserted if done == 0 else order
        best = np.empty(len(rest), np.int64)
        for at, end in _blocks(len(rest)):
            ranges = threads.cut((costs[rest[at:end]] + 1) * C, least=threads.LEAST_WORK)
            threads.run(
                lambda i, j, at=at, r=rest, b=best: kernels.choose(at + i, at + j, r, text, now, C, table, b), ranges
            )
            moved += kernels.move(at, end, rest, text, now, table, best)
        if callback is not None:
            callback(done, moved, objective(now))
        if done and moved <= SETTLED * len(order):
            break
    return now


def _blocks(n: int) -> Iterable[tuple[int, int]]:
    """Yield ranges of words that are evaluated together: short ones of frequent words, whose moves change much."""
    first = 0
    while first < n:
        last = min(n, first + max(8, min(256, first // 16)))
        yield first, last
        first = last


def _text(counts: sparse.csr_matrix) -> Text:
    """Return the counts of pairs of words as the kernels take them."""
    from scipy import sparse

    whole = counts.astype(np.int64)
    own = whole.diagonal()
    others = (whole - sparse.diags(own, dtype=np.int64)).tocsr()
    others.eliminate_zeros()
    after, before = (
        Neighbors(m.indptr.astype(np.int64), m.indices.astype(np.int64), m.data.astype(np.int64))
        for m in (others, others.T.tocsr())
    )
    left, right = (np.asarray(whole.sum(axis=axis)).ravel() for axis in (1, 0))
    return Text(after, before, own, left, right)


def xlogx_table(counts: sparse.csr_matrix) -> NDArray[np.float64]:
    """Return n log n for n below the sum of the counts, or below ``TABLE``."""
    n = np.arange(min(TABLE, int(counts.sum()) + 2), dtype=np.float64)
    return n * np.log(np.maximum(n, 1))


def objective(now: Clustering) -> float:
    """Return F, eq. 1."""
    return float(sum(sign * _f(m).sum() for m, sign in ((now.counts, 1), (now.left, -1), (now.right, -1))))


def _f(n: NDArray[Any]) -> NDArray[np.float64]:
    return n * np.log(np.maximum(n, 1))


def mutual_information(words: Ints, offsets: Ints, clusters: Ints) -> float:
    """Return the mutual information of neighboring clusters in nats, which the clustering maximizes."""
    return pair_information(bigrams(clusters[words], offsets, int(clusters.max()) + 1))


def pair_information(counts: sparse.csr_matrix) -> float:
    """Return the mutual information of the two sides of pairs in nats."""
    n = counts.tocoo()
    total = n.data.sum()
    left, right = (np.asarray(n.sum(axis=axis)).ravel() for axis in (1, 0))
    return float((n.data / total * np.log(n.data * total / (left[n.row] * right[n.col]))).sum())


def merges(now: Clustering, n_free: int, table: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the pairs (s, t), s < t, in the order in which clusters are merged into one; the result is called s.

    Always the merge that decreases F least; fixed clusters are context only.
    """
    counts, transposed = now.counts.copy(), now.transposed.copy()
    left, right = now.left.copy(), now.right.copy()
    losses, alive = np.zeros((n_free, n_free)), np.arange(n_free)
    out = np.empty((n_free, 2))

    def run(function: Any, *arguments: Any, cost: int = 1) -> None:
        ranges = threads.cut(np.arange(1, len(alive) + 1) * cost, least=threads.LEAST_WORK)
        threads.run(lambda start, stop: function(start, stop, alive, *arguments), ranges)

    def add(d: int, sign: int) -> None:
        """Add what cluster d contributes to the losses of merging two others, or remove it."""
        run(kernels.add_losses, d, counts, transposed, sign, table, losses, cost=8)

    for d in range(len(counts)):
        add(d, 1)
    merged = []
    while len(alive) > 1:
        run(kernels.least_loss, counts, left, right, table, losses, out)
        i = 1 + int(np.argmin(out[1 : len(alive), 0]))
        t, s = int(alive[i]), int(out[i, 1])
        merged.append((s, t))
        add(s, -1)
        add(t, -1)
        for m in (counts, transposed):
            m[s] += m[t]
            m[:, s] += m[:, t]
            m[t] = 0
            m[:, t] = 0
        left[s], right[s] = left[s] + left[t], right[s] + right[t]
        alive = alive[alive != t]
        add(s, 1)
        run(kernels.set_losses, s, counts, transposed, table, losses, cost=len(counts))
    return merged


def bit_strings(merged: Sequence[tuple[int, int]], n_clusters: int) -> list[str]:
    """Return the path of each cluster from the root of the tree of merges: 0 for the first of two, 1 for the second.

    Examples
    --------
    >>> bit_strings([(1, 2), (0, 1)], 3)
    ['0', '10', '11']
    """
    members: list[list[int]] = [[c] for c in range(n_clusters)]
    paths: list[list[str]] = [[] for _ in range(n_clusters)]
    for s, t in merged:
        for c in members[s]:
            paths[c].append("0")
        for c in members[t]:
            paths[c].append("1")
        members[s] += members[t]
    return ["".join(reversed(path)) or "0" for path in paths]


class BrownClusters:
    """Brown clusters of words: similar words have bit strings with a long common prefix.

    Parameters
    ----------
    n_clusters : int or None
        Number of clusters. None: 1,000, but at most a tenth of the number of words that are clustered.
    max_words : int or None
        Number of words that are clustered, the most frequent ones. None: all.
    min_count : int
        Words that occur less often are not clustered.
    max_iter : int
        Maximum number of passes over the words.

    Attributes
    ----------
    paths_ : dict
        Bit string of each word.
    counts_ : dict
        Count of each word.
    objective_ : float
        Log-likelihood of the class-based bigram model per token, in nats; NaN for clusters from a file.

    Examples
    --------
    >>> text = [line.split() for line in ["the cat sleeps", "the dog sleeps", "a cat barks", "a dog barks"]]
    >>> clusters = BrownClusters(3).fit(text)
    >>> clusters.paths_["cat"] == clusters.paths_["dog"] != clusters.paths_["the"]
    True
    """

    def __init__(
        self, n_clusters: int | None = None, *, max_words: int | None = 50_000, min_count: int = 1, max_iter: int = 20
    ) -> None:
        self.n_clusters = n_clusters
        self.max_words = max_words
        self.min_count = min_count
        self.max_iter = max_iter
        self._paths: dict[str, str] | None = None
        self._packed: NDArray[np.uint8] | None = None  # what paths_ are unpacked from when they are first needed

    @property
    def paths_(self) -> dict[str, str]:  # noqa: D102  # an attribute
        if self._paths is None:
            if self._packed is None:
                raise AttributeError("paths_")
            self._paths, self._packed = _unpacked(self._packed), None
        return self._paths

    @property
    def counts_(self) -> dict[str, int]:  # noqa: D102  # an attribute
        return dict.fromkeys(self.paths_, 0) | self._counts

    def fit(self, text: Source | Moments, *, callback: Progress | None = None) -> Self:
        """Cluster the words of a text.

        Parameters
        ----------
        text : path, sequence of paths, Corpus, iterable of sentences, or Moments
            Text files with one sentence per line, lists of words, or the counts of a text.
        callback : callable, optional
            Called after each pass with its number (0: the first assignment), the number of words that moved, and the
            objective, eq. 1.
        """
        from trelliswork.data.moments import Moments, count_moments

        for name in ("n_clusters", "min_count", "max_iter"):
            if name != "n_clusters" or self.n_clusters is not None:
                check_count(name, getattr(self, name))
        if not isinstance(text, Moments):
            text = count_moments(text, 1, min_count=self.min_count, max_words=self.max_words)
        vocabulary, counts = text.vocabulary, text.pairs[0]
        fixed = [0] if vocabulary.unknown_word is None else [0, vocabulary.id(vocabulary.unknown_word)]
        order = np.setdiff1d(np.argsort(-text.unary, kind="stable"), fixed, assume_unique=True)
        order = order[np.argsort(-text.unary[order], kind="stable")]
        if not len(order):
            raise DataError("the text has no word to cluster: every word is unknown. Lower min_count.")
        C = default_clusters(len(order)) if self.n_clusters is None else min(self.n_clusters, len(order))
        now = exchange(counts, order, C, max_iter=self.max_iter, fixed=fixed, callback=callback)
        paths = bit_strings(merges(now, C, xlogx_table(counts)), C)
        self._paths, self._packed = {vocabulary[w]: paths[now.of_word[w]] for w in order.tolist()}, None
        self._counts = {vocabulary[w]: int(text.unary[w]) for w in order.tolist()}
        unigrams = _f(text.unary).sum()
        self.objective_ = (objective(now) + unigrams) / text.n_positions
        return self

    def extended(self, text: Source, *, min_count: int = 1) -> Self:
        """Return clusters that have the other words of a text too: each in the cluster that its neighbors fit best.

        Known words keep their clusters. Each further word, most frequent first, joins the cluster that increases the
        objective on this text most, eq. 1.

        Parameters
        ----------
        text : as in ``fit``
            Such as the unlabeled sentences of a new domain.
        min_count : int
            Words that occur less often are not added.
        """
        from trelliswork.data.moments import count_moments

        self._check_fitted()
        counts = count_moments(text, 1)
        vocabulary = counts.vocabulary
        fixed = [0] if vocabulary.unknown_word is None else [0, vocabulary.id(vocabulary.unknown_word)]
        paths = list(dict.fromkeys(self.paths_.values()))
        place = {path: c for c, path in enumerate(paths)}
        start = np.array([place.get(self.path(word), -1) for word in vocabulary], np.int64)
        order = np.argsort(-counts.unary, kind="stable")
        known = (start[order] >= 0) | (counts.unary[order] >= min_count)
        order = order[known & ~np.isin(order, fixed)]
        now = exchange(counts.pairs[0], order, len(paths), max_iter=0, fixed=fixed, start=start)
        added = {vocabulary[w]: paths[now.of_word[w]] for w in order.tolist() if start[w] < 0}
        sizes = {word: int(counts.unary[vocabulary.id(word)]) for word in added}
        return type(self).from_paths(self.paths_ | added, self.counts_ | sizes)

    def path(self, word: str) -> str:
        """Return the bit string of a word, else of the word in lower case, else an empty string."""
        self._check_fitted()
        paths = self.paths_
        return paths.get(word) or paths.get(word.lower(), "")

    def transform(self, sentences: Iterable[Sequence[str]], n_bits: int | None = None) -> list[list[str]]:
        """Return the bit string of each word of each sentence, or its first ``n_bits``; empty for unknown words."""
        return [[self.path(word)[:n_bits] for word in sentence] for sentence in sentences]

    def save(self, path: str | Path) -> None:
        """Write a text file: bit string, word and count in each line, separated by tabs."""
        self._check_fitted()
        paths, counts = self.paths_, self.counts_
        with atomic_write(path) as file:
            for word in sorted(paths, key=lambda word: (paths[word], -counts[word])):
                file.write(f"{paths[word]}\t{word}\t{counts[word]}\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file written by ``save`` or another program.

        Lines have a bit string, a word and perhaps its count, as those of Liang's program; or a word and the number of
        its cluster, as those of mkcls and ClusterCat. Such numbers become bit strings of one length, whose prefixes
        mean nothing.
        """
        rows: list[list[str]] = []
        with open_text(path) as lines:
            for n, line in enumerate(lines, start=1):
                fields = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
                if not 2 <= len(fields) <= 3 or not all(fields):
                    raise DataError(
                        f"{source_name(path)}:{n}: expected a bit string, a word and a count, or a word and the number "
                        f"of its cluster, separated by tabs, got {shorten(line.rstrip())}."
                    )
                rows.append(fields)
        if not rows:
            raise DataError(f"{source_name(path)}: expected clusters, one word per line, got an empty file.")
        if not all(set(row[0]) <= {"0", "1"} for row in rows):
            rows = _numbered(rows, source_name(path))
        for n, row in enumerate(rows, start=1):
            if len(row) == 3 and whole_number(row[2]) is None:
                raise DataError(f"{source_name(path)}:{n}: expected a count, got {shorten(row[2])}.")
        return cls.from_paths({row[1]: row[0] for row in rows}, {row[1]: int(row[2]) for row in rows if len(row) == 3})

    @classmethod
    def from_paths(cls, paths: dict[str, str], counts: dict[str, int] | None = None) -> Self:
        """Return clusters with given bit strings of words; words without a count have 0."""
        self = cls(max(1, len(set(paths.values()))))
        self._paths, self._counts = dict(paths), dict(counts or {})
        self.objective_ = float("nan")
        return self

    def packed(self) -> NDArray[np.uint8]:
        """Return words and bit strings as compressed bytes, for ``from_packed``."""
        self._check_fitted()
        if self._packed is not None:
            return self._packed
        names = list(dict.fromkeys(self.paths_.values()))
        place = {path: k for k, path in enumerate(names)}
        content = {"words": list(self.paths_), "paths": names, "of": [place[p] for p in self.paths_.values()]}
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return np.frombuffer(zlib.compress(text.encode()), np.uint8)

    @classmethod
    def from_packed(cls, packed: NDArray[np.uint8], n_clusters: int | None = None) -> Self:
        """Return clusters from ``packed``'s result, which is unpacked when a word is first looked up."""
        self = cls(n_clusters)
        self._packed, self._counts, self.objective_ = packed, {}, float("nan")
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrownClusters) and getattr(self, "paths_", None) == getattr(other, "paths_", None)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"BrownClusters({'' if self.n_clusters is None else self.n_clusters})"

    def _check_fitted(self) -> None:
        if self._paths is None and self._packed is None:
            raise NotFittedError("this BrownClusters has no clusters yet: call fit, or load a file.")


def default_clusters(n_words: int) -> int:
    """Return the number of clusters for a number of words: 1,000, but at most a tenth of the words."""
    return min(1000, max(1, n_words // 10))


def _from_lists(plain: Mapping[str, Any]) -> dict[str, str]:
    """Return the bit string of each word from lists of words, of bit strings, and of the number of each word's."""
    words, paths, of = (plain[name] for name in ("words", "paths", "of"))
    strings(words), strings(paths)
    numbers = np.array(of)
    if numbers.shape != (len(words),) or (
        len(words) and (numbers.dtype.kind != "i" or numbers.min() < 0 or numbers.max() >= len(paths))
    ):
        raise DataError("the clusters of words are damaged: train again.")
    return dict(zip(words, map(paths.__getitem__, of), strict=True))


def _unpacked(packed: NDArray[np.uint8]) -> dict[str, str]:
    try:
        content = zlib.decompressobj().decompress(packed.tobytes(), LARGEST)
        return _from_lists(json.loads(content))
    except (zlib.error, ValueError, KeyError, TypeError):
        raise DataError("the clusters of words are damaged: train again.") from None


def _numbered(rows: list[list[str]], name: str) -> list[list[str]]:
    """Return rows of bit string and word for rows of word and cluster number."""
    for n, row in enumerate(rows, start=1):
        if len(row) != 2 or whole_number(row[1]) is None:
            raise DataError(
                f"{name}:{n}: expected a bit string of 0 and 1 first, or a word and the number of its cluster, got "
                f"{shorten(row[0])}."
            )
    width = max(1, max(int(number) for _, number in rows).bit_length())
    return [[f"{int(number):0{width}b}", word] for word, number in rows]
