r"""Segments of chains: runs of labels that belong together, such as the words of an entity, and their probabilities.

Labels have kinds, and ``joins[i, j]`` is True if label j, right after label i, continues the segment of i. A segment of
kind k from position a to position e is the event that y_a starts it, y_{a+1} ... y_e continue it, all of kind k, and
y_{e+1}, if there is one, does not. Its probability is that of all labelings with this segment:

.. math:: p = \frac1Z \sum_{y_{a..e}} \alpha^{start}_a(y_a)
    \prod_{t=a+1}^{e} [joins] \exp(w(y_{t-1}, y_t) + u_t(y_t)) \; \beta^{stop}_e(y_e)

where alpha-start leaves out predecessors that y_a would continue, and beta-stop successors that continue y_e. It is not
a product of marginals: labels of a segment depend on each other.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_shape
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.kernels import segments as kernels
from trelliswork.inference.chain.passes import log_forward
from trelliswork.inference.chain.potentials import Potentials

Integers = NDArray[np.int64]
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class SegmentKinds:
    """Labels that form segments: the kind of each label (S,), -1 for none, and which labels are joined (S, S)."""

    kinds: Integers
    joins: NDArray[np.bool_]

    def __post_init__(self) -> None:
        S = len(self.kinds)
        check_shape("joins", self.joins.shape, "S S", S=S)
        if (self.joins & ((self.kinds[:, None] != self.kinds) | (self.kinds < 0))).any():
            raise ValueRangeError("joins must be False between labels of different kinds, and of no kind.")

    @property
    def n_kinds(self) -> int:
        """Number of kinds."""
        return int(self.kinds.max(initial=-1)) + 1

    def of_states(self, labels: NDArray[np.integer]) -> "SegmentKinds":
        """Return the same for states that have these labels."""
        return SegmentKinds(self.kinds[labels], self.joins[np.ix_(labels, labels)])

    def _arrays(self) -> kernels.Kinds:
        order = np.argsort(self.kinds, kind="stable")
        order = order[self.kinds[order] >= 0]
        ptr = np.searchsorted(self.kinds[order], np.arange(self.n_kinds + 1))
        return kernels.Kinds(np.ascontiguousarray(self.joins), ptr.astype(np.int64), order.astype(np.int64))


class Segments:
    """Chains with both passes, for questions about their segments; time and memory as those of the passes."""

    def __init__(self, potentials: Potentials, kinds: SegmentKinds) -> None:
        p = potentials.take(np.arange(len(potentials.lengths)))
        check_shape("kinds", kinds.kinds.shape, "S", S=p.log_unary.shape[2])
        self.log_z, log_alpha = log_forward(p)
        log_beta = np.full(p.log_unary.shape, -np.inf)
        work = p.lengths * p.log_unary.shape[2] ** 2
        self._ranges = threads.cut(work, least=threads.LEAST_WORK)
        threads.run(kernels.backward, self._ranges, p.lengths, p.log_unary, p.pairwise, log_beta)
        self._passes = kernels.Passes(p.lengths, p.log_unary, p.pairwise, log_alpha, log_beta, self.log_z)
        self._kinds = kinds._arrays()

    def log_probabilities(self, rows: Integers) -> Doubles:
        """Return log p (n,) of segments ``rows`` (n, 4): sequence, kind, first position, one past the last."""
        rows = np.ascontiguousarray(rows, np.int64).reshape(-1, 4)
        B, lengths, n_kinds = len(self.log_z), self._passes.lengths, len(self._kinds.ptr) - 1
        b, kind, first, end = rows.T
        bad = (b < 0) | (b >= B) | (kind < 0) | (kind >= n_kinds)
        bad |= (first < 0) | (first >= end) | (end > lengths[np.clip(b, 0, B - 1)])
        if bad.any():
            raise ValueRangeError(
                f"rows must be (sequence, kind, first, end) within the chains, got {rows[bad][0].tolist()}."
            )
        log_p = np.empty(len(rows))
        threads.run(kernels.log_probabilities, threads.cut(end - first), self._passes, self._kinds, rows, log_p)
        return log_p

    def log_outside(self) -> Doubles:
        """Return the log-probability (B, T) that a position is in no segment; arbitrary in the padding."""
        p, inside = self._passes, np.ones(self._passes.log_unary.shape[2], bool)
        inside[self._kinds.members] = False
        free = (p.log_alpha + p.log_beta)[:, :, inside] - p.log_z[:, None, None]
        return np.asarray(np.logaddexp.reduce(free, axis=2, initial=-np.inf))

    def likely(self, least: float = 0.0) -> tuple[Integers, Doubles]:
        """Return all segments (n, 4) with a probability of at least ``least`` > 0, or above 0, and log p (n,).

        They are sorted by sequence, first position and kind.
        """
        with np.errstate(divide="ignore"):
            log_least = float(np.log(least))
        offsets = np.zeros(len(self.log_z) + 1, np.int64)
        rows, log_p = np.empty((0, 4), np.int64), np.empty(0)
        for size in (False, True):
            threads.run(kernels.likely, self._ranges, self._passes, self._kinds, log_least, offsets, rows, log_p)
            if not size:
                offsets = np.cumsum(offsets)
                rows, log_p = np.empty((int(offsets[-1]), 4), np.int64), np.empty(int(offsets[-1]))
                if not len(rows):
                    break
        return rows, log_p
