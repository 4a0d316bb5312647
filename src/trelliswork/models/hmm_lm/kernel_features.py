r"""Feature maps of the exponential kernel: those of the model, and other approximations for comparison.

A softmax row is :math:`\exp(u \cdot v_j) / \sum_k \exp(u \cdot v_k)`. With features
:math:`\phi(u) \cdot \phi(v) \approx \exp(u \cdot v)` the matrix of all rows has rank R. Sums over states need
:math:`\phi \ge 0`, which holds for positive random features (Performer) but not for the others:

===================  ==========================================================================================
positive             :math:`\exp(w_r \cdot u - |u|^2 / 2) / \sqrt R`, w normal: unbiased, never negative
fourier              :math:`e^{|u|^2/2} (\cos w_r \cdot u, \sin w_r \cdot u) \sqrt{2 / R}`: unbiased, may be negative
nystroem             :math:`K_{um} K_{mm}^{-1/2}` with landmarks m among the points: kernel may be slightly negative
taylor               monomials up to a degree: :math:`\sum_{i \le k} (u \cdot v)^i / i!`, negative for some u, v
===================  ==========================================================================================

Negative entries of an approximate matrix are set to zero before its rows are normalized, and their share is reported.
"""

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.errors import ValueRangeError

FeatureMap = Literal["exp", "exp-norm", "relu"]
Approximation = Literal["positive", "orthogonal", "fourier", "nystroem", "taylor"]
Doubles = NDArray[np.float64]
RELU_FLOOR = 1e-4  # so that no transition is impossible


def random_projection(n_dims: int, n_features: int, generator: torch.Generator, *, orthogonal: bool = True) -> Tensor:
    """Return directions w_r as columns (n_dims, n_features), each distributed as a standard normal vector.

    With ``orthogonal``, blocks of ``n_dims`` columns are orthogonal, with the lengths of normal vectors (chi).
    """
    if not orthogonal:
        return torch.randn(n_dims, n_features, generator=generator)
    n_blocks = -(-n_features // n_dims)
    basis, triangle = torch.linalg.qr(torch.randn(n_blocks, n_dims, n_dims, generator=generator))
    # Without the signs, some directions would be more probable.
    basis = basis * torch.sign(triangle.diagonal(dim1=1, dim2=2))[:, None]
    directions = torch.cat(list(basis), dim=1)[:, :n_features]
    lengths = torch.randn(n_dims, n_features, generator=generator).norm(dim=0)
    return directions * lengths


def log_features(points: Tensor, projection: Tensor, kind: FeatureMap) -> Tensor:
    r"""Return log phi (n, R) of points (n, D): :math:`W u` (exp), :math:`W u - |u|^2 / 2` (exp-norm), or relu."""
    products = points @ projection
    if kind == "exp":
        return products
    if kind == "exp-norm":
        return products - points.square().sum(dim=1, keepdim=True) / 2
    if kind == "relu":
        return torch.log(torch.relu(products) + RELU_FLOOR)
    raise ValueRangeError(f"the feature map must be one of {', '.join(get_args(FeatureMap))}, got {kind!r}.")


def normalized_factors(log_left: Tensor, log_right: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors whose product has rows that sum to one, from log features (S, R) of states and next states.

    Each feature is shifted by its largest value on the right, each row by its largest on the left: nothing overflows,
    and values that underflow have no weight. d = 1 / (phi(u) . sum phi(v)) of paper 4, section on generalized softmax.
    """
    shift = log_right.detach().amax(dim=0)
    right = torch.exp(log_right - shift)
    left = log_left + shift
    left = torch.exp(left - left.detach().amax(dim=1, keepdim=True))
    return left / (left @ right.sum(dim=0))[:, None], right


@dataclass(frozen=True)
class SoftmaxError:
    """Difference of an approximate softmax from the exact one."""

    n_features: int  # in use
    distance: float  # mean total variation distance of rows
    worst: float  # largest distance of a row
    negative: float  # share of matrix entries that were negative before they were set to zero


def approximate_kernel(
    u: Doubles, v: Doubles, method: Approximation, n_features: int, seed: int = 0
) -> tuple[Doubles, int]:
    """Return an approximation of exp(u . v) (n, m) by features, and the number of features."""
    D = u.shape[1]
    generator = torch.Generator().manual_seed(seed)
    if method in ("positive", "orthogonal"):
        w = random_projection(D, n_features, generator, orthogonal=method == "orthogonal").double().numpy()
        maps = [np.exp(x @ w - (x**2).sum(1, keepdims=True) / 2) / math.sqrt(n_features) for x in (u, v)]
    elif method == "fourier":
        half = max(1, n_features // 2)
        w = random_projection(D, half, generator, orthogonal=False).double().numpy()
        n_features = 2 * half
        maps = []
        for x in (u, v):
            waves = np.concatenate([np.cos(x @ w), np.sin(x @ w)], axis=1)
            maps.append(np.exp((x**2).sum(1, keepdims=True) / 2) * waves / math.sqrt(half))
    elif method == "nystroem":
        points = np.concatenate([u, v])
        n_features = min(n_features, len(points))
        marks = points[np.random.default_rng(seed).choice(len(points), n_features, replace=False)]
        values, vectors = np.linalg.eigh(np.exp(marks @ marks.T))
        good = values > values.max() * 1e-10
        root = vectors[:, good] / np.sqrt(values[good])
        maps = [np.exp(x @ marks.T) @ root for x in (u, v)]
    elif method == "taylor":
        degree = 0
        while math.comb(D + degree + 1, D) <= n_features:
            degree += 1
        maps = [_monomials(x, degree) for x in (u, v)]
        n_features = maps[0].shape[1]
    else:
        raise ValueRangeError(f"the method must be one of {', '.join(get_args(Approximation))}, got {method!r}.")
    return maps[0] @ maps[1].T, n_features


def softmax_error(u: Doubles, v: Doubles, method: Approximation, n_features: int, seed: int = 0) -> SoftmaxError:
    """Compare softmax rows of exp(u . v) with those of an approximation; see the module's docstring."""
    exact = np.exp(u @ v.T)
    exact /= exact.sum(axis=1, keepdims=True)
    approximate, n_used = approximate_kernel(u, v, method, n_features, seed)
    negative = float((approximate < 0).mean())
    approximate = np.maximum(approximate, 0)
    sums = approximate.sum(axis=1, keepdims=True)
    rows = np.where(sums > 0, approximate / np.where(sums > 0, sums, 1), 1 / len(v))  # uniform if empty
    distance = np.abs(rows - exact).sum(axis=1) / 2
    return SoftmaxError(n_used, float(distance.mean()), float(distance.max()), negative)


def _monomials(x: Doubles, degree: int) -> Doubles:
    """Return features whose products are the Taylor series of exp(u . v) up to a degree."""
    columns = [np.ones(len(x))]
    for k in range(1, degree + 1):
        for chosen in combinations_with_replacement(range(x.shape[1]), k):
            times = np.bincount(chosen)
            weight = 1 / math.prod(math.factorial(int(n)) for n in times)  # multinomial / k!
            columns.append(math.sqrt(weight) * x[:, list(chosen)].prod(axis=1))
    return np.stack(columns, axis=1)
