"""Worker processes as the parent sees them: start, requests, limits of time and memory, end."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.declarations import Contender

ROOT = Path(__file__).resolve().parents[1]
_POLL_SECONDS = 0.05
_MIN_FREE_FRACTION = 0.04  # of the machine's memory; below it the active worker is ended


class SkippedError(Exception):
    """The contender cannot run here: its library or environment is missing."""


class FailedError(Exception):
    """The contender crashed, took too long or too much memory, or its result is wrong."""


@dataclass(frozen=True)
class Limits:
    """Limits of every worker: threads, seconds per request, gigabytes, duration of the shortest sample."""

    threads: int = 2
    timeout: float = 300.0
    max_memory_gb: float = 16.0
    min_seconds: float = 0.02


def find_python(environment: str) -> Path:
    """Return the interpreter of an environment.

    Parameters
    ----------
    environment : str
        ``""`` is ``.venv`` in the repository, or else the running interpreter; ``"bench"`` is
        ``.venv-bench``. The variables TRELLISWORK_PYTHON and TRELLISWORK_BENCH_PYTHON override them.

    Raises
    ------
    SkippedError
        When there is no such environment.
    """
    words = [word for word in environment.split("-") if word]
    variable = "_".join(["TRELLISWORK", *(word.upper() for word in words), "PYTHON"])
    folder = "-".join([".venv", *words])
    if variable in os.environ:
        python = Path(os.environ[variable]).absolute()  # not resolve(): the python of an environment is a link
    else:
        python = ROOT / folder / "bin" / "python"
        if not environment and not python.exists():
            python = Path(sys.executable)
    if not python.exists():
        raise SkippedError(f"no interpreter {python.name} in {folder}; run `make setup-bench` or set {variable}")
    return python


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables that limit every library to ``threads`` threads."""
    names = ["OMP_NUM", "MKL_NUM", "OPENBLAS_NUM", "NUMBA_NUM", "VECLIB_MAXIMUM", "TRELLISWORK"]
    variables = {f"{name}_THREADS": str(threads) for name in names} | {"JAX_PLATFORMS": "cpu"}
    if threads == 1:  # otherwise XLA uses as many threads as the process has cores
        variables["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return variables


class WorkerProcess:
    """A contender in its own process; a context manager that ends the process.

    Parameters
    ----------
    contender : Contender
        Code to run, and its environment.
    limits : Limits
        A request that exceeds them ends the worker and raises FailedError.
    """

    def __init__(self, contender: Contender, limits: Limits) -> None:
        self.contender = contender
        self.limits = limits
        python = find_python(contender.environment)
        search_path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = thread_variables(limits.threads) | {"PYTHONPATH": os.pathsep.join(search_path)}
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.worker"],
            cwd=ROOT,
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,  # Ctrl-C reaches the parent only, which ends its workers
        )
        self._received = b""

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def start(self) -> dict[str, str]:
        """Import the contender; return the versions of its packages."""
        reply: dict[str, dict[str, str]] = self.ask(
            "start",
            contender=self.contender.path,
            threads=self.limits.threads,
            min_seconds=self.limits.min_seconds,
            packages=list(self.contender.packages),
        )
        return reply["versions"]

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Send one request and wait for its reply.

        Raises
        ------
        SkippedError, FailedError
            As the worker replies, or if it dies or exceeds the limits.
        """
        request = json.dumps({"op": op, **arguments}) + "\n"
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(request.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise FailedError(self._cause_of_death()) from None
        reply: dict[str, Any] = json.loads(self._read_line())
        if "skipped" in reply:
            raise SkippedError(reply["skipped"])
        if "failed" in reply:
            raise FailedError(reply["failed"])
        return reply

    def close(self) -> None:
        """End the process and its children; may be called again."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        stdout = self._process.stdout.fileno()
        deadline = time.monotonic() + self.limits.timeout
        while b"\n" not in self._received:
            readable, _, _ = select.select([stdout], [], [], _POLL_SECONDS)
            if readable:
                chunk = os.read(stdout, 1 << 16)
                if not chunk:
                    raise FailedError(self._cause_of_death())
                self._received += chunk
            elif resident_gb(self._process.pid) > self.limits.max_memory_gb:
                raise FailedError(f"took more than {self.limits.max_memory_gb:g} GB of memory")
            elif free_fraction() < _MIN_FREE_FRACTION:
                raise FailedError(f"left less than {_MIN_FREE_FRACTION:.0%} of the machine's memory free")
            elif time.monotonic() > deadline:
                raise FailedError(f"no answer within {self.limits.timeout:g} s")
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _cause_of_death(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its output"
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{how}: {last[:200]}" if last else how


def resident_gb(pid: int) -> float:
    """Return the resident memory of a process in gigabytes (2**30); 0 if unknown."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


def free_fraction() -> float:
    """Return the fraction of the machine's memory that is available; 1 if unknown."""
    try:
        lines = (line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        kilobytes = {name: int(value.split()[0]) for name, value in lines}
        return kilobytes["MemAvailable"] / kilobytes["MemTotal"]
    except (OSError, KeyError, ValueError):
        return 1.0
