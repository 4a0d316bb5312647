"""Counts of pairs within a window, against counting by hand, and the laws of their weights."""

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose

from trelliswork.data.moments import count_moments
from trelliswork.data.moments.window import kept_fractions, window_counts
from trelliswork.errors import ShapeError, ValueRangeError

rng = np.random.default_rng(0)
TEXT = [[f"w{z}" for z in np.minimum(rng.zipf(1.4, rng.integers(1, 9)), 20)] for _ in range(80)]
WEIGHTS = (1.0, 0.5, 0.25)


@pytest.fixture(scope="module")
def moments():
    return count_moments(TEXT, 3)


def test_counts_equal_those_by_hand(moments):
    by_hand = Counter()
    for sentence in TEXT:
        for i, word in enumerate(sentence):
            for distance, weight in enumerate(WEIGHTS, start=1):
                for j in (i - distance, i + distance):
                    if 0 <= j < len(sentence):
                        by_hand[word, sentence[j]] += weight
    matrix = window_counts(moments, WEIGHTS).tocoo()
    words = moments.vocabulary
    counts = {(words[x], words[y]): n for x, y, n in zip(matrix.row, matrix.col, matrix.data, strict=True)}
    assert counts == pytest.approx(dict(by_hand))


def test_without_weights_and_subsampling_the_counts_are_the_moments(moments):
    plain = sum((m + m.T).toarray() for m in moments.pairs)
    plain[0] = plain[:, 0] = 0
    assert_allclose(window_counts(moments).toarray(), plain)
    assert_allclose(window_counts(moments, subsample=1.0).toarray(), plain)


def test_marginals_stay_consistent(moments):
    matrix = window_counts(moments, WEIGHTS, subsample=0.02)
    assert abs(matrix - matrix.T).max() < 1e-12
    assert_allclose(np.asarray(matrix.sum(0)).ravel(), np.asarray(matrix.sum(1)).ravel())
    assert matrix[0].nnz == matrix[:, 0].nnz == 0


def test_subsampling_is_the_expectation_of_masked_text(moments):
    """Each occurrence is kept independently: a pair is kept by the product of two fractions."""
    keep = kept_fractions(moments, 0.02)
    assert keep.min() < 0.5 < keep.max() == 1
    assert (np.diff(keep[1:]) >= 0).all()  # words are in the order of their frequencies
    whole, masked = window_counts(moments).toarray(), window_counts(moments, subsample=0.02).toarray()
    assert_allclose(masked, whole * np.outer(keep, keep))
    draw = np.random.default_rng(1)
    total, n = np.zeros_like(whole), 300
    for _ in range(n):
        kept = [[w if draw.random() < keep[moments.vocabulary.id(w)] else None for w in s] for s in TEXT]
        for sentence in kept:
            ids = [None if w is None else moments.vocabulary.id(w) for w in sentence]
            for i, x in enumerate(ids):
                for y in (*ids[max(0, i - 3) : i], *ids[i + 1 : i + 4]):
                    if x is not None and y is not None:
                        total[x, y] += 1
    assert_allclose((total / n).sum(1), masked.sum(1), rtol=0.06, atol=0.5)


def test_wrong_weights_are_errors(moments):
    with pytest.raises(ShapeError, match="K=3 distances, got 2"):
        window_counts(moments, (1, 2))
    with pytest.raises(ValueRangeError, match="from 0 to 1, got 2"):
        window_counts(moments, subsample=2)
