"""What holds of a whole text, of which this process may have a part: for models, which know no other processes.

In a group of processes each has a part of the sentences, and all call these functions in the same order; every process
gets the same result. A single process gets back what it passes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from numpy.typing import NDArray

from trelliswork.compute.sharing import current

A = TypeVar("A", bound=NDArray[Any])


def anywhere(condition: bool) -> bool:
    """Return whether a condition holds of any part."""
    return current().any(condition)


def total(number: float) -> float:
    """Return the sum of a number over all parts."""
    return current().total(number)


def summed(*arrays: A) -> list[A]:
    """Return the sums of arrays of one type over all parts."""
    return current().sums(*arrays)


def largest(values: A) -> A:
    """Return the largest values over all parts."""
    return current().maximum(values)


def of_parts(plain: Any) -> list[Any]:
    """Return plain data (JSON) of each part, in their order."""
    return current().gather(plain)


def distinct(names: Iterable[str]) -> list[str]:
    """Return the distinct strings of all parts, in order of appearance."""
    return current().merge(names)


def counted(counts: Mapping[str, int], least: int = 1) -> dict[str, int]:
    """Return how often strings occur in all parts, without those that occur less often than ``least``."""
    return current().count_names(counts, least)


def is_first() -> bool:
    """Return whether this process has the first part: it writes files for all."""
    return current().rank == 0


def of_first(make: Callable[[], dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return arrays that the first process makes, and sends to the others."""
    return current().first_arrays(make)
