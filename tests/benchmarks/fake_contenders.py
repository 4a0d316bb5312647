"""Contenders without dependencies, most of which misbehave in one way."""

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.declarations import Params, Task


def _note_pid(params: Params) -> None:
    if "pids" in params:
        with Path(params["pids"]).open("a") as file:
            file.write(f"{os.getpid()}\n")


def _digest(result: Any) -> dict[str, Any]:
    return {"total": result}


def sums(params: Params) -> Task:
    """Work."""
    _note_pid(params)
    return Task(lambda: sum(range(params["n"])), _digest)


def sleeps(params: Params) -> Task:
    """Work slowly, and print to the stream of the replies."""
    _note_pid(params)

    def call() -> int:
        print("printed by a library")
        time.sleep(0.01)
        return sum(range(params["n"]))

    return Task(call, _digest)


def raises(params: Params) -> Task:
    """Raise an error when called."""
    _note_pid(params)

    def call() -> None:
        raise ValueError("no such\nluck")

    return Task(call)


def misses(params: Params) -> Task:
    """Import a missing library."""
    _note_pid(params)
    import library_that_nobody_has  # noqa: F401

    raise AssertionError("the import did not fail")


def lacks(params: Params) -> Task:
    """Lack the task."""
    raise NotImplementedError("no second-order chains")


def eats(params: Params) -> Task:
    """Allocate memory without end."""
    _note_pid(params)

    def call() -> None:
        hoard = []
        while True:
            hoard.append(bytearray(b"x") * (8 << 20))
            time.sleep(0.01)

    return Task(call)


def hangs(params: Params) -> Task:
    """Hang when timed."""
    _note_pid(params)
    calls = iter([0.0])
    return Task(lambda: time.sleep(next(calls, 600.0)))


def dies(params: Params) -> Task:
    """End the process."""
    _note_pid(params)

    def call() -> None:
        print("the last words", flush=True)
        os._exit(3)

    return Task(call)


def errs(params: Params) -> Task:
    """Return another result."""
    return Task(lambda: sum(range(params["n"])) + 100, _digest)


def holds(params: Params) -> Task:
    """Use 64 MB."""
    return Task(lambda: len(bytearray(b"x") * (64 << 20)))
