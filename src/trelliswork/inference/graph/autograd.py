"""The value of an engine as a torch function: its gradient in the log-potentials is the beliefs.

This holds for log Z itself, and for Bethe, mean-field and TRW values at a fixed point, where their derivatives in
messages or beliefs vanish. Beliefs are constants here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.potentials import Doubles, Wiring
from trelliswork.inference.graph.result import Result


def log_partition(wiring: Wiring, result: Result, log_unary: Tensor, log_tables: Sequence[Tensor]) -> Tensor:
    """Return ``result.log_z`` (B,) as a function of the tensors (float64) from which ``wiring`` was built.

    ``log_unary`` is (B, N), ``log_tables`` (1 or B, U, s1, .., sk) for each group. The gradient by the parameters of a
    structured factor is that of its own value under the messages of belief propagation.
    """
    value: Tensor = _Value.apply(wiring, result, log_unary, *log_tables)
    for f, factor in enumerate(wiring.structured):
        if learns(factor):
            if not result.log_messages:
                raise ValueRangeError("gradients by the parameters of structured factors need engine='bp'.")
            value = value + no_change(factor, result.log_messages[f], ~result.impossible)
    return value


def learns(factor: Any) -> bool:
    """Return whether a structured factor has parameters that require a gradient."""
    return any(parameter.requires_grad for parameter in getattr(factor, "parameters", ()))


def no_change(factor: Any, log_messages: Doubles, possible: NDArray[np.bool_]) -> Tensor:
    """Return zeros (B,) with the gradient of the value of a factor by its parameters, where that is ``possible``."""
    value = factor.log_value(torch.from_numpy(np.where(possible[:, None], log_messages, 0.0)))
    return torch.where(torch.from_numpy(possible), value - value.detach(), 0.0)


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, wiring: Wiring, result: Result, log_unary: Tensor, *log_tables: Tensor) -> Tensor:
        ctx.wiring, ctx.result = wiring, result
        return torch.from_numpy(result.log_z.copy())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        wiring, result = ctx.wiring, ctx.result
        unary = grad[:, None] * torch.from_numpy(result.marginals) if ctx.needs_input_grad[2] else None
        tables: list[Tensor | None] = [None] * len(wiring.groups)
        for g, group in enumerate(wiring.groups):
            if not ctx.needs_input_grad[3 + g]:
                continue
            beliefs = torch.from_numpy(result.factor_marginals[g])  # (B, F, s1, .., sk)
            weighted = grad.reshape(-1, *[1] * (beliefs.ndim - 1)) * beliefs
            if len(group.log_tables) == 1:
                weighted = weighted.sum(dim=0, keepdim=True)
            total = torch.zeros(group.log_tables.shape, dtype=torch.float64)
            tables[g] = total.index_add_(1, torch.from_numpy(group.which), weighted)
        return None, None, unary, *tables
