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

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.data.counting import pair_counts, word_counts
from trelliswork.data.files import atomic_write, open_text, shorten, source_name, whole_number
from trelliswork.data.ids import Source
from trelliswork.errors import DataError, NotFittedError
from trelliswork.features.kernels import brown as kernels
from trelliswork.features.kernels.brown import Clustering, Neighbors, Text

if TYPE_CHECKING:  # importing them takes longer than tagging a sentence
    from scipy import sparse

    from trelliswork.data.moments import Moments

Ints = NDArray[np.int64]
Progress = Callable[[int, int, float], None]
TABLE = 1 << 20  # counts whose n log n is looked up
SETTLED = 0.005  # fraction of words that move in the last pass


def bigrams(words: Ints, offsets: Ints, n_words: int) -> sparse.csr_matrix:
    """Count the pairs of adjacent words within sentences (V, V)."""
    inside = np.ones(len(words), bool)
    inside[offsets[:-1]] = False  # nothing precedes the first word of a sentence
    at = np.flatnonzero(inside)
    return pair_counts(words[at - 1], words[at], (n_words, n_words))


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
    occurs = word_counts(words, n_words)
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
    callback : callable, optional
        Called with the number of the pass (0: insertion), the number of words that moved, and the objective F.
    """
    check_count("n_clusters", n_clusters)
    order = np.asarray(order, np.int64)
    C = min(n_clusters, len(order))
    text, table = _text(counts), xlogx_table(counts)
    K = C + len(fixed)
    now = Clustering(
        np.full(counts.shape[0], -1, np.int64), np.zeros(K, np.int64), *np.zeros((2, K, K), np.int64),
        *np.zeros((2, K), np.int64),
    )  # fmt: skip
    costs = np.diff(text.after.first) + np.diff(text.before.first)
    first = np.concatenate([order[:C], np.asarray(fixed, np.int64)])
    kernels.move(0, K, first, text, now, table, np.arange(K))
    for done in range(max_iter + 1):
        moved, rest = 0, order if done else order[C:]
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

    def fit(self, text: Source | Moments, *, callback: Progress | None = None) -> Self:
        """Cluster the words of a text.

        Parameters
        ----------
        text : Path, sequence of Path, Corpus, iterable of sentences, or Moments
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
        C = min(1000, max(1, len(order) // 10)) if self.n_clusters is None else min(self.n_clusters, len(order))
        now = exchange(counts, order, C, max_iter=self.max_iter, fixed=fixed, callback=callback)
        paths = bit_strings(merges(now, C, xlogx_table(counts)), C)
        self.paths_ = {vocabulary[w]: paths[now.of_word[w]] for w in order.tolist()}
        self.counts_ = {vocabulary[w]: int(text.unary[w]) for w in order.tolist()}
        unigrams = _f(text.unary).sum()
        self.objective_ = (objective(now) + unigrams) / text.n_positions
        return self

    def path(self, word: str) -> str:
        """Return the bit string of a word, else of the word in lower case, else an empty string."""
        self._check_fitted()
        return self.paths_.get(word) or self.paths_.get(word.lower(), "")

    def save(self, path: str | Path) -> None:
        """Write a text file: bit string, word and count in each line, separated by tabs."""
        self._check_fitted()
        paths, counts = self.paths_, self.counts_
        with atomic_write(path) as file:
            for word in sorted(paths, key=lambda word: (paths[word], -counts[word])):
                file.write(f"{paths[word]}\t{word}\t{counts[word]}\n")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file written by ``save`` or another program.

        Lines have a bit string, a word and perhaps its count, as those of Liang's program.
        """
        paths, counts = dict[str, str](), dict[str, int]()
        with open_text(path) as lines:
            for n, line in enumerate(lines, start=1):
                fields = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
                count = whole_number(fields[2]) if len(fields) == 3 else 0
                if not 2 <= len(fields) <= 3 or not all(fields) or not set(fields[0]) <= {"0", "1"} or count is None:
                    raise DataError(
                        f"{source_name(path)}:{n}: expected a bit string of 0 and 1, a word and perhaps a count, "
                        f"separated by tabs, got {shorten(line.rstrip())}."
                    )
                paths[fields[1]], counts[fields[1]] = fields[0], count
        if not paths:
            raise DataError(f"{source_name(path)}: expected clusters, one word per line, got an empty file.")
        return cls.from_paths(paths, counts)

    @classmethod
    def from_paths(cls, paths: dict[str, str], counts: dict[str, int] | None = None) -> Self:
        """Return clusters with given bit strings of words; words without a count have 0."""
        self = cls(max(1, len(set(paths.values()))))
        self.paths_, self.counts_ = dict(paths), dict.fromkeys(paths, 0) | (counts or {})
        self.objective_ = float("nan")
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrownClusters) and getattr(self, "paths_", None) == getattr(other, "paths_", None)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"BrownClusters({'' if self.n_clusters is None else self.n_clusters})"

    def _check_fitted(self) -> None:
        if not hasattr(self, "paths_"):
            raise NotFittedError("this BrownClusters has no clusters yet: call fit, or read a file.")
