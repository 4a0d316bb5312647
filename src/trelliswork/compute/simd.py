"""Explicit SIMD for kernels: native-width vectors of float32 or float64 inside Numba code.

LLVM vectorizes long plain loops well, but not short loops over a label set: there the checks around the loop cost more
than the loop. These intrinsics are the few operations that such kernels need. A vector holds ``lanes(array)`` numbers;
``load(array, k)`` reads them from flat index ``k`` of a C-contiguous array. Rows are padded to a multiple of the width.
Indices must be in range: only the checked build (``TRELLISWORK_CHECKED=1``) raises an IndexError where they are not.

A vector is passed between compiled functions like a number. Keep accumulators in named variables (they are registers);
a vector wider than the hardware's is slower, not faster. Matrix products keep them in tiles, see ``compute.tiles``.
"""

import math
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

from trelliswork.compute.kernel_cache import CHECKED

VECTOR_BYTES = 64 if llvm.get_host_cpu_features().get("avx512f") else 32

_IR_TYPES = {types.float32: ir.FloatType(), types.float64: ir.DoubleType(), types.uint64: ir.IntType(64)}


class Vector(types.Type):
    """Numba type of a SIMD vector of ``dtype``: float32, float64, or uint64 for ``add`` and ``store_hashes``.

    ``width`` is the number of lanes; by default, as many as the hardware has.
    """

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self.dtype = dtype
        self.width = width or VECTOR_BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype} x {self.width})")

    @property
    def ir_type(self) -> ir.VectorType:
        """The LLVM type of this vector."""
        return ir.VectorType(_IR_TYPES[self.dtype], self.width)

    @property
    def align(self) -> int:
        """The alignment of loads and stores: that of a number."""
        return self.dtype.bitwidth // 8


class Tile(types.Type):
    """Numba type of a tile of a matrix: ``rows`` of ``vectors`` vectors each."""

    def __init__(self, vector: Vector, rows: int, vectors: int) -> None:
        self.vector, self.rows, self.vectors = vector, rows, vectors
        super().__init__(name=f"Tile({rows} x {vectors} x {vector})")

    @property
    def size(self) -> int:
        """The number of vectors."""
        return self.rows * self.vectors

    @property
    def ir_type(self) -> ir.ArrayType:
        """The LLVM type of this tile."""
        return ir.ArrayType(self.vector.ir_type, self.size)

    def pack(self, builder: Any, values: list[Any]) -> Any:
        """Return the tile of vectors, row by row."""
        packed = ir.Constant(self.ir_type, ir.Undefined)
        for k, value in enumerate(values):
            packed = builder.insert_value(packed, value, k)
        return packed

    def unpack(self, builder: Any, packed: Any) -> list[Any]:
        """Return the vectors of a tile, row by row."""
        return [builder.extract_value(packed, k) for k in range(self.size)]


@register_model(Vector)
@register_model(Tile)
class _Model(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vector | Tile) -> None:
        super().__init__(dmm, fe_type, fe_type.ir_type)


def element(context: Any, builder: Any, array_type: Any, array: Any, index: Any, n: Any = 1) -> Any:
    """Return the LLVM pointer to a flat index of an array; checked builds raise an error unless n numbers are there."""
    made = context.make_array(array_type)(context, builder, array)
    if CHECKED:
        n = ir.Constant(index.type, n) if isinstance(n, int) else n
        outside = builder.or_(
            builder.icmp_signed("<", index, ir.Constant(index.type, 0)),
            builder.icmp_signed(">", builder.add(index, n), made.nitems),
        )
        wanted = builder.icmp_signed(">", n, ir.Constant(n.type, 0))
        with builder.if_then(builder.and_(outside, wanted), likely=False):
            message = f"an index outside of its array, {array_type}, in {builder.function.name}"
            context.call_conv.return_user_exc(builder, IndexError, (message,))
    return builder.gep(made.data, [index])


def pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: Vector, n: Any = None) -> Any:
    """Return the LLVM pointer to the vector, or to its first n lanes, at a flat index of an array."""
    width = ir.Constant(index.type, vector.width)
    n = width if n is None else builder.select(builder.icmp_signed("<", n, width), n, width)
    place = element(context, builder, array_type, array, index, n)
    return builder.bitcast(place, vector.ir_type.as_pointer())


