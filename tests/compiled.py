"""Helpers of kernels, made callable for tests."""

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit

from trelliswork.compute.jit import KernelCompiler


def from_python(helper: Any) -> Callable[..., Any]:
    """Return a function that Python can call; helpers can only be called by compiled code."""

    names = ", ".join(inspect.signature(helper.py_func).parameters)
    namespace = {"helper": helper}
    exec(f"def call({names}): return helper({names})", namespace)  # Numba does not inline calls with *arguments
    return njit(pipeline_class=KernelCompiler)(namespace["call"])
