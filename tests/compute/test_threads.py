"""The thread pool runs all ranges once, reports errors, and has one setting."""

import os
import signal
import subprocess
import sys
import time
import weakref
from itertools import pairwise
from threading import Event, Timer, current_thread

import numpy as np
import pytest

from trelliswork.compute import threads
from trelliswork.errors import ValueRangeError


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_every_range_is_done_once(n_threads):
    done = []
    with threads.num_threads(n_threads):
        threads.run(lambda start, stop: done.append((start, stop)), [(k, k + 1) for k in range(50)])
    assert sorted(done) == [(k, k + 1) for k in range(50)]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_an_error_reaches_the_caller_and_the_pool_survives(n_threads):
    def work(start, stop):
        if start == 7:
            raise ValueError("seven")

    with threads.num_threads(n_threads):
        with pytest.raises(ValueError, match="seven"):
            threads.run(work, [(k, k + 1) for k in range(10)])
        test_every_range_is_done_once(n_threads)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_long_work_leaves_the_calling_thread_free(n_threads):
    caller, seen = current_thread(), []
    ranges = threads.cut(np.full(4, threads.LONG_WORK), least=1)
    with threads.num_threads(n_threads):
        threads.run(lambda start, stop: seen.append(current_thread()), ranges)
        assert len(seen) == 4
        assert caller not in seen
        assert threads.call(lambda x: x + 1, 1) == 2
        with pytest.raises(ZeroDivisionError):
            threads.call(lambda: 1 / 0)

        def nested() -> list[object]:
            inner: list[object] = []
            threads.run(lambda start, stop: inner.append(current_thread()), ranges)
            return inner

        assert len(set(threads.call(nested))) == 1  # a thread of the pool does not wait for the pool


def test_ctrl_c_leaves_a_kernel_behind_and_the_pool_works(monkeypatch):
    release = Event()
    monkeypatch.setattr(threads._pool, "abandoned", [])
    Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        threads.call(release.wait, 20)
    assert time.monotonic() - started < 5
    assert threads.left_running()
    with threads.num_threads(3):
        test_every_range_is_done_once(3)
    release.set()


END = """
import os, signal, sys
from threading import Timer
from numba import njit
from trelliswork.compute import threads

@njit(nogil=True)
def spin(n):
    total = 0.0
    for i in range(n):
        total += (i ^ 1) ** 0.5
    return total

spin(10)
Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    threads.call(spin, int(sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(("n", "code"), [(5 * 10**8, 0), (10**14, 130)])
def test_python_ends_orderly_after_ctrl_c_in_a_kernel(n, code):
    """It waits for a kernel that ends soon, and does not wait for another."""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", END, str(n)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted\n", done.stderr
    assert done.returncode == code, done.stderr
    assert time.monotonic() - started < 30


def test_threads_that_wait_keep_no_arrays_alive():
    array = np.ones(1000)
    freed = weakref.ref(array)
    with threads.num_threads(2):
        threads.run(lambda start, stop, array: array[start:stop].sum(), [(0, 500), (500, 1000)], array)
    del array
    assert freed() is None


def test_cut_covers_everything_in_multiples():
    costs = np.random.default_rng(0).integers(1, 100, 103)
    ranges = threads.cut(costs, multiple=4)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 103
    assert all(a[1] == b[0] for a, b in pairwise(ranges))
    assert all(start % 4 == 0 for start, _ in ranges)
    assert len(ranges) == threads.MAX_RANGES
    assert threads.cut(costs, least=10**9) == [(0, 103)]
    assert len(threads.cut(np.array([1000, 1, 1, 1]))) <= 4


def test_the_setting_is_checked_and_restored():
    before = threads.get_num_threads()
    with threads.num_threads(7):
        assert threads.get_num_threads() == 7
    assert threads.get_num_threads() == before
    for bad in (0, -1, 1.5):
        with pytest.raises(ValueRangeError, match="positive whole number"):
            threads.set_num_threads(bad)


def test_the_environment_variable():
    def ask(value):
        code = "from trelliswork.compute.threads import get_num_threads as n; print(n())"
        environment = os.environ | {"TRELLISWORK_THREADS": value}
        return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)

    assert ask("3").stdout.strip() == "3"
    assert "must be a positive whole number" in ask("many").stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_its_own_threads():
    with threads.num_threads(2):
        threads.run(lambda start, stop: None, [(0, 1), (1, 2)])
        child = os.fork()
        if child == 0:
            threads.run(lambda start, stop: None, [(0, 1), (1, 2)])
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