@intrinsic
def lanes(typingctx: Any, array: Any) -> Any:
    """``lanes(array)``: the number of elements per vector, or of this vector (a compile-time constant)."""
    width = array.width if isinstance(array, Vector) else Vector(array.dtype).width

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(64), width)

    return types.intp(array), codegen


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """``load(array, k)``: the vector that starts at flat index k."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = pointer(context, builder, signature.args[0], args[0], args[1], vector)
        return builder.load(place, align=vector.align)

    return vector(array, types.intp), codegen


@intrinsic
def load_as(typingctx: Any, like: Any, array: Any, index: Any) -> Any:
    """``load_as(like, array, k)``: a vector of the dtype of ``like``, from an array of this or a narrower one."""
    vector, source = Vector(like.dtype), ir.VectorType(_IR_TYPES[array.dtype], Vector(like.dtype).width)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = element(context, builder, signature.args[1], args[1], args[2], vector.width)
        place = builder.bitcast(place, source.as_pointer())
        value = builder.load(place, align=array.dtype.bitwidth // 8)
        return value if source == vector.ir_type else builder.fpext(value, vector.ir_type)

    return vector(like, array, types.intp), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """``store(array, k, v)``: write the vector v at flat index k."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = pointer(context, builder, signature.args[0], args[0], args[1], signature.args[2])
        builder.store(args[2], place, align=signature.args[2].align)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


@intrinsic
def load_part(typingctx: Any, array: Any, index: Any, n: Any, fill: Any) -> Any:
    """``load_part(array, k, n, x)``: the first n numbers from flat index k, at most a vector, and x in other lanes."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = pointer(context, builder, signature.args[0], args[0], args[1], vector, args[2])
        rest = splat(builder, args[3], vector.width)
        return _masked("load", vector, builder, vector.ir_type, args[2], lambda mask: [place, *mask, rest])

    return vector(array, types.intp, types.intp, vector.dtype), codegen


@intrinsic
def store_part(typingctx: Any, array: Any, index: Any, n: Any, value: Any) -> Any:
    """``store_part(array, k, n, v)``: write the first n lanes of the vector v, at most all, at flat index k."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = pointer(context, builder, signature.args[0], args[0], args[1], vector, args[2])
        _masked("store", vector, builder, ir.VoidType(), args[2], lambda mask: [args[3], place, *mask])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, value), codegen


def _masked(name: str, vector: Vector, builder: Any, result: Any, n: Any, arguments: Callable[..., Any]) -> Any:
    """Call LLVM's load or store of the first n lanes; ``arguments`` puts alignment and mask in their place."""
    whole = ir.IntType(vector.dtype.bitwidth)
    numbers = ir.Constant(ir.VectorType(whole, vector.width), list(range(vector.width)))
    limit = n if whole == n.type else builder.trunc(n, whole)
    mask = builder.icmp_signed("<", numbers, splat(builder, limit, vector.width))
    given = arguments([ir.Constant(ir.IntType(32), vector.align), mask])
    kind = ir.FunctionType(result, [value.type for value in given])
    name = f"llvm.masked.{name}.v{vector.width}f{vector.dtype.bitwidth}.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)


@intrinsic
def get(typingctx: Any, array: Any, index: Any) -> Any:
    """``get(array, k)``: the number at flat index k, without Numba's test for a negative index."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(element(context, builder, signature.args[0], *args))

    return array.dtype(array, types.intp), codegen


@intrinsic
def put(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """``put(array, k, x)``: write the number x at flat index k."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], element(context, builder, signature.args[0], *args[:2]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """``prefetch(array, k)``: start loading the number at flat index k, which may be any, into the second-level cache.

    More loads are under way at a time there than in the first-level cache: 2.4 ns per line instead of 3.9 or, with a
    prefetch into the first level, 6.1 (AMD Zen 4, 16 MB at random).
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, whole = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole]), "llvm.prefetch.p0i8"
        )
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), byte)
        builder.call(function, [place, *(ir.Constant(whole, value) for value in (0, 2, 1))])  # to read; level; data
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@intrinsic
def spread(typingctx: Any, array: Any, scalar: Any) -> Any:
    """``spread(array, x)``: a vector of the array's dtype, or one like a given vector, with x in every lane."""
    vector = array if isinstance(array, Vector) else Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return splat(builder, args[1], vector.width)

    return vector(array, vector.dtype), codegen


