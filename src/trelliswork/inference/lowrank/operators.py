"""Transition matrices: of low rank (with a band of neighbours, perhaps) or dense.

An operator pushes rows of states forward through the matrix and pulls messages back. ``width`` numbers a row are the
features in between, which the sweep keeps: from them a state is found again by one matrix product.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trelliswork.errors import ShapeError
from trelliswork.inference.lowrank import memory
from trelliswork.inference.lowrank.kernels import rows as kernels

compiled: Any = kernels


@dataclass
class LowRank:
    """A = left right^T, plus a band: row z leads to z + k - K with ``band[z, k]``. Rows sum to one.

    Attributes
    ----------
    left, right : Tensor (S, R)
        No negative entries.
    band : Tensor (S, 2 K + 1), optional
    """

    left: Tensor
    right: Tensor
    band: Tensor | None = None

    def __post_init__(self) -> None:
        if self.left.shape != self.right.shape or self.left.dim() != 2:
            raise ShapeError(
                f"left and right must have the same shape (S, R), got {tuple(self.left.shape)} and "
                f"{tuple(self.right.shape)}."
            )
        S = len(self.left)
        if self.band is not None and (self.band.dim() != 2 or len(self.band) != S or self.band.shape[1] % 2 == 0):
            raise ShapeError(f"band must have shape (S, 2 K + 1) with S={S}, got {tuple(self.band.shape)}.")

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.left)

    @property
    def width(self) -> int:
        """R."""
        return self.left.shape[1]

    def tensors(self) -> list[Tensor]:
        """What it consists of."""
        return [self.left, self.right] if self.band is None else [self.left, self.right, self.band]

    def dense(self) -> Tensor:
        """The matrix (S, S) it stands for: O(S^2 R)."""
        matrix = self.left @ self.right.T
        if self.band is not None:
            K = self.band.shape[1] // 2
            for k in range(-K, K + 1):
                at = torch.arange(self.n_states)[max(0, -k) : max(0, self.n_states - max(k, 0))]
                matrix[at, at + k] += self.band[at, k + K]
        return matrix

    def row(self, z: int) -> Tensor:
        """p(next state | z), (S,): O(S R)."""
        out = self.right @ self.left[z]
        if self.band is not None:
            K = self.band.shape[1] // 2
            first, last = max(0, z - K), min(self.n_states, z + K + 1)
            out[first:last] += self.band[z, first - z + K : last - z + K]
        return out

    def column(self, z: int) -> Tensor:
        """p(z | state before), (S,): O(S R)."""
        out = self.left @ self.right[z]
        if self.band is not None:
            K = self.band.shape[1] // 2
            before = torch.arange(max(0, z - K), min(self.n_states, z + K + 1))
            out[before] += self.band[before, z - before + K]
        return out

    def push(self, alpha: Tensor, features: Tensor, out: Tensor) -> None:
        """features = alpha left (n, R), out = alpha A (n, S)."""
        torch.mm(alpha, self.left, out=features)
        self.again(alpha, features, out)

    def again(self, alpha: Tensor, features: Tensor, out: Tensor) -> None:
        """The second half of ``push``."""
        torch.mm(features, self.right.T, out=out)
        if self.band is not None:
            compiled.add_band(alpha.numpy(), self.band.numpy(), out.numpy())

    def pull(self, message: Tensor, features: Tensor, out: Tensor) -> None:
        """features = message right (n, R), out = message A^T (n, S)."""
        torch.mm(message, self.right, out=features)
        torch.mm(features, self.left.T, out=out)
        if self.band is not None:
            compiled.add_band_back(message.numpy(), self.band.numpy(), out.numpy())

    def zeros(self) -> list[Tensor]:
        """Gradients to add to."""
        return [memory.zeros(*part.shape, dtype=part.dtype) for part in self.tensors()]

    def accumulate(self, sums: list[Tensor], alpha: Tensor, forward: Tensor, message: Tensor, backward: Tensor) -> None:
        """Add the expected counts of some transitions, in feature space: alpha^T backward and message^T forward."""
        sums[0].addmm_(alpha.T, backward)
        sums[1].addmm_(message.T, forward)
        if self.band is not None:
            compiled.band_counts(alpha.numpy(), message.numpy(), sums[2].numpy())


@dataclass
class Dense:
    """A matrix (S, S) whose rows sum to one."""

    matrix: Tensor

    def __post_init__(self) -> None:
        if self.matrix.dim() != 2 or self.matrix.shape[0] != self.matrix.shape[1]:
            raise ShapeError(f"matrix must have shape (S, S), got {tuple(self.matrix.shape)}.")

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.matrix)

    @property
    def width(self) -> int:
        """There are no features in between."""
        return 0

    def tensors(self) -> list[Tensor]:
        """What it consists of."""
        return [self.matrix]

    def dense(self) -> Tensor:
        """Itself."""
        return self.matrix

    def row(self, z: int) -> Tensor:
        """p(next state | z), (S,)."""
        return self.matrix[z]

    def column(self, z: int) -> Tensor:
        """p(z | state before), (S,)."""
        return self.matrix[:, z]

    def push(self, alpha: Tensor, features: Tensor, out: Tensor) -> None:
        """out = alpha A."""
        torch.mm(alpha, self.matrix, out=out)

    def again(self, alpha: Tensor, features: Tensor, out: Tensor) -> None:
        """The same."""
        torch.mm(alpha, self.matrix, out=out)

    def pull(self, message: Tensor, features: Tensor, out: Tensor) -> None:
        """out = message A^T."""
        torch.mm(message, self.matrix.T, out=out)

    def zeros(self) -> list[Tensor]:
        """Gradients to add to."""
        return [memory.zeros(*self.matrix.shape, dtype=self.matrix.dtype)]

    def accumulate(self, sums: list[Tensor], alpha: Tensor, forward: Tensor, message: Tensor, backward: Tensor) -> None:
        """Add the expected counts of some transitions over the matrix: alpha^T message."""
        sums[0].addmm_(alpha.T, message)


Transition = LowRank | Dense
