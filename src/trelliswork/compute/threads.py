"""The one place that decides how many threads compute.

A kernel is serial over a range of work and releases the interpreter lock; ``run`` hands ranges to a thread
pool. How the work is cut never depends on the number of threads, and so neither do the results.
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
LEAST_WORK = 400_000  # multiplications that are worth handing to another thread
_settings: dict[str, int] = {}
_Task = tuple[Callable[[], None], "SimpleQueue[BaseException | None]"]


class _Crew:
    """Threads that wait for tasks on one queue."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start with an empty queue and no threads."""
        self.tasks: SimpleQueue[_Task] = SimpleQueue()
        self.workers: list[Thread] = []
        self.hiring = Lock()

    def hire(self, n_workers: int) -> None:
        """Have at least so many threads (a bare queue wakes one in a third of the time of a future)."""
        with self.hiring:
            while len(self.workers) < n_workers:
                self.workers.append(Thread(target=self._work_forever, name="trelliswork", daemon=True))
                self.workers[-1].start()

    def _work_forever(self) -> None:
        while True:
            task, done = self.tasks.get()
            try:
                task()
            except BaseException as error:  # handed to the thread that asked
                done.put(error)
            else:
                done.put(None)


_crew = _Crew()
# A forked child inherits the queue, locked, but not the threads: it starts anew.
os.register_at_fork(after_in_child=_crew.begin)


def get_num_threads() -> int:
    """Threads in use: ``set_num_threads``, else the variable TRELLISWORK_THREADS, else the cores we may run on."""
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
        Cost of each item, in multiplications or so.
    multiple : int
        Ranges hold a multiple of so many items (but the last).
    least : int
        A range is not cut further when it costs less: handing it out must be worth while.

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


def run(work: Callable[[int, int], object], ranges: Sequence[tuple[int, int]]) -> None:
    """Call ``work(start, stop)`` for every range, on as many threads as are set."""
    n = min(get_num_threads(), len(ranges))
    if n <= 1:
        for start, stop in ranges:
            work(start, stop)
        return
    _crew.hire(n - 1)
    todo = iter(ranges)  # each thread takes the next range when it is free; next() on a list's iterator is atomic

    def take() -> None:
        for start, stop in todo:
            work(start, stop)

    done: SimpleQueue[BaseException | None] = SimpleQueue()
    for _ in range(n - 1):
        _crew.tasks.put((take, done))
    try:
        take()
    finally:
        errors = [done.get() for _ in range(n - 1)]
    for error in errors:
        if error is not None:
            raise error
