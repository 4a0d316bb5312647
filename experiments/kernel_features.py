r"""Approximations of the exponential kernel by features, compared with the exact softmax (paper 4).

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
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.tables import Curve, Say, Table
from trelliswork.errors import ValueRangeError
from trelliswork.models.hmm_lm.kernel_features import random_projection

Approximation = Literal["positive", "orthogonal", "fourier", "nystroem", "taylor"]
Doubles = NDArray[np.float64]


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


def kernel_features(
    *,
    features: Sequence[int] = (16, 64, 256, 1024),
    n_states: int = 256,
    n_dims: int = 8,
    norm: float = 1.5,
    n_draws: int = 5,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Measure the error of softmax rows of approximate exponential kernels, by number of features.

    There are ``n_states`` random points; longer ones (``norm``) make a sharper softmax, which is harder to approximate.
    Errors are means over ``n_draws`` of random features.
    """
    generator = torch.Generator().manual_seed(seed)
    u, v = (torch.randn(n_states, n_dims, generator=generator).double() for _ in range(2))
    u, v = (norm * x / x.norm(dim=1, keepdim=True) for x in (u, v))
    table = Table(
        f"Softmax over {n_states} points of length {norm:g} in {n_dims} dimensions: error of approximate kernels",
        ["method", "features", "distance", "worst row", "negative"],
        axes=("features", "total variation distance"),
        notes=[
            "distance: total variation of rows, mean; negative: fraction of entries below zero, which are set to zero.",
            "taylor: as many features as the largest full degree that fits.",
        ],
    )
    for method in get_args(Approximation):
        say(method)
        curve = Curve(method)
        for n in features:
            errors = [softmax_error(u.numpy(), v.numpy(), method, n, seed + k) for k in range(n_draws)]
            distance, worst, negative = (
                float(np.mean([getattr(e, name) for e in errors])) for name in ("distance", "worst", "negative")
            )
            size = errors[0].n_features
            table.rows.append([method, size, distance, worst, negative])
            curve.add(size, distance)
            note = f"mean of {n_draws} draws; the paper has no figures for this"
            table.add(f"{method}, {size} features", None, distance, "total variation distance", None, note)
        table.curves.append(curve)
    return table
