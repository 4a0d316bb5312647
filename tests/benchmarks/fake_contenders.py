"""Contenders that need nothing installed and misbehave in one way each."""

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
    """Behaves."""
    _note_pid(params)
    return Task(lambda: sum(range(params["n"])), _digest)


def sleeps(params: Params) -> Task:
    """Behaves, slowly, and prints where the replies go."""
    _note_pid(params)

    def call() -> int:
        print("printed by a library")
        time.sleep(0.01)
        return sum(range(params["n"]))

    return Task(call, _digest)


def raises(params: Params) -> Task:
    """Raises an error when called."""
    _note_pid(params)

    def call() -> None:
        raise ValueError("no such\nluck")

    return Task(call)


def misses(params: Params) -> Task:
    """Wants a library that is not there."""
    _note_pid(params)
    import library_that_nobody_has  # noqa: F401

    raise AssertionError("the import did not fail")


def lacks(params: Params) -> Task:
    """Does not do this task."""
    raise NotImplementedError("no second-order chains")


def eats(params: Params) -> Task:
    """Takes memory without end."""
    _note_pid(params)

    def call() -> None:
        hoard = []
        while True:
            hoard.append(bytearray(b"x") * (8 << 20))
            time.sleep(0.01)

    return Task(call)


def hangs(params: Params) -> Task:
    """Does not come back when timed."""
    _note_pid(params)
    calls = iter([0.0])
    return Task(lambda: time.sleep(next(calls, 600.0)))


def dies(params: Params) -> Task:
    """Ends its process."""
    _note_pid(params)

    def call() -> None:
        print("the last words", flush=True)
        os._exit(3)

    return Task(call)


def errs(params: Params) -> Task:
    """Comes to another result."""
    return Task(lambda: sum(range(params["n"])) + 100, _digest)


def holds(params: Params) -> Task:
    """Needs 64 MB while it works."""
    return Task(lambda: len(bytearray(b"x") * (64 << 20)))
