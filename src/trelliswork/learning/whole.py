"""What holds of a whole text, of which this process may have a part: for models, which know no other processes.

In a group of processes each has a part of the sentences, and all call these functions in the same order; every process
gets the same result. A single process gets back what it passes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.sharing import Group, current
from trelliswork.data.spooled import Column, release

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


def union(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct keys of all parts, ascending; those of this part are ascending and distinct."""
    return current().union(keys)


def place(n: int) -> tuple[int, int]:
    """Return where the n items of this part begin among those of all parts, and the number of all."""
    return current().place(n)


def concatenated(array: A) -> A:
    """Return the arrays (one axis) of all parts, one after another."""
    return current().concatenated(array)


def share(n: int) -> tuple[int, int]:
    """Return the range of n items, which all processes have, that this one works on."""
    return current().share(n)


def processes() -> Group:
    """Return the processes, for a computation that divides its work among them."""
    return current()


def column(own: Column, add: int, limit: int) -> NDArray[np.int64]:
    """Return the values of the columns of all parts, one after another; ``add`` is added to those of this one.

    Beyond ``limit`` bytes they are in a temporary file.
    """
    values, group = own.array(), current()
    if group.size == 1:
        return values
    with Column(limit) as result:
        for at, piece in group.pieces(len(values), lambda a, b: values[a:b] + add):
            result.put(at, piece)
            release(values)
        return result.array()
