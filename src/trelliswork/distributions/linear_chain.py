"""Distributions over label sequences with first-order dependencies: posteriors of HMM and CRF taggers."""

from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from trelliswork.compute.checks import check_lengths
from trelliswork.compute.kernels.scores import are_scores
from trelliswork.distributions.base import Best
from trelliswork.distributions.path_structure import ChainExpectations, PairStructure
from trelliswork.distributions.tensors import (
    bool_mask,
    check_integers,
    choose_backend,
    clean,
    edge_scores,
    expectation,
    floats,
    host,
    view,
)
from trelliswork.errors import ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain import autograd, torch_path
from trelliswork.inference.chain.beam import Beam, chosen_beam


class LinearChain(PairStructure):
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
    backend : {"auto", "kernel", "torch"}
        ``auto`` uses compiled kernels for CPU tensors. ``torch`` computes log Z and marginals by torch operations on
        the tensors' device, in O(B T S^2) memory; best labelings and samples are always computed on the CPU.

    Notes
    -----
    float32 or float64. Time O(T S^2) and memory O(T S) per sequence. Every query that returns probabilities is
    differentiable; without gradients no graph is kept. Padding has label -1 and probability 0.

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
        backend: str = "auto",
    ) -> None:
        unary, pairwise = floats("log_unary", log_unary), floats("log_pairwise", log_pairwise)
        dtype, device = unary.dtype, unary.device
        if dtype != pairwise.dtype:
            dtype = torch.float64
            unary, pairwise = unary.to(dtype), pairwise.to(dtype)
        B, T, S = chain.sizes(unary.shape)
        if pairwise.device != device:
            raise ValueRangeError(f"log_unary is on {device}, log_pairwise on {pairwise.device}: move one of them.")
        self._dtype, self._device = dtype, device
        self.backend = choose_backend(backend, device)
        self._batch = B, T
        self._lengths = None if lengths is None else check_lengths(host(lengths), B, T)
        if log_start is not None:
            start = edge_scores("log_start", log_start, unary)
            unary = torch.cat([unary[:, :1] + start, unary[:, 1:]], dim=1)
        if log_end is not None:
            end = edge_scores("log_end", log_end, unary)
            last = torch.arange(T, device=device) == self.lengths[:, None] - 1
            unary = torch.where(last[:, :, None], unary + end, unary)
        self._steps = chain.transition_steps(pairwise.shape, B, T, S)
        if self.backend == "kernel":
            self._arrays = _arrays(unary, pairwise)
        if self.backend != "kernel" or not are_scores(*self._arrays):
            clean = self._clean(unary, pairwise)
            if self.backend == "kernel" and (clean[0] is not unary or clean[1] is not pairwise):
                self._arrays = _arrays(*clean)
            unary, pairwise = clean
        self._scores, self._pairs = unary, pairwise  # with start, end and evidence, without nan in the padding

    log_unary = property(attrgetter("_scores"), doc="Scores (B, T, S) of labels, with start, end and evidence.")

    @property
    def _potentials(self) -> chain.Potentials:
        """The potentials laid out for the kernels."""
        if self.backend != "kernel":
            own, between = host(self._scores.detach()), host(self._pairs.detach())
            return chain.chain_potentials(own, between, host(self.lengths))
        if not are_scores(*self._arrays):
            raise ValueRangeError(
                "the potentials have nan or +inf: somebody has written into the tensors of this chain."
            )
        return self._laid_out

    @cached_property
    def _laid_out(self) -> chain.Potentials:
        own, between = self._arrays
        if between.size:  # all has been checked
            matrices = between.reshape(-1, *between.shape[-2:])
            return chain.Potentials(own, matrices, *self._steps, self._lengths)
        return chain.chain_potentials(own, between, self._lengths, check_values=False)

    def __repr__(self) -> str:
        B, T, S = self.log_unary.shape
        return f"LinearChain(B={B}, T={T}, S={S}, dtype={self.log_unary.dtype}, backend={self.backend!r})"

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self._batch

    @cached_property
    def lengths(self) -> Tensor:  # type: ignore[override]  # made when needed: a short sentence takes less time
        """Length of each sequence (B,)."""
        lengths = check_lengths(self._lengths, *self._batch)
        return torch.as_tensor(lengths, device=self._device)

    def expectations(self) -> ChainExpectations:
        """Return log Z (B,), node marginals (B, T, S) and transition counts (B, S, S), from one pass."""
        if self._needs_graph or self.backend != "kernel":
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

    def mbr(self) -> Best:
        """Return the labels (B, T) with the most expected hits: posterior decoding."""
        with torch.no_grad():
            log_z, marginals, _ = self._sums()
        self._check_possible(log_z, "nothing to decode")
        return self._best(marginals.argmax(dim=2).masked_fill(~self._valid(), -1))

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        B, T, _ = self.log_unary.shape
        device = generator.device if generator is not None else self.log_unary.device
        uniforms = torch.rand((n, B, T), dtype=torch.float64, generator=generator, device=device)
        return self._tensor(chain.sample(self._potentials, uniforms.cpu().numpy()))

    def condition(self, *, known: Any = None, allowed: Any = None) -> "LinearChain":
        """Return the chain given evidence; the difference of the log partitions is the evidence's log probability.

        Parameters
        ----------
        known : Tensor of int (B, T), optional
            Known labels; -1 for unknown.
        allowed : Tensor of bool (B, T, S), optional
            Labels that each position may take.
        """
        B, T, S = self.log_unary.shape
        device = self.log_unary.device
        mask = torch.ones((B, T, S), dtype=torch.bool, device=device)
        if allowed is not None:
            mask &= bool_mask("allowed", allowed, "B T S", device, B=B, T=T, S=S)
        if known is not None:
            labels = check_integers("known", known, (B, T), -1, S - 1, self._valid())
            mask &= (labels[:, :, None] < 0) | (labels[:, :, None] == torch.arange(S, device=device))
        unary = self.log_unary.masked_fill(~mask, -torch.inf)
        return self._like(unary, self.log_pairwise)

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

    def _like(self, scores: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> "LinearChain":
        lengths = self.lengths if lengths is None else lengths
        return LinearChain(scores, pairwise, lengths=lengths, backend=self.backend)

    @property
    def _per_position(self) -> bool:
        """Return True if transitions differ between positions, so that sums over positions do not determine scores."""
        return self.log_pairwise.ndim == 4 and self.log_pairwise.shape[1] > 1

    def _clean(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        """Return potentials without nan or +inf in the padding; raise if there are any elsewhere."""
        return clean("log_unary", unary, self.lengths, 0), clean("log_pairwise", pairwise, self.lengths, 1)

    def _valid(self) -> Tensor:
        """Return positions (B, T) that are not padding."""
        return self._inside(self.log_unary.shape[1])

    def _log_z(self) -> Tensor:
        potentials = self._potentials if self.backend == "kernel" else None
        return autograd.log_partition(self.log_unary, self.log_pairwise, self.lengths, potentials)

    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._moments(per_position=False)

    def _moments(self, per_position: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return log Z (float64), marginals, and edges (B, T-1, S, S) or their sums over positions (B, S, S)."""
        B, T, S = self.log_unary.shape
        per_position = self._per_position if per_position is None else per_position
        needs_graph = self._needs_graph
        if not needs_graph and self.backend == "kernel":
            value, moments = chain.expectations(self._potentials, edges=per_position, counts=not per_position)
            pairs = moments.edges if per_position else moments.counts
            return torch.from_numpy(value), torch.from_numpy(moments.marginals), torch.from_numpy(pairs)
        pairwise = self.log_pairwise if self.log_pairwise.ndim == 4 else self.log_pairwise[None, None]
        # With one copy per sequence (and position), the gradient of each copy is its own expectations.
        if T == 1:
            pairwise = pairwise.new_zeros((B, 1, S, S))
        pairwise = pairwise.expand(B, max(T - 1, 1) if per_position or self._per_position else 1, S, S)
        unary = self.log_unary
        with torch.enable_grad():
            if not needs_graph or not unary.requires_grad:
                unary = unary.detach().requires_grad_()
            if not needs_graph or not pairwise.requires_grad:
                pairwise = pairwise.detach().requires_grad_()
            log_z = self._like(unary, pairwise)._log_z()
            leaves = unary, pairwise  # without transitions, T = 1, one is not used
            nodes, edges = torch.autograd.grad(log_z.sum(), leaves, create_graph=needs_graph, materialize_grads=True)
        edges = edges[:, : T - 1] if per_position else edges.sum(dim=1)
        return (log_z if needs_graph else log_z.detach()), nodes, edges

    def _moments_for(self, other: Self) -> tuple[Tensor, Tensor, Tensor]:
        return self._moments(per_position=self._per_position or other._per_position)

    def _torch_log_z(self, beta: Any = 1) -> Tensor:
        return torch_path.log_partition(self.log_unary, self.log_pairwise, self.lengths, beta)

    def _expected_score(self, moments: tuple[Tensor, Tensor, Tensor], sizes: bool = False) -> Tensor:
        _, marginals, edges = moments
        pairwise = self.log_pairwise
        if edges.ndim == 4 and pairwise.ndim == 2:
            pairwise = pairwise[None, None]
        elif edges.ndim == 3 and pairwise.ndim == 4:
            pairwise = pairwise[:, 0] if pairwise.shape[1] else pairwise.new_zeros(edges.shape)
        return expectation(marginals, self.log_unary, sizes) + expectation(edges, pairwise, sizes)

    def _score(self, structure: Any) -> Tensor:
        (B, T, S), valid = self.log_unary.shape, self._valid()
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


def _arrays(*tensors: Tensor) -> list[Any]:
    """Return contiguous arrays of tensors on the CPU, copied only where they are not contiguous."""
    return [np.ascontiguousarray(view(tensor)) for tensor in tensors]
