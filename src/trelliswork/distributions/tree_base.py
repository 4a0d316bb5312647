"""Base of trees that are scored by their parts, arcs or spans, with or without labels."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute.checks import check_scores
from trelliswork.distributions.base import LogLinear
from trelliswork.distributions.tensors import as_tensor, bool_mask, choose_backend, expectation, forbidden, host
from trelliswork.inference.tensors import log_sum


class TreeExpectations(NamedTuple):
    """log Z (B,) and the marginals of arcs (B, n+1, n+1) or spans (B, n, n), with labels (.., L)."""

    log_z: Tensor
    marginals: Tensor


class PartTree(LogLinear):
    """Base class of dependency trees and bracketings: scores (B, N, N) of all parts, or (B, N, N, L) with labels."""

    _axes: ClassVar[str]  # of the scores without labels, for error messages

    def _set_scores(self, name: str, scores: Tensor, lengths: NDArray[np.int64], backend: str) -> None:
        """Set the attributes; the shape of the scores has been checked."""
        self._dtype, self._device = scores.dtype, scores.device
        self.backend = choose_backend(backend, scores.device)
        self.lengths = torch.as_tensor(lengths, device=scores.device)
        if not float(host(scores.detach()).max()) < np.inf:  # nan or inf is allowed where there is no part
            valid = self._parts_of(lengths, scores.shape[1])
            check_scores(name, host(scores.detach()), valid)
            scores = torch.where(per_label(self._tensor(valid), scores), scores, 0)
        self._scores = scores
        self._log_sum = self._sum_labels()

    @property
    def labeled(self) -> bool:
        """Return True if arcs or spans have labels; structures then include them."""
        return self._scores.ndim == 4

    def expectations(self) -> TreeExpectations:
        """Return log Z (B,) and the marginals, from one pass."""
        log_z, marginals = self._moments()[:2]
        return TreeExpectations(log_z.to(self._dtype), marginals)

    @staticmethod
    @abstractmethod
    def _parts_of(lengths: NDArray[np.int64], n: int) -> NDArray[np.bool_]:
        """Return the mask (B, n, n) of the parts of each sentence."""

    @abstractmethod
    def _like(self, scores: Tensor, **changes: Any) -> Self:
        """Return the distribution with other scores, and other arguments of the constructor."""

    def _within(self, *masks: Tensor | None) -> Self:
        """Return the trees whose parts are in all of the masks."""
        scores = self._scores
        for mask in masks:
            if mask is not None:
                scores = scores.masked_fill(~per_label(mask, scores), -torch.inf)
        return self._like(scores)

    def _allowed_mask(self, allowed: Any) -> Tensor | None:
        if allowed is None:
            return None
        axes = f"{self._axes} L" if self._scores.ndim == as_tensor("allowed", allowed).ndim == 4 else self._axes
        sizes = dict(zip(f"{self._axes} L".split(), self._scores.shape, strict=False))
        return bool_mask("allowed", allowed, axes, self._scores.device, **sizes)

    def _moments(self) -> tuple[Tensor, ...]:
        needs_graph = torch.is_grad_enabled() and self._scores.requires_grad
        with torch.enable_grad():
            given = self if needs_graph else self._like(self._scores.detach().requires_grad_())
            log_z = given._log_z()
            (marginals,) = torch.autograd.grad(
                log_z.sum(), given._scores, create_graph=needs_graph, materialize_grads=True
            )
        return log_z if needs_graph else log_z.detach(), marginals

    def _sum_labels(self, beta: Any = 1) -> Tensor:
        """Return scores (B, N, N) of parts with any label, in float64 if there are labels."""
        return log_sum(self._scores.double(), (3,), beta) if self.labeled else self._scores

    def _copies(self, B: int) -> Self:
        return self._like(self._scores.expand(B, *self._scores.shape[1:]), lengths=self.lengths.expand(B))

    def _expected_score(self, moments: tuple[Tensor, ...], sizes: bool = False) -> Tensor:
        return expectation(moments[1], self._scores, sizes)

    def _forbidden_by(self, other: Self) -> Self:
        return self._like(forbidden(self._scores, other._scores))

    def _double(self) -> Self:
        return self if self._dtype == torch.float64 else self._like(self._scores.double())

    def _is_alike(self, other: Self) -> bool:
        return type(self) is type(other) and self._scores.shape == other._scores.shape


def per_label(mask: Tensor, scores: Tensor) -> Tensor:
    """Return a mask of parts with an axis for labels if the scores have one and the mask has none."""
    return mask if mask.ndim == scores.ndim else mask[..., None]
