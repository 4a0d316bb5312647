"""Rank correlations against SciPy."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import spearmanr

from experiments.similarity import spearman, word_similarity
from trelliswork.errors import ShapeError


@pytest.mark.parametrize("n_values", [3, 50, 10**6])  # few values: many ties
def test_spearman_equals_scipy(n_values):
    rng = np.random.default_rng(n_values)
    for n in (2, 3, 10, 200):
        a, b = rng.integers(n_values, size=n), rng.integers(n_values, size=n) / 7
        if len(set(a)) > 1 and len(set(b)) > 1:
            assert_allclose(spearman(a, b), spearmanr(a, b).statistic, atol=1e-12)


def test_spearman_of_constants_and_of_different_lengths():
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert math.isnan(spearman([], []))
    with pytest.raises(ShapeError, match="same length, got 1 and 2"):
        spearman([1], [1, 2])


def test_pairs_without_vectors_are_left_out():
    vectors, ids = np.array([[3.0, 0.0], [2.0, 1.0], [0.0, 0.1], [0.0, 0.0]]), {"a": 0, "b": 1, "c": 2, "zero": 3}
    ratings = [("a", "b", 3.0), ("b", "c", 2.0), ("a", "c", 1.0), ("a", "zebra", 9.0), ("zero", "a", 1.0)]
    found = word_similarity(vectors, ids, ratings)
    assert (found.n_covered, found.n_pairs) == (4, 5)
    cosines = [2 / math.sqrt(5), 1 / math.sqrt(5), 0.0, 0.0]
    assert_allclose(found.spearman, spearmanr(cosines, [3, 2, 1, 1]).statistic)
    assert math.isnan(word_similarity(vectors, ids, [("x", "y", 1.0)]).spearman)
