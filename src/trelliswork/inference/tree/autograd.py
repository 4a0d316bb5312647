"""log Z of trees as a torch function whose gradient is the arc marginals.

CPU tensors use the compiled kernels, which compute log Z and marginals together. The gradient can be differentiated
once more (marginals in a loss, gradients of entropies); that Hessian product uses ``torch_path``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trelliswork.inference.tree import eisner, matrix_tree, torch_path
from trelliswork.inference.tree.passes import Passes
from trelliswork.inference.tree.potentials import Potentials


@dataclass(frozen=True)
class Engine(Passes):
    """Compiled passes over one kind of tree, and the same log partition function in torch operations."""

    torch_log_partition: Callable[..., Tensor] = field(kw_only=True)


PROJECTIVE = Engine(**vars(eisner), torch_log_partition=torch_path.projective_log_partition)
SPANNING = Engine(**vars(matrix_tree), torch_log_partition=torch_path.spanning_log_partition)


def log_partition(engine: Engine, log_arc: Tensor, lengths: Tensor, potentials: Potentials) -> Tensor:
    """Return log Z (B,) in float64 by the kernels, differentiable twice in ``log_arc`` (B, n+1, n+1)."""
    return _LogPartition.apply(log_arc, lengths, engine, potentials)


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_arc: Tensor, lengths: Tensor, engine: Engine, potentials: Potentials) -> Tensor:
        ctx.engine, ctx.single_root = engine, potentials.single_root
        if not ctx.needs_input_grad[0]:
            return torch.from_numpy(engine.log_partition(potentials))
        log_z, marginals = engine.expectations(potentials)
        ctx.save_for_backward(log_arc, lengths, torch.from_numpy(marginals))
        return torch.from_numpy(log_z)

    @staticmethod
    def backward(ctx: Any, grad_log_z: Tensor) -> Any:
        log_arc, lengths, marginals = ctx.saved_tensors
        gradient = _Gradient.apply(log_arc, grad_log_z, lengths, marginals, ctx.engine, ctx.single_root)
        return gradient, None, None, None


class _Gradient(torch.autograd.Function):
    """The product of the upstream gradient and the marginals."""

    @staticmethod
    def forward(
        ctx: Any, log_arc: Tensor, weights: Tensor, lengths: Tensor, marginals: Tensor, engine: Engine, single: bool
    ) -> Tensor:
        ctx.engine, ctx.single_root = engine, single
        ctx.save_for_backward(log_arc, weights, lengths)
        return (weights[:, None, None] * marginals).to(log_arc.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        log_arc, weights, lengths = ctx.saved_tensors
        with torch.enable_grad():
            scores = log_arc.detach().double().requires_grad_()
            weight = weights.detach().requires_grad_()
            value = ctx.engine.torch_log_partition(scores, lengths, ctx.single_root)
            total = (weight * torch.where(torch.isneginf(value), 0, value)).sum()
            (marginals,) = torch.autograd.grad(total, scores, create_graph=True, materialize_grads=True)
            through = (marginals * grad.double()).sum()
        by_scores, by_weight = torch.autograd.grad(through, (scores, weight), materialize_grads=True)
        return by_scores.to(log_arc.dtype), by_weight, None, None, None, None
