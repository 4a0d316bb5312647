"""Label sequences that satisfy rules: the product of a chain with an automaton, seen by its labels."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from trelliswork.distributions.linear_chain import LinearChain
from trelliswork.distributions.ngram_chain import NgramChain
from trelliswork.distributions.tensors import host
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
    lost : float
        Bound on the share of the labelings that may break a part of the rule: below 1e-12, unless ``kind`` is "upper".

    Examples
    --------
    >>> chain = LinearChain(torch.zeros(1, 2, 2), torch.zeros(2, 2))
    >>> ruled = chain.condition(rules='Before("A", "B")', labels=["A", "B"])
    >>> ruled.topk(4).value.tolist(), round((ruled.log_partition() - chain.log_partition()).exp().item(), 2)
    ([[[0, 0], [0, 1], [1, 1], [-1, -1]]], 0.75)
    """

    _alike: ClassVar[str] = "chains under the same rules"

    def __init__(
        self, base: LinearChain, rule: Rule | str, labels: Sequence[str], emits: Any = None, *, also: Any = ()
    ) -> None:
        if labels is None:
            raise ValueRangeError("rules speak about names: pass labels=[...], the names of the label ids.")
        emitted = np.arange(base.n_labels) if emits is None else np.asarray(host(emits))
        if len(labels) <= emitted.max(initial=-1):
            raise ShapeError(f"labels must have the names of all labels, S={emitted.max() + 1}, got {len(labels)}.")
        self.rule = parse(rule) if isinstance(rule, str) else rule
        ruled = Ruled.of(self.rule, labels)
        self._base, self._base_emits, self._ruled, self._labels = base, emitted, ruled, list(labels)
        scores = base._potentials
        which, self.lost = ruled.lifted(emitted).necessary(scores)
        self._which = sorted({*which, *also})
        automaton = ruled.joint(self._which)
        source, target = np.nonzero((scores.log_pairwise > -np.inf).any(axis=0))
        pairs = Pairs.of(automaton, emitted, source, target)
        P, device = len(pairs.state), base._device
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
        self.kind = base.kind
        if self.lost > LOST:  # the product of all rules would be too large
            self.kind = "upper" if base.kind == "exact" else "estimate"

    def __repr__(self) -> str:
        B, T = self._sizes
        return f"RuledChain(B={B}, T={T}, S={self.n_labels}, rule={self.rule!r})"

    def _viterbi(self) -> tuple[Tensor, Tensor]:
        values, scores = self._ranked(1)
        return values[:, 0], scores[:, 0]

    def _ranked(self, k: int) -> tuple[Tensor, Tensor]:
        """Return labelings that break no part of the rule: parts that an answer breaks are multiplied in."""
        values, scores = super()._ranked(k)
        rows = values.reshape(-1, values.shape[2]).cpu().numpy()
        broken = self._ruled.broken(np.maximum(rows, 0), (rows >= 0).sum(axis=1))[(rows >= 0).any(axis=1)]
        if not broken.any():
            return values, scores
        return self._again(self._base, {*self._which, *np.flatnonzero(broken.any(axis=0)).tolist()})._ranked(k)

    def _again(self, base: LinearChain, also: Any = ()) -> "RuledChain":
        """Return another chain under the same rules, of which the parts ``also`` are multiplied in."""
        return RuledChain(base, self.rule, self._labels, self._base_emits, also=also)

    def _masked(self, mask: Tensor) -> "RuledChain":
        return self._again(self._base._masked(mask[:, :, torch.from_numpy(self._base_emits)]))

    def _copies(self, B: int) -> "RuledChain":
        return self._again(self._base._copies(B), self._which)

    def _under(self, rules: Any, labels: Any) -> Any:
        more = parse(rules) if isinstance(rules, str) else rules
        return RuledChain(self._base, self.rule & more, labels or self._labels, self._base_emits)

    def _is_alike(self, other: Any) -> bool:
        return super()._is_alike(other) and other.rule == self.rule and other._which == self._which
