"""Helpers of kernels, made callable for tests."""

import inspect
from collections.abc import Callable
from typing import Any

from trelliswork.compute.jit import kernel


def from_python(helper: Any) -> Callable[..., Any]:
    """Return a function that Python can call; helpers can only be called by compiled code.

    It is a kernel of the helper's file, so that it is kept on disk, too, until that file or one it imports changes.
    """
    function = helper.py_func
    names = ", ".join(inspect.signature(function).parameters)
    namespace = {"helper": helper, "__name__": function.__module__}
    # Numba does not inline calls with *arguments.
    name = f"call_{function.__name__}"
    exec(compile(f"def {name}({names}): return helper({names})", inspect.getfile(function), "exec"), namespace)
    return kernel(namespace[name])
