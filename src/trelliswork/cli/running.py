"""Errors of commands: one line and an exit code, or with ``--debug`` a traceback."""

import functools
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import typer

from trelliswork.compute.compilation import Notice, watching
from trelliswork.errors import ApproximationWarning, ConvergenceWarning, TrellisworkError, extras_for

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Settings:
    """Options before the name of the command."""

    debug: bool = False


settings = Settings()


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def report_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command: exit code 1 for a failure, 130 for Ctrl-C, 0 for a closed pipe; it says when it compiles."""
    purpose = f"'{command.__name__.replace('_', ' ')}'"

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with warnings.catch_warnings(), watching(Notice(purpose)), extras_for(purpose):
                warnings.simplefilter("always", ConvergenceWarning)
                warnings.simplefilter("always", ApproximationWarning)
                warnings.showwarning = _show_warning
                return command(*args, **kwargs)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at exit
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None
        except (TrellisworkError, OSError) as error:
            if settings.debug:
                raise
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None

    return wrapped
