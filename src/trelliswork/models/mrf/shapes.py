"""Parameterizations of pair tables: layout of the parameters in one vector, and their part of the objective."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.limits import check_cost
from trelliswork.data.moments import Moments
from trelliswork.inference.lifted import LowRankTable, SparseTable
from trelliswork.inference.lifted.conditionals import conditionals, log_norms
from trelliswork.learning import whole

Array = NDArray[np.float64]
At = tuple[Array, Array]  # weights of rows (C,), biases (K, C)
Evaluation = tuple[Array, Array, Array]  # scores (K,), gradient (P,), log Z (K, C)


@dataclass(frozen=True)
class Frequencies:
    """Moments as frequencies, the input of the objective."""

    unary: Array  # (C,) sums to 1
    pairs: tuple[Any, ...]  # K csr_matrix (C, C): frequencies of pairs by distance, each summing to 1
    transposed: tuple[Any, ...]  # their transposes
    n_positions: int

    @classmethod
    def of(cls, moments: Moments) -> "Frequencies":
        """Divide moments by the number of positions."""
        N = moments.n_positions
        pairs = tuple(matrix / N for matrix in moments.pairs)
        return cls(moments.unary / N, pairs, tuple(matrix.T.tocsr() for matrix in pairs), N)

    @property
    def counts(self) -> Array:
        """Counts of words (C,)."""
        return self.unary * self.n_positions

    @cached_property
    def own(self) -> list[tuple["OwnRows", "OwnRows"]]:
        """The rows of ``pairs`` and of ``transposed`` that belong to this rank, by distance."""
        return [(_own_rows(a), _own_rows(b)) for a, b in zip(self.pairs, self.transposed, strict=True)]


OwnRows = tuple[slice, Any]  # a range of rows, and the matrix of these rows


def _own_rows(matrix: Any) -> OwnRows:
    """Return the rows of a csr_matrix that belong to this rank of a group: about as many nonzeros for each."""
    n = matrix.shape[0]
    low, high = np.searchsorted(matrix.indptr + np.arange(n + 1), whole.share(matrix.nnz + n)).tolist()
    return slice(low, high), matrix if high - low == n else matrix[low:high]


class _Biased(ABC):
    """A parameterization of the tables vartheta^l by one vector (P,), whose last part are the biases b (K, C)."""

    @abstractmethod
    def parts(self, parameters: Array) -> tuple[Any, ...]:
        """Return views of the parts of the vector, the biases (K, C) last."""

    def biases(self, parameters: Array) -> Array:
        """Return b (K, C)."""
        biases: Array = self.parts(parameters)[-1]
        return biases

    def norm(self, parameters: Array) -> tuple[float, Array]:
        """Return half the squared norm of the parameters without biases, and its gradient."""
        gradient = parameters.copy()
        self.biases(gradient)[:] = 0.0
        return 0.5 * float(gradient @ gradient), gradient


@dataclass(frozen=True)
class LowRankShape(_Biased):
    """vartheta^l = U W_l (``form`` "UW"), or U R_l W ("URW")."""

    n_words: int
    K: int
    rank: int  # D
    form: str = "UW"

    def __post_init__(self) -> None:
        what = f"a field of rank {self.rank:,} for {self.n_words:,} words"
        check_cost(what, n_bytes=8.0 * 10 * self.n_parameters)  # of them, and of the history of L-BFGS

    @property
    def n_parameters(self) -> int:
        """Length of the vector: U, W (and R), and biases."""
        C, K, D = self.n_words, self.K, self.rank
        return (C * D * (1 + K) if self.form == "UW" else 2 * C * D + K * D * D) + K * C

    def parts(self, parameters: Array) -> tuple[Array, Array, Array | None, Array]:
        """Return views of U (C, D), W (K, C, D) or (C, D), R (K, D, D) or None, b (K, C)."""
        C, K, D = self.n_words, self.K, self.rank
        u, rest = parameters[: C * D].reshape(C, D), parameters[C * D :]
        if self.form == "UW":
            return u, rest[: K * C * D].reshape(K, C, D), None, rest[K * C * D :].reshape(K, C)
        w, rest = rest[: C * D].reshape(C, D), rest[C * D :]
        return u, w, rest[: K * D * D].reshape(K, D, D), rest[K * D * D :].reshape(K, C)

    def factors(self, parameters: Array) -> list[tuple[Array, Array]]:
        """Return the left and right factors (C, D) of the table of each distance."""
        u, w, r, _ = self.parts(parameters)
        if r is None:
            return [(u, w[k]) for k in range(self.K)]
        return [(u @ r[k], w) for k in range(self.K)]

    def scores(self, parameters: Array, frequencies: Frequencies) -> Array:
        """Return <mu_l, vartheta^l> of each distance (K,)."""
        factors = self.factors(parameters)
        return np.array(
            [float(np.vdot(left, m @ right)) for (left, right), m in zip(factors, frequencies.pairs, strict=True)]
        )

    def evaluate(self, parameters: Array, frequencies: Frequencies, weights: Array, at: At | None = None) -> Evaluation:
        r"""Return scores (K,), a gradient (P,), and log Z_l (K, C); one pass over tiles per distance.

        The gradient is that of :math:`\sum_l \rho_l (\langle\hat\mu_l, \vartheta^l\rangle + \langle\pi, b_l - \log
        Z_l\rangle)` for pi (C,) and b (K, C) in ``at``; by default the word frequencies and the biases of the
        parameters. In a group of processes it is the part of this rank: the sum over all ranks is the gradient.
        """
        u, _, r, own = self.parts(parameters)
        rows, b = (frequencies.unary, own) if at is None else at
        gradient = np.zeros_like(parameters)
        du, dw, dr, db = self.parts(gradient)
        scores, norms = np.empty(self.K), np.empty((self.K, self.n_words))
        for k, (left, right) in enumerate(self.factors(parameters)):
            rho = weights[k]
            model = conditionals(left, right, b[k], rows, whole.processes())
            norms[k] = model.log_norm
            (on_left, pairs), (on_right, transposed) = frequencies.own[k]
            towards_left = pairs @ right
            scores[k] = np.vdot(left[on_left], towards_left)
            d_left, d_right = -model.left, -model.right
            d_left[on_left] += towards_left
            d_right[on_right] += transposed @ left
            d_left *= rho
            d_right *= rho
            db[k] = rho * _difference(rows, model.bias)
            if r is None or dr is None:
                du += d_left
                dw[k] += d_right
            else:
                du += d_left @ r[k].T
                dr[k] = u.T @ d_left
                dw += d_right
        return whole.summed(scores)[0], gradient, whole.summed(norms)[0]

    def log_norms(self, parameters: Array, k: int) -> Array:
        """Return log Z of the distance k + 1 at its bias (C,)."""
        return log_norms(*self.factors(parameters)[k], self.biases(parameters)[k], whole.processes())

    def table(self, parameters: Array, k: int) -> LowRankTable:
        """Return vartheta of the distance k + 1."""
        return LowRankTable(*self.factors(parameters)[k])

    def scale(self, frequencies: Frequencies, extra: float) -> Array:
        """Scale rows of U and W by the frequency of their word: rare words would learn slowly otherwise."""
        scale = np.ones(self.n_parameters)
        u, w, r, b = self.parts(scale)
        by_word = np.sqrt(frequencies.unary + extra)
        u *= by_word[:, None]
        w *= by_word[:, None]
        b *= by_word
        if r is not None:
            r /= np.sqrt(self.rank)
        return scale


@dataclass(frozen=True)
class PairShape(_Biased):
    """A free score for each pair of a pattern; all others are 0.

    An evaluation costs O(pairs + C): all rows share the sum over words whose score is 0.
    """

    patterns: tuple[Any, ...]  # K csr_matrix (C, C) whose nonzeros are the pairs; columns are sorted within rows
    _looked_up: list[Any] = field(default_factory=list, repr=False, compare=False)

    @property
    def n_words(self) -> int:
        """C: number of words."""
        return int(self.patterns[0].shape[0])

    @property
    def K(self) -> int:  # noqa: N802
        """Number of distances."""
        return len(self.patterns)

    @property
    def n_parameters(self) -> int:
        """Length of the vector: scores and biases."""
        return sum(pattern.nnz for pattern in self.patterns) + self.K * self.n_words

    def parts(self, parameters: Array) -> tuple[list[Array], Array]:
        """Return views of the scores of each distance, and of b (K, C)."""
        ends = np.cumsum([0, *(pattern.nnz for pattern in self.patterns)])
        scores = [parameters[a:b] for a, b in pairwise(ends)]
        return scores, parameters[ends[-1] :].reshape(self.K, self.n_words)

    @cached_property
    def rows(self) -> list[NDArray[np.int64]]:
        """Row of each pair, by distance."""
        return [np.repeat(np.arange(self.n_words), np.diff(pattern.indptr)) for pattern in self.patterns]

    def observed(self, frequencies: Frequencies) -> list[Array]:
        """Return the frequencies of the pairs, by distance; cached for the frequencies of training."""
        if not self._looked_up or self._looked_up[0] is not frequencies:
            self._looked_up[:] = [
                frequencies,
                [
                    np.asarray(m[rows, pattern.indices]).ravel()
                    for m, rows, pattern in zip(frequencies.pairs, self.rows, self.patterns, strict=True)
                ],
            ]
        observed: list[Array] = self._looked_up[1]
        return observed

    def scores(self, parameters: Array, frequencies: Frequencies) -> Array:
        """Return <mu_l, vartheta^l> of each distance (K,)."""
        values, _ = self.parts(parameters)
        return np.array(
            [
                float(m.multiply(_like(pattern, v)).sum())
                for pattern, v, m in zip(self.patterns, values, frequencies.pairs, strict=True)
            ]
        )

    def evaluate(self, parameters: Array, frequencies: Frequencies, weights: Array, at: At | None = None) -> Evaluation:
        """Return scores, the gradient, and log Z_l as `LowRankShape.evaluate` does, all on the first rank."""
        values, biases = self.parts(parameters)
        rows, b = (frequencies.unary, biases) if at is None else at
        gradient = np.zeros_like(parameters)
        d_values, db = self.parts(gradient)
        scores, norms = np.empty(self.K), np.empty((self.K, self.n_words))
        for k, seen in enumerate(self.observed(frequencies)):
            rho, left, right, sums = weights[k], self.rows[k], self.patterns[k].indices, self._sums(k, values[k], b[k])
            norms[k] = sums.log_norm
            # p(y | x) outside the pattern is share(x) e^b(y).
            share = rows * np.exp(-sums.tops) / sums.norm
            inside = (rows / sums.norm)[left] * sums.raised
            extra = inside - share[left] * sums.base[right]
            scores[k] = seen @ values[k]
            d_values[k][:] = rho * (seen - inside)
            db[k] = rho * (rows - sums.base * share.sum() - np.bincount(right, extra, minlength=self.n_words))
        return scores, gradient if whole.is_first() else np.zeros_like(gradient), norms

    def _sums(self, k: int, values: Array, bias: Array) -> "_Sums":
        """Compute Z(x) = sum_y e^b + sum of e^b (e^score - 1) over the pattern of the distance k + 1."""
        n, rows, top = self.n_words, self.rows[k], float(bias.max())
        base, tops = np.exp(bias - top), np.zeros(n)
        np.maximum.at(tops, rows, values)
        own = base[self.patterns[k].indices]
        raised = own * np.exp(values - tops[rows])
        left_over = np.maximum(base.sum() - np.bincount(rows, own, n), 0.0)
        norm = left_over * np.exp(-tops) + np.bincount(rows, raised, n)
        return _Sums(base, tops, raised, norm, np.log(norm) + tops + top)

    def log_norms(self, parameters: Array, k: int) -> Array:
        """Return log Z of the distance k + 1 at its bias (C,)."""
        values, b = self.parts(parameters)
        return self._sums(k, values[k], b[k]).log_norm

    def table(self, parameters: Array, k: int) -> SparseTable:
        """Return vartheta of the distance k + 1."""
        return SparseTable(_like(self.patterns[k], self.parts(parameters)[0][k]))

    def scale(self, frequencies: Frequencies, extra: float) -> Array:
        """Scale scores by the frequency of their pair."""
        scale = np.ones(self.n_parameters)
        values, b = self.parts(scale)
        for v, seen in zip(values, self.observed(frequencies), strict=True):
            v[:] = np.sqrt(seen + extra)
        b *= np.sqrt(frequencies.unary + extra)
        return scale


Shape = LowRankShape | PairShape


class _Sums(NamedTuple):
    """Normalizers of the rows of a sparse table; all but ``log_norm`` are divided by the largest e^b."""

    base: Array  # (C,) e^b
    tops: Array  # (C,) the largest score of each row, at least 0
    raised: Array  # e^(b + score - top) of the pairs
    norm: Array  # (C,) Z e^-top
    log_norm: Array  # (C,) log Z


def _difference(a: Array, b: Array) -> Array:
    """Return a - b, where b is a sum of which this rank has a part: a counts once."""
    return a - b if whole.is_first() else -b


def _like(pattern: Any, values: Array) -> Any:
    """Return a matrix with the nonzeros of a pattern and other values."""
    return type(pattern)((values, pattern.indices, pattern.indptr), pattern.shape)


def log_frequencies(counts: Array) -> Array:
    """Return log frequencies of words from their counts (C,); words that do not occur get half a count."""
    counts = np.maximum(counts, 0.5)
    return np.log(counts / counts.sum())
