"""Torch tensors of scores: conversions and sums that several structures share.

-inf is impossible, and exact: no large negative number stands in for it. The gradient of where(impossible, -inf, f(x))
is nan if f(x) or its derivative is, so 0 replaces -inf inside such expressions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trelliswork.errors import ValueRangeError


def doubles(scores: Tensor) -> np.ndarray:
    """Return a copy of scores as a C-contiguous float64 array on the host; nan and +inf are an error."""
    array = np.array(scores.detach().cpu().numpy(), np.float64, order="C")  # a copy: tensors may change
    if array.size and not array.max() < np.inf:
        raise ValueRangeError("scores have nan or +inf: somebody has written into the tensors of a distribution.")
    return array


def finite(scores: Tensor) -> Tensor:
    """Return scores with 0 instead of -inf."""
    return torch.where(torch.isneginf(scores), 0, scores)


def plus(scores: Tensor, other: Tensor) -> Tensor:
    """Return the sum with a finite tensor, without a gradient where scores are -inf."""
    return torch.where(torch.isneginf(scores), -torch.inf, finite(scores) + other)


def exp(scores: Tensor) -> Tensor:
    """Return exp of scores, without a gradient where they are -inf."""
    return torch.where(torch.isneginf(scores), 0, finite(scores).exp())


def log_sum(scores: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return log sum exp(score) over some axes, differentiable; -inf where nothing is possible."""
    if not axes:
        return scores
    top = finite(scores.detach().amax(dim=axes, keepdim=True))
    sums = exp(plus(scores, -top)).sum(dim=axes)
    positive = sums > 0
    return torch.where(positive, torch.where(positive, sums, 1).log() + top.reshape(sums.shape), -torch.inf)


def shifted(scores: Tensor, axes: tuple[int, ...], inside: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return scores less their maximum over some axes, and the maximum with these axes of size 1, a constant.

    Small differences of scores survive beside large sums that way. The mask ``inside`` leaves padding out.
    """
    given = scores.detach()
    top = finite((given if inside is None else given.masked_fill(~inside, -torch.inf)).amax(dim=axes, keepdim=True))
    return scores - top, top


Gradients = Callable[[Tensor], Sequence[Tensor]]


def log_partition(
    compute: Callable[[bool], tuple[np.ndarray, Gradients]], again: Callable[..., Tensor], *scores: Tensor
) -> Tensor:
    """Return log Z (B,) in float64 by compiled code, as a torch function of the scores, differentiable twice.

    Parameters
    ----------
    compute : callable
        Takes whether gradients are wanted; returns log Z, and a function from weights (B,) to the gradients of
        weights @ log Z.
    again : callable
        log Z of the scores in torch operations, for the second derivative.
    """
    return _LogPartition.apply(compute, again, *scores)


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compute: Any, again: Any, *scores: Tensor) -> Tensor:
        log_z, ctx.gradients = compute(any(ctx.needs_input_grad))
        ctx.again = again
        ctx.save_for_backward(*scores)
        return torch.from_numpy(log_z)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> Any:
        if torch.is_grad_enabled():
            return None, None, *_Gradient.apply(ctx.gradients, ctx.again, weights, *ctx.saved_tensors)
        return None, None, *_gradients(ctx.gradients, weights, ctx.saved_tensors)


class _Gradient(torch.autograd.Function):
    """The gradients of weights @ log Z."""

    @staticmethod
    def forward(ctx: Any, gradients: Gradients, again: Any, weights: Tensor, *scores: Tensor) -> Any:
        ctx.again = again
        ctx.save_for_backward(weights, *scores)
        return _gradients(gradients, weights, scores)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        with torch.enable_grad():
            weights, *scores = inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            log_z = ctx.again(*scores)
            total = (weights * torch.where(torch.isneginf(log_z), 0, log_z)).sum()
            first = torch.autograd.grad(total, scores, create_graph=True, materialize_grads=True)
            products = [(gradient * by).sum() for gradient, by in zip(first, upstream, strict=True)]
            through = torch.stack(products).sum()
        return None, None, *torch.autograd.grad(through, inputs, materialize_grads=True)


def _gradients(compute: Gradients, weights: Tensor, scores: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of weights @ log Z, in the shapes and dtypes of the scores."""
    found = zip(compute(weights), scores, strict=True)
    return tuple(gradient.to(x.dtype).reshape(x.shape) for gradient, x in found)
