"""Torch tensors of scores: conversions that several structures share."""

import numpy as np
import torch
from torch import Tensor

UNLIKELY = -1e30  # replaces -inf where derivatives are taken: -inf - (-inf) is nan there, and exp(-1e30) is 0


def possible(scores: Tensor) -> Tensor:
    """Return scores in float64, with ``UNLIKELY`` instead of -inf."""
    return scores.double().clamp(min=UNLIKELY)


def answer(log_z: Tensor) -> Tensor:
    """Return log Z with -inf instead of ``UNLIKELY``."""
    return torch.where(log_z > UNLIKELY / 10, log_z, -torch.inf)


def doubles(scores: Tensor) -> np.ndarray:
    """Return scores as a C-contiguous float64 array on the host."""
    return np.ascontiguousarray(scores.detach().cpu().numpy(), np.float64)
