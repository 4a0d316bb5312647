r"""A Markov random field in closed form: one table for all distances, from singular vectors of mutual information.

Write :math:`\theta^l = \rho_l \vartheta` with one table :math:`\vartheta = U W'` for all distances, and one bias b.
Then the bound (1) of ``objective`` is the log-likelihood of a single chain, p(y | x) proportional to
:math:`\exp(\vartheta(x, y) + b(y))`, on the weighted mean of the moments of all distances: skip-gram with a softmax
over the vocabulary. With :math:`b(y) = \log p(y)` and no limit of the rank, its optimum is the pointwise mutual
information.

The table is the best approximation of the positive part of that information by rank D, with *equal weights of all
words*. Maximum likelihood weights words by their frequencies and spends the dimensions on frequent ones. That is better
for likelihood, and worse for vectors. Information is measured in windows of both directions (``window_counts``), so
the table is symmetric. Levy and Goldberg (2014) relate it to skip-gram with negative sampling.

Costs a few products of the sparse counts with D vectors, and one pass over the table for its normalizers.
"""

import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from trelliswork.data.moments import Moments
from trelliswork.data.moments.window import window_counts
from trelliswork.learning import whole
from trelliswork.learning.report import Callback, FitReport, Step
from trelliswork.models.mrf.field import MRFField, compact
from trelliswork.models.mrf.shapes import LowRankShape, log_frequencies
from trelliswork.models.mrf.start import singular_vectors
from trelliswork.models.mrf.training import cover

if TYPE_CHECKING:
    from trelliswork.models.mrf import MRFLanguageModel

Array = NDArray[np.float64]
SUBSAMPLE = 1e-4  # frequency above which words count less, as in word2vec: vectors of higher quality
N_ROUNDS = 6  # of subspace iteration: fewer leave vectors that depend on the seed


def learn_spectral(
    model: "MRFLanguageModel", moments: Moments, dev: Moments | None, callback: Callback | None
) -> tuple[MRFField, FitReport]:
    """Return the field, and a report with a single step."""
    began = time.perf_counter()
    C, K, rank, weights = len(moments.vocabulary), moments.K, model.rank, cover(model)
    frequent = log_frequencies(moments.unary)
    shape = LowRankShape(C, 1, rank)
    factors = whole.of_first(lambda: _factors(moments, rank, weights, model.seed))
    parameters = np.zeros(shape.n_parameters)
    u, w, _, b = shape.parts(parameters)
    u[:], w[0], b[0] = factors["left"], factors["right"], frequent
    chain = b[0] - shape.log_norms(parameters, 0)
    unaries = np.vstack([frequent, np.tile(chain, (K, 1))])
    rho = np.concatenate([[max(0.0, 1 - float(weights.sum()))], weights])
    learned = {
        "left": compact(u, C),
        "right": compact(w[0], C),
        "middle": compact(weights[:, None, None] * np.eye(rank), C),
    }
    field = MRFField("URW", rho @ unaries, learned, weights, unaries, 0.0, moments.lengths)
    value = -_bound(field, moments)
    of_dev = None if dev is None else _bound(field, dev)
    step = Step(1, value, n_evaluations=1, n_active=2 * C * rank, seconds=time.perf_counter() - began, dev=of_dev)
    if callback is not None:
        callback(step)
    return field, FitReport(True, "closed form", value, [step], of_dev, "" if dev is None else "bound")


def _bound(field: MRFField, moments: Moments) -> float:
    """Return the bound (1) of ``objective``, by one product of the mean over distances with the shared table."""
    mean = csr_matrix(sum(rho * matrix for rho, matrix in zip(field.weights, moments.pairs, strict=True)))
    score = np.vdot(field.factors["left"], mean @ field.factors["right"])
    return (float(score) + float(moments.unary @ field.log_unary)) / moments.n_positions


def _factors(moments: Moments, rank: int, weights: Array, seed: int) -> dict[str, Array]:
    """Return U (C, D), whose columns have the mean square 1, and W (C, D)."""
    information = positive_information(window_counts(moments, weights.tolist(), SUBSAMPLE)).astype(np.float32)
    rng = np.random.default_rng(seed)
    left, values, right = singular_vectors(information, rank, rng, n_rounds=N_ROUNDS)
    size = np.sqrt(len(left))
    return {"left": np.asarray(left * size, np.float64), "right": np.asarray(right * (values / size), np.float64)}


def positive_information(counts: csr_matrix) -> csr_matrix:
    """Return max(log n(x, y) n / n(x) n(y), 0) of a symmetric matrix of counts."""
    matrix = counts.tocoo()
    words = np.asarray(counts.sum(1)).ravel()
    values = np.log(matrix.data * words.sum() / (words[matrix.row] * words[matrix.col]))
    positive = values > 0
    entries = (values[positive], (matrix.row[positive], matrix.col[positive]))
    return csr_matrix(entries, matrix.shape)
