"""Word vectors against ratings of the similarity of word pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError


@dataclass(frozen=True)
class WordSimilarity:
    """Agreement of cosines with ratings.

    Attributes
    ----------
    spearman : float
        Rank correlation over the pairs whose words both have a vector; nan for fewer than two such pairs.
    n_covered, n_pairs : int
        Number of these pairs, and of all pairs.
    """

    spearman: float
    n_covered: int
    n_pairs: int


def word_similarity(
    vectors: NDArray[Any], ids: Mapping[str, int], ratings: Sequence[tuple[str, str, float]]
) -> WordSimilarity:
    """Compare the cosines of word vectors with ratings of pairs.

    Parameters
    ----------
    vectors : ndarray (C, D)
    ids : mapping of str to int
        The row of each word.
    ratings : sequence of (word, word, float)

    Examples
    --------
    >>> vectors, ids = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), {"cat": 0, "dog": 1, "tax": 2}
    >>> word_similarity(vectors, ids, [("cat", "dog", 9.0), ("dog", "tax", 1.0), ("cat", "tax", 0.5), ("cat", "x", 1)])
    WordSimilarity(spearman=1.0, n_covered=3, n_pairs=4)
    """
    covered = [(ids[a], ids[b], rating) for a, b, rating in ratings if a in ids and b in ids]
    first, second = (np.array([row[k] for row in covered], np.int64) for k in (0, 1))
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    cosines = np.einsum("nd,nd->n", unit[first], unit[second])
    return WordSimilarity(spearman(cosines, [rating for _, _, rating in covered]), len(covered), len(ratings))


def spearman(a: Sequence[float] | NDArray[Any], b: Sequence[float] | NDArray[Any]) -> float:
    """Return the rank correlation of two lists, ties with their mean rank; nan if one of them is constant.

    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    if len(a) != len(b):
        raise ShapeError(f"both lists must have the same length, got {len(a)} and {len(b)}.")
    x, y = (_ranks(np.asarray(values, np.float64)) for values in (a, b))
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size else float("nan")


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ranks of values minus their mean; equal values have the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[group] - (len(values) + 1) / 2
