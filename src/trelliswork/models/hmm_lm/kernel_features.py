r"""Features of the exponential kernel: :math:`\phi(u) \cdot \phi(v) \approx \exp(u \cdot v)`, never negative.

A softmax row is :math:`\exp(u \cdot v_j) / \sum_k \exp(u \cdot v_k)`; with features the matrix of all rows has rank R.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from trelliswork.errors import ValueRangeError

FeatureMap = Literal["exp", "exp-norm", "relu"]
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
    r"""Return log phi (..., R) of points (..., D): :math:`W u` (exp), :math:`W u - |u|^2 / 2` (exp-norm), or relu."""
    products = points @ projection
    if kind == "exp":
        return products
    if kind == "exp-norm":
        return products - points.square().sum(dim=-1, keepdim=True) / 2
    if kind == "relu":
        return torch.log(torch.relu(products) + RELU_FLOOR)
    raise ValueRangeError(f"the feature map must be one of {', '.join(get_args(FeatureMap))}, got {kind!r}.")