def splat(builder: Any, value: Any, width: int) -> Any:
    """Return the LLVM vector with a number in every lane."""
    zero = ir.Constant(ir.IntType(32), 0)
    single = builder.insert_element(ir.Constant(ir.VectorType(value.type, width), ir.Undefined), value, zero)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    return builder.shuffle_vector(single, single, mask)


def _elementwise(build: Callable[..., Any], arity: int, doc: str) -> Any:
    """Return an intrinsic on ``arity`` vectors, or tiles, of one type; ``build(builder, vector_type, *values)``."""

    def typer(vector: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if not isinstance(vector, Tile):
                return build(builder, vector, *args)
            parts = zip(*(vector.unpack(builder, a) for a in args), strict=True)
            return vector.pack(builder, [build(builder, vector.vector, *values) for values in parts])

        return vector(*[vector] * arity), codegen

    def one(typingctx: Any, a: Any) -> Any:
        return typer(a)

    def two(typingctx: Any, a: Any, b: Any) -> Any:
        return typer(a)

    def three(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        return typer(a)

    def four(typingctx: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return typer(a)

    function: Any = (one, two, three, four)[arity - 1]
    function.__doc__ = doc
    return intrinsic(function)


def combine_multiply_add(builder: Any, vector: Vector, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once."""
    name = f"llvm.fma.v{vector.width}f{vector.dtype.bitwidth}"
    t = vector.ir_type
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(t, [t, t, t]), name)
    return builder.call(function, [a, b, c])


def combine_maximum(builder: Any, _: Any, a: Any, b: Any) -> Any:
    """Return the larger of each lane."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _exponential(builder: Any, vector: Vector, x: Any) -> Any:
    """exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2)/2, exp(r) by its Taylor series.

    At most 2 units in the last place off for x <= 88 (float32) or 700 (float64), and 0 below the
    smallest normal number, hence exp(-inf) = 0.
    """
    bits = vector.dtype.bitwidth
    mantissa, bias, degree = (23, 127, 7) if bits == 32 else (52, 1023, 13)
    smallest = -87.3 if bits == 32 else -708.3
    t = vector.ir_type
    integers = ir.VectorType(ir.IntType(bits), vector.width)

    def constant(value: float) -> Any:
        return ir.Constant(t, [value] * vector.width)

    def whole(value: int) -> Any:
        return ir.Constant(integers, [value] * vector.width)

    inside = combine_maximum(builder, vector, x, constant(smallest))
    # Adding 1.5 * 2^mantissa rounds to the nearest integer and leaves it in the low bits.
    magic = constant(1.5 * 2.0**mantissa)
    shifted = combine_multiply_add(builder, vector, inside, constant(1 / math.log(2)), magic)
    n = builder.fsub(shifted, magic)
    high = 0.693359375 if bits == 32 else 0.693145751953125
    r = combine_multiply_add(builder, vector, n, constant(-high), inside)
    r = combine_multiply_add(builder, vector, n, constant(-_ln2_rest(high)), r)
    # Estrin's scheme: neighbors pair up, so the chain of dependent operations is short.
    terms = [constant(1 / math.factorial(k)) for k in range(degree + 1)]
    power = r
    while len(terms) > 1:
        terms = [
            combine_multiply_add(builder, vector, power, b, a) for a, b in zip(terms[::2], terms[1::2], strict=False)
        ] + (terms[-1:] if len(terms) % 2 else [])
        power = builder.fmul(power, power)
    result = terms[0]
    exponent = builder.shl(builder.add(builder.bitcast(shifted, integers), whole(bias)), whole(mantissa))
    result = builder.fmul(result, builder.bitcast(exponent, t))
    return builder.select(builder.fcmp_ordered("<", x, constant(smallest)), constant(0.0), result)


def _ln2_rest(high: float) -> float:
    """ln 2 - high to full precision (ln 2 = 0.6931471805599453 + 2.3190468138462996e-17)."""
    return (0.6931471805599453 - high) + 2.3190468138462996e-17


multiply_add = _elementwise(combine_multiply_add, 3, "``multiply_add(a, b, c)``: a * b + c, rounded once.")
add = _elementwise(
    lambda builder, vector, a, b: (builder.add if vector.dtype == types.uint64 else builder.fadd)(a, b),
    2,
    "``add(a, b)``.",
)
subtract = _elementwise(lambda builder, vector, a, b: builder.fsub(a, b), 2, "``subtract(a, b)``.")
multiply = _elementwise(lambda builder, vector, a, b: builder.fmul(a, b), 2, "``multiply(a, b)``.")
divide = _elementwise(lambda builder, vector, a, b: builder.fdiv(a, b), 2, "``divide(a, b)``.")
where_greater = _elementwise(
    lambda builder, vector, a, b, x, y: builder.select(builder.fcmp_ordered(">", a, b), x, y),
    4,
    "``where_greater(a, b, x, y)``: x where a > b, else y.",
)
maximum = _elementwise(combine_maximum, 2, "``maximum(a, b)``: the larger of each lane.")
exponential = _elementwise(_exponential, 1, _exponential.__doc__ or "")


@intrinsic
def store_hashes(typingctx: Any, array: Any, index: Any, keys: Any, multiplier: Any, shift: Any) -> Any:
    """``store_hashes(array, k, v, m, s)``: write ``((x ^ x >> 32) * m) >> s`` of the lanes x of v as uint32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, index, x, multiplier, shift = args
        narrow = ir.VectorType(ir.IntType(32), keys.width)
        x = builder.xor(x, builder.lshr(x, ir.Constant(keys.ir_type, [32] * keys.width)))
        x = builder.lshr(builder.mul(x, splat(builder, multiplier, keys.width)), splat(builder, shift, keys.width))
        place = element(context, builder, signature.args[0], array, index, keys.width)
        place = builder.bitcast(place, narrow.as_pointer())
        builder.store(builder.trunc(x, narrow), place, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, keys, types.uint64, types.uint64), codegen


def _reduction(combine: Callable[..., Any], doc: str) -> Any:
    """Return an intrinsic that reduces a vector or tile to a number by combining halves: always in the same order."""

    def fold(typingctx: Any, a: Any) -> Any:
        vector = a.vector if isinstance(a, Tile) else a

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = a.unpack(builder, args[0]) if isinstance(a, Tile) else [args[0]]
            while len(values) > 1:
                rest = values[len(values) // 2 * 2 :]
                values = [combine(builder, x, y) for x, y in zip(values[::2], values[1::2], strict=False)] + rest
            value, width = values[0], vector.width
            while width > 1:
                width //= 2
                low, high = (
                    builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(ir.IntType(32), width), part))
                    for part in (list(range(width)), list(range(width, 2 * width)))
                )
                value = combine(builder, low, high)
            return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

        return vector.dtype(a), codegen

    fold.__doc__ = doc
    return intrinsic(fold)


total = _reduction(lambda builder, a, b: builder.fadd(a, b), "``total(v)``: the sum of the lanes of a vector or tile.")
largest = _reduction(
    lambda builder, a, b: combine_maximum(builder, None, a, b),
    "``largest(v)``: the largest lane of a vector or tile.",
)


@intrinsic
def first_equal(typingctx: Any, a: Any, b: Any) -> Any:
    """``first_equal(u, v)``: the first lane in which the vectors are equal, or the number of lanes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        equal = builder.fcmp_ordered("==", *args)
        mask = builder.zext(builder.bitcast(equal, ir.IntType(a.width)), ir.IntType(64))
        mask = builder.or_(mask, ir.Constant(ir.IntType(64), 1 << a.width))  # a sentinel: no lane is equal
        return builder.cttz(mask, ir.Constant(ir.IntType(1), 1))

    return types.intp(a, a), codegen
