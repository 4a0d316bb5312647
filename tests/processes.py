"""Groups of processes for tests and benchmarks; each starts once, and runs one function after another on its ranks.

A test calls ``on_ranks(2, "tests.package.module:function", *arguments)``: every rank calls the function with the group
and the arguments (plain data), and the list of the results (plain data), by rank, is returned. The group talks over
the loopback device. A function that fails on a rank ends the group and raises `RankError`; the next call starts
another one.
"""

import atexit
import importlib
import json
import os
import socket
import subprocess
import sys
import traceback
from typing import Any

TIMEOUT = 120  # seconds for the slowest function
_groups: dict[tuple[int, int], list[subprocess.Popen[str]]] = {}  # by number of processes and of threads of each


class RankError(Exception):
    """A function failed on a rank; the text has the traceback."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment(rank: int, size: int, port: int, threads: int = 1) -> dict[str, str]:
    """Return what ``torchrun`` tells a rank, and its number of threads."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    libraries = ("OMP_NUM", "MKL_NUM", "OPENBLAS_NUM", "TRELLISWORK")
    more = {"MASTER_ADDR": "127.0.0.1"} | {f"{name}_THREADS": str(threads) for name in libraries}
    return os.environ | {name: str(value) for name, value in names.items()} | more


def _start(size: int, threads: int) -> list[subprocess.Popen[str]]:
    port = free_port()
    command = [sys.executable, "-m", "tests.processes"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return [subprocess.Popen(command, env=environment(rank, size, port, threads), **pipes) for rank in range(size)]


def _stop(which: tuple[int, int]) -> None:
    for process in _groups.pop(which, []):
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


@atexit.register
def _stop_all() -> None:
    for which in list(_groups):
        _stop(which)


def on_ranks(size: int, function: str, *arguments: Any, threads: int = 1) -> list[Any]:
    """Return the results of a function, ``module:name``, on all ranks of a group of ``size`` processes."""
    which = size, threads
    if which not in _groups:
        _groups[which] = _start(size, threads)
    ranks = _groups[which]
    for process in ranks:
        assert process.stdin is not None
        process.stdin.write(json.dumps([function, arguments]) + "\n")
        process.stdin.flush()
    results, failures = [], []
    for process in ranks:
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline() or '{"error": "the process ended"}')
        failures += [answer["error"]] if "error" in answer else []
        results.append(answer.get("result"))
        if failures:
            break
    if failures:
        _stop(which)
        raise RankError("\n".join(failures))
    return results


def _serve() -> None:
    import faulthandler

    from trelliswork.learning.distributed import group

    answers, sys.stdout = sys.stdout, sys.stderr  # what a function prints is no answer
    with group() as ranks:
        ranks.strict = os.environ.get("STRICT") != "0"
        for line in sys.stdin:
            function, arguments = json.loads(line)
            module, _, name = function.partition(":")
            faulthandler.dump_traceback_later(TIMEOUT, exit=True)
            try:
                answer = {"result": getattr(importlib.import_module(module), name)(ranks, *arguments)}
            except BaseException:
                answer = {"error": traceback.format_exc()}
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(answer), file=answers, flush=True)
            if "error" in answer:
                os._exit(1)  # the others notice


if __name__ == "__main__":
    _serve()
