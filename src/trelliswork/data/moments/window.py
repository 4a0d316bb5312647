"""Counts of pairs of words within a window, from moments: what skip-gram sees, without reading the text again."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags

from trelliswork.data.moments import Moments
from trelliswork.errors import ShapeError, ValueRangeError


def window_counts(moments: Moments, weights: Sequence[float] | None = None, subsample: float = 0.0) -> csr_matrix:
    r"""Return how often two words are within K positions of each other, in either order.

    .. math:: M(x, y) = k_x k_y \sum_{l=1}^K w_l \, (n_l(x, y) + n_l(y, x)), \qquad
        k_x = \min\big(1, \sqrt{t / f_x} + t / f_x\big)

    These are the expected counts of a text in which each occurrence of x is kept with probability k_x, without moving
    the others. The matrix is symmetric, so its row and column sums are the same counts of words.

    Parameters
    ----------
    moments : Moments
    weights : sequence of K floats, optional
        Weight w_l of each distance; default 1.
    subsample : float
        Frequency t above which words are kept less often, as in word2vec; 0 keeps all. f_x is the frequency of x.

    Returns
    -------
    csr_matrix (C, C)
        Without the pad: its row and column are empty.

    Examples
    --------
    >>> from trelliswork.data.moments import count_moments
    >>> window_counts(count_moments([["a", "b", "b"]], K=2)).toarray().tolist()  # of <s>, b, a
    [[0.0, 0.0, 0.0], [0.0, 2.0, 2.0], [0.0, 2.0, 0.0]]
    """
    w = np.ones(moments.K) if weights is None else np.asarray(weights, np.float64)
    if w.shape != (moments.K,):
        raise ShapeError(f"weights must have one number for each of the K={moments.K} distances, got {len(w)}.")
    if not 0 <= subsample <= 1:
        raise ValueRangeError(f"subsample must be a frequency from 0 to 1, got {subsample}.")
    keep = kept_fractions(moments, subsample)
    keep[0] = 0.0
    counts = sum(weight * matrix for weight, matrix in zip(w, moments.pairs, strict=True))
    masks = diags(keep)
    matrix = csr_matrix(masks @ (counts + counts.T) @ masks)
    matrix.eliminate_zeros()
    return matrix


def kept_fractions(moments: Moments, subsample: float) -> NDArray[np.float64]:
    """Return the fraction of each word's occurrences that subsampling keeps (C,): 1 for words rarer than its limit."""
    if not subsample:
        return np.ones(len(moments.unary))
    ratio = subsample * moments.n_tokens / np.maximum(moments.unary, 1e-12)
    return np.minimum(1.0, np.sqrt(ratio) + ratio)
