"""Label sequences that satisfy rules: the product of a chain with an automaton, seen by its labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trelliswork.distributions.base import Best, Kind
from trelliswork.distributions.linear_chain import LinearChain
from trelliswork.distributions.ngram_chain import NgramChain
from trelliswork.errors import LimitError, ShapeError, ValueRangeError
from trelliswork.inference.chain.beam.sparse import MOST_DENSE
from trelliswork.inference.chain.product import Pairs
from trelliswork.rules import Rule, parse
from trelliswork.rules.chains import LOST, Ruled


class RuledChain(NgramChain):
    """The labelings of a chain that satisfy rules, made by ``condition(rules=...)``.

    The difference of the log partitions is the log-probability that the rules hold.

    Attributes
    ----------
    rule : Rule
    used : Rule
        The parts of the rule that were multiplied in.
    lost : float
        Bound on the share of the labelings that may break other parts: below 1e-12, unless ``kind`` is "upper".

    Examples
    --------
    >>> chain = LinearChain(torch.zeros(1, 2, 2), torch.zeros(2, 2))
    >>> ruled = chain.condition(rules='Before("A", "B")', labels=["A", "B"])
    >>> ruled.topk(4).value.tolist(), round((ruled.log_partition() - chain.log_partition()).exp().item(), 2)
    ([[[0, 0], [0, 1], [1, 1], [-1, -1]]], 0.75)
    """

    def __init__(
        self, base: LinearChain, rule: Rule | str, labels: Sequence[str], emits: Any = None, *, also: Any = ()
    ) -> None:
        S = base.log_unary.shape[2]
        emitted = np.arange(S) if emits is None else np.asarray(emits)
        if len(labels) <= emitted.max(initial=-1):
            raise ShapeError(f"labels must have the names of all labels, S={emitted.max() + 1}, got {len(labels)}.")
        self.rule = parse(rule) if isinstance(rule, str) else rule
        ruled = Ruled.of(self.rule, labels)
        self._base, self._base_emits, self._ruled, self._labels = base, emits, ruled, labels
        scores = base._potentials
        which, self.lost = ruled.lifted(emitted).necessary(scores)
        self._which = sorted({*which, *also})
        automaton = ruled.joint(self._which)
        source, target = np.nonzero((scores.log_pairwise > -np.inf).any(axis=0))
        pairs = Pairs.of(automaton.step, automaton.live, emitted, source, target)
        P, device = len(pairs.state), base.log_unary.device
        if P > MOST_DENSE:
            raise LimitError(
                f"these rules need {P:,} pairs of labels and states of an automaton, at most {MOST_DENSE:,}."
            )
        state = torch.from_numpy(pairs.state).to(device)
        mask = torch.zeros((P, P), dtype=torch.bool)
        mask[pairs.sources, pairs.targets] = True
        between = base.log_pairwise[..., state[:, None], state[None, :]]
        ends = (pairs.first, automaton.final[pairs.automaton])
        start, end = (torch.from_numpy(np.where(end, 0, -np.inf)).to(base.log_unary) for end in ends)
        states = LinearChain(
            base.log_unary[:, :, state], torch.where(mask.to(device), between, -torch.inf), log_start=start,
            log_end=end, lengths=base.lengths,
        )  # fmt: skip
        super().__init__(states, emitted[pairs.state], len(labels))

    def __repr__(self) -> str:
        B, T = self._sizes
        return f"RuledChain(B={B}, T={T}, S={self.n_labels}, rule={self.rule!r})"

    @property
    def used(self) -> Rule:
        """The parts of the rule that were multiplied in."""
        from functools import reduce
        from operator import and_

        return reduce(and_, (self._ruled.parts[r] for r in self._which))

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """What log Z is: that of the chain, or "upper" if the product of all rules would be too large."""
        if self.lost <= LOST:
            return self._base.kind
        return "upper" if self._base.kind == "exact" else "estimate"

    def argmax(self) -> Best:
        """Return the best labels (B, T)."""
        return self._best(self.topk(1).value[:, 0])

    def topk(self, k: int) -> Best:
        """Return the k best labelings (B, k, T), best first; -1 if there are fewer."""
        best = super().topk(k)
        rows = best.value.reshape(-1, best.value.shape[2]).cpu().numpy()
        broken = self._ruled.broken(np.maximum(rows, 0), (rows >= 0).sum(axis=1))[(rows >= 0).any(axis=1)]
        if not broken.any():
            return best
        also = {*self._which, *np.flatnonzero(broken.any(axis=0)).tolist()}
        return RuledChain(self._base, self.rule, self._labels, self._base_emits, also=also).topk(k)

    def condition(
        self, *, known: Any = None, allowed: Any = None, rules: Any = None, labels: Any = None
    ) -> "RuledChain":
        """Return the chain given more evidence, or under more rules; see ``LinearChain.condition``."""
        base: Any = self._base if self._base_emits is None else NgramChain(self._base, self._base_emits, self.n_labels)
        base = base.condition(known=known, allowed=allowed)
        more = parse(rules) if isinstance(rules, str) else rules
        return base.condition(rules=self.rule if more is None else self.rule & more, labels=labels or self._labels)

    def kl(self, other: Any) -> Tensor:
        """Return KL(self || other) in nats (B,) for a chain under the same rules."""
        if not isinstance(other, RuledChain) or other.rule != self.rule or other._which != self._which:
            raise ValueRangeError(f"kl needs two chains under the same rules, got {self} and {other}.")
        return super().kl(other)

    def _copies(self, B: int) -> "RuledChain":
        return RuledChain(self._base._copies(B), self.rule, self._labels, self._base_emits, also=self._which)
