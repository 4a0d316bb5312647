r"""The likelihood bound of a Markov random field over text, from moments alone.

A cover of the field by single words and by the chains of each distance, with weights rho (``reference`` (4) in
``inference.lifted``), is learned in a form in which no bound has to be tightened. Write
:math:`\theta^l = \rho_l \vartheta^l`, choose biases :math:`b_l` freely and let the unaries of the chains be
:math:`a_l = b_l - \log Z_l` with

.. math:: Z_l(x) = \sum_y \exp(\vartheta^l(x, y) + b_l(y)).

Then :math:`T_l Z_l = Z_l`: every Perron root is 1, the bound of A / N is 0, and the bound of the log-likelihood a
position

.. math:: \rho_0 \langle\hat\mu_0, a_0\rangle + \sum_l \rho_l \Big(\langle\hat\mu_l, \vartheta^l\rangle
    + \langle\hat\mu_0, b_l - \log Z_l\rangle\Big), \qquad \theta^0 = \rho_0 a_0 + \sum_l \rho_l a_l,           (1)

is concave in :math:`(\vartheta, b)`: a weighted sum of the log-likelihoods of chains :math:`p_l(y \mid x)`, one a
distance. The best :math:`a_0` is the log frequency of words. Any unary of the field can be written so; its optimum is
the joint optimum in (theta, delta) of the star cover if all weights are 1 / (K + 1), and of the chain cover if the
distances' weights add up to 1. For K = 1 it is the exact likelihood. The cost of an evaluation depends on the
vocabulary and on the number of distinct pairs, not on the length of the text.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference.lifted.conditionals import conditionals
from trelliswork.learning.moments import Moments

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Frequencies:
    """Moments as frequencies: what the objective sees.

    Attributes
    ----------
    unary : ndarray (C,)
        Sums to 1.
    pairs, transposed : K csr_matrix (C, C)
        Each sums to 1; and their transposes.
    n_positions : int
    """

    unary: Array
    pairs: tuple[Any, ...]
    transposed: tuple[Any, ...]
    n_positions: int

    @classmethod
    def of(cls, moments: Moments) -> "Frequencies":
        """Divide by the number of positions."""
        N = moments.n_positions
        pairs = tuple(matrix / N for matrix in moments.pairs)
        return cls(moments.unary / N, pairs, tuple(matrix.T.tocsr() for matrix in pairs), N)


class Shape(Protocol):
    """A family of tables; how its parameters lie in one vector."""

    @property
    def n_parameters(self) -> int:
        """The length of the vector."""

    def scores(self, parameters: Array, frequencies: Frequencies) -> Array:
        """<mu_l, vartheta^l> of each distance, shape (K,)."""

    def evaluate(self, parameters: Array, frequencies: Frequencies, weights: Array) -> tuple[float, Array, Array]:
        """(1) without its first term, its gradient, and log Z_l, shape (K, C)."""

    def biases(self, parameters: Array) -> Array:
        """b, shape (K, C)."""

    def norm(self, parameters: Array) -> tuple[float, Array]:
        """Half the sum of the squares of tables' parameters (not of biases), and its gradient."""

    def scale(self, frequencies: Frequencies, extra: float) -> Array:
        """About the square root of each parameter's curvature, for an optimiser."""


