r"""Softmax of low-rank tables over all right words, with gradients, in one pass over tiles.

.. math:: \log Z(x) = \log \sum_y \exp(u_x \cdot w_y + b_y), \qquad p(y \mid x) = \exp(u_x \cdot w_y + b_y) / Z(x)

This is the main cost of learning. A tile of rows takes a matrix product, an exponential and two products back; nothing
of size C x C is kept. Scores are float32, sums over rows float64.

In a group of processes each rank takes some of the rows; the sums of its results over all ranks are the whole.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.compute.sharing import ALONE, Group
from trelliswork.errors import ShapeError
from trelliswork.inference.lifted import tiles

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Conditionals:
    r"""Normalizers, and gradients of :math:`\sum_x e_x \log Z(x)` for weights e of the rows."""

    log_norm: Array  # (C,) log Z(x)
    left: Array  # (C, D) by u: e_x sum_y p(y | x) w_y
    right: Array  # (C, D) by w: sum_x e_x p(y | x) u_x
    bias: Array  # (C,) by b: sum_x e_x p(y | x)


def conditionals(left: Array, right: Array, bias: Array, weights: Array, group: Group = ALONE) -> Conditionals:
    """Compute normalizers and gradients for u and w (C, D), b (C,) and weights of the rows (C,).

    In a group they are those of this rank's rows, 0 for others: the caller adds them up over all ranks.
    Time O(C^2 D), three matrix products and C^2 exponentials; memory O(C D) and one tile per thread.
    """
    return _pass(left, right, bias, weights, group, gradients=True)


def log_norms(left: Array, right: Array, bias: Array, group: Group = ALONE) -> Array:
    """Return the normalizers log Z(x) of all rows, shape (C,)."""
    return group.sum(_pass(left, right, bias, bias, group, gradients=False).log_norm)


def _pass(left: Array, right: Array, bias: Array, weights: Array, group: Group, *, gradients: bool) -> Conditionals:
    """Pass over tiles once; without ``gradients`` only the normalizers are computed."""
    if left.ndim != 2 or left.shape != right.shape:
        raise ShapeError(f"left and right must have one shape (C, D), got {left.shape} and {right.shape}.")
    if bias.shape != (len(left),) or weights.shape != (len(left),):
        raise ShapeError(f"bias and weights must have shape (C,) = ({len(left)},), got {bias.shape}, {weights.shape}.")
    C, D = left.shape
    u, w = tiles.wide(left, np.ones((C, 1))), tiles.wide(right, bias[:, None])
    across = w.T.contiguous()
    ranges = tiles.row_ranges(C, C, group)
    number = {start: n for n, (start, _) in enumerate(ranges)}
    columns = torch.zeros(len(ranges) if gradients else 0, C, w.shape[1])
    log_norm, row_gradient = np.zeros(C), np.zeros((C if gradients else 0, D))
    height = tiles.tile_rows(C, 4)

    def work(start: int, stop: int) -> None:
        space = torch.empty(min(height, stop - start), C)
        for a in range(start, stop, height):
            b = min(a + height, stop)
            tile = space[: b - a]
            torch.mm(u[a:b], across, out=tile)
            top = tile.amax(1, keepdim=True)
            tile.sub_(top).exp_()
            norm = tile.sum(1, keepdim=True)
            log_norm[a:b] = (top.double() + norm.double().log()).numpy()[:, 0]
            if not gradients:
                continue
            share = torch.from_numpy(weights[a:b, None].astype(np.float32)) / norm
            row_gradient[a:b] = (torch.mm(tile, w) * share).numpy()[:, :D]
            columns[number[start]].addmm_(tile.T, u[a:b] * share)

    tiles.run(work, ranges)
    column_gradient = columns.sum(0, dtype=torch.float64).numpy()
    return Conditionals(log_norm, row_gradient, column_gradient[:, :D], column_gradient[:, D].copy())
