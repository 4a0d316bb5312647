"""The chain cover: one chain per distance, with weights and unaries fixed or optimized.

The bound is that of an endless circle, with the Perron roots of the chains by power iteration.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.lifted.exponentials import MEMORY, SMALL, ExpTable
from trelliswork.inference.lifted.potentials import Table, check_tables

Array = NDArray[np.float64]
LAZY = 0.2  # fraction of the vector that a step of power iteration keeps
STEPS = 300  # of power iteration, at most
LEAST_WEIGHT = 1e-2  # minimum weight of a distance, because tables are divided by it
LEAST_LOG = -700.0  # the logarithms of margins are at least this in a mean: they may underflow


@dataclass(frozen=True)
class Perron:
    """The Perron root of T(x, y) = exp(a(y) + theta(x, y)) and its vectors.

    T right = root right, left T = root left, and the inner product of both vectors is 1. The root lies between the
    smallest and the largest growth of a component (Collatz and Wielandt).
    """

    log_root: float  # computed from both vectors, so that its error is of second order in theirs
    log_above: float  # largest growth of a component: an upper bound of the root for any vectors
    log_right: Array  # (C,)
    log_left: Array  # (C,)
    residual: float  # difference between the largest and the smallest growth in nats
    converged: bool  # whether the residual is below the tolerance

    @property
    def log_margin(self) -> Array:
        """Log probabilities of words in the chain (C,)."""
        return self.log_left + self.log_right


def perron(table: ExpTable, log_unary: Array, start: Perron | None = None, *, max_iter: int = STEPS) -> Perron:
    """Run power iteration with both vectors, from an earlier result if there is one.

    Stops when the residual is below the tolerance, 1e-9 in float64 and 1e-5 in float32. Time O(C^2) per step.
    """
    C = table.n_words
    tol = 1e-9 if C <= SMALL else 1e-5
    log_right = np.zeros(C) if start is None else start.log_right
    log_left = np.zeros(C) if start is None else start.log_left
    log_root, log_above, residual, n_iter = np.inf, np.inf, np.inf, 0
    log_sum = np.logaddexp.reduce  # a small vocabulary needs many fast steps: scipy's logsumexp costs 0.1 ms per call
    while n_iter < max(1, max_iter) and residual > tol:
        n_iter += 1
        moved = table.times(log_unary + log_right)  # T right
        growth = moved - log_right
        log_above, residual = float(growth.max()), float(growth.max() - growth.min())
        log_root = float(log_sum(log_left + moved) - log_sum(log_left + log_right))
        log_left = _lazily(log_unary + table.transposed(log_left) - log_root, log_left)  # left T
        log_right = _lazily(moved - log_root, log_right)
        log_right = log_right - log_sum(log_right)
        log_left = log_left - log_sum(log_left + log_right)
    return Perron(log_root, log_above, log_right, log_left, residual, residual <= tol)


def _lazily(moved: Array, before: Array) -> Array:
    """Keep a part of the vector: otherwise periodic chains would oscillate forever."""
    return np.logaddexp(moved + np.log1p(-LAZY), before + np.log(LAZY))


@dataclass(frozen=True)
class ChainBound:
    """An upper bound of the limit of A / N for N -> infinity, or the limit itself if K = 1 and its weight is 1.

    A / N of a small circle may be larger. ``residual`` is the largest sum of differences between the margins of a part
    and their geometric mean; for a single chain it is the residual of power iteration.
    """

    value: float  # in nats per position
    weights: Array  # (K,) rho of the distances; the remainder to 1 is the weight of single words, rho_0
    unaries: Array  # (K + 1, C) a of single words (first row) and of each distance; their weighted sum is theta^0
    log_margins: Array  # (K + 1, C) of each part of the cover; equal at the tightest unaries
    n_iter: int
    residual: float
    converged: bool
    history: list[float]
    kind: str = "upper"  # or "exact"


@dataclass
class _Point:
    """The cover at given weights and unaries."""

    weights: Array  # (K + 1,), single words first
    unaries: Array
    value: float
    log_margins: Array
    roots: list[Perron]


class ChainCover:
    """The chain cover of a model of K tables and unary scores (C,)."""

    def __init__(self, log_unary: Array, tables: "list[Table]") -> None:
        self.K, self.n_words = check_tables(log_unary, tables)
        self.log_unary, self.tables = log_unary, tables
        self._exps: dict[int, tuple[float, ExpTable]] = {}

    def tighten(
        self,
        weights: Array | None = None,
        unaries: Array | None = None,
        *,
        optimize_weights: bool = False,
        tol: float = 1e-6,
        max_iter: int = 100,
    ) -> ChainBound:
        """Search for the tightest unaries (K + 1, C), initially ``theta^0`` everywhere, and optionally weights.

        ``weights`` (K,) are rho of the distances, equal by default; their sum is at most 1, the remainder is the weight
        of single words. ``optimize_weights`` also searches for the best ones, in the second half of the iterations:
        never looser than unaries alone after half of them. The bound is jointly convex in both. The search stops when
        the residual and the decrease of the value are smaller than ``tol``.

        Each iteration costs O(K C^2) per step of power iteration; new weights require new exponentials.
        """
        rho = self._weights(weights)
        a = np.tile(self.log_unary, (self.K + 1, 1)) if unaries is None else np.array(unaries, np.float64)
        if a.shape != (self.K + 1, self.n_words):
            raise ShapeError(f"unaries must have shape (K + 1, C) = {(self.K + 1, self.n_words)}, got {a.shape}.")
        alone = self.K == 1 and rho[0] == 0  # one chain: nothing to tighten
        point = self._at(rho, a, None, STEPS * max(1, max_iter) if alone else STEPS)
        history, step, pace = [point.value], 0.5, 1.0
        residual, converged, n_iter = np.inf, False, 0
        if alone:
            residual, converged, n_iter, max_iter = point.roots[0].residual, point.roots[0].converged, 1, 0
        while n_iter < max_iter:
            n_iter += 1
            before = point.value
            mean = self._mean(point)
            off = point.log_margins - mean
            residual = float(np.abs(np.exp(point.log_margins) - np.exp(mean))[point.weights > 0].sum(1).max())
            tried = self._at(point.weights, point.unaries - step * off, point.roots)
            if tried.value <= point.value + 1e-12 * max(1.0, abs(point.value)):
                point, step = tried, min(step * 1.2, 1.0)
            else:
                step /= 2
            if optimize_weights and self.K > 1 and n_iter > max_iter // 2:  # with poor unaries weights diverge
                tried = self._other_weights(point, pace)
                if tried.value < point.value:
                    point, pace = tried, pace * 1.3
                else:
                    pace /= 2
            history.append(point.value)
            settled = residual < tol and before - point.value < tol * max(1.0, abs(point.value))
            if settled and (not optimize_weights or n_iter > max_iter // 2):
                converged = True
                break
        kind = "exact" if alone and converged else "upper"
        weights, unaries, log_margins = point.weights[1:], point.unaries, point.log_margins
        return ChainBound(point.value, weights, unaries, log_margins, n_iter, residual, converged, history, kind)

    def _weights(self, weights: Array | None) -> Array:
        rho = np.full(self.K, 1 / self.K) if weights is None else np.asarray(weights, np.float64)
        if rho.shape != (self.K,) or not (rho > 0).all() or rho.sum() > 1 + 1e-9:
            raise ValueRangeError(f"weights must be {self.K} positive numbers with a sum of at most 1, got {weights}.")
        rest = 1 - rho.sum()
        return np.concatenate([[rest if rest > 1e-9 else 0.0], rho])

    def _exp(self, distance: int, rho: float) -> ExpTable:
        kept = self._exps.get(distance)
        if kept is None or kept[0] != rho:
            self._exps.pop(distance, None)  # free the large table before the next one is allocated
            self._exps[distance] = rho, ExpTable(self.tables[distance - 1], 1 / rho, memory=MEMORY // self.K)
        return self._exps[distance][1]

    def _at(self, rho: Array, unaries: Array, starts: list[Perron] | None, max_iter: int = STEPS) -> _Point:
        log_sum = float(logsumexp(unaries[0]))
        value, margins, roots = rho[0] * log_sum, [unaries[0] - log_sum], []
        for distance in range(1, self.K + 1):
            start = None if starts is None else starts[distance - 1]
            root = perron(self._exp(distance, float(rho[distance])), unaries[distance], start, max_iter=max_iter)
            # The bound must hold for any vectors, so the upper bound of the root is used.
            value += rho[distance] * root.log_above
            margins.append(root.log_margin - logsumexp(root.log_margin))
            roots.append(root)
        return _Point(rho, unaries, float(value), np.array(margins), roots)

    def _mean(self, point: _Point) -> Array:
        """Return the weighted geometric mean of the margins: moves towards it keep the weighted sum of the unaries."""
        used = point.weights > 0
        return point.weights[used] @ np.maximum(point.log_margins[used], LEAST_LOG)

    def _other_weights(self, point: _Point, pace: float) -> _Point:
        """Move weight to distances whose chains have less entropy per position, and adjust the unaries."""
        rho = point.weights
        slope = np.zeros(self.K + 1)
        excess = rho[:, None] * (point.unaries - self.log_unary)  # sums to 0; unaries are theta^0 + excess / rho
        for distance in range(1, self.K + 1):
            root = point.roots[distance - 1]
            pair = self._exp(distance, rho[distance]).mean_score(
                root.log_left - root.log_root, point.unaries[distance] + root.log_right
            )
            own = float(np.exp(point.log_margins[distance]) @ excess[distance]) / rho[distance]
            slope[distance] = root.log_root - pair - own
        if rho[0] > 0:
            slope[0] = logsumexp(point.unaries[0]) - np.exp(point.log_margins[0]) @ excess[0] / rho[0]
        used, moved = rho > 0, np.zeros_like(rho)
        moved[used] = rho[used] * np.exp(-pace * (slope[used] - slope[used].min()))
        moved = np.where(used, np.maximum(moved / moved.sum(), LEAST_WEIGHT), 0.0)
        moved /= moved.sum()
        unaries = point.unaries.copy()
        unaries[used] = self.log_unary + excess[used] / moved[used, None]
        return self._at(moved, unaries, point.roots)
