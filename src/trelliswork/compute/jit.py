"""Decorators of compiled functions. Compiled code is kept on disk, see ``compute.kernel_cache``."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numba

from trelliswork.compute.kernel_cache import KernelCache

FASTMATH = {"reassoc", "contract"}  # never True: it would assume that infinities do not occur, and -inf is our zero


def kernel(function: Callable[..., Any] | None = None, /, *, fast: bool = False, **options: Any) -> Any:
    """Compile a function that Python code calls: cached on disk, without the interpreter lock.

    ``fast`` allows sums to be reordered and products to be fused (``FASTMATH``); other options are Numba's.
    """
    if function is None:
        return partial(kernel, fast=fast, **options)
    compiled = _compiled(function, fast, **options)
    compiled._cache = KernelCache(function)
    return compiled


def helper(function: Callable[..., Any] | None = None, /, *, fast: bool = False, **options: Any) -> Any:
    """Compile a function that only kernels call: its code is stored within theirs, and Python cannot call it."""
    if function is None:
        return partial(helper, fast=fast, **options)
    compiled = _compiled(function, fast, no_cpython_wrapper=True, **options)

    # For kernels, but not for Python, which would jump to a wrapper at address 0.
    def add_overload(result: Any) -> None:
        compiled.overloads[tuple(result.signature.args)] = result

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError(f"{function.__name__} is a helper: kernels call it, Python cannot.")

    compiled.add_overload, compiled._compile_for_args = add_overload, refuse
    return compiled


def _compiled(function: Callable[..., Any], fast: bool, **options: Any) -> Any:
    """Return the compiled function. Without wrappers that nobody calls, compilation takes a sixth less time."""
    options |= {"nogil": True, "no_cfunc_wrapper": True, "fastmath": FASTMATH if fast else False}
    return numba.njit(**options)(function)
