"""Bases of chains and of other structures that are the paths of a graph: segmentations, alignments."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from trelliswork.compute.checks import check_scores, check_shape
from trelliswork.distributions.base import Distribution
from trelliswork.distributions.tensors import CPU, clean, gradients, host
from trelliswork.errors import ValueRangeError
from trelliswork.inference.paths import log_partition, torch_log_partition
from trelliswork.inference.semirings import Integers, Lattice, Recursions
from trelliswork.inference.tensors import doubles


class ChainExpectations(NamedTuple):
    """log Z (B,), marginals of positions (B, T, S) or other parts, and expected transition counts (B, S, S)."""

    log_z: Tensor
    marginals: Tensor
    transition_counts: Tensor


class PairStructure(Distribution):
    """Base class of structures scored by parts (B, ..) and by pairs of neighboring parts."""

    _scores: Tensor
    _pairs: Tensor

    log_pairwise = property(lambda self: self._pairs, doc="Scores of pairs of neighboring parts.")

    @property
    def _inputs(self) -> tuple[Tensor, Tensor]:
        return self._scores, self._pairs

    def expectations(self) -> ChainExpectations:
        """Return log Z (B,), the marginals and the expected number of pairs (B, S, S), from one pass."""
        log_z, marginals, counts = self._sums()
        return ChainExpectations(log_z.to(self._dtype), marginals, counts)

    def transition_counts(self) -> Tensor:
        """Return the expected number of pairs of neighboring parts (B, S, S); paper 1, eq. 20."""
        counts: Tensor = self._sums()[2]
        return counts


class PathStructure(PairStructure):
    """Base class of structures whose pairs have scores (S, S)."""

    _recursions: ClassVar[Recursions]
    _lattice: Lattice

    def _set_scores(self, name: str, scores: Tensor, pairwise: Tensor, inside: Callable[[], Tensor]) -> None:
        """Set the attributes; shapes have been checked. ``inside`` returns what is not padding."""
        self._dtype = torch.float32 if scores.dtype == pairwise.dtype == torch.float32 else torch.float64
        self._device, self._by_torch = scores.device, scores.device != CPU
        if pairwise.device != scores.device:
            raise ValueRangeError(f"{name} is on {scores.device}, log_pairwise on {pairwise.device}: move one of them.")
        check_shape("log_pairwise", pairwise.shape, "S S", S=scores.shape[3])
        check_scores("log_pairwise", host(pairwise))
        self._scores, self._pairs = clean(name, scores, inside).to(self._dtype), pairwise.to(self._dtype)

    def _ranked(self, k: int) -> tuple[Tensor, Tensor]:
        paths, scores = self._recursions.topk(self._lattice, *self._arrays(), k)
        self._check_possible(torch.from_numpy(scores[:, 0]), "nothing to decode")
        return self._with_scores(self._decode(paths), scores)

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        shape, device = (n, len(self._scores), self._lattice.longest), generator.device if generator else self._device
        uniforms = torch.rand(shape, dtype=torch.float64, generator=generator, device=device)
        log_z, paths = self._recursions.sample(self._lattice, *self._arrays(), uniforms.cpu().numpy())
        self._check_possible(torch.from_numpy(log_z), "nothing to sample")
        return self._tensor(self._decode(paths))

    @abstractmethod
    def _decode(self, paths: Integers) -> Integers:
        """Return structures (.., n) of paths (.., longest); -1 everywhere where there is no path."""

    def _arrays(self) -> tuple[Any, Any]:
        return doubles(self._scores).reshape(len(self._scores), -1), doubles(self._pairs).reshape(-1)

    def _log_z(self) -> Tensor:
        compute = torch_log_partition if self._by_torch else log_partition
        return compute(self._recursions, self._lattice, self._scores, self._pairs)

    def _moments(self) -> tuple[Tensor, Tensor, Tensor]:
        B, S = len(self._scores), len(self._pairs)
        if self._by_torch or self._needs_graph:
            # With one copy per sequence, the gradient of each copy is its own expectations.
            log_z = partial(torch_log_partition, self._recursions, self._lattice, each=True)
            return gradients(log_z, (self._scores, self._pairs.expand(B, S, S)), self._needs_graph)  # type: ignore[return-value]
        found = self._recursions.expectations(self._lattice, *self._arrays())
        marginals, counts = (torch.from_numpy(x).to(self._dtype) for x in (found.parts, found.pairs))
        return torch.from_numpy(found.log_z), marginals.reshape(self._scores.shape), counts.reshape(B, S, S)
