"""What structured mean field and belief propagation share: sweeps over the layers until nothing moves any more.

A sweep visits the layers in their order. Each listens to the others (that is where the engines differ), adds what it
heard to its unary scores, and runs forward-backward. Sequences whose marginals have settled are left out of the next
sweep, so the work follows the hard ones.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference.factorial.kernels import messages as message_kernels
from trelliswork.inference.factorial.potentials import Floats, Group, Integers, Pair, Tables

compiled: Any = message_kernels


@dataclass(frozen=True)
class Options:
    """How long to sweep.

    Attributes
    ----------
    tolerance : float
        A sequence has converged when no marginal moved by more in a sweep.
    max_iter : int
        Sweeps at most.
    damping : float
        The part of the old message that is kept, 0 to below 1; belief propagation only.
    """

    tolerance: float = 1e-6
    max_iter: int = 100
    damping: float = 0.0

    def check(self) -> None:
        """Refuse what makes no sense."""
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
        """Nothing yet."""
        S = tables.n_labels
        return cls([np.zeros((n, n)) for n in S], {(d, e): np.zeros((S[d], S[e])) for d, e in tables.ties})

    def add(self, other: "Sums") -> None:
        """Add another's counts."""
        for mine, theirs in zip(self.transitions, other.transitions, strict=True):
            mine += theirs
        for pair, theirs in other.between.items():
            self.between[pair] += theirs


@dataclass
class Solution:
    """What an engine found for a group of sequences.

    Attributes
    ----------
    value : ndarray (B,)
        log Z, a bound of it or an estimate; -inf for an impossible sequence.
    marginals : list of ndarray (B, T, Sp_d)
    n_iter, residual : ndarray (B,)
        Sweeps done; the largest change of a marginal in the last one.
    log_unary : list of ndarray (B, T, Sp_d)
        The layers' scores with what they last heard: each layer alone is the chain with these scores.
    """

    value: NDArray[np.float64]
    marginals: list[Floats]
    n_iter: Integers
    residual: NDArray[np.float64]
    log_unary: list[Floats] = field(default_factory=list)


class Sweeps:
    """The state of an approximate engine on one group."""

    kind: ClassVar[str]
    begun = False  # True if all layers have marginals before the first sweep

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
                heard = [e for e in self._neighbours(d) if sweep > 1 or self.begun or e < d]
                if heard:
                    self.log_message[d][active] = 0
                    self._listen(d, heard, active)
                    compiled.add_scores(
                        active, lengths, self.group.log_unary[d], self.log_message[d], self.log_unary[d]
                    )
                layer.expect(active, lengths, self.log_unary[d], self.log_z[d], self.safe[d], fresh[d])
                compiled.settle(active, lengths, fresh[d], self.marginals[d], self.residual)
            self.n_iter[active] = sweep
            if not self.tables.ties:  # nothing to agree upon: exact after one sweep
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

    def _neighbours(self, d: int) -> list[int]:
        """Layers that are tied to layer d."""
        return [a + b - d for a, b in self.tables.ties if d in (a, b)]

    def _listen(self, d: int, heard: list[int], active: Integers) -> None:
        """Add to ``log_message[d]`` (zero) what the layers ``heard`` say."""
        raise AssertionError("each engine has its own messages")

    def _value(self, sums: Sums | None, weight: Floats) -> NDArray[np.float64]:
        """The value (B,) at the present state; adds weighted expected label pairs to ``sums.between``."""
        raise AssertionError("each engine has its own value")
