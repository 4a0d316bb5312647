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

from trelliswork.compute.simd import Tile, Vector, combine_maximum, combine_multiply_add, element, pointer, splat


@intrinsic(prefer_literal=True)
def tile(typingctx: Any, array: Any, x: Any, rows: Any, vectors: Any) -> Any:
    """``tile(array, x, rows, vectors)``: a tile of the array's dtype with x everywhere; the shape must be literal."""
    shape = Tile(Vector(array.dtype), rows.literal_value, vectors.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = splat(builder, args[1], shape.vector.width)
        return shape.pack(builder, [value] * shape.size)

    return shape(array, array.dtype, rows, vectors), codegen


@intrinsic
def square_tile(typingctx: Any, array: Any) -> Any:
    """``square_tile(array)``: a tile of zeros with as many rows as lanes, each of one vector of the array's dtype."""
    vector = Vector(array.dtype)
    shape = Tile(vector, vector.width, 1)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return shape.pack(builder, [ir.Constant(vector.ir_type, None)] * shape.size)

    return shape(array), codegen


@intrinsic
def load_tile(typingctx: Any, like: Any, array: Any, k: Any, step: Any) -> Any:
    """``load_tile(like, array, k, step)``: a tile of the shape of ``like``; row r starts at flat index k + r * step.

    With ``step = (places, first)``, an array of flat indices, row r starts at k + places[first + r].
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = _places(context, builder, like, signature.args[1::2], *args[1:])
        return like.pack(builder, [builder.load(p, align=like.vector.align) for p in places])

    return like(like, array, types.intp, _step_type(step)), codegen


@intrinsic
def store_tile(typingctx: Any, array: Any, k: Any, step: Any, sums: Any) -> Any:
    """``store_tile(array, k, step, sums)``: write a tile to where `load_tile` reads it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = _places(context, builder, sums, signature.args[0:3:2], *args[:3])
        for place, value in zip(places, sums.unpack(builder, args[3]), strict=True):
            builder.store(value, place, align=sums.vector.align)
        return context.get_dummy_value()

    return types.void(array, types.intp, _step_type(step), sums), codegen


def _step_type(step: Any) -> Any:
    return step if isinstance(step, types.BaseTuple) else types.intp


def _places(context: Any, builder: Any, shape: Tile, kinds: Any, array: Any, k: Any, step: Any) -> Iterator[Any]:
    """Yield the pointers to the vectors of a tile in an array; ``kinds`` are the types of the array and the step."""
    listed = isinstance(kinds[1], types.BaseTuple)
    for r in range(shape.rows):
        start = k
        if listed:
            places, first = (builder.extract_value(step, n) for n in range(2))
            at = element(context, builder, kinds[1][0], places, builder.add(first, ir.Constant(k.type, r)))
            start = builder.add(k, builder.load(at))
        for v in range(shape.vectors):
            at = builder.add(start, ir.Constant(k.type, v * shape.vector.width))
            yield pointer(context, builder, kinds[0], array, at, shape.vector)
        if not listed:
            k = builder.add(k, step)


def _outer(combine: Callable[..., Any], doc: str) -> Any:
    """Return an intrinsic that updates each vector of a tile by ``combine(builder, vector_type, a, b, old)``."""

    def update(typingctx: Any, sums: Any, a: Any, i: Any, step: Any, b: Any, j: Any) -> Any:
        vector = sums.vector

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            old, left, i, step, right, j = args
            row = [
                builder.load(p, align=vector.align)
                for p in _places(
                    context, builder, Tile(vector, 1, sums.vectors), signature.args[4:2:-1], right, j, step
                )
            ]
            values = sums.unpack(builder, old)
            for r in range(sums.rows):
                x = splat(builder, builder.load(element(context, builder, signature.args[1], left, i)), vector.width)
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
def add_rows(typingctx: Any, sums: Any) -> Any:
    """``add_rows(sums)``: the sum of the rows, pair by pair, a tile of one row."""
    row = Tile(sums.vector, 1, sums.vectors)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = sums.unpack(builder, args[0])
        rows = [values[k : k + sums.vectors] for k in range(0, sums.size, sums.vectors)]
        while len(rows) > 1:
            pairs = zip(rows[::2], rows[1::2], strict=False)
            halved = [[builder.fadd(a, b) for a, b in zip(*pair, strict=True)] for pair in pairs]
            rows = halved + (rows[-1:] if len(rows) % 2 else [])
        return row.pack(builder, rows[0])

    return row(sums), codegen


@intrinsic
def transpose(typingctx: Any, square: Any) -> Any:
    """``transpose(square)``: the transpose of a tile with as many rows as lanes, each of one vector."""
    W = square.vector.width

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows = square.unpack(builder, args[0])

        def pick(a: Any, b: Any, lanes: list[int]) -> Any:
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), W), lanes))

        size = W // 2
        while size:  # swap the two blocks off the diagonal, then do the same within the four blocks
            high = [bool(lane & size) for lane in range(W)]
            for r in range(W):
                if not r & size:
                    a, b = rows[r], rows[r + size]
                    rows[r] = pick(a, b, [W + k - size if h else k for k, h in enumerate(high)])
                    rows[r + size] = pick(a, b, [W + k if h else k + size for k, h in enumerate(high)])
            size //= 2
        return square.pack(builder, rows)

    return square(square), codegen