@dataclass(frozen=True)
class LowRankShape:
    """vartheta^l = U W_l (``form`` "UW"), or U R_l W ("URW").

    Parameters
    ----------
    n_words, K, rank : int
        C, K, D.
    form : "UW" or "URW"
    """

    n_words: int
    K: int
    rank: int
    form: str = "UW"

    @property
    def n_parameters(self) -> int:
        """Of U, W (and R), and biases."""
        C, K, D = self.n_words, self.K, self.rank
        return (C * D * (1 + K) if self.form == "UW" else 2 * C * D + K * D * D) + K * C

    def parts(self, parameters: Array) -> tuple[Array, Array, Array | None, Array]:
        """Views of U (C, D), W (K, C, D) or (C, D), R (K, D, D) or None, b (K, C)."""
        C, K, D = self.n_words, self.K, self.rank
        u, rest = parameters[: C * D].reshape(C, D), parameters[C * D :]
        if self.form == "UW":
            return u, rest[: K * C * D].reshape(K, C, D), None, rest[K * C * D :].reshape(K, C)
        w, rest = rest[: C * D].reshape(C, D), rest[C * D :]
        return u, w, rest[: K * D * D].reshape(K, D, D), rest[K * D * D :].reshape(K, C)

    def factors(self, parameters: Array) -> list[tuple[Array, Array]]:
        """Left and right factors (C, D) of each distance's table."""
        u, w, r, _ = self.parts(parameters)
        if r is None:
            return [(u, w[k]) for k in range(self.K)]
        return [(u @ r[k], w) for k in range(self.K)]

    def biases(self, parameters: Array) -> Array:
        """b, shape (K, C)."""
        return self.parts(parameters)[3]

    def scores(self, parameters: Array, frequencies: Frequencies) -> Array:
        """<mu_l, vartheta^l> of each distance."""
        factors = self.factors(parameters)
        return np.array(
            [float(np.vdot(left, m @ right)) for (left, right), m in zip(factors, frequencies.pairs, strict=True)]
        )

    def evaluate(self, parameters: Array, frequencies: Frequencies, weights: Array) -> tuple[float, Array, Array]:
        """(1) without its first term, its gradient, and log Z_l."""
        u, _, r, b = self.parts(parameters)
        gradient = np.zeros_like(parameters)
        du, dw, dr, db = self.parts(gradient)
        value, log_norms = 0.0, np.empty((self.K, self.n_words))
        unary = frequencies.unary
        for k, (left, right) in enumerate(self.factors(parameters)):
            rho = weights[k]
            model = conditionals(left, right, b[k], unary)
            log_norms[k] = model.log_norm
            towards_left = frequencies.pairs[k] @ right
            value += rho * (float(np.vdot(left, towards_left)) + unary @ (b[k] - model.log_norm))
            d_left = rho * (towards_left - model.left)
            d_right = rho * (frequencies.transposed[k] @ left - model.right)
            db[k] = rho * (unary - model.bias)
            if r is None or dr is None:
                du += d_left
                dw[k] += d_right
            else:
                du += d_left @ r[k].T
                dr[k] = u.T @ d_left
                dw += d_right
        return value, gradient, log_norms

    def norm(self, parameters: Array) -> tuple[float, Array]:
        """Half the sum of the squares of U, W and R, and its gradient."""
        return _norm_without_biases(parameters, self.K * self.n_words)

    def scale(self, frequencies: Frequencies, extra: float) -> Array:
        """Rows of U and W by how often their word occurs: rare words would learn slowly otherwise."""
        found = np.ones(self.n_parameters)
        u, w, r, b = self.parts(found)
        by_word = np.sqrt(frequencies.unary + extra)
        u *= by_word[:, None]
        w *= by_word[:, None]
        b *= by_word
        if r is not None:
            r /= np.sqrt(self.rank)
        return found


@dataclass(frozen=True)
class PairShape:
    """A free score for each pair of a pattern; all others are 0.

    Parameters
    ----------
    patterns : K csr_matrix (C, C)
        Their nonzeros are the pairs; the columns of a row ascend.

    Notes
    -----
    An evaluation costs O(pairs + C): where the table is 0, all rows share one sum.
    """

    patterns: tuple[Any, ...]
    _looked_up: list[Any] = field(default_factory=list, repr=False, compare=False)

    @property
    def n_words(self) -> int:
        """C."""
        return int(self.patterns[0].shape[0])

    @property
    def K(self) -> int:  # noqa: N802
        """Distances."""
        return len(self.patterns)

    @property
    def n_parameters(self) -> int:
        """Of scores and biases."""
        return sum(pattern.nnz for pattern in self.patterns) + self.K * self.n_words

    def parts(self, parameters: Array) -> tuple[list[Array], Array]:
        """Views of the scores of each distance, and of b (K, C)."""
        ends = np.cumsum([0, *(pattern.nnz for pattern in self.patterns)])
        scores = [parameters[a:b] for a, b in pairwise(ends)]
        return scores, parameters[ends[-1] :].reshape(self.K, self.n_words)

    @cached_property
    def rows(self) -> list[NDArray[np.int64]]:
        """The row of each pair, by distance."""
        return [np.repeat(np.arange(self.n_words), np.diff(pattern.indptr)) for pattern in self.patterns]

    def found(self, frequencies: Frequencies) -> list[Array]:
        """The frequencies of the pattern's pairs, by distance; looked up once for those of training."""
        if not self._looked_up or self._looked_up[0] is not frequencies:
            self._looked_up[:] = [
                frequencies,
                [
                    np.asarray(m[rows, pattern.indices]).ravel()
                    for m, rows, pattern in zip(frequencies.pairs, self.rows, self.patterns, strict=True)
                ],
            ]
        found: list[Array] = self._looked_up[1]
        return found

    def biases(self, parameters: Array) -> Array:
        """b, shape (K, C)."""
        return self.parts(parameters)[1]

    def scores(self, parameters: Array, frequencies: Frequencies) -> Array:
        """<mu_l, vartheta^l> of each distance."""
        values, _ = self.parts(parameters)
        return np.array(
            [
                float(m.multiply(_like(pattern, v)).sum())
                for pattern, v, m in zip(self.patterns, values, frequencies.pairs, strict=True)
            ]
        )

    def evaluate(self, parameters: Array, frequencies: Frequencies, weights: Array) -> tuple[float, Array, Array]:
        """(1) without its first term, its gradient, and log Z_l."""
        values, b = self.parts(parameters)
        gradient = np.zeros_like(parameters)
        d_values, db = self.parts(gradient)
        value, log_norms = 0.0, np.empty((self.K, self.n_words))
        unary = frequencies.unary
        seen = self.found(frequencies)
        for k, pattern in enumerate(self.patterns):
            rho, rows = weights[k], self.rows[k]
            top = float(b[k].max())
            base = np.exp(b[k] - top)
            # Z(x) = sum_y e^b + sum of e^b (e^score - 1) over the pattern, all divided by e^top.
            tops = np.zeros(self.n_words)
            np.maximum.at(tops, rows, values[k])
            own = base[pattern.indices]
            raised = own * np.exp(values[k] - tops[rows])
            left_over = np.maximum(base.sum() - np.bincount(rows, own, self.n_words), 0.0)
            norm = left_over * np.exp(-tops) + np.bincount(rows, raised, self.n_words)
            log_norms[k] = np.log(norm) + tops + top
            # p(y | x) outside the pattern is share(x) e^b(y).
            share = unary * np.exp(-tops) / norm
            inside = (unary / norm)[rows] * raised
            expected = base * share.sum() + np.bincount(
                pattern.indices, inside - share[rows] * own, minlength=self.n_words
            )
            value += rho * (float(seen[k] @ values[k]) + unary @ (b[k] - log_norms[k]))
            d_values[k][:] = rho * (seen[k] - inside)
            db[k] = rho * (unary - expected)
        return value, gradient, log_norms

    def norm(self, parameters: Array) -> tuple[float, Array]:
        """Half the sum of the squares of the scores, and its gradient."""
        return _norm_without_biases(parameters, self.K * self.n_words)

    def scale(self, frequencies: Frequencies, extra: float) -> Array:
        """By how often a pair occurs."""
        found = np.ones(self.n_parameters)
        values, b = self.parts(found)
        for v, seen in zip(values, self.found(frequencies), strict=True):
            v[:] = np.sqrt(seen + extra)
        b *= np.sqrt(frequencies.unary + extra)
        return found


