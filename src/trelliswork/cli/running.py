"""Errors of commands: one line and an exit code, or with ``--debug`` a traceback."""

import functools
import io
import os
import platform
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import typer

from trelliswork import __version__
from trelliswork.compute.compilation import Notice, watching
from trelliswork.errors import ApproximationWarning, ConvergenceWarning, DataWarning, TrellisworkError, extras_for

LOG_PREFIX = "trelliswork-error-"
MAX_LOGS = 10
MAX_LINE = 700  # characters of a message
P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Settings:
    """Options before the name of the command."""

    debug: bool = False


settings = Settings()


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def open_streams() -> None:
    """Replace standard streams that the caller has closed by the null device, so that no file gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, mode), encoding="utf-8"))


def report_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command: every failure ends in one line and an exit code (see `exit_code`); it says when it compiles."""
    purpose = f"'{command.__name__.replace('_', ' ')}'"

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with warnings.catch_warnings(), watching(Notice(purpose)), extras_for(purpose):
                warnings.simplefilter("always", ConvergenceWarning)
                warnings.simplefilter("always", ApproximationWarning)
                warnings.simplefilter("always", DataWarning)
                warnings.showwarning = _show_warning
                return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, SystemExit):
            raise
        except BaseException as error:
            raise typer.Exit(exit_code(error)) from None

    return wrapped


def exit_code(error: BaseException) -> int:
    """Print one line about the end of a command; return 1 for a failure, 130 for Ctrl-C, 0 for a closed pipe.

    With ``--debug`` failures are printed with their traceback. Without it, the traceback of an error that is not ours
    goes to a log file, which the line names.
    """
    try:
        sys.stdout.flush()
    except OSError:  # otherwise the interpreter complains at exit
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0
    with suppress(OSError):  # standard error may be closed, too
        if isinstance(error, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
        elif settings.debug:
            traceback.print_exception(error)
        elif isinstance(error, (TrellisworkError, OSError)):
            print(f"error: {_line(error)}", file=sys.stderr)
        else:
            print(f"error: {_unforeseen(error)}", file=sys.stderr)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _line(error: BaseException) -> str:
    """Return the message of an error in one line, without its middle if it is long."""
    text = " ".join(str(error).splitlines())
    return text if len(text) <= MAX_LINE else f"{text[: MAX_LINE // 2]} ... {text[-MAX_LINE // 2 :]}"


def _unforeseen(error: BaseException) -> str:
    """Return one line about an error that is not ours, and write its traceback to a file."""
    detail = _line(error)
    if isinstance(error, MemoryError):
        text = f"out of memory ({detail or 'no details'}). Use less data at once, a smaller model or a larger machine."
    elif isinstance(error, RecursionError):
        text = "the input is nested too deeply. Simplify it."
    else:
        text = f"unexpected {type(error).__name__}: {detail}. Check the input and the options, or report it as a bug."
    place = _log(error)
    return f"{text} " + ("--debug shows the details." if place is None else f"Details, as --debug shows them: {place}")


def _log(error: BaseException) -> str | None:
    """Write the traceback of an error to a temporary file and return its path; older files are removed."""
    text = f"trelliswork {__version__}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv}\n"
    try:
        folder = Path(tempfile.gettempdir())
        logs = sorted(folder.glob(f"{LOG_PREFIX}*.log"), key=lambda path: path.stat().st_mtime)
        for old in logs[: max(0, len(logs) + 1 - MAX_LOGS)]:
            with suppress(OSError):  # of another user
                old.unlink()
        with tempfile.NamedTemporaryFile(
            "w", prefix=LOG_PREFIX, suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(text + "".join(traceback.format_exception(error)))
    except (OSError, MemoryError):
        return None
    return file.name
