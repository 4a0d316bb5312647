"""Base of trees that are scored by their parts, arcs or spans, with or without labels."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.distributions.base import LogLinear
from trelliswork.distributions.tensors import CPU, clean, expectation, gradients
from trelliswork.inference.tensors import log_sum


class TreeExpectations(NamedTuple):
    """log Z (B,) and the marginals of arcs (B, n+1, n+1) or spans (B, n, n), with labels (.., L)."""

    log_z: Tensor
    marginals: Tensor


class PartTree(LogLinear):
    """Base class of dependency trees and bracketings: scores (B, N, N) of all parts, or (B, N, N, L) with labels."""

    def _set_scores(self, name: str, scores: Tensor, lengths: NDArray[np.int64], parts: NDArray[np.bool_]) -> None:
        """Set the attributes; the shape has been checked. ``parts`` (B, N, N) are the possible parts."""
        self._dtype, self._device, self._by_torch = scores.dtype, scores.device, scores.device != CPU
        self.lengths = torch.as_tensor(lengths, device=scores.device)
        self._scores = clean(name, scores, parts)
        self._log_sum = self._sum_labels()

    @property
    def _inputs(self) -> tuple[Tensor]:
        return (self._scores,)

    @property
    def labeled(self) -> bool:
        """Return True if arcs or spans have labels; structures then include them."""
        return self._scores.ndim == 4

    def expectations(self) -> TreeExpectations:
        """Return log Z (B,) and the marginals, from one pass."""
        log_z, marginals = self._moments()[:2]
        return TreeExpectations(log_z.to(self._dtype), marginals)

    def _moments(self) -> tuple[Tensor, ...]:
        return gradients(lambda scores: self._like(scores)._log_z(), self._inputs, self._needs_graph)

    def _sum_labels(self) -> Tensor:
        """Return scores (B, N, N) of parts with any label, in float64 if there are labels."""
        return log_sum(self._scores.double(), (3,)) if self.labeled else self._scores

    def _expected_score(self, moments: tuple[Tensor, ...]) -> Tensor:
        return expectation(moments[1], self._scores)
