"""Matrix products of the fused sweep, in tiles of 4 rows by 3 vectors that stay in registers.

A *panel* is ``width(array)`` columns, three vectors: (panels, rows, width), so that a product reads it sequentially. A
tile reaches about nine tenths of the peak arithmetic rate; a library that copies its operands into panels at each call
reaches a third to two thirds on products as thin as these.
"""

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.products import add_product
from trelliswork.compute.simd import lanes, load, store
from trelliswork.compute.tiles import load_tile, store_tile, tile

ROWS = 4


@kernel
def width(array):
    """Return the number of columns of a panel."""
    return 3 * lanes(array)


@helper
def multiply(matrix, x, p, n, out, o, to, fresh):
    """Add the sum over k < n of matrix[i, k] * x[p + k width + j] to out[o + i to + j], for i < 4 and j < width.

    Indices of ``x`` and ``out`` are flat; ``fresh`` overwrites ``out`` instead of adding to it.
    """
    sums = tile(out, 0.0, ROWS, 3)
    if not fresh:
        sums = load_tile(sums, out, o, to)
    store_tile(out, o, to, add_product(sums, matrix, x, p, 3 * lanes(out), n))


@helper
def _store_row(out, o, x0, x1, x2):
    """Store three vectors from flat index o on."""
    v = lanes(out)
    store(out, o, x0)
    store(out, o + v, x1)
    store(out, o + 2 * v, x2)


@helper
def lay_columns(matrix, z, n, panels):
    """Set panels[(p n + k) width + j] = matrix[z + k, p width + j] for k < n; zeros beyond the last column."""
    R = matrix.shape[1]
    v = lanes(panels)
    w = 3 * v
    whole = R // w
    for k in range(n):
        at, to = (z + k) * R, k * w
        for _ in range(whole):
            _store_row(panels, to, load(matrix, at), load(matrix, at + v), load(matrix, at + 2 * v))
            at += w
            to += n * w
        if whole * w < R:
            for j in range(w):
                r = whole * w + j
                panels[to + j] = matrix[z + k, r] if r < R else 0


@kernel
def lay_rows(first, last, matrix, panels):
    """Set panels[p, r, j] = matrix[p width + j, r] for panels ``first`` to ``last``; zeros beyond the last row."""
    S, R = matrix.shape
    w = panels.shape[2]
    for p in range(first, last):
        for r in range(R):
            for j in range(w):
                z = p * w + j
                panels[p, r, j] = matrix[z, r] if z < S else 0