def _norm_without_biases(parameters: Array, n_biases: int) -> tuple[float, Array]:
    """Half the sum of the squares of all but the biases, which come last, and its gradient."""
    gradient = parameters.copy()
    gradient[len(gradient) - n_biases :] = 0.0
    return 0.5 * float(gradient @ gradient), gradient


def _like(pattern: Any, values: Array) -> Any:
    """A matrix with the pattern's places and other values."""
    return type(pattern)((values, pattern.indices, pattern.indptr), pattern.shape)


class MomentObjective:
    """What an optimiser sees: minus the bound (1) a position, plus an L2 penalty, in scaled parameters.

    Parameters
    ----------
    shape : Shape
    frequencies : Frequencies
    weights : ndarray (K,)
        rho of the distances; the rest to 1 is that of single words.
    l2 : float
        Penalty l2 / 2 |parameters|^2 for the text as a whole.
    """

    def __init__(self, shape: Shape, frequencies: Frequencies, weights: Array, *, l2: float = 0.0) -> None:
        self.shape, self.frequencies, self.weights = shape, frequencies, np.asarray(weights, np.float64)
        self.l2 = l2 / frequencies.n_positions
        self.scale = shape.scale(frequencies, max(self.l2, 0.5 / frequencies.n_positions))
        self.log_unary = log_frequencies(frequencies)
        self.log_norms: Array | None = None  # at the last point,
        self.log_norms_at: Array | None = None  # which is this one

    def __call__(self, scaled: Array) -> tuple[float, Array]:
        """Value and gradient."""
        parameters = scaled / self.scale
        value, gradient, self.log_norms = self.shape.evaluate(parameters, self.frequencies, self.weights)
        self.log_norms_at = scaled
        value += self.rest * float(self.frequencies.unary @ self.log_unary)
        if self.l2:
            penalty, slope = self.shape.norm(parameters)
            value -= self.l2 * penalty
            gradient -= self.l2 * slope
        return -value, -gradient / self.scale

    @property
    def rest(self) -> float:
        """The weight of single words."""
        return max(0.0, 1.0 - float(self.weights.sum()))

    def bound(self, parameters: Array, log_norms: Array, frequencies: Frequencies) -> float:
        """(1) for another text at log Z_l of these parameters: no inference."""
        b = self.shape.biases(parameters)
        chains = self.shape.scores(parameters, frequencies) + (b - log_norms) @ frequencies.unary
        return float(self.weights @ chains) + self.rest * float(frequencies.unary @ self.log_unary)


def log_frequencies(frequencies: Frequencies) -> Array:
    """Log frequencies of words, half a count for those that do not occur."""
    counts = np.maximum(frequencies.unary * frequencies.n_positions, 0.5)
    return np.log(counts / counts.sum())
