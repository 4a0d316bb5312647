r"""The value and gradient of an objective; in a group of processes, of one that is a sum over all sentences.

There, each rank has the sum over its own sentences. The total of the values, and of the slopes along a direction, is
one number each; the gradient itself is added up, in float32, only when it is asked for: once per iteration of L-BFGS,
however many steps its line search tries.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.sharing import current
from trelliswork.learning.kernels.vectors import dot

Vector = NDArray[np.float64]


class Evaluation:
    """An objective at some weights; it unpacks to value and gradient, like a tuple of both."""

    def __init__(self, value: float, gradient: Vector) -> None:
        self.value, self._gradient = value, gradient

    def __iter__(self) -> Iterator[float | Vector]:
        yield self.value
        yield self.gradient

    def __getitem__(self, k: int) -> Any:
        return tuple(self)[k]

    @property
    def gradient(self) -> Vector:
        """The gradient."""
        return self._gradient

    def slope(self, direction: Vector) -> float:
        """Return the derivative of the value along a direction."""
        return float(dot(self.gradient, direction))


class SharedEvaluation(Evaluation):
    r"""The sum of a loss over the sentences of all ranks, plus the penalty :math:`c_2 \lVert w \rVert^2`.

    ``loss`` and ``gradient`` are those of this rank's sentences; ``weights`` are w and ``l2`` is c_2.
    """

    def __init__(self, loss: float, gradient: Vector, weights: NDArray[np.floating], l2: float = 0.0) -> None:
        if l2 and current().rank == 0:  # once; so that the value has the same bits on all ranks
            loss += l2 * dot(weights, weights)
        super().__init__(current().total(loss), gradient)
        self._weights, self._l2, self._complete = weights, l2, False

    @property
    def gradient(self) -> Vector:
        """The gradient of the whole objective."""
        if not self._complete:
            group = current()
            if group.size > 1:
                self._gradient = group.sum(self._gradient.astype(np.float32)).astype(np.float64)
            if self._l2:
                self._gradient += 2 * self._l2 * self._weights
            self._complete = True
        return self._gradient

    def slope(self, direction: Vector) -> float:
        """Return the derivative of the value along a direction."""
        if self._complete or current().size == 1:
            return super().slope(direction)
        slope = dot(self._gradient, direction)
        if self._l2 and current().rank == 0:
            slope += 2 * self._l2 * dot(self._weights, direction)
        return current().total(slope)
