"""Where the learning of a Markov random field begins: singular vectors of what pairs say beyond their words."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix, hstack, vstack

from trelliswork.learning.mrf_objective import Frequencies, LowRankShape, PairShape, log_frequencies

Array = NDArray[np.float64]
RARE = 5.0  # counts: rarer words begin with shorter vectors


def first_parameters(shape: LowRankShape | PairShape, frequencies: Frequencies, *, seed: int = 0) -> Array:
    """Biases are log frequencies; a low-rank table is near the positive mutual information of its pairs.

    The best table of rank D near independence, in the metric of the likelihood, comes from singular vectors of the
    mutual information weighted by the square roots of both frequencies. Pairs seen once or twice count less. Cost: some
    products of the sparse pairs with D vectors.
    """
    parameters = np.zeros(shape.n_parameters)
    shape.biases(parameters)[:] = log_frequencies(frequencies)
    if isinstance(shape, PairShape):
        return parameters
    rng = np.random.default_rng(seed)
    u, w, r, _ = shape.parts(parameters)
    C, K, D = shape.n_words, shape.K, shape.rank
    rows = 1 / np.sqrt(frequencies.unary + RARE / frequencies.n_positions)
    tables = [_information(m, frequencies) for m in frequencies.pairs]
    if r is None:
        left, values, right = _svd(hstack(tables).tocsr(), D, rng)
        u[:] = rows[:, None] * left * np.sqrt(values)
        for k in range(K):
            w[k] = rows[:, None] * right[k * C : (k + 1) * C] * np.sqrt(values)
        return parameters
    left, values, _ = _svd(hstack(tables).tocsr(), D, rng)
    _, _, right = _svd(vstack(tables).tocsr(), D, rng)
    size = np.sqrt(max(float(values.max()), 1e-12))
    u[:] = rows[:, None] * left * size
    w[:] = rows[:, None] * right * size
    for k in range(K):
        r[k] = left.T @ (tables[k] @ right) / size**2
    return parameters


def _information(pairs: csr_matrix, frequencies: Frequencies) -> csr_matrix:
    """max(log p(x, y) / p(x) p(y), 0) times the square root of p(x) p(y), damped where counts are small."""
    found = pairs.tocoo()
    alone = frequencies.unary[found.row] * frequencies.unary[found.col]
    counts = found.data * frequencies.n_positions
    values = np.sqrt(alone) * np.maximum(np.log(found.data / alone), 0.0) * counts / (counts + 1)
    return coo_matrix((values, (found.row, found.col)), found.shape).tocsr()


def _svd(matrix: csr_matrix, rank: int, rng: np.random.Generator, n_rounds: int = 4) -> tuple[Array, Array, Array]:
    """The largest singular values with their vectors (columns), by subspace iteration; random ones fill up the rank."""
    back = matrix.T.tocsr()
    width = min(rank + 10, *matrix.shape)
    right = rng.standard_normal((matrix.shape[1], width))
    for _ in range(n_rounds):
        left = np.linalg.qr(matrix @ right)[0]
        right = np.linalg.qr(back @ left)[0]
    inner, values, outer = np.linalg.svd(matrix @ right, full_matrices=False)
    left, right = inner[:, :rank], (right @ outer.T)[:, :rank]
    values = values[:rank]
    missing = rank - len(values)
    if missing > 0:  # more columns than words
        left = np.hstack([left, rng.standard_normal((len(left), missing)) / np.sqrt(len(left))])
        right = np.hstack([right, rng.standard_normal((len(right), missing)) / np.sqrt(len(right))])
        values = np.concatenate([values, np.full(missing, 0.01)])
    # A column of zeros on both sides would never learn.
    return left, np.maximum(values, 1e-3 * max(float(values.max(initial=0.0)), 1e-3)), right
