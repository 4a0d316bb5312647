"""Chains with few possible transitions, stored sparse: state spaces of pairs and n-grams of labels."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count, check_shape
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.potentials import Floats, Integers, Potentials, chain_potentials

MOST_DENSE = 5000  # largest number of states for a dense table of transitions


@dataclass(frozen=True)
class SparseTransitions:
    """Possible transitions between states: state i leads to ``targets[indptr[i]:indptr[i + 1]]``."""

    indptr: Integers  # (S + 1,)
    targets: NDArray[np.int32]  # (n_entries,)
    emits: NDArray[np.int32]  # (S,) label of each state; scores of positions are given for labels
    n_labels: int
    first: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))  # (S,) possible first states; all

    def __post_init__(self) -> None:
        S = len(self.emits)
        for name, dtype in (("indptr", np.int64), ("targets", np.int32), ("emits", np.int32), ("first", np.bool_)):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype))
        if not self.first.size:
            object.__setattr__(self, "first", np.ones(S, bool))
        check_shape("indptr", self.indptr.shape, "n", n=S + 1)
        check_shape("first", self.first.shape, "S", S=S)
        ends = (int(self.indptr[0]), int(self.indptr[-1]))
        if ends != (0, len(self.targets)) or (np.diff(self.indptr) < 0).any():
            raise ValueRangeError(
                f"indptr must increase from 0 to the number of entries, {len(self.targets)}, got ends {ends}."
            )
        for name, values, size in (("targets", self.targets, S), ("emits", self.emits, self.n_labels)):
            if len(values) and (values.min() < 0 or values.max() >= size):
                raise ValueRangeError(
                    f"{name} must lie between 0 and {size - 1}, got {values.min()} to {values.max()}."
                )

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return len(self.emits)

    @cached_property
    def sources(self) -> NDArray[np.int32]:
        """(n_entries,): source state of each entry."""
        return np.repeat(np.arange(self.n_states, dtype=np.int32), np.diff(self.indptr))

    @cached_property
    def _keys(self) -> tuple[Integers, Integers]:
        keys = self.sources.astype(np.int64) * self.n_states + self.targets
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def entries(self, before: NDArray[np.integer], after: NDArray[np.integer]) -> Integers:
        """Return the entry of each pair of states, -1 where there is none."""
        keys, order = self._keys
        requested = before.astype(np.int64) * self.n_states + after
        if not len(keys):
            return np.full(len(requested), -1)
        at = np.minimum(np.searchsorted(keys, requested), len(keys) - 1)
        return np.where(keys[at] == requested, order[at], -1)

    @classmethod
    def ngrams(cls, n_labels: int, order: int = 2) -> Self:
        """Return states that hold the last ``order`` labels, fewer at the start of a sequence.

        The first L states hold one label, the next L^2 two, and so on; the state of k labels y_1 ... y_k is
        L + ... + L^(k-1) + (y_1 L^(k-1) + ... + y_k). An order of 2 is a second-order chain of L + L^2 states.

        Examples
        --------
        >>> pairs = SparseTransitions.ngrams(2)
        >>> pairs.n_states, pairs.targets[pairs.indptr[1] : pairs.indptr[2]].tolist()
        (6, [4, 5])
        """
        check_count("n_labels", n_labels)
        check_count("order", order)
        L = n_labels
        first = np.cumsum([0] + [L**k for k in range(1, order + 1)])
        targets = []
        for k in range(1, order + 1):
            codes = np.arange(L**k)
            longer = codes if k < order else codes % L ** (order - 1)
            targets.append(first[min(k, order - 1)] + (longer[:, None] * L + np.arange(L)).reshape(-1))
        S = int(first[-1])
        emits = np.concatenate([np.arange(L**k) % L for k in range(1, order + 1)])
        return cls(np.arange(S + 1) * L, np.concatenate(targets), emits, L, np.arange(S) < L)

    def states(self, labels: NDArray[np.integer], lengths: NDArray[np.integer]) -> NDArray[np.int32]:
        """Return the states of sequences of labels (n_positions,), where each label determines the next state."""
        L, S = self.n_labels, self.n_states
        step = np.full((S + 1, L), -1, np.int32)  # the last row is the start
        step[self.sources, self.emits[self.targets]] = self.targets
        step[S, self.emits[self.first]] = np.flatnonzero(self.first)
        out = np.empty(len(labels), np.int32)
        at, ends = np.cumsum(lengths) - lengths, np.cumsum(lengths)
        state = np.full(len(lengths), S, np.int32)
        for _ in range(int(lengths.max(initial=0))):
            live = at < ends
            state[live] = step[state[live], labels[at[live]]]
            out[at[live]] = state[live]
            if (state[live] < 0).any():
                b = int(np.flatnonzero(live & (state < 0))[0])
                raise ValueRangeError(f"labels: sequence {b} has no next state at position {at[b]}.")
            at = at + live
        return out


class SparseChain(NamedTuple):
    """Log-potentials of a ragged batch of chains with sparse transitions."""

    log_unary: Floats  # (B, T, L)
    transitions: SparseTransitions
    log_weights: Floats  # (n_entries,)
    log_start: Floats  # (S,) -inf for states that are not first
    log_end: Floats  # (S,)
    lengths: Integers  # (B,)

    def take(self, which: Integers) -> "SparseChain":
        """Return some of the sequences, cut to the longest of them."""
        lengths = self.lengths[which]
        return self._replace(log_unary=self.log_unary[which, : lengths.max(initial=1)], lengths=lengths)

    def dense(self) -> Potentials:
        """Return the chain with states as labels and an (S, S) table of transitions, for at most 5,000 states."""
        s, S = self.transitions, self.transitions.n_states
        if S > MOST_DENSE:
            raise ValueRangeError(
                f"this needs a table of {S} x {S} transitions: at most {MOST_DENSE} states are possible. Marginals and "
                "the best labeling have no such limit."
            )
        unary = self.log_unary[:, :, s.emits]
        unary[:, 0] += self.log_start
        unary[np.arange(len(unary)), self.lengths - 1] += self.log_end
        pairwise = np.full((S, S), -np.inf, unary.dtype)
        pairwise[s.sources, s.targets] = self.log_weights
        return chain_potentials(unary, pairwise, self.lengths, check_values=False)
