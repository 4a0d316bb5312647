"""Chains closed to rings: what a circle of N words is made of at each distance, for small vocabularies."""

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference.lifted.exact import MOST_STATES, log_power
from trelliswork.inference.lifted.reference import logsumexp
from trelliswork.inference.lifted.tables import Table, dense

Array = NDArray[np.float64]
LEAST = -700.0  # logarithms of margins that underflow


@dataclass(frozen=True)
class Ring:
    """n words in a circle with T(x, y) = exp(a(y) + theta(x, y)); see ``reference`` (5).

    Attributes
    ----------
    log_root : float
        log tr T^n / n, which tends to the logarithm of the Perron root.
    log_margin : ndarray (C,)
        Log probabilities of words.
    mean_score : float
        <mu, theta> of an edge's table mu.
    """

    log_root: float
    log_margin: Array
    mean_score: float

    @property
    def log_above(self) -> float:
        """The same as ``log_root``: nothing is iterated."""
        return self.log_root

    @property
    def converged(self) -> bool:
        """True."""
        return True

    @property
    def residual(self) -> float:
        """0."""
        return 0.0


def ring(table: Table, scale: float, log_unary: Array, n: int) -> Ring:
    """The ring of n > 1 words with theta = scale * table. Time O(C^3 log n), memory O(C^2)."""
    theta = scale * dense(table)
    log_step = theta + log_unary
    rest, log_scale = log_power(log_step, n - 1)
    log_edges = log_step + rest.T  # a pair, and all ways round the rest of the circle
    log_sum = float(logsumexp(log_edges.ravel()))
    edges = np.exp(log_edges - log_sum)
    with np.errstate(divide="ignore"):
        margin = np.maximum(np.log(edges.sum(0)), LEAST)
    score = float(edges.ravel() @ np.where(edges > 0, theta, 0.0).ravel())
    return Ring((log_sum + log_scale) / n, margin, score)


def ring_length(n_positions: int, distance: int) -> int:
    """Words of each ring of a distance in a circle: N / gcd(N, l)."""
    return n_positions // gcd(n_positions, distance)


def check_circle(n_positions: int, n_words: int, K: int) -> None:
    """Refuse circles in which edges would coincide, and tables too large for their powers."""
    if n_positions < 2 * K + 1:
        raise ValueRangeError(
            f"a circle needs at least 2K + 1 = {2 * K + 1} positions, got {n_positions}: edges would coincide."
        )
    if n_words > MOST_STATES:
        raise ValueRangeError(
            f"rings need powers of a table of {n_words:,} words, at most {MOST_STATES:,} are possible: "
            "leave n_positions out for the bound of an endless circle."
        )
