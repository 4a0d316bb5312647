"""The matrix product of all kernels: one tile of the result, summed in registers. See ``compute.tiles``."""

from typing import Any, NamedTuple

from trelliswork.compute.jit import helper
from trelliswork.compute.tiles import add_outer, max_outer


class Factor(NamedTuple):
    """The left matrix of a product inside an array: element (i, k) has flat index ``at + i * row + k * step``."""

    array: Any
    at: Any
    row: Any
    step: Any


@helper
def add_product(sums, factor, other, at, step, n):
    """Return the tile sums[i, j] + sum over k < n of factor[i, k] * other[at + k * step + j]; flat indices."""
    array, x, row, next_x = factor
    for _ in range(n):
        sums = add_outer(sums, array, x, row, other, at)
        x += next_x
        at += step
    return sums


@helper
def max_product(best, factor, other, at, step, n):
    """Return the tile of the maxima of best[i, j] and factor[i, k] + other[at + k * step + j] over k < n."""
    array, x, row, next_x = factor
    for _ in range(n):
        best = max_outer(best, array, x, row, other, at)
        x += next_x
        at += step
    return best
