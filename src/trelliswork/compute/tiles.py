"""The micro-kernel of all matrix products: a tile of the result that stays in registers while a sum runs.

A *tile* is a few rows of a few vectors each. ``add_outer`` adds the product of a column of one matrix and a row of
another to it, one load and one multiplication per vector; a loop over it is a matrix product:

    sums = tile(out, 0.0, 4, 2)
    for k in range(n):
        sums = add_outer(sums, a, at + k, width, b, to + k * step)
    store_tile(out, here, width, sums)

``max_outer`` does the same in the max-plus semiring. Each element is summed in the order of the loop, whatever the
shape of the tile, so results do not depend on it. Rows times vectors, plus vectors, plus one should not exceed the
registers (16 with AVX2). ``add`` and ``multiply`` of ``compute.simd`` combine tiles of one shape.
"""

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from trelliswork.compute.simd import Tile, Vector, combine_maximum, combine_multiply_add, pointer, splat


@intrinsic(prefer_literal=True)
def tile(typingctx: Any, array: Any, x: Any, rows: Any, vectors: Any) -> Any:
    """``tile(array, x, rows, vectors)``: a tile of the array's dtype with x everywhere; the shape must be literal."""
    shape = Tile(Vector(array.dtype), rows.literal_value, vectors.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = splat(builder, args[1], shape.vector.width)
        return shape.pack(builder, [value] * shape.size)

    return shape(array, array.dtype, rows, vectors), codegen


@intrinsic
def load_tile(typingctx: Any, like: Any, array: Any, k: Any, step: Any) -> Any:
    """``load_tile(like, array, k, step)``: a tile of the shape of ``like``; row r starts at flat index k + r * step."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = _places(context, builder, like, signature.args[1], *args[1:])
        return like.pack(builder, [builder.load(p, align=like.vector.align) for p in places])

    return like(like, array, types.intp, types.intp), codegen


@intrinsic
def store_tile(typingctx: Any, array: Any, k: Any, step: Any, sums: Any) -> Any:
    """``store_tile(array, k, step, sums)``: write a tile; its row r starts at flat index k + r * step."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = _places(context, builder, sums, signature.args[0], *args[:3])
        for place, value in zip(places, sums.unpack(builder, args[3]), strict=True):
            builder.store(value, place, align=sums.vector.align)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, sums), codegen


def _places(context: Any, builder: Any, shape: Tile, kind: Any, array: Any, k: Any, step: Any) -> Iterator[Any]:
    """Yield the pointers to the vectors of a tile in an array."""
    for _ in range(shape.rows):
        for v in range(shape.vectors):
            at = builder.add(k, ir.Constant(k.type, v * shape.vector.width))
            yield pointer(context, builder, kind, array, at, shape.vector)
        k = builder.add(k, step)


def _outer(combine: Callable[..., Any], doc: str) -> Any:
    """Return an intrinsic that updates each vector of a tile by ``combine(builder, vector_type, a, b, old)``."""

    def update(typingctx: Any, sums: Any, a: Any, i: Any, step: Any, b: Any, j: Any) -> Any:
        vector = sums.vector

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            old, left, i, step, right, j = args
            row = [
                builder.load(p, align=vector.align)
                for p in _places(context, builder, Tile(vector, 1, sums.vectors), signature.args[4], right, j, step)
            ]
            data = context.make_array(signature.args[1])(context, builder, left).data
            values = sums.unpack(builder, old)
            for r in range(sums.rows):
                x = splat(builder, builder.load(builder.gep(data, [i])), vector.width)
                for v in range(sums.vectors):
                    k = r * sums.vectors + v
                    values[k] = combine(builder, vector, x, row[v], values[k])
                i = builder.add(i, step)
            return sums.pack(builder, values)

        return sums(sums, a, types.intp, types.intp, b, types.intp), codegen

    update.__doc__ = doc
    return intrinsic(update)


add_outer = _outer(
    combine_multiply_add, "``add_outer(sums, a, i, step, b, j)``: add a[i + r * step] * b[j...] to row r; flat indices."
)
max_outer = _outer(
    lambda builder, vector, a, b, old: combine_maximum(builder, vector, old, builder.fadd(a, b)),
    "``max_outer(sums, a, i, step, b, j)``: the larger of row r and a[i + r * step] + b[j...]; flat indices.",
)


@intrinsic
def add_pairs(typingctx: Any, sums: Any, a: Any, i: Any, a_step: Any, b: Any, j: Any, b_step: Any) -> Any:
    """``add_pairs(sums, a, i, a_step, b, j, b_step)``: add the vector a[i + r * a_step...] times b[j + v * b_step...].

    Row r and column v of the tile receive the product of two vectors, lane by lane; flat indices.
    """
    vector = sums.vector

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        old, left, i, a_step, right, j, b_step = args

        def vectors(n: int, kind: Any, array: Any, at: Any, step: Any) -> list[Any]:
            places = _places(context, builder, Tile(vector, n, 1), kind, array, at, step)
            return [builder.load(p, align=vector.align) for p in places]

        rows = vectors(sums.rows, signature.args[1], left, i, a_step)
        columns = vectors(sums.vectors, signature.args[4], right, j, b_step)
        pairs = [(x, y) for x in rows for y in columns]
        values = [
            combine_multiply_add(builder, vector, x, y, value)
            for (x, y), value in zip(pairs, sums.unpack(builder, old), strict=True)
        ]
        return sums.pack(builder, values)

    return sums(sums, a, types.intp, types.intp, b, types.intp, types.intp), codegen


@intrinsic
def transpose(typingctx: Any, a: Any, i: Any, a_step: Any, b: Any, j: Any, b_step: Any) -> Any:
    """``transpose(a, i, a_step, b, j, b_step)``: b[j + c * b_step + r] = a[i + r * a_step + c] for r, c < lanes."""
    vector = Vector(a.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, i, a_step, target, j, b_step = args
        shape, n = Tile(vector, vector.width, 1), vector.width
        places = _places(context, builder, shape, signature.args[0], source, i, a_step)
        rows = [builder.load(p, align=vector.align) for p in places]
        half = 1
        while half < n:  # exchange the blocks off the diagonal, of size 1, 2, 4, ...
            low, high = (ir.Constant(ir.VectorType(ir.IntType(32), n), _exchange(n, half, part)) for part in (0, 1))
            for r in range(n):
                if not r & half:
                    pair = rows[r], rows[r + half]
                    rows[r], rows[r + half] = builder.shuffle_vector(*pair, low), builder.shuffle_vector(*pair, high)
            half *= 2
        places = _places(context, builder, shape, signature.args[3], target, j, b_step)
        for place, value in zip(places, rows, strict=True):
            builder.store(value, place, align=vector.align)
        return context.get_dummy_value()

    return types.void(a, types.intp, types.intp, b, types.intp, types.intp), codegen


def _exchange(n: int, half: int, part: int) -> list[int]:
    """Return the lanes of two vectors (the second ones from n on) that form the first or second after an exchange."""
    lanes = range(n)
    if part == 0:
        return [lane if not lane & half else lane - half + n for lane in lanes]
    return [lane + half if not lane & half else lane + n for lane in lanes]
