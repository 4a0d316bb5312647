"""Errors of commands: one line and an exit code, or with ``--debug`` a traceback."""

import functools
import os
import platform
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO, TypeVar

import typer

from trelliswork import __version__
from trelliswork.compute.compilation import Notice, watching
from trelliswork.errors import (
    ApproximationWarning,
    ConvergenceWarning,
    DataWarning,
    ProcessError,
    TrellisworkError,
    extras_for,
)

if TYPE_CHECKING:
    from trelliswork.compute.sharing import Group

LOG_PREFIX = "trelliswork-error-"
PATIENCE = 5.0  # seconds
MAX_LINE = 700  # characters of a message
P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Settings:
    """Options before the name of the command."""

    debug: bool = False
    stderr: TextIO | None = None  # for the error of a process of torchrun that is silent otherwise
    silent: bool = False  # whether another process of torchrun tells the user about errors


settings = Settings()


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def open_streams() -> None:
    """Replace standard streams that the caller has closed by the null device, so that no file gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def report_errors(command: Callable[P, R], *, shared: bool = False) -> Callable[P, R]:
    """Wrap a command: every failure ends in one line and an exit code (see `exit_code`); it says when it compiles.

    ``shared`` is whether the processes of ``torchrun`` can share its work.
    """
    purpose = f"'{command.__name__.replace('_', ' ')}'"

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with warnings.catch_warnings(), watching(Notice(purpose)), extras_for(purpose), joined(purpose, shared):
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


def in_torchrun() -> bool:
    """Return whether ``torchrun`` may have started this process; spares imports if it has not."""
    return "WORLD_SIZE" in os.environ


def silence_others() -> None:
    """Let only the first of the processes of ``torchrun`` write to the standard streams: usage errors appear once."""
    if in_torchrun():
        from trelliswork.learning.distributed import is_first, silence

        settings.stderr, settings.silent = silence(), not is_first()


def let_others_speak(code: Any) -> None:
    """Wait before a silent process ends with an error, since ``torchrun`` then ends the one that tells the user."""
    if code and settings.silent:
        sys.stdout.flush()
        time.sleep(PATIENCE)


def current() -> "Group":
    """Return the group of processes that this process works in; a command's help does without the import."""
    from trelliswork.compute import sharing

    return sharing.current()


@contextmanager
def alone() -> Iterator[None]:
    """Work as one process inside a ``with`` block, whatever the group."""
    from trelliswork.compute.sharing import Group, sharing

    with sharing(Group()):
        yield


@contextmanager
def joined(purpose: str, shared: bool) -> Iterator[None]:
    """Join the processes that ``torchrun`` has started, if it has.

    If a rank fails, the first that does so says why, and the others end without a word.
    """
    if not in_torchrun():
        yield
        return
    from trelliswork.learning import distributed

    if distributed.launched() > 1 and not shared:
        raise ProcessError(f"{purpose} is the work of one process: start it without torchrun.")
    with distributed.group() as group:
        try:
            yield
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, typer.Exit | typer.Abort):
                first = not isinstance(error, distributed.OtherRankError) and group.fail()
                sys.stderr = settings.stderr if first and settings.stderr else distributed.nowhere()
                settings.silent = not first
            raise


def exit_code(error: BaseException) -> int:
    """Print one line about the end of a command, and return its code.

    That is 1 for a failure, 2 for a wrong use, 130 for Ctrl-C, 0 for a closed pipe.

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
    if getattr(error, "silent", False):
        return 1
    with suppress(OSError):  # standard error may be closed, too
        if isinstance(error, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
        elif settings.debug:
            traceback.print_exception(error)
        elif isinstance(error, (TrellisworkError, OSError)):
            print(f"error: {_line(error)}", file=sys.stderr)
        else:
            print(f"error: {_unforeseen(error)}", file=sys.stderr)
    return 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)


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
    elif isinstance(error, UnicodeEncodeError) and error.encoding.lower() != "utf-8":
        sign = error.object[error.start : error.start + 1]
        return (
            f"the output has {sign!a}, which {error.encoding} cannot write. Set PYTHONIOENCODING=utf-8, or use --out."
        )
    else:
        text = f"unexpected {type(error).__name__}: {detail}. Check the input and the options, or report it as a bug."
    place = _log(error)
    return f"{text} " + ("--debug shows the details." if place is None else f"Details, as --debug shows them: {place}")


def _log(error: BaseException) -> str | None:
    """Write the traceback of an error to a temporary file and return its path."""
    text = f"trelliswork {__version__}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv}\n"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix=LOG_PREFIX, suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(text + "".join(traceback.format_exception(error)))
    except (OSError, MemoryError):
        return None
    return file.name
