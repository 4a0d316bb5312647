"""Brown clustering of words: clusters with maximum mutual information of neighbors (Brown et al. 1992)."""

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.compute.sharing import current
from trelliswork.features.kernels.brown import Neighbors, cluster

Ints = NDArray[np.int64]


def bigrams(words: Ints, offsets: Ints, n_words: int) -> sparse.csr_matrix:
    """Count the pairs of adjacent words within sentences (V, V)."""
    inside = np.ones(len(words), bool)
    inside[offsets[:-1]] = False  # nothing precedes the first word of a sentence
    at = np.flatnonzero(inside)
    return pair_counts(words[at - 1], words[at], (n_words, n_words))


def pair_counts(rows: Ints, columns: Ints, shape: tuple[int, int], dtype: DTypeLike = np.float64) -> sparse.csr_matrix:
    """Count pairs of numbers; in a group of processes, those of all ranks."""
    counts = sparse.coo_matrix((np.ones(len(rows), dtype), (rows, columns)), shape=shape).tocsr()
    if current().size == 1:
        return counts
    own = counts.tocoo()
    keys, totals = current().count(own.row * np.int64(shape[1]) + own.col, own.data.astype(np.int64))
    return sparse.coo_matrix((totals.astype(dtype), np.divmod(keys, shape[1])), shape=shape).tocsr()


def brown_clusters(words: Ints, offsets: Ints, n_words: int, n_clusters: int) -> Ints:
    """Return the cluster of each word (V,), 0 to C-1; words that do not occur are put into the last one.

    Sentence n is ``words[offsets[n] : offsets[n + 1]]``; in a group of processes each rank has its own sentences. The
    most frequent words are the first clusters; each further word, in the order of frequency, becomes a cluster, and the
    two clusters whose merge loses least mutual information of neighbors are merged. Time O(V C^2). Brown et al. (1992),
    section 3; the table of losses is updated as in Liang (2005), section 4.

    Examples
    --------
    >>> words = np.array([0, 2, 1, 2, 0, 3, 1, 3])  # words 0 and 1 have the same neighbors, and so have 2 and 3
    >>> brown_clusters(words, np.array([0, 8]), 4, 2).tolist()
    [0, 0, 1, 1]
    """
    check_count("n_clusters", n_clusters)
    counts = bigrams(words, offsets, n_words)
    occurs = current().sum(np.bincount(words, minlength=n_words))
    order = np.argsort(-occurs, kind="stable")
    order = order[occurs[order] > 0]
    after, before = (
        Neighbors(m.indptr.astype(np.int64), m.indices.astype(np.int64), m.data) for m in (counts, counts.T.tocsr())
    )
    left, right = (np.asarray(counts.sum(axis=axis)).ravel() for axis in (1, 0))
    of_word = np.empty(n_words, np.int64)
    total = max(counts.sum(), 1.0)
    threads.call(cluster, order, after, before, left, right, n_clusters, total, of_word)
    of_word[of_word < 0] = of_word.max()
    return of_word


def mutual_information(words: Ints, offsets: Ints, clusters: Ints) -> float:
    """Return the mutual information of neighboring clusters in nats, which the clustering maximizes."""
    n = bigrams(clusters[words], offsets, int(clusters.max()) + 1).tocoo()
    total = n.data.sum()
    left, right = (np.asarray(n.sum(axis=axis)).ravel() for axis in (1, 0))
    return float((n.data / total * np.log(n.data * total / (left[n.row] * right[n.col]))).sum())
