"""Distributions over label sequences with first-order dependencies: posteriors of HMM and CRF taggers."""

from abc import abstractmethod
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from trelliswork.compute.checks import check_lengths, check_shape
from trelliswork.compute.kernels.scores import are_scores
from trelliswork.distributions.base import Best, Distribution
from trelliswork.distributions.path_structure import ChainExpectations, PairStructure
from trelliswork.distributions.tensors import (
    CPU,
    bool_mask,
    check_integers,
    clean,
    expectation,
    floats,
    gradients,
    host,
)
from trelliswork.errors import ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain import autograd
from trelliswork.inference.chain.beam import Beam, chosen_beam


class Labelings(Distribution):
    """Base class of distributions over label sequences: chains of labels, and of states that emit labels."""

    n_labels: int

    def mbr(self) -> Best:
        """Return the labels (B, T) with the most expected hits: posterior decoding."""
        with torch.no_grad():
            log_z, marginals = self._sums()[:2]
        self._check_possible(log_z, "nothing to decode")
        return self._best(marginals.argmax(dim=2).masked_fill(~self._inside(marginals.shape[1]), -1))

    def condition(self, *, known: Any = None, allowed: Any = None, rules: Any = None, labels: Any = None) -> Any:
        """Return the chain given evidence; the difference of the log partitions is the evidence's log probability.

        Parameters
        ----------
        known : Tensor of int (B, T), optional
            Known labels; -1 for unknown.
        allowed : Tensor of bool (B, T, S), optional
            Labels that each position may take.
        rules : Rule or str, optional
            What must hold in the whole sequence (`trelliswork.rules`); the result is a `RuledChain`.
        labels : list of str
            Names of the labels, for rules.
        """
        given = super().condition(known=known, allowed=allowed)
        return given if rules is None else given._under(rules, labels)

    @abstractmethod
    def _under(self, rules: Any, labels: Any) -> Any:
        """Return the chain under rules about labels with these names."""

    def _permitted(self, allowed: Any) -> Tensor:
        B, T = self._sizes
        return bool_mask("allowed", allowed, "B T S", self._device, B=B, T=T, S=self.n_labels)

    def _agreeing(self, known: Any) -> Tensor:
        labels = check_integers("known", known, self._sizes, -1, self.n_labels - 1, self._inside(self._sizes[1]))
        return (labels[..., None] < 0) | (labels[..., None] == torch.arange(self.n_labels, device=self._device))


