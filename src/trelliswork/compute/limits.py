"""Limits of time and memory: work that is predicted to exceed them is refused before it starts."""

import math
import os
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import LimitError, ValueRangeError

SPEED = 1e9  # operations per second, for predictions
MEMORY_SHARE = 0.75  # of the machine's memory that one task may need by default
CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass
class _Limits:
    seconds: float = 60.0  # predicted time of one sentence or graph
    gigabytes: float | None = None  # predicted memory of one task; None is a share of the machine's


_limits = _Limits()


@cache
def _machine_bytes() -> float:
    """Return the memory of the machine, or of the container; infinity if it is unknown."""
    try:
        total: float = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf
    for path in CGROUPS:
        with suppress(OSError, ValueError):
            total = min(total, int(Path(path).read_text(encoding="ascii")))
    return total


def limits(*, seconds: float | None = None, gigabytes: float | None = None) -> AbstractContextManager[object]:
    """Refuse tasks with a larger predicted time per sentence or graph, or with a larger predicted memory.

    The limits hold for the whole process from now on; as the context of a ``with`` block, until its end. Predictions
    are rough: they count operations of a machine with 10^9 per second. The defaults are 60 seconds and three quarters
    of the machine's memory; ``math.inf`` is no limit, ``None`` leaves a limit as it is.
    """
    given: dict[str, Any] = {"seconds": seconds, "gigabytes": gigabytes}
    for name, value in given.items():
        if value is not None and (not isinstance(value, int | float | np.number) or not value > 0):
            raise ValueRangeError(f"{name} must be a positive number, got {value!r}.")
    before = ExitStack()
    before.callback(vars(_limits).update, dict(vars(_limits)))
    vars(_limits).update({name: float(value) for name, value in given.items() if value is not None})
    return before


def max_entries(default: int) -> int:
    """Return how many float64 numbers fit into the memory limit, with two copies; a default if none was set."""
    return default if _limits.gigabytes is None else int(min(_limits.gigabytes * 1e9 / 24, 1e15))


def check_cost(what: str, *, operations: float = 0.0, n_bytes: float = 0.0, remedy: str = "") -> None:
    """Raise `LimitError` if ``what`` is predicted to take longer, or to need more memory, than the limits allow.

    ``remedy`` is a sentence about another way.
    """
    most = MEMORY_SHARE * _machine_bytes() if _limits.gigabytes is None else 1e9 * _limits.gigabytes
    if n_bytes > most:
        problem = f"need about {_written(n_bytes / 1e9)} GB of memory, and the limit is {most / 1e9:,.1f} GB"
        option, argument, value = "--max-memory", "gigabytes", n_bytes / 1e9
    elif operations > SPEED * _limits.seconds:
        problem = f"take about {_written(operations / SPEED)} seconds, and the limit is {_limits.seconds:g}"
        option, argument, value = "--max-seconds", "seconds", operations / SPEED
    else:
        return
    remedy, enough = remedy and f" {remedy}", _written(math.ceil(1.1 * value)).replace(",", "")
    raise LimitError(
        f"{what} would {problem}.{remedy} To compute it anyway, raise the limit: trelliswork {option} {enough} ..., or "
        f"trelliswork.machine.limits({argument}={enough}) in Python."
    )


def _written(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0") if value < 1e9 else f"{value:.0e}"


def check_sentences(
    lengths: NDArray[np.integer], operations: NDArray[np.floating], n_bytes: NDArray[np.floating]
) -> None:
    """Raise `LimitError` for the first sentence that exceeds the limits, from predictions (B,) for each."""
    for n in np.unique([np.argmax(operations), np.argmax(n_bytes)]) if len(lengths) else ():
        try:
            what = f"sentence {n} ({lengths[n]:,} words)"
            check_cost(what, operations=operations[n], n_bytes=n_bytes[n], remedy="Split it.")
        except LimitError as error:
            raise error.at(int(n)) from None
