"""log Z of linear chains as a torch function: its gradient is the marginals.

CPU tensors go through the compiled kernels, CUDA tensors (or ``backend="torch"``) through ``torch_path``. The
forward pass keeps alpha only; the backward pass weights by the incoming gradient and sums transition counts over
sequences immediately, so that a (B, T, S, S) tensor never exists.
"""

from typing import Any

import torch
from torch import Tensor

from trelliswork.inference import chain
from trelliswork.inference.chain import torch_path
from trelliswork.inference.chain.potentials import Potentials


def log_partition(log_unary: Tensor, log_pairwise: Tensor, lengths: Tensor, potentials: Potentials | None) -> Tensor:
    """Return log Z (B,) in float64, differentiable in both potentials.

    ``log_unary`` is (B, T, S), ``log_pairwise`` (S, S) or (B or 1, T-1 or 1, S, S); ``potentials`` are the same for the
    kernels, ``None`` uses ``torch_path``. The gradient may be differentiated once more (marginals in a loss, gradients
    of entropies); this Hessian-vector product goes through ``torch_path`` and takes O(B T S^2) memory.
    """
    return _LogPartition.apply(log_unary, log_pairwise, lengths, potentials)


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_unary: Tensor, log_pairwise: Tensor, lengths: Tensor, potentials: Any) -> Tensor:
        if potentials is None:
            log_z, ctx.kept = torch_path.forward(log_unary, log_pairwise, lengths)
        elif potentials.short_length:  # both passes take less time than a second call
            wanted = any(ctx.needs_input_grad[:2])
            values, ctx.kept = chain.expectations(potentials, marginals=wanted, counts=wanted)
            log_z = torch.from_numpy(values)
        else:
            ctx.kept = chain.forward(potentials)
            log_z = torch.from_numpy(ctx.kept.log_z)
        ctx.save_for_backward(log_unary, log_pairwise, lengths, log_z)
        return log_z

    @staticmethod
    def backward(ctx: Any, grad_log_z: Tensor) -> Any:
        log_unary, log_pairwise, lengths, log_z = ctx.saved_tensors
        weights = grad_log_z.to(log_unary.dtype)
        gradient = _Gradient.apply if torch.is_grad_enabled() else _gradient
        return *gradient(log_unary, log_pairwise, weights, lengths, log_z, ctx.kept), None, None


class _Gradient(torch.autograd.Function):
    """Compute (weights * marginals, weights * edge marginals summed to the shape of log_pairwise)."""

    @staticmethod
    def forward(
        ctx: Any, log_unary: Tensor, log_pairwise: Tensor, weights: Tensor, lengths: Tensor, log_z: Tensor, kept: Any
    ) -> Any:
        ctx.save_for_backward(log_unary, log_pairwise, weights, lengths, log_z)
        return _gradient(log_unary, log_pairwise, weights, lengths, log_z, kept)

    @staticmethod
    def backward(ctx: Any, grad_marginals: Tensor, grad_edges: Tensor) -> Any:
        log_unary, log_pairwise, weights, lengths, log_z = ctx.saved_tensors
        possible = ~torch.isneginf(log_z)
        with torch.enable_grad():
            unary, pairwise = log_unary.detach().requires_grad_(), log_pairwise.detach().requires_grad_()
            weight = weights.detach().requires_grad_()
            value = torch_path.log_partition(unary, pairwise, lengths)
            total = (weight * torch.where(possible, value, 0)).sum()
            nodes, edges = torch.autograd.grad(total, (unary, pairwise), create_graph=True, materialize_grads=True)
            through = (nodes * grad_marginals).sum() + (edges * grad_edges).sum()
        return *torch.autograd.grad(through, (unary, pairwise, weight), materialize_grads=True), None, None, None


def _gradient(
    log_unary: Tensor, log_pairwise: Tensor, weights: Tensor, lengths: Tensor, log_z: Tensor, kept: Any
) -> tuple[Tensor, Tensor]:
    """Return weighted marginals and edge marginals from what the forward pass has kept."""
    if isinstance(kept, Tensor):
        return torch_path.backward(log_unary, log_pairwise, lengths, log_z, kept, weights)
    shape = log_pairwise.shape
    empty = log_pairwise.numel() == 0  # T = 1
    if isinstance(kept, chain.Expectations):
        by = weights[:, None, None]
        pairs = torch.zeros_like(log_pairwise) if empty else torch.from_numpy(kept.counts) * by
        return torch.from_numpy(kept.marginals) * by, pairs.reshape(shape)
    per_position = len(shape) == 4 and shape[1] > 1
    shared = len(shape) == 2 or tuple(shape[:2]) == (1, 1)
    result = chain.backward(
        kept,
        weights=weights.detach().numpy(),
        edges=per_position and not empty,
        counts=not per_position and not empty,
        total=shared,
    )
    marginals = torch.from_numpy(result.marginals)
    if empty:
        return marginals, torch.zeros_like(log_pairwise)
    edges = torch.from_numpy(result.edges if per_position else result.counts)
    if per_position and shape[0] == 1:
        edges = edges.sum(dim=0)
    return marginals, edges.to(log_pairwise.dtype).reshape(shape)
