"""Matrix products of the fused sweep, in tiles of 4 rows by 3 vectors that stay in registers.

A *panel* is ``width(array)`` columns, three vectors: (panels, rows, width), so that a product reads it sequentially. A
tile reaches about nine tenths of the peak arithmetic rate; a library that copies its operands into panels at each call
reaches a third to two thirds on products as thin as these.
"""

from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import lanes, load, multiply_add, spread, spread_at, store

ROWS = 4


class Strided(NamedTuple):
    """A matrix inside an array: element (i, k) has flat index ``at + i * row + k * step``."""

    array: Any
    at: Any
    row: Any
    step: Any


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """``prefetch(array, k)``: request the cache line of flat index k, which may be out of range."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        read_to_second_cache = [ir.Constant(number, k) for k in (0, 2, 1)]
        builder.call(call, [builder.bitcast(builder.gep(data, [args[1]]), byte), *read_to_second_cache])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@kernel
def width(array):
    """Return the number of columns of a panel."""
    return 3 * lanes(array)


@helper
def multiply(matrix, x, p, n, out, o, to, fresh):
    """Add the sum over k < n of matrix[i, k] * x[p + k width + j] to out[o + i to + j], for i < 4 and j < width.

    Indices of ``x`` and ``out`` are flat; ``fresh`` overwrites ``out`` instead of adding to it.
    """
    a, q, row, step = matrix
    v = lanes(out)
    w = 3 * v
    o1, o2, o3 = o + to, o + 2 * to, o + 3 * to
    c00 = c01 = c02 = c10 = c11 = c12 = c20 = c21 = c22 = c30 = c31 = c32 = spread(out, out.dtype.type(0))
    if not fresh:
        c00, c01, c02 = load(out, o), load(out, o + v), load(out, o + 2 * v)
        c10, c11, c12 = load(out, o1), load(out, o1 + v), load(out, o1 + 2 * v)
        c20, c21, c22 = load(out, o2), load(out, o2 + v), load(out, o2 + 2 * v)
        c30, c31, c32 = load(out, o3), load(out, o3 + v), load(out, o3 + 2 * v)
    for _ in range(n):
        x0, x1, x2 = load(x, p), load(x, p + v), load(x, p + 2 * v)
        b = spread_at(a, q)
        c00, c01, c02 = multiply_add(b, x0, c00), multiply_add(b, x1, c01), multiply_add(b, x2, c02)
        b = spread_at(a, q + row)
        c10, c11, c12 = multiply_add(b, x0, c10), multiply_add(b, x1, c11), multiply_add(b, x2, c12)
        b = spread_at(a, q + 2 * row)
        c20, c21, c22 = multiply_add(b, x0, c20), multiply_add(b, x1, c21), multiply_add(b, x2, c22)
        b = spread_at(a, q + 3 * row)
        c30, c31, c32 = multiply_add(b, x0, c30), multiply_add(b, x1, c31), multiply_add(b, x2, c32)
        q += step
        p += w
    _store_row(out, o, c00, c01, c02)
    _store_row(out, o1, c10, c11, c12)
    _store_row(out, o2, c20, c21, c22)
    _store_row(out, o3, c30, c31, c32)


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
