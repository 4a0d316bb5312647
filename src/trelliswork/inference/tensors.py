"""Torch tensors of scores: conversions and sums that several structures share.

-inf is impossible, and exact: no large negative number stands in for it. The gradient of where(impossible, -inf, f(x))
is nan if f(x) or its derivative is, so 0 replaces -inf inside such expressions.
"""

import warnings
from collections.abc import Callable
from threading import Lock

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from trelliswork.errors import ValueRangeError

_ONE_AT_A_TIME = Lock()  # torch has one level of forward derivatives for all threads


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


def log_sum(scores: Tensor, axes: tuple[int, ...], beta: float = 1) -> Tensor:
    """Return (log sum exp(beta score)) / beta over some axes, differentiable; -inf where nothing is possible."""
    if not axes:
        return scores
    top = finite(scores.detach().amax(dim=axes, keepdim=True))
    sums = exp(plus(scores, -top) * beta).sum(dim=axes)
    positive = sums > 0
    return torch.where(positive, torch.where(positive, sums, 1).log() / beta + top.reshape(sums.shape), -torch.inf)


def entropy(log_z: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    r"""Return log Z (B,) and the entropy (B,), differentiable, from log Z as a function of an inverse temperature.

    .. math:: H = -\frac{d}{d\beta} \frac1\beta \log \sum_y \exp(\beta\, s(y)) \quad \text{at } \beta = 1

    If every sum of a recursion has the power and the division, as in `log_sum`, this derivative is the chain rule of
    entropies: each sum adds the entropy of its own choice, so that large scores do not cancel.
    """
    one = torch.ones((), dtype=torch.float64)
    with _ONE_AT_A_TIME, warnings.catch_warnings(), forward_ad.dual_level():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch compiles some of its own functions, once
        value, slope = forward_ad.unpack_dual(log_z(forward_ad.make_dual(one, one)))
    return value, torch.zeros_like(value) if slope is None else -slope


def shifted(scores: Tensor, axes: tuple[int, ...], inside: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return scores less their maximum over some axes, and the maximum with these axes of size 1, a constant.

    Small differences of scores survive beside large sums that way. The mask ``inside`` leaves padding out.
    """
    given = scores.detach()
    top = finite((given if inside is None else given.masked_fill(~inside, -torch.inf)).amax(dim=axes, keepdim=True))
    return scores - top, top
