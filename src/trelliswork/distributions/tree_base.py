"""Base of trees that are scored by their parts, arcs or spans, with or without labels."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.distributions.base import Distribution
from trelliswork.distributions.tensors import CPU, clean, draw_labels, draw_seeds, gradients
from trelliswork.inference.tensors import doubles, log_sum


class TreeExpectations(NamedTuple):
    """log Z (B,) and the marginals of arcs (B, n+1, n+1) or spans (B, n, n), with labels (.., L)."""

    log_z: Tensor
    marginals: Tensor


class PartTree(Distribution):
    """Base class of dependency trees and bracketings: scores (B, N, N) of all parts, or (B, N, N, L) with labels."""

    def _set_scores(self, name: str, scores: Tensor, lengths: NDArray[np.int64], parts: Callable[[], Any]) -> None:
        """Set the attributes; the shape has been checked. ``parts`` returns the mask (B, N, N) of possible parts."""
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

    def _ranked(self, k: int) -> tuple[Tensor, Tensor]:
        scores = self._scores.detach() if self.labeled else self._scores.detach()[..., None]
        best = scores.topk(min(k, scores.shape[3]), dim=3)
        *found, values = map(self._tensor, self._search(doubles(best.values), k))
        trees, ranks = (x.movedim(1, 0) for x in found)
        if self.labeled:
            trees = self._join(trees, best.indices[(*self._places(trees), ranks.clamp(min=0))])
        return trees.movedim(0, 1), values.to(self._dtype)

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        trees = self._tensor(self._sampled(draw_seeds(n, self.lengths, generator)))
        if not self.labeled:
            return trees
        scores = self._scores.detach().double()[self._places(trees)]
        return self._join(trees, draw_labels(scores, generator, trees.shape))

    # Trees without labels are heads (.., B, n) or charts (.., B, n, n).

    @abstractmethod
    def _search(self, scores: Any, k: int) -> tuple[Any, Any, Any]:
        """Return the k best trees (B, k, ..), ranks of their labels, and scores (B, k); ``scores`` are sorted."""

    @abstractmethod
    def _sampled(self, seeds: Any) -> Any:
        """Return draws from ``seeds`` (n, B)."""

    @abstractmethod
    def _places(self, trees: Tensor) -> tuple[Tensor, ...]:
        """Return the indices of the parts of trees in the scores; any indices in the padding."""

    @abstractmethod
    def _join(self, trees: Tensor, labels: Tensor) -> Tensor:
        """Return trees with labels of their parts."""

    def _sum_labels(self) -> Tensor:
        """Return scores (B, N, N) of parts with any label, in float64 if there are labels."""
        return log_sum(self._scores.double(), (3,)) if self.labeled else self._scores
