"""First parameters of a Markov random field: singular vectors of the mutual information of pairs."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix, hstack, vstack

from trelliswork.models.mrf.shapes import Frequencies, PairShape, Shape, log_frequencies

Array = NDArray[np.float64]
RARE = 5.0  # counts: rarer words start with shorter vectors


def first_parameters(
    shape: Shape,
    frequencies: Frequencies,
    *,
    seed: int = 0,
    unary: bool = True,
    rest: float = 0.0,
) -> Array:
    """Return log frequencies as biases, and low-rank tables near the positive mutual information of pairs.

    Near independence the best table of rank D, in the metric of the likelihood, comes from the singular vectors of the
    mutual information weighted by the square roots of both frequencies. Pairs seen once or twice are damped. Costs a
    few products of the sparse pairs with D vectors.

    Without a unary the tables must encode the frequencies of words: the last of their D dimensions starts with them. If
    single words have a weight in the cover, ``rest``, biases shift it such that all its parts have the same margin.
    """
    parameters = np.zeros(shape.n_parameters)
    often = log_frequencies(frequencies.counts)
    if not unary:
        # A constant does not change the field: vectors are shortest for differences from the mean.
        often = (often - often.mean()) / (1 - rest)
    shape.biases(parameters)[:] = often if unary else -rest * often
    if isinstance(shape, PairShape):
        if not unary:
            for values, pattern in zip(shape.parts(parameters)[0], shape.patterns, strict=True):
                values[:] = (often - often.min())[pattern.indices]  # a pair without a score counts as the rarest
        return parameters
    rng = np.random.default_rng(seed)
    u, w, r, _ = shape.parts(parameters)
    C, K, D = shape.n_words, shape.K, shape.rank if unary else shape.rank - 1
    rows = 1 / np.sqrt(frequencies.unary + RARE / frequencies.n_positions)
    tables = [_information(m, frequencies) for m in frequencies.pairs]
    left, values, right = singular_vectors(hstack(tables).tocsr(), D, rng)
    length = max(float(often @ often) / C * (K if r is None else 1), 1e-6) ** 0.25
    if r is None:
        u[:, :D] = rows[:, None] * left * np.sqrt(values)
        for k in range(K):
            w[k][:, :D] = rows[:, None] * right[k * C : (k + 1) * C] * np.sqrt(values)
    else:
        _, _, right = singular_vectors(vstack(tables).tocsr(), D, rng)
        size = np.sqrt(max(float(values.max(initial=0.0)), 1e-12))
        u[:, :D] = rows[:, None] * left * size
        w[:, :D] = rows[:, None] * right * size
        for k in range(K):
            r[k][:D, :D] = left.T @ (tables[k] @ right) / size**2
    if not unary:
        u[:, D] = length
        w[..., D] = often / length
        if r is not None:
            r[:, D, D] = 1.0
    return parameters


def _information(pairs: csr_matrix, frequencies: Frequencies) -> csr_matrix:
    """Return max(log p(x, y) / p(x) p(y), 0) times the square root of p(x) p(y), damped for small counts."""
    matrix = pairs.tocoo()
    alone = frequencies.unary[matrix.row] * frequencies.unary[matrix.col]
    counts = matrix.data * frequencies.n_positions
    values = np.sqrt(alone) * np.maximum(np.log(matrix.data / alone), 0.0) * counts / (counts + 1)
    return coo_matrix((values, (matrix.row, matrix.col)), matrix.shape).tocsr()


def singular_vectors(
    matrix: csr_matrix, rank: int, rng: np.random.Generator, n_rounds: int = 4
) -> tuple[Array, Array, Array]:
    """Return left vectors (columns), singular values, right vectors of the largest values, by subspace iteration.

    Computes in the precision of the matrix. If the rank exceeds the size of the matrix, random vectors are added.
    """
    back = matrix.T.tocsr()
    width = min(rank + 10, *matrix.shape)
    right = rng.standard_normal((matrix.shape[1], width)).astype(matrix.dtype, copy=False)
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
