"""Functions on tensors that distributions share: checks, masks, expectations."""

import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trelliswork.compute.checks import check_scores, check_shape
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.tensors import finite

ARRAYS = {torch.float32: np.float32, torch.float64: np.float64}  # NumPy's type for each of torch's
CPU = torch.device("cpu")


def expectation(probabilities: Tensor, scores: Tensor) -> Tensor:
    """Return the sum of p * score over all but axis 0; -inf counts as 0."""
    return (probabilities * finite(scores)).sum(dim=tuple(range(1, probabilities.ndim)))


def forbidden(scores: Tensor, other: Tensor) -> Tensor:
    """Return 1 for parts that only the other scores forbid, 0 for other parts, and -inf where ``scores`` is -inf."""
    return torch.where(torch.isneginf(scores), -torch.inf, torch.isneginf(other).double())


def as_tensor(name: str, values: Any, device: torch.device | None = None) -> Tensor:
    """Return a dense tensor that shares memory with the values if possible; what is not an array raises an error."""
    if isinstance(values, np.ndarray) and min(values.strides, default=0) < 0:
        values = values.copy()
    try:
        tensor = torch.as_tensor(values, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueRangeError(
            f"{name} must be a tensor, an array, or lists of numbers nested to equal lengths, got "
            f"{reprlib.repr(values)} ({type(values).__name__})."
        ) from None
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise ValueRangeError(f"{name} must be a dense tensor, got {tensor.layout}: convert it with .to_dense().")
    return tensor


def floats(name: str, values: Any) -> Tensor:
    """Return a tensor of float32 or float64; integers are converted, other types raise an error.

    It is a tensor object of its own on the same memory: what the caller later does to the shape, type or storage of the
    given one does not reach it.
    """
    if type(values) is Tensor and values.dtype in ARRAYS and values.layout is torch.strided and not values.is_neg():
        return values.view_as(values)
    tensor = as_tensor(name, values).resolve_neg()  # a view that stands for other numbers than those in memory
    if not tensor.is_floating_point() and not tensor.is_complex():
        tensor = tensor.to(torch.get_default_dtype())
    if tensor.dtype not in ARRAYS:
        raise ValueRangeError(f"{name} must be float32 or float64, got {tensor.dtype}: convert it first.")
    return tensor.view_as(tensor)


def clean(name: str, scores: Tensor, inside: Callable[[], Any] = lambda: None) -> Tensor:
    """Raise an error for nan and +inf, but replace them by 0 in the padding.

    ``inside``, called only where there are any, returns a mask over leading axes, False in the padding.
    """
    # On the CPU, torch would start its own threads, which then compete with ours.
    values: Any = host(scores) if scores.is_cpu else scores.detach()
    if 0 in values.shape or values.max() < torch.inf:  # the maximum is nan if anything is
        return scores
    valid = inside()
    check_scores(name, host(values), host(valid))
    mask = torch.as_tensor(valid, device=scores.device)
    return torch.where(mask.reshape(*mask.shape, *[1] * (scores.ndim - mask.ndim)), scores, 0)


def gradients(log_z: Callable[..., Tensor], scores: Sequence[Tensor], graph: bool) -> tuple[Tensor, ...]:
    """Return log Z (B,) of scores and its gradients; with ``graph`` these can be differentiated again."""
    with torch.enable_grad():
        leaves = [x if graph and x.requires_grad else x.detach().requires_grad_() for x in scores]
        value = log_z(*leaves)
        found = torch.autograd.grad(value.sum(), leaves, create_graph=graph, materialize_grads=True)
    return value if graph else value.detach(), *found


def draw_seeds(n: int, lengths: Tensor, generator: torch.Generator | None) -> Any:
    """Draw an array of seeds (n, B) for kernels."""
    device = generator.device if generator is not None else lengths.device
    return torch.randint(2**62, (n, len(lengths)), generator=generator, device=device).cpu().numpy()


def bool_mask(name: str, values: Any, pattern: str, device: torch.device, **sizes: int) -> Tensor:
    """Return a boolean mask of the shape of the pattern, on a device."""
    mask = as_tensor(name, values, device)
    check_shape(name, mask.shape, pattern, **sizes)
    if mask.dtype != torch.bool:
        raise ValueRangeError(f"{name} must be boolean (True: allowed), got {mask.dtype}.")
    return mask


def check_integers(
    name: str, values: Any, shape: tuple[int, ...], lowest: int, highest: int | Tensor, inside: Tensor | None = None
) -> Tensor:
    """Return checked int64 values of a shape, within limits where ``inside``."""
    given = as_tensor(name, values, None if inside is None else inside.device)
    if tuple(given.shape) != shape:
        raise ShapeError(f"{name} must have shape {shape}, got {tuple(given.shape)}.")
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise ValueRangeError(f"{name} must be integers, got {given.dtype}.")
    bad = (given < lowest) | (given > highest)
    bad = bad if inside is None else bad & inside
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        limit = int(torch.as_tensor(highest).expand(shape)[at])
        raise ValueRangeError(f"{name} must be between {lowest} and {limit}, got {int(given[at])} at {at}.")
    return given.long()


def host(values: Any) -> Any:
    """Return a NumPy view (or copy from another device) of a tensor; anything else unchanged."""
    tensor = isinstance(values, Tensor) and values.layout == torch.strided
    return values.detach().cpu().numpy() if tensor else values


def draw_labels(log_scores: Tensor, generator: torch.Generator | None, shape: torch.Size) -> Tensor:
    """Draw labels (``shape``) by scores (``shape``, L), or what broadcasts to it; never one of probability zero."""
    sums = torch.softmax(log_scores, dim=-1).nan_to_num(1.0).cumsum(dim=-1)
    device = generator.device if generator is not None else sums.device
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator, device=device).to(sums.device)
    # The first label whose cumulative mass exceeds the uniform number.
    return (sums <= (uniform * sums[..., -1])[..., None]).sum(dim=-1).clamp(max=sums.shape[-1] - 1)
