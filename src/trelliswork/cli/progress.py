"""Progress of long work on standard error, and a Ctrl-C that loses nothing."""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from trelliswork.cli.running import current

if TYPE_CHECKING:
    from trelliswork.learning.report import Step

QUIET_SECONDS = 2.0  # work that takes less shows no progress in a log
LINE_SECONDS = 10.0  # between two lines in a log
SAME_SECONDS = 5.0  # in which signals to a process of a group are one Ctrl-C


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; a second Ctrl-C interrupts at once.

    In a group of processes one Ctrl-C may arrive twice, from the terminal and from ``torchrun``: signals within a few
    seconds are one.
    """
    stop: list[float] = []  # when it was pressed

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop:
            if current().size > 1 and time.monotonic() - stop[0] < SAME_SECONDS:
                return
            raise KeyboardInterrupt
        stop.append(time.monotonic())
        print("stopping after this iteration; the model will be saved (Ctrl-C again: discard it)", file=sys.stderr)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: bool(stop)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def bar(title: str, total: int, quiet: bool) -> Iterator[Callable[[int, str], None]]:
    """Yield a function that sets the number of completed units and the text beside the bar.

    A terminal shows a progress bar, a log one line every ten seconds.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if quiet:
        yield lambda completed, text: None
        return
    if not sys.stderr.isatty():
        due = [time.monotonic() + QUIET_SECONDS]

        def line(completed: int, text: str) -> None:
            if time.monotonic() >= due[0]:
                print(f"{completed}/{total}  {text}", file=sys.stderr, flush=True)
                due[0] = time.monotonic() + LINE_SECONDS

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda completed, text: progress.update(task, completed=completed, description=text)


@contextmanager
def training_progress(n_tokens: int, max_iter: int, quiet: bool) -> Iterator["Callable[[Step], bool]"]:
    """Yield the callback of a fit: it shows progress, and stops training after a Ctrl-C.

    Before the first iteration there is nothing to save, so Ctrl-C ends the command at once.
    """
    with bar("preparing", max_iter, quiet) as show, ExitStack() as stack:
        pressed: list[Callable[[], bool]] = []

        def callback(step: "Step") -> bool:
            if not pressed and not math.isnan(step.value):  # first of all: who sees progress may press Ctrl-C
                pressed.append(stack.enter_context(interruptible()))
            show(step.iteration, describe(step, n_tokens, max_iter))
            return bool(pressed) and pressed[0]()

        yield callback


def describe(step: "Step", n_tokens: int, max_iter: int) -> str:
    """Return one line about a step; the time left is an upper bound, since training may converge earlier."""
    if math.isnan(step.value):
        return step.stage
    parts = [step.stage] if step.stage else []
    parts.append(f"objective {step.value:.4f}" if abs(step.value) < 100 else f"objective {step.value:.2f}")
    if not math.isnan(step.gradient_norm):
        parts.append(f"|gradient| {step.gradient_norm:.3g}")
    if step.n_active:
        parts.append(f"active {step.n_active:,}")
    if step.dev is not None:
        parts.append(f"dev {step.dev:.4f}")
    done = step.n_tokens or n_tokens * max(step.n_evaluations, step.iteration)
    parts.append(f"{done / max(step.seconds, 1e-9):,.0f} tokens/s")
    left = step.seconds / max(step.iteration, 1) * max(max_iter - step.iteration, 0)
    return "  ".join([*parts, f"at most {duration(left)} left"])


def usage_lines(outcome: dict[str, Any]) -> list[str]:
    """Return a line about what the processes of a group have spent, on average; none for one process."""
    if "processes" not in outcome:
        return []
    n = len(processes := outcome["processes"])
    mean = {key: sum(process[key] for process in processes) / n for key in processes[0]}
    return [
        f"{n} processes: {mean['computation']:.1f} s computation, {mean['communication']:.1f} s communication, "
        f"{mean['waiting']:.1f} s waiting, {mean['bytes_sent'] / 1e6:.1f} MB sent each"
    ]


def duration(seconds: float) -> str:
    """Return hours, minutes and seconds, such as ``1:02:03`` or ``0:07``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
