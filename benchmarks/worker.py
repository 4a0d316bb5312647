"""The worker process: builds the inputs of one contender and runs it on request, with JSON lines.

The parent (``workers.py``) writes one request per line to stdin, ``{"op": ..., arguments}``, and reads one reply per
line. Output of libraries goes to stderr.

======== ============================================ ==========================================
op       arguments                                    reply
======== ============================================ ==========================================
start    contender, threads, min_seconds, packages    versions
check    params                                       digest of the result on these parameters
prepare  params                                       digest of the result of the warm-up call
run                                                   seconds of one call, peak_mb so far
======== ============================================ ==========================================

A reply may also be ``{"skipped": reason}`` (missing library, or a task that it lacks) or ``{"failed": reason}``.

Peak memory is the growth of the resident set over its level after the imports, the tiny check and the building of the
inputs: the high-water mark (VmHWM) during the timed calls minus that level. The mark is reset after the warm-up through
``/proc/self/clear_refs``, so transient memory of compilers does not count. Without that file it is the growth of
``ru_maxrss``, which includes the warm-up. MB are 2**20 bytes.
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.metadata
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from benchmarks.declarations import Params, Task

_CLEAR_REFS = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_SHORT_SECONDS = 0.2


def main() -> None:
    """Serve requests from stdin until it is closed."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries must not mix with the replies
    with contextlib.suppress(OSError):  # if memory runs out, the kernel ends this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    serve(sys.stdin, replies)


def serve(requests: TextIO, replies: TextIO) -> None:
    """Answer each line of ``requests`` with one line on ``replies``."""
    worker = Worker()
    for line in requests:
        request = json.loads(line)
        try:
            reply = getattr(worker, request.pop("op"))(**request)
        except NotImplementedError as error:  # its text is the reason
            reply = {"skipped": str(error)}
        except ImportError as error:
            reply = {"skipped": _one_line(error)}
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            reply = {"failed": _one_line(error)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


class Worker:
    """One contender and its current task; each public method answers one kind of request."""

    def __init__(self) -> None:
        self._factory: Callable[[Params], Task] | None = None
        self._task: Task | None = None
        self._threads = 1
        self._min_seconds = 0.0
        self._last_seconds = 0.0
        self._level_mb = 0.0
        self._peak_mb = 0.0

    def start(self, contender: str, threads: int, min_seconds: float, packages: list[str]) -> dict[str, Any]:
        """Fix the cores, then import the contender."""
        pin(threads)
        self._threads, self._min_seconds = threads, min_seconds
        module, _, function = contender.partition(":")
        self._factory = getattr(importlib.import_module(module), function)
        return {"versions": {package: importlib.metadata.version(package) for package in packages}}

    def check(self, params: Params) -> dict[str, Any]:
        """Run a tiny problem once; this also triggers late imports."""
        return {"digest": self._call_and_digest(self._build(params))}

    def prepare(self, params: Params) -> dict[str, Any]:
        """Build the inputs, record the memory level, and run once to warm up."""
        self._task = self._build(params)
        self._level_mb = lower_peak()
        start = time.perf_counter()
        digest = self._call_and_digest(self._task)
        self._last_seconds = time.perf_counter() - start
        lower_peak()
        return {"digest": digest}

    def run(self) -> dict[str, Any]:
        """Time one repetition; a short one is looped until ``min_seconds`` have passed.

        A short repetition follows an untimed one, because other contenders have used the caches meanwhile.
        """
        assert self._task is not None, "run comes after prepare"
        call, n_calls = self._task.call, 0
        gc.collect()
        if self._last_seconds < _SHORT_SECONDS:
            call()
        start = time.perf_counter()
        while True:
            call()
            n_calls += 1
            elapsed = time.perf_counter() - start
            if elapsed >= self._min_seconds:
                break
        self._last_seconds = elapsed / n_calls
        self._peak_mb = max(self._peak_mb, _memory_mb("VmHWM") - self._level_mb)
        return {"seconds": self._last_seconds, "peak_mb": max(self._peak_mb, 0.0)}

    def _build(self, params: Params) -> Task:
        assert self._factory is not None, "start comes first"
        task = self._factory(params)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(self._threads)
        return task

    @staticmethod
    def _call_and_digest(task: Task) -> dict[str, Any] | None:
        result = task.call()
        return task.digest(result) if task.digest else None


def pin(n_threads: int) -> None:
    """Restrict this process to ``n_threads`` of its cores, if the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_threads])


def lower_peak() -> float:
    """Return freed memory to the system, reset the high-water mark, and return it in MB."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text("5")
    return _memory_mb("VmHWM")


def _memory_mb(field: str) -> float:
    """Return VmRSS or VmHWM of this process in MB; without /proc both are ru_maxrss."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 2**10
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def _one_line(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 200 else text[:197] + "..."


if __name__ == "__main__":
    main()
