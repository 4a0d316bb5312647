"""Label sequences scored by longer label n-grams: a chain whose states are label n-grams, seen by its labels."""

from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from trelliswork.compute.checks import check_shape
from trelliswork.distributions.linear_chain import Labelings, LinearChain
from trelliswork.distributions.tensors import as_tensor, check_integers
from trelliswork.errors import ValueRangeError


class NgramChain(Labelings):
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

    _alike: ClassVar[str] = "chains of the same n-grams"

    def __init__(self, states: LinearChain, emits: Any, n_labels: int) -> None:
        S = states.n_labels
        self._states, self.n_labels, self.kind = states, n_labels, states.kind
        self.lengths, self._sizes = states.lengths, states._sizes
        self._dtype, self._device, self._by_torch = states._dtype, states._device, states._by_torch
        self._emits = as_tensor("emits", emits, states._device).long()
        check_shape("emits", self._emits.shape, "S", S=S)
        if S and not 0 <= int(self._emits.min()) <= int(self._emits.max()) < n_labels:
            raise ValueRangeError(f"emits must be labels from 0 to {n_labels - 1}.")

    def __repr__(self) -> str:
        B, T, S = self._states.log_unary.shape
        return f"NgramChain(B={B}, T={T}, S={self.n_labels}, n-grams={S})"

    @property
    def _inputs(self) -> tuple[Tensor, ...]:
        return self._states._inputs

    def _make(self, *scores: Tensor, **options: Any) -> "NgramChain":
        return NgramChain(self._states._like(*scores, **options), self._emits, self.n_labels)

    def _log_z(self) -> Tensor:
        return self._states._log_z()

    def _sums(self) -> tuple[Tensor, Tensor]:
        marginals = self._states.marginals()
        by_label = marginals.new_zeros((*marginals.shape[:2], self.n_labels)).index_add(2, self._emits, marginals)
        return self._log_z(), by_label

    def _moments(self) -> Any:
        return self._states._moments()

    def _moments_for(self, other: Self) -> Any:
        return self._states._moments_for(other._states)

    def _expected_score(self, moments: Any) -> Tensor:
        return self._states._expected_score(moments)

    def _viterbi(self) -> tuple[Tensor, Tensor]:
        states, scores = self._states._viterbi()
        return self._last(states), scores

    def _ranked(self, k: int) -> tuple[Tensor, Tensor]:
        states, scores = self._states._ranked(k)
        return self._last(states), scores

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        return self._last(self._states._draw(n, generator))

    def _score(self, structure: Any) -> Tensor:
        inside = self._inside(self._sizes[1])
        labels = check_integers("labels", structure, self._sizes, 0, self.n_labels - 1, inside)
        return NgramChain._masked(self, self._agreeing(labels))._log_z()

    def _is_alike(self, other: Any) -> bool:
        same = type(other) is type(self) and torch.equal(self._emits, other._emits)
        return same and self._states._is_alike(other._states)

    def _masked(self, mask: Tensor) -> "NgramChain":
        return NgramChain(self._states._masked(mask[:, :, self._emits]), self._emits, self.n_labels)

    def _copies(self, B: int) -> "NgramChain":
        return NgramChain(self._states._copies(B), self._emits, self.n_labels)

    def _under(self, rules: Any, labels: Any) -> Any:
        from trelliswork.distributions.ruled_chain import RuledChain

        return RuledChain(self._states, rules, labels, self._emits)

    def _last(self, states: Tensor) -> Tensor:
        """Return the labels of states; -1 in the padding."""
        return torch.where(states < 0, -1, self._emits[states.clamp(min=0)])
