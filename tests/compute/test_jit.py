"""Kernels are compiled with all that they call; what they call is not compiled on its own."""

import numba
import numpy as np
import pytest
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary

from trelliswork.compute.jit import helper, kernel


@helper
def twice(x):
    return 2 * np.full(3, x).sum()


@kernel
def inner(x):
    return twice(x) + 1


@kernel
def outer(x):
    return inner(x) * twice(x)


inner._cache, outer._cache = NullCache(), NullCache()  # these are not kernels of the package


def test_a_kernel_is_a_helper_within_another():
    assert outer(1.0) == 42
    assert not inner.signatures  # no machine code for a call from Python, which nobody has made
    (result,) = twice.overloads.values()
    assert result.library.get_pointer_to_function(result.fndesc.llvm_func_name) == 0
    assert inner(1.0) == 7
    assert len(inner.signatures) == 1


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
