"""Kernels are compiled with all that they call; what they call is not compiled on its own."""

import sys
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary

from trelliswork.compute.jit import helper, kernel


@helper(allocates=True)
def twice(x):
    return 2 * np.full(3, x).sum()


@kernel(allocates=True)
def inner(x):
    return twice(x) + 1


@kernel(allocates=True)
def outer(x):
    return inner(x) * twice(x)


inner._cache, outer._cache = NullCache(), NullCache()  # these are not kernels of the package


def test_a_kernel_is_a_helper_within_another():
    assert outer(1.0) == 42
    assert not inner.signatures  # no machine code for a call from Python, which nobody has made
    (result,) = twice.version(True).overloads.values()
    assert result.library.get_pointer_to_function(result.fndesc.llvm_func_name) == 0
    assert inner(1.0) == 7
    assert len(inner.signatures) == 1


class Two(NamedTuple):
    left: np.ndarray
    right: np.ndarray


@helper
def swapped(two, k):
    return Two(two.right[k], two.left[k])


@helper
def first_of(two):
    return two.left[0] if len(two.left) else two.right[0]


def total(two, n):
    value = 0.0
    for k in range(n):
        value += first_of(swapped(two, k % 2))
    return value


def total_of_copies(two, n):
    return total_counted(Two(two.left.copy(), two.right.copy()), n)


total_counted = kernel(total, allocates=True)
totals = [kernel(total), total_counted, kernel(total_of_copies, allocates=True)]
for one in totals:
    one._cache = NullCache()


def test_references_are_counted_only_where_arrays_are_made():
    """Arrays that a helper returns are counted by it and by its caller, or by neither."""
    left, right = np.arange(4.0).reshape(2, 2), np.full((2, 2), 7.0)
    before = sys.getrefcount(left)
    assert [one(Two(left, right), 1000) for one in totals] == [7000.0] * 3
    assert sys.getrefcount(left) == before
    plain, counted = (one.inspect_asm(one.signatures[0]) for one in totals[:2])
    assert "NRT_incref" not in plain
    assert "NRT_decref" not in plain
    assert "NRT_incref" in counted
    assert len(swapped.version(True).overloads) == 1
    assert not first_of.version(True).overloads  # returns a number: one version is enough
    assert (left == np.arange(4.0).reshape(2, 2)).all()


def test_a_kernel_that_makes_an_array_must_say_so():
    @kernel
    def silent(n):
        return np.zeros(n).sum()

    silent._cache = NullCache()
    with pytest.raises(numba.NumbaError, match=r"NRT required|Only accept returning of array passed"):
        silent(3)


def test_other_functions_may_use_what_was_compiled_as_a_part():
    outer(1.0)

    @numba.njit
    def plain(x):
        return np.full(3, x).sum()

    assert plain(2.0) == 6
    assert type(plain.overloads[plain.signatures[0]].library) is JITCodeLibrary


def test_python_cannot_call_a_helper():
    with pytest.raises(TypeError, match="kernels call it"):
        twice(1.0)
