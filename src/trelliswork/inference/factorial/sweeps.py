"""The part that structured mean field and belief propagation share: sweeps over the layers until convergence.

A sweep visits the layers in order. Each receives messages from the others (in which the engines differ), adds them to
its unary scores, and runs forward-backward. Sequences that have converged are excluded from the next sweep.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference.factorial.kernels.messages import add_scores, settle
from trelliswork.inference.factorial.potentials import Floats, Group, Integers, Pair, Tables


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
    """Result of an engine for a group of sequences.

    Each layer alone is the chain with the scores ``log_unary``: those of the layer plus its last messages.
    """

    value: NDArray[np.float64]  # (B,) log Z, a bound or an estimate of it; -inf for an impossible sequence
    marginals: list[Floats]  # (B, T, Sp_d)
    n_iter: Integers  # (B,) number of sweeps
    residual: NDArray[np.float64]  # (B,) largest change of a marginal in the last sweep
    log_unary: list[Floats]  # (B, T, Sp_d)


class Sweeps:
    """The state of an approximate engine on one group."""

    kind: ClassVar[str]
    started = False  # True if all layers have marginals before the first sweep

    def __init__(self, tables: Tables, group: Group, options: Options) -> None:
        self.tables, self.group, self.options = tables, group, options
        B = len(group.lengths)
        self.order = np.argsort(-group.lengths, kind="stable")
        self.marginals: list[Floats] = [np.zeros_like(u) for u in group.log_unary]
        self.log_message: list[Floats] = [np.zeros_like(u) for u in group.log_unary]
        self.log_unary: list[Floats] = [u.copy() for u in group.log_unary]
        self.log_z = np.zeros((len(tables.layers), B))
        self.safe = np.ones((len(tables.layers), B), bool)
        self.n_iter, self.residual = np.zeros(B, np.int64), np.zeros(B)

    def run(self, sums: Sums | None = None, weight: Floats | None = None) -> Solution:
        """Sweep until all have converged, or ``max_iter`` times; add weighted expected counts to ``sums``."""
        fresh = [np.zeros_like(u) for u in self.group.log_unary]
        lengths, active = self.group.lengths, self.order
        for sweep in range(1, self.options.max_iter + 1):
            self.residual[active] = 0
            for d, layer in enumerate(self.tables.layers):
                senders = [e for e in self._neighbors(d) if sweep > 1 or self.started or e < d]
                if senders:
                    self.log_message[d][active] = 0
                    self._receive(d, senders, active)
                    add_scores(active, lengths, self.group.log_unary[d], self.log_message[d], self.log_unary[d])
                layer.expect(active, lengths, self.log_unary[d], self.log_z[d], self.safe[d], fresh[d])
                settle(active, lengths, fresh[d], self.marginals[d], self.residual)
            self.n_iter[active] = sweep
            if not self.tables.ties:  # independent layers: exact after one sweep
                self.residual[:] = 0
                break
            active = active[self.residual[active] > self.options.tolerance]
            if not len(active):
                break
        value = self._value(sums, np.ones(len(lengths), self.tables.dtype) if weight is None else weight)
        value[~(self.log_z > -np.inf).all(axis=0)] = -np.inf
        if sums is not None:
            assert weight is not None
            for d, layer in enumerate(self.tables.layers):
                layer.add_counts(lengths, self.log_unary[d], self.safe[d], weight, sums.transitions[d])
        return Solution(value, self.marginals, self.n_iter, self.residual, self.log_unary)

    def _neighbors(self, d: int) -> list[int]:
        """Return the layers that are tied to layer d."""
        return [a + b - d for a, b in self.tables.ties if d in (a, b)]

    def _receive(self, d: int, senders: list[int], active: Integers) -> None:
        """Add the messages of the layers ``senders`` to ``log_message[d]`` (zero)."""
        raise AssertionError("each engine has its own messages")

    def _value(self, sums: Sums | None, weight: Floats) -> NDArray[np.float64]:
        """Return the value (B,) at the current state, and add weighted expected label pairs to ``sums.between``."""
        raise AssertionError("each engine has its own value")
