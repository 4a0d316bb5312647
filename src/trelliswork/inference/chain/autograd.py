"""log Z of linear chains as a torch function: its gradient is the marginals.

CPU tensors go through the compiled kernels, those of other devices through ``torch_path``. The kernels'
forward pass keeps alpha only; the backward pass weights by the incoming gradient and sums transition counts over
sequences immediately, so that a (B, T, S, S) tensor never exists.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from trelliswork.inference import chain, tensors
from trelliswork.inference.chain import torch_path
from trelliswork.inference.chain.potentials import Potentials


def log_partition(log_unary: Tensor, log_pairwise: Tensor, lengths: Tensor, potentials: Potentials | None) -> Tensor:
    """Return log Z (B,) in float64, differentiable in both potentials.

    ``log_unary`` is (B, T, S), ``log_pairwise`` (S, S) or (B or 1, T-1 or 1, S, S); ``potentials`` hold these scores
    for the kernels, ``None`` uses ``torch_path``. The gradient may be differentiated once more (marginals in a loss,
    gradients of entropies); this Hessian-vector product goes through ``torch_path`` and takes O(B T S^2) memory.
    """

    def again(unary: Tensor, pairwise: Tensor) -> Tensor:
        return torch_path.log_partition(unary, pairwise, lengths)

    if potentials is None:
        return again(log_unary, log_pairwise)
    given, shape = potentials, tuple(log_pairwise.shape)

    def compute(wanted: bool) -> Any:
        if given.length_if_short:  # both passes take less time than a second call
            log_z, found = chain.expectations(given, marginals=wanted, counts=wanted)
            return log_z, lambda weights: (weights * torch.from_numpy(found.marginals), weights * _sums(found, shape))
        passed = chain.forward(given)
        return passed.log_z, lambda weights: _gradients(passed, shape, weights)

    return tensors.log_partition(compute, again, log_unary, log_pairwise)


def _gradients(passed: chain.Forward, shape: tuple[int, ...], weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return weighted marginals and edge marginals summed to the shape of the pairwise potentials."""
    own = len(shape) == 4 and shape[1] > 1
    total = len(shape) == 2 or shape[:2] == (1, 1)
    found = chain.backward(passed, weights=weights.numpy(), edges=own, counts=not own, total=total)
    assert found.marginals is not None
    return torch.from_numpy(found.marginals), _sums(found, shape)


def _sums(found: chain.Expectations, shape: tuple[int, ...]) -> Tensor:
    """Return edge marginals summed to the shape of the pairwise potentials."""
    pairs = found.counts if found.edges is None else found.edges
    assert pairs is not None
    if 0 in shape:  # T = 1
        pairs = np.zeros(shape)
    return torch.from_numpy(pairs.sum(axis=0) if found.edges is not None and shape[0] == 1 else pairs)
