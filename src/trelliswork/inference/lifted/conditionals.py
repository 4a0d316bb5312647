r"""Softmax of low-rank tables over all right words, with gradients, in one pass over tiles.

.. math:: \log Z(x) = \log \sum_y \exp(u_x \cdot w_y + b_y), \qquad p(y \mid x) = \exp(u_x \cdot w_y + b_y) / Z(x)

This is the main cost of learning. A tile of rows takes a matrix product, an exponential and two products back; nothing
of size C x C is kept. Scores are float32, sums over rows float64.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.errors import ShapeError
from trelliswork.inference.lifted import tiles

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Conditionals:
    r"""Normalizers and gradients; e are the weights of the rows.

    Attributes
    ----------
    log_norm : ndarray (C,)
        log Z(x).
    left : ndarray (C, D)
        :math:`e_x \sum_y p(y \mid x) w_y`: the gradient of :math:`\sum_x e_x \log Z(x)` with respect to u.
    right : ndarray (C, D)
        :math:`\sum_x e_x p(y \mid x) u_x`: its gradient with respect to w.
    bias : ndarray (C,)
        :math:`\sum_x e_x p(y \mid x)`: its gradient with respect to b.
    """

    log_norm: Array
    left: Array
    right: Array
    bias: Array


def conditionals(left: Array, right: Array, bias: Array, weights: Array) -> Conditionals:
    """Compute normalizers and gradients of all rows.

    Parameters
    ----------
    left, right : ndarray (C, D)
        u and w.
    bias : ndarray (C,)
    weights : ndarray (C,)
        Weight of each row.

    Notes
    -----
    Time O(C^2 D), three matrix products and C^2 exponentials; memory O(C D) and one tile per thread.
    """
    C, D = _check(left, right, bias, weights)
    u, w = tiles.wide(left, np.ones((C, 1))), tiles.wide(right, bias[:, None])
    across = w.T.contiguous()
    ranges = tiles.row_ranges(C, C)
    number = {start: n for n, (start, _) in enumerate(ranges)}
    columns = torch.zeros(len(ranges), C, w.shape[1])
    log_norm, row_gradient = np.empty(C), np.empty((C, D))
    height = tiles.tile_rows(C, 4)

    def work(start: int, stop: int) -> None:
        space = torch.empty(min(height, stop - start), C)
        total = columns[number[start]]
        for a in range(start, stop, height):
            b = min(a + height, stop)
            tile = space[: b - a]
            torch.mm(u[a:b], across, out=tile)
            top = tile.amax(1, keepdim=True)
            tile.sub_(top).exp_()
            norm = tile.sum(1, keepdim=True)
            log_norm[a:b] = (top.double() + norm.double().log()).numpy()[:, 0]
            share = torch.from_numpy(weights[a:b, None].astype(np.float32)) / norm
            row_gradient[a:b] = (torch.mm(tile, w) * share).numpy()[:, :D]
            total.addmm_(tile.T, u[a:b] * share)

    tiles.run(work, ranges)
    column_gradient = columns.sum(0, dtype=torch.float64).numpy()
    return Conditionals(log_norm, row_gradient, column_gradient[:, :D], column_gradient[:, D].copy())


def log_norms(left: Array, right: Array, bias: Array) -> Array:
    """Return the normalizers log Z(x) alone, shape (C,)."""
    C, _ = _check(left, right, bias, bias)
    u, across = tiles.wide(left, np.ones((C, 1))), tiles.wide(right, bias[:, None]).T.contiguous()
    log_norm = np.empty(C)
    height = tiles.tile_rows(C, 4)

    def work(start: int, stop: int) -> None:
        space = torch.empty(min(height, stop - start), C)
        for a in range(start, stop, height):
            b = min(a + height, stop)
            tile = space[: b - a]
            torch.mm(u[a:b], across, out=tile)
            top = tile.amax(1, keepdim=True)
            norm = tile.sub_(top).exp_().sum(1, keepdim=True)
            log_norm[a:b] = (top.double() + norm.double().log()).numpy()[:, 0]

    tiles.run(work, tiles.row_ranges(C, C))
    return log_norm


def _check(left: Array, right: Array, bias: Array, weights: Array) -> tuple[int, int]:
    if left.ndim != 2 or left.shape != right.shape:
        raise ShapeError(f"left and right must have one shape (C, D), got {left.shape} and {right.shape}.")
    if bias.shape != (len(left),) or weights.shape != (len(left),):
        raise ShapeError(f"bias and weights must have shape (C,) = ({len(left)},), got {bias.shape}, {weights.shape}.")
    return left.shape[0], left.shape[1]
