r"""AdaGrad with averaging on sparse features that are given as lists of ids.

A mini-batch has parts (arcs, siblings, ...), each with a value, the gradient of the objective by its score, and the ids
of its features. The gradient g_i of weight i is the sum of the values of the parts that have feature i. A step is

.. math:: s_i \leftarrow s_i + g_i^2, \qquad w_i \leftarrow w_i + \eta g_i / (\epsilon + \sqrt{s_i})

(Duchi et al., 2011). The mean of the weights over an epoch needs no further pass: :math:`\bar w = w - u / T`, where u
sums t times the change of step t = 0, 1, ..., T - 1. Each thread updates a range of the weights; the values of a weight
are added in the order of the parts, so that results do not depend on the number of threads.

In a group of processes all ranks have all weights. Each sends the ids and values of its part of the gradient that are
not 0, 8 bytes per weight, and takes the step of the whole mini-batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.sharing import current
from trelliswork.errors import ShapeError
from trelliswork.models.parser.kernels import updates

FORGET = 4  # polynomial-decay averaging over epochs, as in ``learning.online``
_SQUARES, _CHANGES = 0, 1  # columns of the memory
_MOST_RANGES = 4  # each reads all entries
_ID_BITS = 30  # of a weight among those of a learner, in a message; the learner's number is above
_TOUCHED = np.dtype([("id", np.uint32), ("value", np.float32)])

Parts = tuple[NDArray[np.uint32], NDArray[np.int32], NDArray[np.float32]]  # see ``SparseAdaGrad.step``
NOTHING: Parts = np.zeros((0, 1), np.uint32), np.zeros(0, np.int32), np.zeros(0, np.float32)


class SparseAdaGrad:
    """Averaged AdaGrad on one vector of weights (n,), which is copied; ``rate`` is the learning rate."""

    def __init__(self, weights: NDArray[np.float32], rate: float, l2: float = 0.0) -> None:
        if weights.ndim != 1:
            raise ShapeError(f"weights must have one axis, got shape {weights.shape}.")
        self.weights = np.array(weights, np.float32)
        self.rate, self.l2 = np.float32(rate), np.float32(l2)
        self._memory = np.zeros((len(weights), 2), np.float32)
        self._gradient = np.zeros(0, np.float32)  # scratch of ``gradient``
        self._mean: NDArray[np.float32] | None = None
        self._steps = self._epochs = 0

    def step(self, ids: NDArray[np.uint32], counts: NDArray[np.int32], values: NDArray[np.float32]) -> None:
        """Take an ascent step on a mini-batch: ids (P, k), counts (P,) of ids in use and values (P,) of parts."""
        self._steps += 1
        n_blocks = -(-len(self.weights) // updates.BLOCK)
        n_ranges = min(threads.get_num_threads(), _MOST_RANGES, n_blocks)
        ranges = [(n_blocks * k // n_ranges, n_blocks * (k + 1) // n_ranges) for k in range(n_ranges)]
        number = np.float32(self._steps - 1)
        threads.run(updates.step, ranges, ids, counts, values, self.weights, self._memory, self.rate, self.l2, number)

    def gradient(self, ids: NDArray[np.uint32], counts: NDArray[np.int32], values: NDArray[np.float32]) -> NDArray[Any]:
        """Return the gradient of a mini-batch, given as for ``step``: ids and values of weights where it is not 0."""
        if not len(self._gradient):
            self._gradient = np.zeros(len(self.weights), np.float32)
        found = np.empty(int(counts.sum()), _TOUCHED)
        return found[: updates.collect(ids, counts, values, self._gradient, found["id"], found["value"])]

    def end_epoch(self) -> None:
        """Include the mean of this epoch's weights in the average."""
        if not self._steps:
            return
        self._epochs += 1
        share = np.float32((FORGET + 1) / (self._epochs + FORGET))
        mean = self.weights - self._memory[:, _CHANGES] / np.float32(self._steps)
        if self._mean is not None:
            mean = (1 - share) * self._mean + share * mean
        self._mean = mean.astype(np.float32)
        self._memory[:, _CHANGES] = 0
        self._steps = 0

    def average(self) -> NDArray[np.float32]:
        """Return the averaged weights of all finished epochs; before the first one, the weights themselves."""
        return self.weights.copy() if self._mean is None else self._mean

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state between two epochs, for a checkpoint."""
        arrays = {"weights": self.weights, "squares": self._memory[:, _SQUARES], "epochs": np.array([self._epochs])}
        return arrays if self._mean is None else arrays | {"mean": self._mean}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from ``state``'s result."""
        self.weights, self._mean = np.array(arrays["weights"]), arrays.get("mean")
        self._memory[:] = 0
        self._memory[:, _SQUARES] = arrays["squares"]
        self._steps, self._epochs = 0, int(arrays["epochs"][0])


def step_together(learners: Sequence[SparseAdaGrad], parts: Iterable[Parts]) -> None:
    """Take a step of each learner on its parts of a mini-batch; in a group of processes, on those of all ranks."""
    if current().size == 1:
        for learner, some in zip(learners, parts, strict=True):
            learner.step(*some)
        return
    own = [learner.gradient(*some) for learner, some in zip(learners, parts, strict=True)]
    for k, gradient in enumerate(own):
        gradient["id"] |= np.uint32(k << _ID_BITS)
    every = np.concatenate(current().gather_arrays(np.concatenate(own)))
    owners = every["id"] >> np.uint32(_ID_BITS)
    for k, learner in enumerate(learners):
        some = every[owners == k]
        ids = some["id"] & np.uint32((1 << _ID_BITS) - 1)
        learner.step(ids[:, None], np.ones(len(ids), np.int32), np.ascontiguousarray(some["value"]))
