r"""Segments of chains: runs of labels that belong together, such as the words of an entity, and their probabilities.

Labels have kinds, and ``joins[i, j]`` is True if label j, right after label i, continues the segment of i. A segment of
kind k from position a to position e is the event that y_a starts it, y_{a+1} ... y_e continue it, all of kind k, and
y_{e+1}, if there is one, does not. Its probability is that of all labelings with this segment:

.. math:: p = \frac1Z \sum_{y_{a..e}} \alpha^{start}_a(y_a)
    \prod_{t=a+1}^{e} [joins] \exp(w(y_{t-1}, y_t) + u_t(y_t)) \; \beta^{stop}_e(y_e)

where alpha-start leaves out predecessors that y_a would continue, and beta-stop successors that continue y_e. It is not
a product of marginals: labels of a segment depend on each other.

For the segments of one labeling, `of_labelings` needs no passes in log space: given its labels, what is before and
after a segment are independent, so that

.. math:: p = p(y_a) \prod_{t=a+1}^{e} p(y_t \mid y_{t-1}) \;
    \Big(1 - \sum_{i \text{ joins } y_a} p(y_{a-1} = i \mid y_a)\Big)
    \Big(1 - \sum_{j \text{ joined by } y_e} p(y_{e+1} = j \mid y_e)\Big)
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_shape
from trelliswork.compute.padding import mask
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.kernels import log_space
from trelliswork.inference.chain.passes import Forward, backward, forward
from trelliswork.inference.chain.potentials import Potentials

Integers = NDArray[np.int64]
Doubles = NDArray[np.float64]
_TINY = 1e-37  # smallest divisor: probabilities below are 0 in single precision


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
        """Return kinds and joins of states, by the labels that they have."""
        return SegmentKinds(self.kinds[labels], self.joins[np.ix_(labels, labels)])


class Labeled(NamedTuple):
    """Segments of one labeling of each sequence, from left to right."""

    rows: Integers  # (n, 4) sequence, kind, first position, one past the last
    p: Doubles  # (n,)
    log_z: Doubles  # (B,)


def of_labelings(p: Potentials, labels: Integers, kinds: SegmentKinds) -> Labeled:
    """Return the segments of labelings (B, T) and the probability that all their labels, and no others, form them.

    It is that of the segment if only these labels can form it, as in a scheme of spans and in runs of equal labels.
    Time O(B T S^2) in probability space.
    """
    b, t = np.nonzero(mask(p.lengths, p.log_unary.shape[1]))
    y = labels[b, t]
    opens = t == 0
    opens[1:] |= ~kinds.joins[y[:-1], y[1:]]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(y)) - 1
    rows = np.stack([b[first], kinds.kinds[y[first]], t[first], t[last] + 1], axis=1)
    named = rows[:, 1] >= 0
    rows, first_named, last_named = rows[named], first[named], last[named]
    if not p.shared:
        exact = Segments(p, kinds)
        return Labeled(rows, np.exp(exact.log_probabilities(rows)), exact.log_z)
    passes = forward(p)
    pairs = _Pairs(passes, backward(passes).marginals)
    own = np.maximum(pairs.marginals[b, t, y], _TINY).astype(np.float64)
    steps, inner = own.copy(), np.flatnonzero(~opens)
    steps[inner] = pairs.joint(b[inner], t[inner], y[inner - 1], y[inner]) / own[inner - 1]
    found = np.multiply.reduceat(steps, first)[named]
    for ends, ahead in ((first_named, 0), (last_named, 1)):
        beside = np.zeros(len(ends))
        at = t[ends] + ahead
        exist = (at > 0) & (at < p.lengths[b[ends]])
        for other in _columns(kinds.joins if ahead else kinds.joins.T):
            which = np.flatnonzero(exist & (other[y[ends]] >= 0))
            there, neighbor = ends[which], other[y[ends[which]]]
            pair = (y[there], neighbor) if ahead else (neighbor, y[there])
            beside[which] += pairs.joint(b[there], at[which], *pair) / own[there]
        found *= np.maximum(1.0 - beside, 0.0)
    unsafe = np.flatnonzero(~passes.safe)
    if len(unsafe):
        again = np.flatnonzero(~passes.safe[rows[:, 0]])
        renumbered = np.column_stack([np.searchsorted(unsafe, rows[again, 0]), rows[again, 1:]])
        found[again] = np.exp(Segments(p.take(unsafe), kinds).log_probabilities(renumbered))
    return Labeled(rows, np.minimum(found, 1.0), passes.log_z)


class _Pairs:
    """Probabilities of pairs of labels, one by one, from the passes of chains with one transition matrix."""

    def __init__(self, passes: Forward, marginals: Any) -> None:
        self.marginals, self._passes = marginals, passes

    def joint(self, b: Integers, t: Integers, before: Integers, label: Integers) -> Doubles:
        """Return p(y_{t-1} = before, y_t = label) (n,) in sequences b."""
        f = self._passes
        with np.errstate(all="ignore"):  # sequences that underflow are computed again
            ahead = self.marginals[b, t, label] / np.maximum(f.alpha[b, t, label], _TINY)
            weight = f.potentials.transitions.matrix[before, label] * f.emission[b, t, label] / f.scale[b, t]
            return np.asarray(f.alpha[b, t - 1, before].astype(np.float64) * weight * ahead)


def _columns(joined: NDArray[np.bool_]) -> list[Integers]:
    """Return arrays (S,) that list together, for each row, the columns that are True; -1 where there are no more."""
    rows, columns = np.nonzero(joined)
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    out = np.full((int(place.max(initial=-1)) + 1, len(joined)), -1)
    out[place, rows] = columns
    return list(out)


class Segments:
    """Chains with both passes, for questions about their segments, in log space."""

    def __init__(self, potentials: Potentials, kinds: SegmentKinds) -> None:
        p = potentials.take(np.arange(len(potentials.lengths)))
        _, T, S = p.log_unary.shape
        check_shape("kinds", kinds.kinds.shape, "S", S=S)
        self._potentials, self._kinds, self._n_kinds = p, kinds.kinds, kinds.n_kinds
        self._log_alpha, self._log_beta, self.log_z = self._messages()
        self._joined = np.where(kinds.joins, p.log_pairwise, -np.inf)
        apart = np.where(kinds.joins, -np.inf, p.log_pairwise)
        # Scores of all labelings up to t if a segment starts there, and after t if one ends there.
        self._starts, self._ends = self._log_alpha.copy(), self._log_beta.copy()
        b, t = np.nonzero(mask(p.lengths, T)[:, 1:])
        self._starts[b, t + 1] = p.log_unary[b, t + 1] + self._product(self._log_alpha[b, t], apart, b, t)
        ahead = p.log_unary[b, t + 1] + self._log_beta[b, t + 1]
        self._ends[b, t] = self._product(ahead, apart.transpose(0, 2, 1), b, t)

    def _messages(self) -> tuple[Doubles, Doubles, Doubles]:
        """Return the results of both passes (B, T, S), and log Z (B,)."""
        p, (B, T, _) = self._potentials, self._potentials.log_unary.shape
        alpha, beta = np.full((2, *p.log_unary.shape), -np.inf)
        backwards = np.ascontiguousarray(p.log_pairwise.transpose(0, 2, 1))
        alpha[:, 0], beta[np.arange(B), p.lengths - 1] = p.log_unary[:, 0], 0.0
        for t in range(1, T):
            b = np.flatnonzero(p.lengths > t)
            alpha[b, t] = p.log_unary[b, t] + self._product(alpha[b, t - 1], p.log_pairwise, b, t - 1)
        for t in range(T - 1, 0, -1):
            b = np.flatnonzero(p.lengths > t)
            beta[b, t - 1] = self._product(p.log_unary[b, t] + beta[b, t], backwards, b, t - 1)
        return alpha, beta, np.logaddexp.reduce(alpha[np.arange(B), p.lengths - 1], axis=1)

    def log_probabilities(self, rows: Integers) -> Doubles:
        """Return log p (n,) of segments ``rows`` (n, 4): sequence, kind, first position, one past the last."""
        rows = np.ascontiguousarray(rows, np.int64).reshape(-1, 4)
        B, lengths = len(self.log_z), self._potentials.lengths
        b, kind, first, end = rows.T
        bad = (b < 0) | (b >= B) | (kind < 0) | (kind >= self._n_kinds)
        bad |= (first < 0) | (first >= end) | (end > lengths[np.clip(b, 0, B - 1)])
        if bad.any():
            raise ValueRangeError(
                f"rows must be (sequence, kind, first, end) within the chains, got {rows[bad][0].tolist()}."
            )
        log_p, open_ = np.empty(len(rows)), np.arange(len(rows))
        scores = self._start(b, kind, first)
        while len(open_):
            at = first[open_]
            done = at == end[open_] - 1
            log_p[open_[done]] = self._log_p(scores[done], self._ends, b[open_[done]], at[done])
            open_, first = open_[~done], first + 1
            scores = self._extend(scores[~done], b[open_], first[open_])
        return log_p

    def log_outside(self) -> Doubles:
        """Return the log-probability (B, T) that a position is in no segment; arbitrary in the padding."""
        free = (self._log_alpha + self._log_beta)[:, :, self._kinds < 0] - self.log_z[:, None, None]
        return np.asarray(np.logaddexp.reduce(free, axis=2, initial=-np.inf))

    def likely(self, least: float = 0.0) -> tuple[Integers, Doubles]:
        """Return all segments (n, 4) with a probability of at least ``least`` > 0, or above 0, and log p (n,).

        They are sorted by sequence, first position and kind.
        """
        log_least = np.log(least) if least > 0 else np.finfo(np.float64).min
        lengths = self._potentials.lengths
        possible = mask(lengths, self._log_alpha.shape[1]) & (self.log_z > -np.inf)[:, None]
        b, first, kind = np.nonzero(np.repeat(possible[:, :, None], self._n_kinds, axis=2))
        scores, rows = self._start(b, kind, first), np.stack([b, kind, first, first + 1], axis=1)
        found: list[tuple[Integers, Doubles]] = [(rows[:0], np.empty(0))]
        while len(rows):
            # All segments that start here and reach this position, and those that end here.
            reached = self._log_p(scores, self._log_beta, rows[:, 0], rows[:, 3] - 1) >= log_least
            rows, scores = rows[reached], scores[reached]
            log_p = self._log_p(scores, self._ends, rows[:, 0], rows[:, 3] - 1)
            found.append((rows[log_p >= log_least], log_p[log_p >= log_least]))
            longer = rows[:, 3] < lengths[rows[:, 0]]
            scores = self._extend(scores[longer], rows[longer, 0], rows[longer, 3])
            rows = rows[longer] + np.array([0, 0, 0, 1])
        rows, every = np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])
        order = np.lexsort(rows[:, [3, 1, 2, 0]].T)
        return rows[order], every[order]

    def _product(self, left: Doubles, matrices: Any, b: Integers, t: Integers | int) -> Doubles:
        """Return the log sums (n, S) over i of exp(left[n, i] + the transition i, j from t to t+1 of sequence b)."""
        which, out = b * self._potentials.batch_step + t * self._potentials.time_step, np.empty(left.shape)
        ranges = threads.cut(np.full(len(left), left.shape[1] ** 2), least=threads.LEAST_WORK)
        threads.run(log_space.products, ranges, left, np.ascontiguousarray(matrices), which, out)
        return out

    def _start(self, b: Integers, kind: Integers, first: Integers) -> Doubles:
        """Return the scores (n, S) of segments of one position, by label; -inf for labels of other kinds."""
        return np.where(self._kinds == kind[:, None], self._starts[b, first], -np.inf)

    def _extend(self, scores: Doubles, b: Integers, t: Integers) -> Doubles:
        """Return the scores (n, S) of segments that go on to position t."""
        return self._potentials.log_unary[b, t] + self._product(scores, self._joined, b, t - 1)

    def _log_p(self, scores: Doubles, after: Doubles, b: Integers, t: Integers) -> Doubles:
        """Return log p (n,) of segments up to position t, by the scores (B, T, S) ``after`` it."""
        log_sums = np.logaddexp.reduce(scores + after[b, t], axis=1, initial=-np.inf)
        return log_sums - np.where(self.log_z > -np.inf, self.log_z, 0)[b]
