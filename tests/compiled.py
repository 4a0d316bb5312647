"""Helpers of kernels, made callable for tests."""

from collections.abc import Callable
from typing import Any

from numba import njit


def from_python(helper: Any) -> Callable[..., Any]:
    """Return a function that Python can call; helpers can only be called by compiled code."""

    @njit
    def call(*arguments):
        return helper(*arguments)

    return call