class LinearChain(Labelings, PairStructure):
    r"""Label sequences scored by labels and pairs of neighboring labels.

    .. math:: p(y) \propto \exp\Big(\sum_t u_t(y_t) + \sum_t w_t(y_t, y_{t+1}) + s(y_1) + e(y_T)\Big)

    Parameters
    ----------
    log_unary : Tensor (B, T, S)
        ``log_unary[b, t, j]`` is the score of label j at position t; -inf forbids it. Arrays and lists are converted.
    log_pairwise : Tensor (S, S) or (B, T-1, S, S)
        ``log_pairwise[i, j]`` is the score of label i before label j. With four axes it depends on sequence and
        position (either of these axes may be 1).
    log_start, log_end : Tensor (S,), optional
        Scores of the first and the last label.
    lengths : Tensor of int (B,), optional
        Length of each sequence, 1 to T; all T by default. The padding is ignored.

    Notes
    -----
    float32 or float64. Time O(T S^2) and memory O(T S) per sequence. Every query that returns probabilities is
    differentiable; without gradients no graph is kept. Padding has label -1 and probability 0. ``condition`` takes
    known labels (B, T), -1 for unknown, and the labels that are ``allowed`` (B, T, S) at each position.

    Examples
    --------
    >>> import torch
    >>> chain = LinearChain(torch.zeros(1, 3, 2), torch.zeros(2, 2))
    >>> round(chain.log_partition().exp().item())  # 2 ** 3 label sequences
    8
    >>> forced = chain.condition(known=torch.tensor([[-1, 1, -1]]))
    >>> round(forced.log_partition().exp().item())
    4
    """

    _alike: ClassVar[str] = "chains of the same shape and lengths"

    def __init__(
        self,
        log_unary: Any,
        log_pairwise: Any,
        *,
        log_start: Any = None,
        log_end: Any = None,
        lengths: Any = None,
    ) -> None:
        unary, pairwise = floats("log_unary", log_unary), floats("log_pairwise", log_pairwise)
        dtype, device = unary.dtype, unary.device
        if dtype != pairwise.dtype:
            dtype = torch.float64
            unary, pairwise = unary.to(dtype), pairwise.to(dtype)
        B, T, S = chain.sizes(unary.shape)
        if pairwise.device != device:
            raise ValueRangeError(f"log_unary is on {device}, log_pairwise on {pairwise.device}: move one of them.")
        self._dtype, self._device, self._by_torch = dtype, device, device != CPU
        self._sizes, self.n_labels = (B, T), S
        self._lengths = None if lengths is None else check_lengths(host(lengths), B, T)
        if log_start is not None:
            start = self._edge("log_start", log_start, unary)
            unary = torch.cat([unary[:, :1] + start, unary[:, 1:]], dim=1)
        if log_end is not None:
            end = self._edge("log_end", log_end, unary)
            last = torch.arange(T, device=device) == self.lengths[:, None] - 1
            unary = torch.where(last[:, :, None], unary + end, unary)
        self._steps = chain.transition_steps(pairwise.shape, B, T, S)
        self._scores, self._pairs = unary, pairwise  # with start, end and evidence
        if self._by_torch or not are_scores(*self._arrays):  # nan and +inf are allowed in the padding
            inside = self._inside(T)
            steps = self._inside(pairwise.shape[1], 1) if pairwise.ndim == 4 and len(pairwise) == B else None
            self._scores, self._pairs = (
                clean("log_unary", unary, lambda: inside),
                clean("log_pairwise", pairwise, lambda: steps),
            )
            self.__dict__.pop("_arrays", None)

    @staticmethod
    def _edge(name: str, values: Any, unary: Tensor) -> Tensor:
        """Return checked scores (S,) of a first or last label."""
        scores = floats(name, values).to(unary)
        check_shape(name, scores.shape, "S", S=unary.shape[2])
        return clean(name, scores)

    log_unary = property(attrgetter("_scores"), doc="Scores (B, T, S) of labels, with start, end and evidence.")

    @property
    def _potentials(self) -> chain.Potentials:
        """The potentials laid out for the kernels."""
        if self._by_torch:
            own, between = (host(scores) for scores in self._inputs)
            return chain.chain_potentials(own, between, host(self.lengths))
        if not are_scores(*self._arrays):
            raise ValueRangeError(
                "the potentials have nan or +inf: somebody has written into the tensors of this chain."
            )
        return self._laid_out

    @cached_property
    def _arrays(self) -> list[Any]:
        """The scores as contiguous arrays, copied only where they are not contiguous."""
        return [np.ascontiguousarray(host(scores)) for scores in self._inputs]

    @cached_property
    def _laid_out(self) -> chain.Potentials:
        own, between = self._arrays
        if between.size:  # all has been checked
            matrices = between.reshape(-1, *between.shape[-2:])
            return chain.Potentials(own, matrices, *self._steps, self._lengths)
        return chain.chain_potentials(own, between, self._lengths, check_values=False)

    def __repr__(self) -> str:
        B, T, S = self.log_unary.shape
        return f"LinearChain(B={B}, T={T}, S={S}, dtype={self.log_unary.dtype})"

    @cached_property
    def lengths(self) -> Tensor:  # type: ignore[override]  # made when needed: a short sentence takes less time
        """Length of each sequence (B,)."""
        lengths = check_lengths(self._lengths, *self._sizes)
        return torch.as_tensor(lengths, device=self._device)

    def expectations(self) -> ChainExpectations:
        """Return log Z (B,), node marginals (B, T, S) and transition counts (B, S, S), from one pass."""
        if self._needs_graph or self._by_torch:
            return super().expectations()
        value, moments = chain.expectations(self._potentials, counts=True)  # no torch operations: the least delay
        value = value.astype(self._arrays[0].dtype, copy=False)
        return ChainExpectations(*map(torch.from_numpy, (value, moments.marginals, moments.counts)))

    def edge_marginals(self) -> Tensor:
        """Return p(y_t = i, y_{t+1} = j), (B, T-1, S, S); ``transition_counts`` needs T times less memory."""
        return self._moments(per_position=True)[2]

    def _viterbi(self) -> tuple[Tensor, Tensor]:
        return self._with_scores(*chain.viterbi(self._potentials))

    def _ranked(self, k: int) -> tuple[Tensor, Tensor]:
        return self._with_scores(*chain.topk(self._potentials, k))

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        B, T, _ = self.log_unary.shape
        device = generator.device if generator is not None else self.log_unary.device
        uniforms = torch.rand((n, B, T), dtype=torch.float64, generator=generator, device=device)
        return self._tensor(chain.sample(self._potentials, uniforms.cpu().numpy()))

    def _under(self, rules: Any, labels: Any) -> Any:
        from trelliswork.distributions.ruled_chain import RuledChain

        return RuledChain(self, rules, labels)

    def within(self, beam: Beam | str) -> "LinearChain":
        """Return the chain restricted to few labels per position: a ``BeamChain``, whose log Z is a lower bound.

        Parameters
        ----------
        beam : Beam or str
            ``Beam("kl", eps=0.005)``, or as text ``"kl=0.005,min=10"``, ``"size=20"``, ``"threshold=6.9,min=4"``;
            "auto" returns this chain itself where exact inference is faster.
        """
        from trelliswork.distributions.beam_chain import BeamChain

        shared = self.log_pairwise.ndim == 2 or self.log_pairwise.shape[:2] == (1, 1)
        chosen = chosen_beam(beam, self.log_unary.shape[2], shared=shared)
        return self if chosen is None else BeamChain(self, chosen)

    @property
    def _per_position(self) -> bool:
        """Return True if transitions differ between positions, so that sums over positions do not determine scores."""
        return self.log_pairwise.ndim == 4 and self.log_pairwise.shape[1] > 1

    def _log_z(self) -> Tensor:
        potentials = None if self._by_torch else self._potentials
        return autograd.log_partition(self._scores, self._pairs, self.lengths, potentials)

    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._moments(per_position=False)

    def _moments(self, per_position: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return log Z (float64), marginals, and edges (B, T-1, S, S) or their sums over positions (B, S, S)."""
        B, T, S = self.log_unary.shape
        per_position = self._per_position if per_position is None else per_position
        if not self._needs_graph and not self._by_torch:
            value, moments = chain.expectations(self._potentials, edges=per_position, counts=not per_position)
            pairs = moments.edges if per_position else moments.counts
            return torch.from_numpy(value), torch.from_numpy(moments.marginals), torch.from_numpy(pairs)
        pairwise = self.log_pairwise if self.log_pairwise.ndim == 4 else self.log_pairwise[None, None]
        # With one copy per sequence (and position), the gradient of each copy is its own expectations.
        if T == 1:
            pairwise = pairwise.new_zeros((B, 1, S, S))
        pairwise = pairwise.expand(B, max(T - 1, 1) if per_position or self._per_position else 1, S, S)
        log_z, nodes, edges = gradients(
            lambda *scores: self._like(*scores)._log_z(), (self.log_unary, pairwise), self._needs_graph
        )
        return log_z, nodes, edges[:, : T - 1] if per_position else edges.sum(dim=1)

    def _is_alike(self, other: Any) -> bool:
        alike = isinstance(other, LinearChain) and self._scores.shape == other._scores.shape
        return alike and torch.equal(self.lengths, other.lengths)

    def _make(self, *scores: Tensor, **options: Any) -> Any:
        return LinearChain(*scores, **options)

    def _moments_for(self, other: Self) -> tuple[Tensor, Tensor, Tensor]:
        return self._moments(per_position=self._per_position or other._per_position)

    def _expected_score(self, moments: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        _, marginals, edges = moments
        pairwise = self.log_pairwise
        if edges.ndim < pairwise.ndim:
            pairwise = pairwise[:, 0] if pairwise.shape[1] else pairwise.new_zeros(edges.shape)
        return expectation(marginals, self.log_unary) + expectation(edges, pairwise)

    def _score(self, structure: Any) -> Tensor:
        (B, T, S), valid = self._scores.shape, self._inside(self._scores.shape[1])
        safe = check_integers("labels", structure, (B, T), 0, S - 1, valid).masked_fill(~valid, 0)
        unary = self.log_unary.gather(2, safe[:, :, None])[:, :, 0].double()
        score = unary.masked_fill(~valid, 0).sum(dim=1)
        if T == 1:
            return score
        batch = torch.arange(B, device=safe.device)[:, None]
        steps = torch.arange(T - 1, device=safe.device)[None, :]
        if self.log_pairwise.ndim == 2:
            pairs = self.log_pairwise[safe[:, :-1], safe[:, 1:]]
        else:
            rows, times = (size > 1 for size in self.log_pairwise.shape[:2])
            pairs = self.log_pairwise[batch * rows, steps * times, safe[:, :-1], safe[:, 1:]]
        return score + pairs.double().masked_fill(~valid[:, 1:], 0).sum(dim=1)
