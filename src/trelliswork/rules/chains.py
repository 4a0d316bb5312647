r"""Chains under rules: exact answers by products with those automata that matter.

The product with all rules is not built: "at most once" for m labels would have 2^m states. The best labeling of a
*relaxation*, with only some of the rules, is the best of all if it satisfies the others, so rules that an answer breaks
are added until none is broken. For sums, the labelings that break a rule r which is left out have at most the mass

.. math:: P(\bar r \mid A) \le P(\bar r) / P(A)

under the rules A of the product, and P of a single broken rule takes a product with its complement. Rules are added
until the sum of these bounds is below 1e-12, or the product has reached its limit: then log Z is an upper bound.
"""

import math
from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ImpossibleError, LimitError, ValueRangeError
from trelliswork.inference.chain.automata import MOST_STATES, Automaton, Mask
from trelliswork.inference.chain.beam import Beam
from trelliswork.inference.chain.potentials import Floats, Integers, Potentials
from trelliswork.inference.chain.product import product
from trelliswork.inference.chain.queries import (
    Scores,
    best_labelings,
    best_labels,
    dense_parts,
    in_double,
    label_marginals,
    log_partition,
    take,
)
from trelliswork.rules.text import parse
from trelliswork.rules.values import Rule

Doubles = NDArray[np.float64]
LOST = 1e-12  # mass of the labelings that may break a rule in a result that is called exact
FEW = 3  # rules that are always multiplied in
MOST_TRANSITIONS = 3_000_000  # of a product, for sums


