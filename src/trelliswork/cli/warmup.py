"""``trelliswork warmup``: compile kernels before they are needed."""

import json as json_module
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.progress import bar
from trelliswork.compute.compilation import Kernel, watching
from trelliswork.errors import TrellisworkError


def warmup(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Models as in 'train', or structures such as 'chain'. Default: all.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes.", show_default="one per core")] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
    serve: Annotated[bool, typer.Option(hidden=True, help="Read names from standard input.")] = False,
) -> None:
    """Compile kernels now instead of when they are first used.

    All of them take some minutes after an installation or an upgrade, and seconds when nothing is left to compile.
    Kernels are kept when this is interrupted. With --json there is a row for each kernel, with its CPU seconds.

    Example: trelliswork warmup crf parser --jobs 2
    """
    from trelliswork.models.warmup import ALL, NAMES, WITH_TORCH

    if serve:
        for line in sys.stdin:
            print(json_module.dumps(_compiled(line.strip())[1]), flush=True)
        return
    usable = [name for name in ALL if name not in WITH_TORCH or find_spec("torch")]
    names = list(dict.fromkeys(models or usable))
    if unknown := [name for name in names if name not in NAMES]:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(NAMES)}.")
    started = time.perf_counter()
    jobs = min(jobs or os.cpu_count() or 1, len(names))
    rows: dict[str, list[dict[str, Any]]] = {}
    n_compiled = 0
    with bar("compiling", len(names), quiet or json) as show:
        for name, table in _in_processes(names, jobs) if jobs > 1 else map(_compiled, names):
            rows[name] = table
            n_compiled += len(table)
            show(len(rows), f"{n_compiled} kernels, {name}")
    seconds = time.perf_counter() - started
    if json:
        kernels = [row for name in names for row in rows[name]]
        print(json_module.dumps({"compiled": n_compiled, "seconds": round(seconds, 3), "kernels": kernels}))
    else:
        print(f"kernels ready ({n_compiled} compiled, {seconds:.1f} s)", file=sys.stderr)


def _compiled(name: str) -> tuple[str, list[dict[str, Any]]]:
    """Compile the kernels of a model or a structure; return its name and what was compiled, with CPU seconds."""
    from trelliswork.models.warmup import tasks

    rows: list[dict[str, Any]] = []

    def record(kernel: Kernel) -> None:
        if kernel.seconds is not None:
            row = {"kernel": kernel.name, "signature": kernel.signature, "seconds": round(kernel.seconds, 3)}
            rows.append({"for": name, **row})

    with watching(record), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that are too short
        for _, work in tasks(name):
            work()
    return name, rows


def _in_processes(names: list[str], jobs: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Let ``jobs`` processes compile one name after the other; yield what each name compiled as it ends."""
    command = [sys.executable, "-m", "trelliswork", "warmup", "--serve"]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) for _ in range(jobs)]
    idle = processes.copy()

    def run(name: str) -> tuple[str, list[dict[str, Any]]]:
        process = idle.pop()  # there are as many threads as processes
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{name}\n")
            table = json_module.loads(process.stdout.readline())
        except (BrokenPipeError, ValueError):
            raise TrellisworkError(f"warmup of {name} failed with exit code {process.wait()}.") from None
        idle.append(process)
        return name, table

    pool = ThreadPoolExecutor(jobs)
    try:
        for done in as_completed([pool.submit(run, name) for name in names]):
            yield done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
