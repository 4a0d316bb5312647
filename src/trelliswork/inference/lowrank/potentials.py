"""Input of every engine: transitions of low rank (optionally with a band) or dense, and emissions of the words.

A transition pushes rows of states forward through its matrix and pulls messages back. Between the two factors of a
low-rank matrix a row of S states is *compressed* to R numbers. The sweep keeps them: one matrix product recomputes the
states from them.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.lowrank import memory
from trelliswork.inference.lowrank.kernels import rows
from trelliswork.inference.lowrank.packing import Ints


class _Matrix:
    """A transition matrix by tensors, its fields, the first of which has a row per state."""

    def tensors(self) -> list[Tensor]:
        """Return the tensors of the transition, in the order of its fields."""
        return [part for part in vars(self).values() if part is not None]

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.tensors()[0])

    def zeros(self) -> list[Tensor]:
        """Return gradients of zero, for ``accumulate``."""
        return [memory.zeros(*part.shape, dtype=part.dtype) for part in self.tensors()]


@dataclass
class LowRank(_Matrix):
    """A = left right^T, plus a band: ``band[z, k]`` leads from z to z + k - K. Rows sum to one."""

    left: Tensor  # (S, R) no negative entries
    right: Tensor  # (S, R) likewise
    band: Tensor | None = None  # (S, 2 K + 1)

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
    def width(self) -> int:
        """Length of a compressed row, R."""
        return self.left.shape[1]

    def dense(self) -> Tensor:
        """Return the matrix (S, S). Time O(S^2 R)."""
        matrix = self.left @ self.right.T
        if self.band is not None:
            K = self.band.shape[1] // 2
            for k in range(-K, K + 1):
                at = torch.arange(self.n_states)[max(0, -k) : max(0, self.n_states - max(k, 0))]
                matrix[at, at + k] += self.band[at, k + K]
        return matrix

    def row(self, z: int) -> Tensor:
        """Return p(next state | z), (S,). Time O(S R)."""
        out = self.right @ self.left[z]
        if self.band is not None:
            K = self.band.shape[1] // 2
            first, last = max(0, z - K), min(self.n_states, z + K + 1)
            out[first:last] += self.band[z, first - z + K : last - z + K]
        return out

    def column(self, z: int) -> Tensor:
        """Return p(z | previous state), (S,). Time O(S R)."""
        out = self.left @ self.right[z]
        if self.band is not None:
            K = self.band.shape[1] // 2
            before = torch.arange(max(0, z - K), min(self.n_states, z + K + 1))
            out[before] += self.band[before, z - before + K]
        return out

    def push(self, alpha: Tensor, compressed: Tensor, out: Tensor) -> None:
        """Compute compressed = alpha left (n, R) and out = alpha A (n, S)."""
        torch.mm(alpha, self.left, out=compressed)
        self.push_again(alpha, compressed, out)

    def push_again(self, alpha: Tensor, compressed: Tensor, out: Tensor) -> None:
        """Compute ``out`` of ``push`` from the compressed rows."""
        torch.mm(compressed, self.right.T, out=out)
        if self.band is not None:
            rows.through_band(alpha.numpy(), self.band.numpy(), out.numpy(), rows.MESSAGE)

    def pull(self, message: Tensor, compressed: Tensor, out: Tensor) -> None:
        """Compute compressed = message right (n, R) and out = message A^T (n, S)."""
        torch.mm(message, self.right, out=compressed)
        torch.mm(compressed, self.left.T, out=out)
        if self.band is not None:
            rows.through_band(out.numpy(), self.band.numpy(), message.numpy(), rows.ALPHA)

    def accumulate(self, sums: list[Tensor], alpha: Tensor, forward: Tensor, message: Tensor, backward: Tensor) -> None:
        """Add the expected counts of some transitions, in rank space: alpha^T backward and message^T forward."""
        sums[0].addmm_(alpha.T, backward)
        sums[1].addmm_(message.T, forward)
        if self.band is not None:
            rows.through_band(alpha.numpy(), sums[2].numpy(), message.numpy(), rows.BAND)


@dataclass
class Dense(_Matrix):
    """A matrix (S, S) whose rows sum to one."""

    matrix: Tensor

    def __post_init__(self) -> None:
        if self.matrix.dim() != 2 or self.matrix.shape[0] != self.matrix.shape[1]:
            raise ShapeError(f"matrix must have shape (S, S), got {tuple(self.matrix.shape)}.")

    @property
    def width(self) -> int:
        """Zero: rows are not compressed."""
        return 0

    def dense(self) -> Tensor:
        """Return the matrix (S, S)."""
        return self.matrix

    def row(self, z: int) -> Tensor:
        """Return p(next state | z), (S,)."""
        return self.matrix[z]

    def column(self, z: int) -> Tensor:
        """Return p(z | previous state), (S,)."""
        return self.matrix[:, z]

    def push(self, alpha: Tensor, compressed: Tensor, out: Tensor) -> None:
        """Compute out = alpha A."""
        torch.mm(alpha, self.matrix, out=out)

    push_again = push

    def pull(self, message: Tensor, compressed: Tensor, out: Tensor) -> None:
        """Compute out = message A^T."""
        torch.mm(message, self.matrix.T, out=out)

    def accumulate(self, sums: list[Tensor], alpha: Tensor, forward: Tensor, message: Tensor, backward: Tensor) -> None:
        """Add the expected counts of some transitions over the matrix: alpha^T message."""
        sums[0].addmm_(alpha.T, message)


Transition = LowRank | Dense


def check(log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints) -> None:
    """Raise if shapes or word ids do not fit each other."""
    S = transition.n_states
    if log_start.shape != (S,) or log_emission.dim() != 2 or log_emission.shape[1] != S:
        raise ShapeError(
            f"log_start must have shape (S,) and log_emission (W, S) with the transition's S={S}, got "
            f"{tuple(log_start.shape)} and {tuple(log_emission.shape)}."
        )
    if len(words) != offsets[-1] or offsets[0] != 0:
        raise ShapeError(f"offsets must start with 0 and end with the number of words {len(words)}, got {offsets}.")
    if len(words) and not (words.min() >= 0 and words.max() < len(log_emission)):
        raise ValueRangeError(
            f"words must be rows of log_emission, 0 to {len(log_emission) - 1}, got {words.min()} to {words.max()}."
        )


def scaled(log_emission: Tensor) -> tuple[Tensor, NDArray[np.float64]]:
    """Return the emissions of each word divided by their maximum (W, S), and the logarithms of the maxima (W,)."""
    shift = largest(log_emission)
    return torch.exp(log_emission - shift[:, None]), shift.double().numpy()


def largest(log_emission: Tensor) -> Tensor:
    """Return the largest log emission of each word (W,); 0 for impossible words."""
    shift = log_emission.amax(dim=1)
    return torch.where(torch.isfinite(shift), shift, 0)


def word_shifts(shift: NDArray[np.float64], words: Ints, offsets: Ints) -> NDArray[np.float64]:
    """Return the sum of the shifts (W,) of ``scaled`` over the words of each sentence (B,)."""
    return np.add.reduceat(shift[words], offsets[:-1])
