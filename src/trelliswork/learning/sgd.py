r"""Stochastic optimizers with averaging: AdaGrad on sparse features, and the averages that SGD shares with it.

A mini-batch has parts (arcs, siblings, ...), each with a value, the gradient of the objective by its score, and the ids
of its features. The gradient g_i of weight i is the sum of the values of the parts that have feature i. A step is

.. math:: s_i \leftarrow s_i + g_i^2, \qquad w_i \leftarrow w_i + \eta g_i / (\epsilon + \sqrt{s_i})

(Duchi et al., 2011). The mean of the weights over an epoch needs no further pass: :math:`\bar w = w - u / T`, where u
sums t times the change of step t = 0, 1, ..., T - 1. Each thread updates a range of the weights; the values of a weight
are added in the order of the parts, so that results do not depend on the number of threads.

Epochs are averaged with polynomial decay (Shamir and Zhang, 2013, section 4): the first steps are soon forgotten, while
the window still grows with the number of epochs.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.errors import ShapeError
from trelliswork.learning.kernels import sgd as kernels

FORGET = 4  # of averages of AdaGrad: see ``decay``
_MOST_RANGES = 4  # each reads all entries

Floats = NDArray[np.float32]


def decay(epoch: int, forget: int) -> float:
    """Return the share of the mean of an epoch, from 1 on, in the average; with ``forget`` 0 all steps count alike."""
    return (forget + 1) / (epoch + forget)


class AveragedAdaGrad:
    """State of AdaGrad: weights, sums of squared gradients, and sums of step number times change, of one shape."""

    def __init__(self, weights: NDArray[Any], squares: NDArray[Any], changes: NDArray[Any]) -> None:
        self.weights, self.squares, self.changes = weights, squares, changes
        self.steps = 0  # of this epoch
        self._mean: NDArray[Any] | None = None
        self._epochs = 0

    def end_epoch(self) -> None:
        """Include the mean of this epoch's weights in the average."""
        if not self.steps:
            return
        self._epochs += 1
        share = np.float32(decay(self._epochs, FORGET))
        mean = self.weights - self.changes / np.float32(self.steps)
        if self._mean is not None:
            mean = (1 - share) * self._mean + share * mean
        self._mean = mean.astype(np.float32)
        self.changes[:] = 0
        self.steps = 0

    def average(self) -> NDArray[Any]:
        """Return the averaged weights of all finished epochs; before the first one, the weights themselves."""
        return self.weights.copy() if self._mean is None else self._mean

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state between two epochs, for a checkpoint."""
        arrays = {"weights": self.weights, "squares": self.squares, "epochs": np.array([self._epochs])}
        return arrays if self._mean is None else arrays | {"mean": self._mean}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from ``state``'s result."""
        self._mean = arrays.get("mean")
        self.weights[:], self.squares[:], self.changes[:] = arrays["weights"], arrays["squares"], 0
        self.steps, self._epochs = 0, int(arrays["epochs"][0])


class SparseAdaGrad(AveragedAdaGrad):
    """Averaged AdaGrad on one vector of weights (n,), which is copied; ``rate`` is the learning rate."""

    def __init__(self, weights: Floats, rate: float) -> None:
        if weights.ndim != 1:
            raise ShapeError(f"weights must have one axis, got shape {weights.shape}.")
        self._memory = np.zeros((len(weights), 2), np.float32)  # squares and changes of a weight in one cache line
        super().__init__(np.array(weights, np.float32), self._memory[:, 0], self._memory[:, 1])
        self.rate = np.float32(rate)

    def step(self, ids: NDArray[np.uint32], counts: NDArray[np.int32], values: Floats) -> None:
        """Take an ascent step on a mini-batch: ids (P, k), counts (P,) of ids in use and values (P,) of parts."""
        n_blocks = -(-len(self.weights) // kernels.BLOCK)
        n_ranges = min(threads.get_num_threads(), _MOST_RANGES, n_blocks)
        ranges = [(n_blocks * k // n_ranges, n_blocks * (k + 1) // n_ranges) for k in range(n_ranges)]
        number = np.float32(self.steps)
        threads.run(kernels.step, ranges, ids, counts, values, self.weights, self._memory, self.rate, number)
        self.steps += 1
