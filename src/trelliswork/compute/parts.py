"""Vectors that are partly in an array: rows whose length is no multiple of the vector's. See ``compute.simd``."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from trelliswork.compute.simd import Vector, pointer, splat


@intrinsic
def load_part(typingctx: Any, array: Any, index: Any, n: Any, fill: Any) -> Any:
    """``load_part(array, k, n, x)``: the first n numbers from flat index k, at most a vector, and x in other lanes."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = pointer(context, builder, signature.args[0], args[0], args[1], vector, args[2])
        rest = splat(builder, args[3], vector.width)
        kinds = [place.type, ir.IntType(32), _mask_type(vector), vector.ir_type]
        function = _function(builder, "load", vector, ir.FunctionType(vector.ir_type, kinds))
        return builder.call(function, [place, _align(vector), _mask(builder, vector, args[2]), rest])

    return vector(array, types.intp, types.intp, vector.dtype), codegen


@intrinsic
def split_at(typingctx: Any, array: Any, n: Any, first: Any, rest: Any) -> Any:
    """``split_at(array, n, x, y)``: a vector of the array's dtype with x in the first n lanes, y in the others."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = (splat(builder, value, vector.width) for value in args[2:])
        return builder.select(_mask(builder, vector, args[1]), *values)

    return vector(array, types.intp, vector.dtype, vector.dtype), codegen


@intrinsic
def store_part(typingctx: Any, array: Any, index: Any, n: Any, value: Any) -> Any:
    """``store_part(array, k, n, v)``: write the first n lanes of the vector v, at most all, at flat index k."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = pointer(context, builder, signature.args[0], args[0], args[1], vector, args[2])
        kinds = [vector.ir_type, place.type, ir.IntType(32), _mask_type(vector)]
        function = _function(builder, "store", vector, ir.FunctionType(ir.VoidType(), kinds))
        builder.call(function, [args[3], place, _align(vector), _mask(builder, vector, args[2])])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, value), codegen


def _function(builder: Any, name: str, vector: Vector, kind: ir.FunctionType) -> Any:
    name = f"llvm.masked.{name}.v{vector.width}f{vector.dtype.bitwidth}.p0"
    return cgutils.get_or_insert_function(builder.module, kind, name)


def _align(vector: Vector) -> Any:
    return ir.Constant(ir.IntType(32), vector.align)


def _mask_type(vector: Vector) -> Any:
    return ir.VectorType(ir.IntType(1), vector.width)


def _mask(builder: Any, vector: Vector, n: Any) -> Any:
    """Return the mask of the first n lanes."""
    whole = ir.IntType(vector.dtype.bitwidth)
    numbers = ir.Constant(ir.VectorType(whole, vector.width), list(range(vector.width)))
    limit = n if whole == n.type else builder.trunc(n, whole)
    return builder.icmp_signed("<", numbers, splat(builder, limit, vector.width))
