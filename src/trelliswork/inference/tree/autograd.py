"""log Z of trees as a torch function: its gradient is the marginals of arcs.

CPU tensors go through the compiled kernels, which find log Z and marginals together. The gradient may be differentiated
once more (marginals in a loss, gradients of entropies); that product with the Hessian goes through ``torch_path``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trelliswork.inference.tree import eisner, matrix_tree, torch_path
from trelliswork.inference.tree.potentials import Doubles, Integers, Potentials


class Engine(NamedTuple):
    """What computes with one kind of tree: the functions of ``eisner`` or ``matrix_tree``, and the torch road."""

    log_partition: Callable[[Potentials], Doubles]
    expectations: Callable[[Potentials], tuple[Doubles, Doubles]]
    best: Callable[[Potentials], tuple[Integers, Doubles]]
    topk: Callable[[Potentials, Doubles, int], tuple[Integers, Integers, Doubles]]
    sample: Callable[[Potentials, Integers], Integers]
    torch_log_partition: Callable[[Tensor, Tensor, bool], Tensor]


PROJECTIVE = Engine(
    eisner.log_partition, eisner.expectations, eisner.best, eisner.topk, eisner.sample,
    torch_path.projective_log_partition,
)  # fmt: skip
SPANNING = Engine(
    matrix_tree.log_partition, matrix_tree.expectations, matrix_tree.best, matrix_tree.topk, matrix_tree.sample,
    torch_path.spanning_log_partition,
)  # fmt: skip


def log_partition(engine: Engine, log_arc: Tensor, lengths: Tensor, potentials: Potentials) -> Tensor:
    """log Z (B,) in float64 by the kernels, differentiable in ``log_arc`` (B, n+1, n+1) twice."""
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
    """weights * marginals."""

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


def arrays(log_arc: Tensor) -> np.ndarray:
    """The scores as a C-contiguous float64 array on the host."""
    values = log_arc.detach()
    return np.ascontiguousarray((values if values.device.type == "cpu" else values.cpu()).numpy(), np.float64)
