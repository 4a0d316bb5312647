"""Arrays that kernels find by their addresses.

A kernel that Python calls often, for little work, spends most of its time on its arguments: about 0.1 us per array.
Such a kernel takes one array of int64 with the addresses (``array.ctypes.data``) of all others, and reads with these
intrinsics. Nothing is checked: the owner of the addresses keeps the arrays alive and in place.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


def _reader(name: str, number: Any, kind: Any, result: Any) -> Any:
    """Return the intrinsic that reads a number."""

    def read(typingctx: Any, address: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = builder.inttoptr(args[0], kind.as_pointer())
            value = builder.load(builder.gep(data, [args[1]]))
            if number is result:
                return value
            return (builder.sext if number.signed else builder.zext)(value, ir.IntType(64))

        return result(types.int64, types.intp), codegen

    read.__name__ = name
    read.__doc__ = f"``{name}(address, k)``: number k of an array of {number}."
    return intrinsic(read)


byte_at = _reader("byte_at", types.uint8, ir.IntType(8), types.int64)
uint16_at = _reader("uint16_at", types.uint16, ir.IntType(16), types.int64)
uint32_at = _reader("uint32_at", types.uint32, ir.IntType(32), types.int64)
int32_at = _reader("int32_at", types.int32, ir.IntType(32), types.int64)
int64_at = _reader("int64_at", types.int64, ir.IntType(64), types.int64)
uint64_at = _reader("uint64_at", types.uint64, ir.IntType(64), types.uint64)
float64_at = _reader("float64_at", types.float64, ir.DoubleType(), types.float64)


@intrinsic
def prefetch_at(typingctx: Any, address: Any) -> Any:
    """``prefetch_at(address)``: start loading the cache line at an address, which may be any."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, whole = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole]), "llvm.prefetch.p0i8"
        )
        place = builder.inttoptr(args[0], byte)
        builder.call(function, [place, *(ir.Constant(whole, value) for value in (0, 2, 1))])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _comparer(name: str, relation: str, bits: int) -> Any:
    """Return the intrinsic that compares the numbers of a cache line with one number."""

    def compare(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            width = 512 // bits
            vector = ir.VectorType(ir.IntType(bits), width)
            line = builder.load(builder.inttoptr(args[0], vector.as_pointer()), align=64)
            lane = builder.trunc(args[1], ir.IntType(bits))
            first = builder.insert_element(ir.Constant(vector, ir.Undefined), lane, ir.Constant(ir.IntType(32), 0))
            all_ = builder.shuffle_vector(
                first, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
            )
            mask = builder.bitcast(builder.icmp_unsigned(relation, line, all_), ir.IntType(width))
            return builder.zext(mask, ir.IntType(64))

        return types.int64(types.int64, types.int64), codegen

    compare.__name__ = name
    return intrinsic(compare)


equal16, less16 = _comparer("equal16", "==", 16), _comparer("less16", "<", 16)
equal32, less32 = _comparer("equal32", "==", 32), _comparer("less32", "<", 32)


@intrinsic
def lowest_bit(typingctx: Any, mask: Any) -> Any:
    """``lowest_bit(mask)``: the place of the lowest bit of a number that is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen
