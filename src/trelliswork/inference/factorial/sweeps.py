"""The part that structured mean field and belief propagation share: sweeps over the layers until convergence.

A sweep visits the layers in order. Each receives messages from the others (in which the engines differ), adds them to
its unary scores, and is a chain again (``inference.chain``). Sequences that have converged are excluded from the next
sweep.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.padding import mask
from trelliswork.errors import ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.factorial.potentials import FactorialPotentials, Floats, Integers, Pair, Tables


@dataclass(frozen=True)
class Options:
    """Stopping criteria and damping of the sweeps; a value out of range is an error."""

    tolerance: float = 1e-6  # a sequence has converged when no marginal changes by more in a sweep
    max_iter: int = 100  # maximum number of sweeps
    damping: float = 0.0  # weight of the old message; belief propagation only

    def __post_init__(self) -> None:
        if not self.tolerance >= 0:
            raise ValueRangeError(f"tolerance must be 0 or more, got {self.tolerance}.")
        if self.max_iter < 1:
            raise ValueRangeError(f"max_iter must be at least 1, got {self.max_iter}.")
        if not 0 <= self.damping < 1:
            raise ValueRangeError(f"damping must be at least 0 and below 1, got {self.damping}.")


@dataclass
class Sums:
    """Weighted expected counts: transitions (S_d, S_d) of each layer, label pairs (S_d, S_e) of each tie."""

    transitions: list[NDArray[np.float64]]
    between: dict[Pair, NDArray[np.float64]]

    @classmethod
    def zeros(cls, tables: Tables) -> "Sums":
        """Return counts of zero."""
        S = tables.n_labels
        return cls([np.zeros((n, n)) for n in S], {(d, e): np.zeros((S[d], S[e])) for d, e in tables.ties})

    def add(self, other: "Sums") -> None:
        """Add the counts of another."""
        for mine, theirs in zip(self.transitions, other.transitions, strict=True):
            mine += theirs
        for pair, theirs in other.between.items():
            self.between[pair] += theirs


@dataclass
class Solution:
    """Result of an engine for a batch of sequences.

    Each layer alone is the chain with the scores ``log_unary``: those of the layer plus its last messages.
    """

    value: NDArray[np.float64]  # (B,) log Z, a bound or an estimate of it; -inf for an impossible sequence
    marginals: list[Floats]  # (B, T, S_d), 0 in the padding
    n_iter: Integers  # (B,) number of sweeps
    residual: NDArray[np.float64]  # (B,) largest change of a marginal in the last sweep
    log_unary: list[Floats]  # (B, T, S_d)


class Sweeps:
    """The state of an approximate engine on a batch; ``start`` are marginals to start from."""

    kind: ClassVar[str]

    def __init__(self, p: FactorialPotentials, options: Options, start: list[Floats] | None = None) -> None:
        self.p, self.tables, self.options, self.started = p, p.tables, options, start is not None
        B, T = p.log_unary[0].shape[:2]
        self.inside = mask(p.lengths, T)
        self.marginals = [np.zeros_like(u) for u in p.log_unary] if start is None else [m.copy() for m in start]
        self.log_message: list[Floats] = [np.zeros_like(u) for u in p.log_unary]
        self.log_z = np.zeros((len(p.log_unary), B))
        self.n_iter, self.residual = np.zeros(B, np.int64), np.zeros(B)

    def run(self, sums: Sums | None = None, weight: Floats | None = None) -> Solution:
        """Sweep until all have converged, or ``max_iter`` times; add weighted expected counts to ``sums``."""
        p, n_layers = self.p, len(self.p.log_unary)
        active = np.arange(len(p.lengths))
        for sweep in range(1, self.options.max_iter + 1):
            self.residual[active] = 0
            for d in range(n_layers):
                senders = [e for e in self.tables.tied_to(d) if sweep > 1 or self.started or e < d]
                if senders:
                    self.log_message[d][active] = self._receive(d, senders, active)
                self._expect(d, active)
            self.n_iter[active] = sweep
            if not self.tables.ties:  # independent layers: exact after one sweep
                self.residual[:] = 0
                break
            active = active[self.residual[active] > self.options.tolerance]
            if not len(active):
                break
        weights = np.ones(len(p.lengths), self.tables.dtype) if weight is None else weight.astype(self.tables.dtype)
        value = self._value(sums, weights)
        value[~(self.log_z > -np.inf).all(axis=0)] = -np.inf
        log_unary: list[Floats] = [u + m for u, m in zip(p.log_unary, self.log_message, strict=True)]
        if sums is not None:
            for d, unary in enumerate(log_unary):
                forward = chain.forward(self.tables.chain(d, unary, p.lengths))
                found = chain.backward(forward, weights=weights, marginals=False, counts=True, total=True)
                assert found.counts is not None
                sums.transitions[d] += found.counts
        return Solution(value, self.marginals, self.n_iter, self.residual, log_unary)

    def _expect(self, d: int, active: Integers) -> None:
        """Update log Z and marginals of a layer, and the largest change."""
        unary = self.p.log_unary[d][active] + self.log_message[d][active]
        own = self.tables.chain(d, unary, self.p.lengths[active])
        self.log_z[d, active], marginals = self.p.asked(d).label_marginals(own)
        change = np.abs(marginals - self.marginals[d][active]).reshape(len(active), -1).max(axis=1)
        self.residual[active] = np.maximum(self.residual[active], change)
        self.marginals[d][active] = marginals

    def _receive(self, d: int, senders: list[int], active: Integers) -> Floats:
        """Return the messages of the layers ``senders`` to layer d (n, T, S_d), added up."""
        raise AssertionError("each engine has its own messages")

    def _value(self, sums: Sums | None, weight: Floats) -> NDArray[np.float64]:
        """Return the value (B,) at the current state, and add weighted expected label pairs to ``sums.between``."""
        raise AssertionError("each engine has its own value")


def outer(left: Floats, right: Floats, weight: Floats) -> NDArray[np.float64]:
    """Return the sum over tokens of weight * outer(left, right), (S_left, S_right), of rows (B, T, S)."""
    by_sequence: Floats = np.matmul((left * weight[:, None, None]).swapaxes(1, 2), right)
    total: NDArray[np.float64] = by_sequence.sum(axis=0, dtype=np.float64)
    return total
