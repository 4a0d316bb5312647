"""The number of threads, and the thread pool that runs kernels.

A kernel is serial over a range of work and releases the interpreter lock; ``run`` hands ranges to a thread pool. The
ranges do not depend on the number of threads, and so neither do the results.

Python handles Ctrl-C in the main thread, between two of its own instructions, so not while that thread runs a kernel.
Work that may take long therefore runs in other threads alone, and the calling thread waits.
"""

import atexit
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import pairwise
from queue import Empty, SimpleQueue
from threading import Lock, Thread, local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError

MAX_RANGES = 16
LEAST_WORK = 400_000  # multiplications for which another thread pays off
LONG_WORK = 30_000_000  # multiplications for which the calling thread waits, so that it can answer Ctrl-C
_GRACE = 0.5  # seconds for kernels to end after Ctrl-C
_LAST_GRACE = 5.0  # seconds for them to end before the process does
_settings: dict[str, int] = {}
_Done = SimpleQueue[BaseException | None]
_Task = tuple[Callable[[], None], _Done]


class Ranges(list[tuple[int, int]]):
    """Ranges of work, and their total cost in multiplications."""

    cost: int = 0


class _Pool:
    """Threads that wait for tasks on one queue."""

    def __init__(self) -> None:
        self.abandoned: list[Thread] = []  # whose kernels were left running after Ctrl-C
        self.inside = local()
        self.reset()

    def reset(self) -> None:
        """Start with an empty queue and no threads."""
        self.tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self.workers: list[Thread] = []
        self.lock = Lock()

    def submit(self, task: Callable[[], None], times: int) -> _Done:
        """Have ``times`` threads run a task; return the queue on which each reports its end.

        A plain queue wakes a thread three times faster than a future.
        """
        done: _Done = SimpleQueue()
        with self.lock:
            while len(self.workers) < times:
                self.workers.append(Thread(target=self._work, args=(self.tasks,), name="trelliswork", daemon=True))
                self.workers[-1].start()
            for _ in range(times):
                self.tasks.put((task, done))
        return done

    def abandon(self) -> None:
        """Leave running kernels to themselves: their threads end with them, and others start when needed."""
        with self.lock:
            for _ in self.workers:
                self.tasks.put(None)
            self.abandoned += self.workers
            self.tasks, self.workers = SimpleQueue(), []

    def _work(self, tasks: "SimpleQueue[_Task | None]") -> None:
        self.inside.pool = True
        while (given := tasks.get()) is not None:
            task, done = given
            end: BaseException | None = None
            try:
                task()
            except BaseException as error:  # raised again in the calling thread
                end = error
            del given, task  # a thread that waits keeps no arrays alive
            done.put(end)
            del end, done


