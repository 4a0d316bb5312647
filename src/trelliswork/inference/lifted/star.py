"""The star cover: a bound of the log partition function for any delta, and an algorithm that tightens it.

It works at fixed scores, by the update (3) of ``reference``. Joint optimization of scores and delta needs no
tightening: ``models.mrf.objective``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from trelliswork.errors import ShapeError
from trelliswork.inference.lifted.exponentials import MEMORY, ExpTable
from trelliswork.inference.lifted.potentials import Table, check_tables

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StarBound:
    """An upper bound of A / N, for every N >= 2K + 1."""

    value: float  # in nats per position
    delta: Array  # (K, C)
    log_margins: Array  # (K + 1, C) of the star's nodes, the center first; equal at the tightest delta
    residual: float  # sum over the leaves of the differences between their margins and the center's
    converged: bool
    history: list[float]  # the bound after each pass of belief propagation
    kind: str = "upper"


class Star:
    """The star cover of a model of K tables and unary scores (C,); its exponentials are computed once.

    A pass costs O(K C^2): two products of each table with a vector.
    """

    def __init__(self, log_unary: Array, tables: "list[Table]") -> None:
        self.K, self.n_words = check_tables(log_unary, tables)
        self.log_unary = log_unary
        self.exps = [ExpTable(table, self.K + 1, memory=MEMORY // self.K) for table in tables]

    def belief_propagation(self, delta: Array) -> tuple[float, Array]:
        """Return log Z of the star and log margins (K + 1, C)."""
        log_messages = np.array([e.times(self.log_unary + d) for e, d in zip(self.exps, delta, strict=True)])
        log_center = self.log_unary - delta.sum(0) + log_messages.sum(0)
        log_z = float(logsumexp(log_center))
        log_center = log_center - log_z
        leaves = [
            self.log_unary + d + e.transposed(log_center - m)
            for e, d, m in zip(self.exps, delta, log_messages, strict=True)
        ]
        return log_z, np.vstack([log_center[None], *(leaf[None] for leaf in leaves)])

    def tighten(self, delta: Array | None = None, *, tol: float = 1e-6, max_passes: int = 200) -> StarBound:
        """Search for the tightest delta (K, C), from 0 by default, until the residual is smaller than ``tol``."""
        delta = np.zeros((self.K, self.n_words)) if delta is None else np.array(delta, np.float64)
        if delta.shape != (self.K, self.n_words):
            raise ShapeError(f"delta must have shape (K, C) = {(self.K, self.n_words)}, got {delta.shape}.")
        history: list[float] = []
        best: tuple[float, Array, Array, float] | None = None
        converged = False
        for _ in range(max(1, max_passes)):
            log_z, log_margins = self.belief_propagation(delta)
            margins = np.exp(log_margins)
            residual = float(np.abs(margins[1:] - margins[0]).sum())
            value = log_z / (self.K + 1)
            history.append(value)
            if best is None or value < best[0]:
                best = value, delta, log_margins, residual
            if residual < tol:
                converged = True
                break
            # The delta of a word that underflowed in one margin is left unchanged.
            both = np.isfinite(log_margins[1:]) & np.isfinite(log_margins[0])
            step = np.where(both, np.where(both, log_margins[0], 0) - np.where(both, log_margins[1:], 0), 0)
            delta = delta + step / (self.K + 2)
        assert best is not None
        return StarBound(*best, converged, history)
