"""The number of threads, and the thread pool that runs kernels.

A kernel is serial over a range of work and releases the interpreter lock; ``run`` hands ranges to a thread pool. The
ranges do not depend on the number of threads, and so neither do the results.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from queue import SimpleQueue
from threading import Lock, Thread

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError

MAX_RANGES = 16
LEAST_WORK = 400_000  # multiplications for which another thread pays off
_settings: dict[str, int] = {}
_Task = tuple[Callable[[], None], "SimpleQueue[BaseException | None]"]


class _Pool:
    """Threads that wait for tasks on one queue."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start with an empty queue and no threads."""
        self.tasks: SimpleQueue[_Task] = SimpleQueue()
        self.workers: list[Thread] = []
        self.lock = Lock()

    def grow(self, n_workers: int) -> None:
        """Start threads until there are ``n_workers`` (a plain queue wakes one three times faster than a future)."""
        with self.lock:
            while len(self.workers) < n_workers:
                self.workers.append(Thread(target=self._work_forever, name="trelliswork", daemon=True))
                self.workers[-1].start()

    def _work_forever(self) -> None:
        while True:
            task, done = self.tasks.get()
            try:
                task()
            except BaseException as error:  # raised again in the calling thread
                done.put(error)
            else:
                done.put(None)


_pool = _Pool()
# A forked child inherits the queue, locked, but not the threads: it starts its own.
os.register_at_fork(after_in_child=_pool.reset)


def get_num_threads() -> int:
    """Return the number of threads: ``set_num_threads``, else TRELLISWORK_THREADS, else the available cores."""
    if "threads" not in _settings:
        text = os.environ.get("TRELLISWORK_THREADS", "")
        if text:
            if not text.isdecimal():
                raise ValueRangeError(f"TRELLISWORK_THREADS must be a positive whole number, got {text!r}.")
            set_num_threads(int(text))
        else:
            affinity = getattr(os, "sched_getaffinity", None)
            set_num_threads(len(affinity(0)) if affinity else os.cpu_count() or 1)
    return _settings["threads"]


def set_num_threads(n_threads: int) -> None:
    """Use ``n_threads`` threads from now on, in the whole process."""
    if not isinstance(n_threads, int) or n_threads < 1:
        raise ValueRangeError(f"the number of threads must be a positive whole number, got {n_threads!r}.")
    _settings["threads"] = n_threads


@contextmanager
def num_threads(n_threads: int) -> Iterator[None]:
    """Use ``n_threads`` threads inside a ``with`` block."""
    before = get_num_threads()
    set_num_threads(n_threads)
    try:
        yield
    finally:
        set_num_threads(before)


def cut(
    costs: NDArray[np.integer], *, multiple: int = 1, least: int = 1, most: int = MAX_RANGES
) -> list[tuple[int, int]]:
    """Cut items into at most ``most`` consecutive ranges of about equal cost.

    Parameters
    ----------
    costs : ndarray (n,)
        Cost of each item, in multiplications.
    multiple : int
        All ranges but the last hold a multiple of this number of items.
    least : int
        Minimum cost of a range.

    Examples
    --------
    >>> cut(np.array([5, 5, 5, 5]), least=10)
    [(0, 2), (2, 4)]
    """
    n = len(costs)
    total = int(costs.sum())
    n_ranges = min(most, max(1, total // max(least, 1)), -(-n // multiple))
    if n_ranges == 1:
        return [(0, n)]
    ends = np.cumsum(costs)
    at = ends.searchsorted([total * k // n_ranges for k in range(1, n_ranges)]) + 1
    edges = sorted({0, n, *(min(-(-a // multiple) * multiple, n) for a in at.tolist())})
    return list(pairwise(edges))


def run(work: Callable[..., object], ranges: Sequence[tuple[int, int]], *arguments: object) -> None:
    """Call ``work(start, stop, *arguments)`` for every range, on the threads of the pool."""
    n = min(get_num_threads(), len(ranges))
    if n <= 1:
        for start, stop in ranges:
            work(start, stop, *arguments)
        return
    _pool.grow(n - 1)
    todo = iter(ranges)  # each thread takes the next range when it is free; next() on a list's iterator is atomic

    def take() -> None:
        for start, stop in todo:
            work(start, stop, *arguments)

    done: SimpleQueue[BaseException | None] = SimpleQueue()
    for _ in range(n - 1):
        _pool.tasks.put((take, done))
    try:
        take()
    finally:
        errors = [done.get() for _ in range(n - 1)]
    for error in errors:
        if error is not None:
            raise error