class Ruled:
    """Rules over the labels of chains that must hold together, as automata; asked like `chain.queries`."""

    _numbers: Integers | None = None  # of the sequences, in messages

    def __init__(self, parts: Sequence[Rule], automata: Sequence[Automaton]) -> None:
        self.parts, self.automata = tuple(parts), list(automata)
        for part, automaton in zip(self.parts, self.automata, strict=True):
            if automaton.is_empty:
                raise ImpossibleError(f"{part!r}: no labeling satisfies this rule.")
        sizes = [len(automaton.final) for automaton in self.automata]
        # Of all automata together: the number of a state is the place of its row in one table of next states.
        self._n_labels = self.automata[0].step.shape[1]
        self._starts = np.cumsum([0, *sizes[:-1]]) * self._n_labels
        rows = [a.step.astype(np.int64) * self._n_labels + s for a, s in zip(self.automata, self._starts, strict=True)]
        self._step = np.concatenate(rows).reshape(-1)
        self._final = np.concatenate([a.final for a in self.automata])
        self._joint: dict[tuple[int, ...], Automaton] = {}

    @classmethod
    def of(cls, rule: Rule | str, labels: Sequence[str]) -> "Ruled":
        """Return a rule, or its text, over labels; what was made before is kept."""
        rule = parse(rule) if isinstance(rule, str) else rule
        if not isinstance(rule, Rule):
            raise ValueRangeError(f"a rule is a value of trelliswork.rules or its text, got {rule!r:.60}.")
        return _ruled(rule, tuple(labels))

    @classmethod
    def of_layers(cls, layers: Sequence["Ruled | None"], n_labels: Sequence[int]) -> "Ruled":
        """Return the rules of layers of labels over all combinations of their labels; the last layer varies fastest."""
        combined = np.unravel_index(np.arange(math.prod(n_labels)), tuple(n_labels))
        lifted = [ruled.lifted(own) for ruled, own in zip(layers, combined, strict=True) if ruled is not None]
        return cls([part for one in lifted for part in one.parts], [a for one in lifted for a in one.automata])

    def lifted(self, emits: NDArray[np.integer]) -> "Ruled":
        """Return the rules over states that emit labels."""
        return Ruled(self.parts, [automaton.lifted(emits) for automaton in self.automata])

    def taken(self, which: Integers) -> Self:
        """Return the rules of some of the sequences, whose numbers messages name."""
        taken = copy(self)
        taken._numbers = which if self._numbers is None else self._numbers[which]
        return taken

    def joint(self, which: Sequence[int]) -> Automaton:
        """Return the automaton of some parts together; that of none accepts everything."""
        key = tuple(which)
        if not key:
            return Automaton(np.zeros((1, self._n_labels), np.int32), np.ones(1, bool))
        if len(key) == 1:
            return self.automata[key[0]]
        if key not in self._joint:
            if len(self._joint) > 1000:
                self._joint.clear()
            before = self.joint(key[:-1])
            try:
                self._joint[key] = before & self.automata[key[-1]]
            except LimitError:
                problem = f"{len(key)} rules matter at once, too many for one automaton"
                raise LimitError(f"{problem}: {', '.join(repr(self.parts[r]) for r in key)}.") from None
        return self._joint[key]

    def whole(self) -> Automaton:
        """Return the automaton of all parts, which training needs."""
        n = len(self.parts)
        try:
            return self.joint(range(n))
        except LimitError:
            raise LimitError(
                f"training multiplies all rules in, and these {n} need an automaton of more than {MOST_STATES:,} "
                'states. Train under fewer, such as "at most once" for nine labels, or without rules: predict takes '
                "all of them."
            ) from None

    def broken(self, labels: Integers, lengths: Integers) -> Mask:
        """Return which parts (B, m) labelings (B, T) break."""
        state = np.repeat(self._starts[None], len(labels), axis=0)
        order = np.argsort(-lengths, kind="stable")
        ordered, ends = labels[order], np.searchsorted(-lengths[order], -np.arange(1, labels.shape[1] + 1), "right")
        for t, n in enumerate(ends.tolist()):
            state[:n] = self._step[state[:n] + ordered[:n, t, None]]
        out = np.empty(state.shape, bool)
        out[order] = ~self._final[state // self._n_labels]
        return out

    def best_labels(self, scores: Scores, beam: Beam | None = None) -> Integers:
        """Return the most probable labels (B, T) that satisfy all rules."""
        labels = best_labels(scores, beam)
        active = self.broken(labels, scores.lengths)
        which = np.flatnonzero(active.any(axis=1))
        while len(which):
            found = list(self._products(scores, active, which))
            if sum(len(own) for own, _ in found) < len(which):
                raise self.impossible(scores, active, which)
            for own, part in found:
                try:
                    best = part.labels(best_labels(part.scores, beam))
                except ImpossibleError:
                    raise self.impossible(scores, active, own) from None
                labels[own, : best.shape[1]] = best
            more = self.broken(labels[which], scores.lengths[which])
            active[which] |= more
            which = which[more.any(axis=1)]
        return labels

    def best_labelings(self, scores: Scores, k: int) -> Iterator[tuple[Integers, Doubles]]:
        """Yield for each sequence its k best labelings (n, T) that satisfy all rules, and log p (n,) given them."""
        every, rows = self._checked(scores), np.arange(len(scores.lengths))
        for b in rows:
            one = take(scores, rows[b : b + 1])
            active = self.broken(best_labels(one), one.lengths)
            while True:
                ((_, part),) = self._products(one, active, rows[:1])
                ((states, log_p),) = best_labelings(part.scores, k)
                found = part.labels(states)
                more = self.broken(found, np.full(len(found), found.shape[1])).any(axis=0) & ~active
                if not more.any():
                    break
                active |= more
            yield found, log_p + (log_partition(part.scores)[0] - every.log_z[b])

    def log_partition(self, scores: Scores, beam: Beam | None = None) -> Doubles:
        """Return log Z (B,) of the labelings that satisfy all rules; -inf where there are none."""
        return self._sums(scores, beam).log_z

    def hold(self, scores: Scores, beam: Beam | None = None) -> tuple[Doubles, Doubles]:
        """Return the probability (B,) that all rules hold, and the share (B,) by which it may be too large."""
        every = self._sums(scores, beam)
        possible = every.plain > -np.inf
        return np.exp(np.minimum(every.log_z - np.where(possible, every.plain, 0.0), 0.0)), every.lost

    def label_marginals(self, scores: Scores, beam: Beam | None = None) -> tuple[Doubles, Floats]:
        """Return log Z (B,) of the labelings that satisfy all rules, and p(label) (B, T, L); -inf and 0 without any."""
        every, rows = self._sums(scores, beam), np.arange(len(scores.lengths))
        marginals = np.zeros(scores.log_unary.shape, scores.log_unary.dtype)
        for own, part in self._products(scores, every.active, rows):
            found = label_marginals(part.scores, beam)[1]
            if part.label_of is not None:
                hits: Any = part.label_of[:, None] == np.arange(scores.log_unary.shape[2])
                found = found @ hits.astype(found.dtype)
            marginals[own, : found.shape[1]] = found
        return every.log_z, marginals

    def dense_parts(self, scores: Scores) -> Iterator[tuple[Potentials, Integers | None]]:
        """Yield chains under the rules with dense transitions, in order, and the label of each of their states."""
        active = self._checked(scores).active
        starts = np.flatnonzero(np.append(True, (active[1:] != active[:-1]).any(axis=1)))
        for run in np.split(np.arange(len(active)), starts[1:]):
            for _, part in self._products(scores, active, run):
                for p, label_of in dense_parts(part.scores):
                    yield p, label_of if part.label_of is None else part.label_of

    def necessary(self, scores: Scores) -> tuple[list[int], float]:
        """Return the parts that sums over all sequences need, and the share of labelings that may break others."""
        every = self._checked(scores)
        return np.flatnonzero(every.active.any(axis=0)).tolist(), float(every.lost.max())

    def _sums(self, scores: Scores, beam: Beam | None = None) -> "Sums":
        """Return sums over the labelings that satisfy all rules, in float64: float32 underflows, and is then slow."""
        scores = in_double(scores)
        B, m = len(scores.lengths), len(self.automata)
        plain = log_partition(scores, beam)
        every = Sums(plain, plain.copy(), np.ones((B, m), bool), np.zeros(B))
        log_z, active, which = every.log_z, every.active, np.flatnonzero(plain > -np.inf)
        against, banned = np.full((B, m), -np.inf), np.zeros((B, m), bool)  # log P of breaking a part
        if m > FEW and len(which):
            active[which] = self.broken(best_labels(take(scores, which), beam), scores.lengths[which])
            for r, automaton in enumerate(self.automata):
                for own, part in self._parts(scores, ~automaton, which):
                    against[own, r] = np.minimum(log_partition(part.scores, beam) - plain[own], 0.0)
            active[which] |= against[which] > np.log(LOST / (2 * m))
        while len(which):
            for row in np.unique(active[which], axis=0) if m > FEW else ():
                own = which[(active[which] == row).all(axis=1)]
                out = np.ix_(own, self._too_many(np.flatnonzero(row), against[own].max(axis=0)))
                active[out], banned[out] = False, True
            log_z[which] = -np.inf
            for own, part in self._products(scores, active, which):
                log_z[own] = log_partition(part.scores, beam)
            which = which[log_z[which] > -np.inf]
            left = against[which] - np.minimum(log_z[which] - plain[which], 0.0)[:, None]
            left[active[which]] = -np.inf
            every.lost[which] = np.minimum(np.exp(np.minimum(left, 0.0)).sum(axis=1), 1.0)
            more = (left > np.log(LOST / (2 * m))) & (every.lost[which] > LOST)[:, None] & ~banned[which]
            active[which] |= more
            which = which[more.any(axis=1)]
        return every

    def _checked(self, scores: Scores, beam: Beam | None = None) -> "Sums":
        """Return sums; an impossible sentence is an error."""
        every = self._sums(scores, beam)
        self.check(scores, every.log_z)
        return every

    def check(self, scores: Scores, log_z: Doubles) -> None:
        """Raise an error if log Z (B,) of a sequence is -inf."""
        if (log_z == -np.inf).any():
            raise self.impossible(scores, self._sums(scores).active, np.flatnonzero(log_z == -np.inf))

    def _too_many(self, which: Integers, log_p: Doubles) -> Integers:
        """Return those of some parts without which their product is not too large: the ones that are broken least."""
        order = which[np.argsort(-log_p[which], kind="stable")]
        for n in range(1, len(order) + 1):
            try:
                automaton = self.joint(np.sort(order[:n]).tolist())
            except LimitError:
                return order[n - 1 :]
            if len(automaton.final) * automaton.step.shape[1] ** 2 > MOST_TRANSITIONS:
                return order[n - 1 :]
        return order[:0]

    def _products(self, scores: Scores, active: Mask, which: Integers) -> Iterator[tuple[Integers, "Part"]]:
        """Yield sequences and their products with their active parts."""
        rows, group = np.unique(active[which], axis=0, return_inverse=True)
        for k, row in enumerate(rows):
            own = which[group.reshape(-1) == k]
            if row.any():
                yield from self._parts(scores, self.joint(np.flatnonzero(row).tolist()), own)
            else:
                yield own, Part(take(scores, own), None)

    def _parts(self, scores: Scores, automaton: Automaton, which: Integers) -> Iterator[tuple[Integers, "Part"]]:
        """Yield sequences and their products with an automaton; those that it cannot accept are left out."""
        lengths = scores.lengths[which]
        which = which[automaton.lengths(int(lengths.max(initial=0)))[lengths]]
        by_position = isinstance(scores, Potentials) and not scores.shared
        for own in which[:, None] if by_position else (which,) if len(which) else ():
            yield own, Part(*product(take(scores, own), automaton))

    def impossible(self, scores: Scores, active: Mask, which: Integers) -> ImpossibleError:
        """Return the error of the first impossible sequence among some: it names rules that no labeling satisfies."""
        m = len(self.parts)
        for b in which.tolist():
            one, place = take(scores, np.array([b])), np.zeros(1, np.int64)
            for row in [np.zeros(m, bool), *np.eye(m, dtype=bool), active[b]]:
                found = [log_partition(part.scores)[0] for _, part in self._products(one, row[None], place)]
                if found and found[0] > -np.inf:
                    continue
                number = b if self._numbers is None else int(self._numbers[b])
                rules = " & ".join(repr(part) for part, chosen in zip(self.parts, row, strict=True) if chosen)
                problem = f"satisfies {rules}" if rules else "is possible, whatever the rules"
                text = f"sentence {number}: no labeling of its {scores.lengths[b]} words {problem}."
                return ImpossibleError(text).at(number)
        raise AssertionError("no sequence is impossible")


class Sums(NamedTuple):
    """Sums over labelings of a batch."""

    plain: Doubles  # (B,) log Z without rules
    log_z: Doubles  # (B,) log Z under rules; an upper bound if ``lost`` is not negligible
    active: Mask  # (B, m) the parts of the product that was used
    lost: Doubles  # (B,) bound on the share of labelings that break other parts


class Part(NamedTuple):
    """A product of sequences with an automaton, and the label of each state if states do not emit labels."""

    scores: Scores
    label_of: Integers | None

    def labels(self, states: Integers) -> Integers:
        """Return the labels of states; -1 stays -1."""
        return states if self.label_of is None else np.append(self.label_of, -1)[states]


@lru_cache(maxsize=64)
def _ruled(rule: Rule, labels: tuple[str, ...]) -> Ruled:
    return Ruled(rule.parts, [part.automaton(labels) for part in rule.parts])
