"""Label sequences scored by longer label n-grams: a chain whose states are label n-grams, seen by its labels."""

from typing import Any, Self

import torch
from torch import Tensor

from trelliswork.compute.checks import check_shape
from trelliswork.distributions.base import Best, Distribution, Kind
from trelliswork.distributions.linear_chain import LinearChain
from trelliswork.distributions.tensors import as_tensor, bool_mask, check_integers
from trelliswork.errors import ValueRangeError


class NgramChain(Distribution):
    """The labels of a chain whose states are label n-grams: posteriors of taggers of order 2 and above.

    Parameters
    ----------
    states : LinearChain or BeamChain
        The chain of n-grams. Each labeling must have one sequence of states at most.
    emits : Tensor of int (n_states,)
        The last label of each n-gram.
    n_labels : int

    Examples
    --------
    >>> states = LinearChain(torch.zeros(1, 2, 3), torch.tensor([[0.0, 0.0, -9.0]] * 3))
    >>> NgramChain(states, [0, 1, 1], 2).marginals().shape
    torch.Size([1, 2, 2])
    """

    def __init__(self, states: LinearChain, emits: Any, n_labels: int) -> None:
        S = states.log_unary.shape[2]
        self._states, self.n_labels = states, n_labels
        self._emits = as_tensor("emits", emits, states.log_unary.device).long()
        check_shape("emits", self._emits.shape, "S", S=S)
        if S and not 0 <= int(self._emits.min()) <= int(self._emits.max()) < n_labels:
            raise ValueRangeError(f"emits must be labels from 0 to {n_labels - 1}.")

    def __repr__(self) -> str:
        B, T, S = self._states.log_unary.shape
        return f"NgramChain(B={B}, T={T}, S={self.n_labels}, n-grams={S})"

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """What log Z is: "exact", or "lower" within a beam."""
        return self._states.kind

    @property
    def lengths(self) -> Tensor:
        """Length of each sequence (B,)."""
        return self._states.lengths

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self._states._sizes

    def log_partition(self) -> Tensor:
        """Return log Z (B,)."""
        return self._states.log_partition()

    def marginals(self) -> Tensor:
        """Return p(y_t = j), (B, T, S)."""
        marginals = self._states.marginals()
        return marginals.new_zeros((*marginals.shape[:2], self.n_labels)).index_add(2, self._emits, marginals)

    def argmax(self) -> Best:
        """Return the best labels (B, T)."""
        return self._best(self._last(self._states.argmax().value))

    def topk(self, k: int) -> Best:
        """Return the k best labelings (B, k, T), best first; -1 if there are fewer."""
        return self._best(self._last(self._states.topk(k).value), ranks=True)

    def mbr(self) -> Best:
        """Return the labels (B, T) with the most expected hits."""
        with torch.no_grad():
            best = self.marginals().argmax(dim=2)
        inside = torch.arange(best.shape[1], device=best.device) < self.lengths[:, None]
        return self._best(best.masked_fill(~inside, -1))

    def entropy(self) -> Tensor:
        """Return the entropy in nats (B,)."""
        return self._states.entropy()

    def log_prob(self, value: Any) -> Tensor:
        """Return log p(y) (B,) of labels (B, T), or with the axes that ``sample`` puts before them.

        It is -inf if they are impossible. The padding is ignored.
        """
        labels, log_z = as_tensor("labels", value, self._emits.device), self.log_partition()
        self._states._check_possible(log_z, "no probabilities")
        return self._of_each(lambda y: NgramChain.condition(self, known=y.clamp(min=0)).log_partition(), labels) - log_z

    def kl(self, other: Self) -> Tensor:
        """Return KL(self || other) in nats (B,) for a distribution with the same n-grams."""
        if not torch.equal(self._emits, other._emits):
            raise ValueRangeError(f"kl needs two chains of the same n-grams, got {self} and {other}.")
        return self._states.kl(other._states)

    def condition(
        self, *, known: Any = None, allowed: Any = None, rules: Any = None, labels: Any = None
    ) -> "NgramChain":
        """Return the chain given evidence.

        Parameters
        ----------
        known : Tensor of int (B, T), optional
            Known labels; -1 for unknown.
        allowed : Tensor of bool (B, T, S), optional
            Labels that each position may take.
        rules : Rule or str, optional
            What must hold in the whole sequence; the result is a `RuledChain`.
        labels : list of str
            Names of the labels, for rules.
        """
        (B, T), device, S = self._sizes, self._emits.device, self.n_labels
        mask = torch.ones((B, T, S), dtype=torch.bool, device=device)
        if allowed is not None:
            mask &= bool_mask("allowed", allowed, "B T S", device, B=B, T=T, S=S)
        if known is not None:
            ids = check_integers("known", known, (B, T), -1, S - 1)
            mask &= (ids[:, :, None] < 0) | (ids[:, :, None] == torch.arange(S, device=device))
        states = self._states.condition(allowed=mask[:, :, self._emits])
        if rules is not None:
            return states._under(rules, labels, self._emits.cpu().numpy())
        return NgramChain(states, self._emits, S)

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        return self._last(self._states._draw(n, generator))

    def _copies(self, B: int) -> "NgramChain":
        return NgramChain(self._states._copies(B), self._emits, self.n_labels)

    def _last(self, states: Tensor) -> Tensor:
        """Return the labels of states; -1 in the padding."""
        return torch.where(states < 0, -1, self._emits[states.clamp(min=0)])
