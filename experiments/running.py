"""Timed training of models in experiments."""

import time
import warnings
from collections.abc import Callable
from typing import Any

from trelliswork.errors import ConvergenceWarning


def fit(model: Any, *data: Any, **options: Any) -> float:
    """Train a model and return the seconds; a fixed number of iterations is part of the experiment, so no warning."""
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model.fit(*data, **options)
    return time.perf_counter() - began


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return the result of a call, and its seconds."""
    began = time.perf_counter()
    result = work(*arguments)
    return result, time.perf_counter() - began


def best_time(work: Callable[[], object], n_repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of the fastest call after a first one, which may compile."""
    work()
    times = []
    for _ in range(n_repeats):
        began = clock()
        work()
        times.append(clock() - began)
    return min(times)
