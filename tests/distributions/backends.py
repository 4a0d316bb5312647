"""Distributions on the CPU that compute as on other devices."""

from typing import Any, TypeVar

D = TypeVar("D")


def computed_by(backend: str, distribution: D) -> D:
    """Return the distribution, whose log Z comes from compiled kernels ("kernel") or from torch ("torch")."""
    made: Any = distribution
    made._by_torch = backend == "torch"
    return distribution
