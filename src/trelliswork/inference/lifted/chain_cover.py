"""The chain cover: one chain a distance, its Perron root by power iteration; weights and unaries fixed or optimised.

The bound is that of an endless circle; for a circle of N words and a small vocabulary chains are closed to ``rings``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.lifted.exponentials import MEMORY, SMALL, ExpTable
from trelliswork.inference.lifted.reference import logsumexp
from trelliswork.inference.lifted.rings import Ring, check_circle, ring, ring_length
from trelliswork.inference.lifted.tables import Table, check_tables

Array = NDArray[np.float64]
LAZY = 0.2  # the part of a vector that a step of power iteration keeps
LEAST_WEIGHT = 1e-2  # of a distance: a table divided by nothing is infinite


@dataclass(frozen=True)
class Perron:
    """The Perron root of T(x, y) = exp(a(y) + theta(x, y)) and its vectors.

    Attributes
    ----------
    log_root : float
        From both vectors, so that its error is of the second order in theirs.
    log_above : float
        Never below the root, whatever the vectors (Collatz and Wielandt): the largest growth of a component.
    log_right, log_left : ndarray (C,)
        T right = root right, left T = root left; their inner product is 1.
    n_iter : int
    residual : float
        The largest growth of a component less the smallest, in nats: the root lies between them.
    converged : bool
        Whether the residual is below the tolerance.
    """

    log_root: float
    log_above: float
    log_right: Array
    log_left: Array
    n_iter: int
    residual: float
    converged: bool

    @property
    def log_margin(self) -> Array:
        """Log probabilities (C,) of words in the chain."""
        return self.log_left + self.log_right


def perron(
    table: ExpTable, log_unary: Array, start: Perron | None = None, *, tol: float | None = None, max_iter: int = 300
) -> Perron:
    """Power iteration with both vectors, from an earlier answer if there is one.

    Stops when the residual is below ``tol`` (1e-9 in float64, 1e-5 in float32). Time O(C^2) a step.
    """
    C = table.n_words
    tol = (1e-9 if C <= SMALL else 1e-5) if tol is None else tol
    log_right = np.zeros(C) if start is None else start.log_right
    log_left = np.zeros(C) if start is None else start.log_left
    log_root, log_above, residual, n_iter = np.inf, np.inf, np.inf, 0
    while n_iter < max(1, max_iter) and residual > tol:
        n_iter += 1
        moved = table.times(log_unary + log_right)  # T right
        growth = moved - log_right
        log_above, residual = float(growth.max()), float(growth.max() - growth.min())
        log_root = float(logsumexp(log_left + moved) - logsumexp(log_left + log_right))
        log_left = _lazily(log_unary + table.transposed(log_left) - log_root, log_left)  # left T
        log_right = _lazily(moved - log_root, log_right)
        log_right = log_right - logsumexp(log_right)
        log_left = log_left - logsumexp(log_left + log_right)
    return Perron(log_root, log_above, log_right, log_left, n_iter, residual, residual <= tol)


def _lazily(moved: Array, before: Array) -> Array:
    """Keep a part of the vector: chains that go to and fro would swing for ever."""
    return np.logaddexp(moved + np.log1p(-LAZY), before + np.log(LAZY))


@dataclass(frozen=True)
class ChainBound:
    """An upper bound of the limit of A / N for N -> infinity, or the limit itself if K = 1 and its weight is 1.

    A / N of a small circle may be above it; with ``n_positions`` it is A / N of so many words that is bounded.

    Attributes
    ----------
    value : float
        In nats a position.
    weights : ndarray (K,)
        rho of the distances; what is missing to 1 is the weight of single words, rho_0.
    unaries : ndarray (K + 1, C)
        a of single words (first row) and of each distance; their weighted sum is theta^0.
    log_margins : ndarray (K + 1, C)
        Of each part of the cover; equal at the tightest unaries.
    n_iter : int
    residual : float
        Largest sum of differences between the margins of a part and their geometric mean; of a single chain that of
        its power iteration.
    converged : bool
    history : list of float
    kind : "upper" or "exact"
    bound : "chain"
    n_positions : int or None
        N; ``None`` is an endless circle.
    """

    value: float
    weights: Array
    unaries: Array
    log_margins: Array
    n_iter: int
    residual: float
    converged: bool
    history: list[float]
    kind: str = "upper"
    bound: str = "chain"
    n_positions: int | None = None


@dataclass
class _Point:
    """The cover at some weights and unaries."""

    weights: Array  # (K + 1,), single words first
    unaries: Array
    value: float
    log_margins: Array
    roots: "list[Perron | Ring]"


class ChainCover:
    """The chains of a model.

    Parameters
    ----------
    log_unary : ndarray (C,)
    tables : K tables
    memory : int
        Bytes for the exponentials, all distances together.
    """

    def __init__(self, log_unary: Array, tables: "list[Table]", *, memory: int = MEMORY) -> None:
        self.K, self.n_words = check_tables(log_unary, tables)
        self.log_unary, self.tables, self.memory = log_unary, tables, memory // self.K
        self._exps: dict[int, tuple[float, ExpTable]] = {}
        self._n_positions: int | None = None

    def tighten(
        self,
        weights: Array | None = None,
        unaries: Array | None = None,
        *,
        optimise_weights: bool = False,
        tol: float = 1e-6,
        max_iter: int = 100,
        n_positions: int | None = None,
    ) -> ChainBound:
        """Look for the tightest unaries, and weights if wanted.

        Parameters
        ----------
        weights : ndarray (K,), optional
            rho of the distances, equal by default; their sum is at most 1, single words get the rest.
        unaries : ndarray (K + 1, C), optional
            Where to begin; ``theta^0`` everywhere by default.
        optimise_weights : bool
            Also look for the best weights, in the second half of the iterations: never looser than unaries alone in
            half of them. The bound is convex in both together.
        tol : float
            Stop when the residual is below and the value falls by less.
        max_iter : int
        n_positions : int, optional
            N, for the bound of a circle of so many words; an endless one by default. For small vocabularies.

        Notes
        -----
        Each iteration costs O(K C^2) a step of power iteration; other weights cost the exponentials again. With
        ``n_positions`` it costs O(K C^3 log N).
        """
        if n_positions is not None:
            check_circle(n_positions, self.n_words, self.K)
        self._n_positions = n_positions
        rho = self._weights(weights)
        a = np.tile(self.log_unary, (self.K + 1, 1)) if unaries is None else np.array(unaries, np.float64)
        if a.shape != (self.K + 1, self.n_words):
            raise ShapeError(f"unaries must have shape (K + 1, C) = {(self.K + 1, self.n_words)}, got {a.shape}.")
        point = self._at(rho, a, None)
        alone = self.K == 1 and point.weights[0] == 0  # one chain: nothing to tighten, its root is all
        history, step, pace = [point.value], 0.5, 1.0
        residual, converged, n_iter = np.inf, False, 0
        while n_iter < max_iter:
            n_iter += 1
            before = point.value
            mean = self._mean(point)
            off = point.log_margins - mean
            residual = float(np.abs(np.exp(point.log_margins) - np.exp(mean))[point.weights > 0].sum(1).max())
            done = alone and point.roots[0].converged
            if alone:
                residual = point.roots[0].residual
                if not done:  # power iteration goes on from its vectors, as long as they get better
                    point = self._at(point.weights, point.unaries, point.roots)
                    if point.roots[0].residual > 0.999 * residual:
                        history.append(point.value)
                        break
            else:
                tried = self._at(point.weights, point.unaries - step * off, point.roots)
                if tried.value <= point.value + 1e-12 * max(1.0, abs(point.value)):
                    point, step = tried, min(step * 1.2, 1.0)
                else:
                    step /= 2
            if optimise_weights and self.K > 1 and n_iter > max_iter // 2:  # at poor unaries weights go astray
                found = self._other_weights(point, pace)
                if found.value < point.value:
                    point, pace = found, pace * 1.3
                else:
                    pace /= 2
            history.append(point.value)
            settled = not alone and residual < tol and before - point.value < tol * max(1.0, abs(point.value))
            if done or (settled and (not optimise_weights or n_iter > max_iter // 2)):
                converged = True
                break
        kind = "exact" if alone and point.roots[0].converged else "upper"
        return ChainBound(
            point.value,
            point.weights[1:],
            point.unaries,
            point.log_margins,
            n_iter,
            residual,
            converged,
            history,
            kind,
            n_positions=n_positions,
        )

    def _weights(self, weights: Array | None) -> Array:
        rho = np.full(self.K, 1 / self.K) if weights is None else np.asarray(weights, np.float64)
        if rho.shape != (self.K,) or not (rho > 0).all() or rho.sum() > 1 + 1e-9:
            raise ValueRangeError(f"weights must be {self.K} positive numbers with a sum of at most 1, got {weights}.")
        rest = 1 - rho.sum()
        return np.concatenate([[rest if rest > 1e-9 else 0.0], rho])

    def _exp(self, distance: int, rho: float) -> ExpTable:
        kept = self._exps.get(distance)
        if kept is None or kept[0] != rho:
            self._exps.pop(distance, None)  # before the next one is made: they are large
            self._exps[distance] = rho, ExpTable(self.tables[distance - 1], 1 / rho, memory=self.memory)
        return self._exps[distance][1]

    def _root(self, distance: int, rho: float, unary: Array, start: "Perron | Ring | None") -> "Perron | Ring":
        if self._n_positions is not None:
            return ring(self.tables[distance - 1], 1 / rho, unary, ring_length(self._n_positions, distance))
        return perron(self._exp(distance, rho), unary, start if isinstance(start, Perron) else None)

    def _at(self, rho: Array, unaries: Array, starts: "list[Perron | Ring] | None") -> _Point:
        log_sum = float(logsumexp(unaries[0]))
        value, margins, roots = rho[0] * log_sum, [unaries[0] - log_sum], []
        for distance in range(1, self.K + 1):
            start = None if starts is None else starts[distance - 1]
            root = self._root(distance, float(rho[distance]), unaries[distance], start)
            # The bound must hold whatever the vectors, so the root is taken from above.
            value += rho[distance] * root.log_above
            margins.append(root.log_margin - logsumexp(root.log_margin))
            roots.append(root)
        return _Point(rho, unaries, float(value), np.array(margins), roots)

    def _mean(self, point: _Point) -> Array:
        """The weighted geometric mean of the margins: moves towards it keep the weighted sum of the unaries."""
        used = point.weights > 0
        return point.weights[used] @ np.maximum(point.log_margins[used], -700.0)

    def _other_weights(self, point: _Point, pace: float) -> _Point:
        """Move weight to distances whose chains have less entropy a position; unaries follow."""
        rho = point.weights
        slope = np.zeros(self.K + 1)
        excess = rho[:, None] * (point.unaries - self.log_unary)  # sums to 0; unaries are theta^0 + excess / rho
        for distance in range(1, self.K + 1):
            root = point.roots[distance - 1]
            if isinstance(root, Ring):
                pair = root.mean_score
            else:
                pair = self._exp(distance, rho[distance]).mean_score(
                    root.log_left - root.log_root, point.unaries[distance] + root.log_right
                )
            own = float(np.exp(point.log_margins[distance]) @ excess[distance]) / rho[distance]
            slope[distance] = root.log_root - pair - own
        if rho[0] > 0:
            slope[0] = logsumexp(point.unaries[0]) - np.exp(point.log_margins[0]) @ excess[0] / rho[0]
        used = rho > 0
        moved = np.where(used, rho * np.exp(-pace * (slope - slope[used].min())), 0.0)
        moved = np.where(used, np.maximum(moved / moved.sum(), LEAST_WEIGHT), 0.0)
        moved /= moved.sum()
        unaries = point.unaries.copy()
        unaries[used] = self.log_unary + excess[used] / moved[used, None]
        return self._at(moved, unaries, point.roots)
