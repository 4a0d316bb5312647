"""Brown clustering against merging by brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from trelliswork.errors import ValueRangeError
from trelliswork.features.brown import bigrams, brown_clusters, mutual_information


def text(seed, n_words=9, n_sentences=25):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, n_sentences)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return rng.choice(n_words, offsets[-1], p=rng.dirichlet(np.ones(n_words))), offsets


def information(counts, left, right, total):
    """Mutual information of the clusters so far; margins are those of the whole corpus."""
    total_information = 0.0
    for i, j in zip(*np.nonzero(counts), strict=True):
        total_information += counts[i, j] / total * np.log(counts[i, j] * total / (left[i] * right[j]))
    return total_information


def slow_clusters(words, offsets, n_words, n_clusters):
    """Cluster by the same greedy merging, with the information of every candidate recomputed."""
    full = bigrams(words, offsets, n_words).toarray()
    left, right, total = full.sum(1), full.sum(0), full.sum()
    occurs = np.bincount(words, minlength=n_words)
    clusters = []

    def value(groups):
        counts = np.array([[full[np.ix_(a, b)].sum() for b in groups] for a in groups])
        return information(counts, [left[a].sum() for a in groups], [right[a].sum() for a in groups], total)

    for w in [w for w in np.argsort(-occurs, kind="stable") if occurs[w]]:
        clusters.append([w])
        if len(clusters) > n_clusters:
            best, pair = -np.inf, None
            for s, t in combinations(range(len(clusters)), 2):
                rest = [c for k, c in enumerate(clusters) if k not in (s, t)]
                candidate = value([*rest, clusters[s] + clusters[t]])
                if candidate > best + 1e-12:
                    best, pair = candidate, (s, t)
            s, t = pair
            merged = clusters[s] + clusters[t]
            clusters = [c for k, c in enumerate(clusters) if k not in (s, t)] + [merged]
    return {frozenset(map(int, c)) for c in clusters}, value(clusters)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n_clusters", [2, 3, 5])
def test_clusters_equal_brute_force(seed, n_clusters):
    words, offsets = text(seed)
    clusters = brown_clusters(words, offsets, 9, n_clusters)
    expected, value = slow_clusters(words, offsets, 9, n_clusters)
    seen = np.unique(words)
    groups = {frozenset(int(w) for w in seen if clusters[w] == c) for c in set(clusters[seen].tolist())}
    assert groups == expected
    assert_allclose(mutual_information(words, offsets, clusters), value, rtol=1e-9)


@given(st.integers(0, 500), st.integers(1, 12))
def test_every_word_has_one_cluster(seed, n_clusters):
    words, offsets = text(seed)
    clusters = brown_clusters(words, offsets, 9, n_clusters)
    assert clusters.shape == (9,)
    assert clusters.min() >= 0
    assert clusters.max() < n_clusters
    own = np.arange(9)
    assert mutual_information(words, offsets, clusters) <= mutual_information(words, offsets, own) + 1e-12
    if n_clusters >= len(np.unique(words)):
        assert len(set(clusters[np.unique(words)])) == len(np.unique(words))


def test_errors():
    with pytest.raises(ValueRangeError, match="n_clusters"):
        brown_clusters(np.array([0]), np.array([0, 1]), 1, 0)
