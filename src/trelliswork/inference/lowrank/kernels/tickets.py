"""Tickets for threads that share an ordered list of jobs: each draws the next ticket and waits until its job can run.

A single thread draws all tickets, so a job never waits for a thread that has not started. Counters are elements of an
int64 array; whatever is written before a counter is raised is visible to a thread that reads the raised counter.
"""

import os
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import element

COUNTERS = 24  # length of the array: three counters, each on its own cache line
DRAWN, DONE, READY = 0, 8, 16


@intrinsic
def fetch_add(typingctx: Any, array: Any, index: Any) -> Any:
    """``fetch_add(counters, k)``: raise counter k by one and return its value before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", element(context, builder, signature.args[0], *args), one, "seq_cst")

    return types.int64(array, types.intp), codegen


@intrinsic
def read(typingctx: Any, array: Any, index: Any) -> Any:
    """``read(counters, k)``: the current value of counter k."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(element(context, builder, signature.args[0], *args), "seq_cst", 8)

    return types.int64(array, types.intp), codegen


@intrinsic
def give_way(typingctx: Any) -> Any:
    """``give_way()``: let another thread run, if the system supports it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@helper
def wait_until(counters, k, least):
    """Return when counter k has reached ``least``."""
    while read(counters, k) < least:
        give_way()
