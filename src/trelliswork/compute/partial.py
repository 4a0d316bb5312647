"""Vectors that are partly in an array: rows whose length is no multiple of the vector's. See ``compute.simd``."""

from collections.abc import Callable
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
