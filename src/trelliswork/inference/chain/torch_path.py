"""log Z of chains in torch operations, for CUDA tensors and second derivatives; equations as in ``reference``.

Everything is in log space and batched over sequences, and each step is relative to its largest score, so that small
differences are not lost beside large scores. Differentiating needs O(B T S^2) memory.
"""

import torch
from torch import Tensor

from trelliswork.inference.tensors import log_sum, shifted


def log_partition(log_unary: Tensor, log_pairwise: Tensor, lengths: Tensor) -> Tensor:
    """Return log Z (B,) in float64, differentiable any number of times.

    ``log_pairwise`` is (S, S) or (B or 1, T-1 or 1, S, S); ``lengths`` (B,) is on the tensors' device.
    """
    steps = log_pairwise if log_pairwise.ndim == 4 else log_pairwise[None, None]
    unary, tops = shifted(log_unary, (2,))
    total = tops[:, 0, 0].double()
    log_alpha = unary[:, 0]  # less what is in ``total``; constant after the end of a sequence
    for t in range(1, log_unary.shape[1]):
        active = t < lengths
        step, step_top = shifted(steps[:, t - 1 if steps.shape[1] > 1 else 0], (-2, -1))
        ahead, top = shifted(unary[:, t] + log_sum(log_alpha[:, :, None] + step, (1,)), (1,))
        moved = tops[:, t, 0].double() + step_top.reshape(-1) + top[:, 0]
        total = torch.where(active, total + moved, total)
        log_alpha = torch.where(active[:, None], ahead, log_alpha)
    return log_sum(log_alpha, (1,)) + total