def _keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next call, instead of returning it to the system each time.

    The GNU library does so up to a limit that follows the largest block freed so far (mallopt(3), M_MMAP_THRESHOLD). A
    block of almost the maximum raises it at once; it is never touched, so it takes no memory.
    """
    np.empty(31 << 20, np.uint8)


_keep_freed_memory()
_pool = _Pool()
# A forked child inherits the queue, locked, but not the threads: it starts its own.
os.register_at_fork(after_in_child=_pool.reset)


def get_num_threads() -> int:
    """Return the number of threads: as set, else TRELLISWORK_THREADS, else the available cores."""
    if "threads" not in _settings:
        text = os.environ.get("TRELLISWORK_THREADS", "")
        if text:
            if not text.isdecimal() or len(text) > 9:
                raise ValueRangeError(f"TRELLISWORK_THREADS must be a positive whole number, got {text!r}.")
            set_num_threads(int(text))
        else:
            set_num_threads(available())
    return _settings["threads"]


def is_set() -> bool:
    """Return whether the number of threads has been set or asked for."""
    return "threads" in _settings


def available() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def set_num_threads(n_threads: int) -> None:
    """Use ``n_threads`` threads from now on, in the whole process."""
    if not isinstance(n_threads, int) or n_threads < 1:
        raise ValueRangeError(f"the number of threads must be a positive whole number, got {n_threads!r}.")
    _settings["threads"] = n_threads


def num_threads(n_threads: int) -> AbstractContextManager[object]:
    """Use n threads in the whole process from now on; as the context of a ``with`` block, until its end.

    Results do not depend on the number of threads.
    """
    before = ExitStack()
    before.callback(set_num_threads, get_num_threads())
    set_num_threads(n_threads)
    return before


def cut(
    costs: NDArray[np.integer], *, multiple: int = 1, least: int = 1, most: int = MAX_RANGES, repeats: int = 1
) -> Ranges:
    """Cut items into at most ``most`` consecutive ranges of about equal cost.

    Parameters
    ----------
    costs : ndarray (n,)
        Cost of each item, in multiplications.
    multiple : int
        All ranges but the last hold a multiple of this number of items.
    least : int
        Minimum cost of a range.
    repeats : int
        How often one call of a kernel may repeat the work, as iterative engines do.

    Examples
    --------
    >>> cut(np.array([5, 5, 5, 5]), least=10)
    [(0, 2), (2, 4)]
    """
    n = len(costs)
    total = int(costs.sum())
    n_ranges = min(most, max(1, total // max(least, 1)), -(-n // multiple))
    ranges = Ranges([(0, n)])
    if n_ranges > 1:
        ends = np.cumsum(costs)
        at = ends.searchsorted([total * k // n_ranges for k in range(1, n_ranges)]) + 1
        ranges[:] = pairwise(sorted({0, n, *(min(-(-a // multiple) * multiple, n) for a in at.tolist())}))
    ranges.cost = total * repeats
    return ranges


def run(work: Callable[..., object], ranges: Sequence[tuple[int, int]], *arguments: object) -> None:
    """Call ``work(start, stop, *arguments)`` for every range, on the threads of the pool.

    Ctrl-C ends the call after half a second at most if the `Ranges` are long work: a kernel that still runs is left
    behind, and what it computes is lost.
    """
    n = min(get_num_threads(), len(ranges))
    waits = getattr(ranges, "cost", 0) >= LONG_WORK
    if (n <= 1 and not waits) or hasattr(_pool.inside, "pool"):
        for start, stop in ranges:
            work(start, stop, *arguments)
        return
    todo = iter(ranges)  # each thread takes the next range when it is free; next() on a list's iterator is atomic

    def take() -> None:
        for start, stop in todo:
            work(start, stop, *arguments)

    n_others = n if waits else n - 1
    done = _pool.submit(take, n_others)
    errors: list[BaseException | None] = []
    try:
        if not waits:
            take()
        while len(errors) < n_others:
            errors.append(done.get())
    except BaseException as error:
        for _ in todo:  # nobody starts another one
            pass
        _await_end(done, n_others - len(errors), isinstance(error, KeyboardInterrupt))
        raise
    for one in errors:
        if one is not None:
            raise one


def _await_end(done: _Done, n: int, hurry: bool) -> None:
    """Wait for the end of ``n`` tasks, with ``hurry`` only for a moment."""
    try:
        for _ in range(n):
            done.get(timeout=_GRACE if hurry else None)
    except (Empty, KeyboardInterrupt):
        _pool.abandon()


def call(function: Callable[..., Any], *arguments: object) -> Any:
    """Return the result of one long-running function, such as a kernel, in a way that Ctrl-C can end; see `run`."""
    results: list[Any] = []
    once = Ranges([(0, 1)])
    once.cost = LONG_WORK
    run(lambda _, __: results.append(function(*arguments)), once)
    return results[0]


def left_running() -> bool:
    """Return whether kernels that were left behind after Ctrl-C still run."""
    return any(thread.is_alive() for thread in _pool.abandoned)


@atexit.register
def _end() -> None:
    """Wait for kernels that were left behind; end the process at once if they take long.

    The interpreter frees compiled code when it ends, and a kernel that still ran would crash.
    """
    deadline = time.monotonic() + _LAST_GRACE
    for thread in _pool.abandoned:
        thread.join(max(0.0, deadline - time.monotonic()))
    if left_running():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
