"""Calls of the command line: in the process of the tests, which saves the start of an interpreter, or in their own."""

import io
import os
import subprocess
import sys
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from trelliswork import cli
from trelliswork.cli.running import settings
from trelliswork.compute.threads import get_num_threads, set_num_threads

COMMAND = [sys.executable, "-m", "trelliswork"]
# The same, with a checkpoint after every step: a test that waits for the file knows that training is under way.
WITH_CHECKPOINTS = [
    sys.executable,
    "-c",
    "import trelliswork.learning.checkpoint as c, sys\n"
    "c.Checkpoint.due = lambda self: True\n"
    "from trelliswork.cli import app\n"
    "app(sys.argv[1:])",
]


def run(*words: object, input: str = "", cwd: Path | None = None, env: dict[str, str] | None = None):
    """Run a command in this process: arguments and result as those of ``subprocess.run``."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(input.encode()), encoding="utf-8")
    argv = ["trelliswork", *map(str, words)]
    threads, code = get_num_threads(), 0
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(sys, argv=argv, stdin=given))
        if env is not None:
            stack.enter_context(mock.patch.dict(os.environ, env, clear=True))
        if cwd is not None:
            stack.enter_context(chdir(cwd))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        finally:
            settings.debug = False
            set_num_threads(threads)
    printed = []
    for stream in (out, err):
        stream.flush()
        printed.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(argv, code, *printed)


def run_process(*words: object, **options) -> subprocess.CompletedProcess:
    """Run a command in a process of its own, for what a process alone shows: imports, signals, closed streams."""
    return subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, **options)
