"""The progress of long work on a terminal, and a Ctrl-C that loses nothing."""

import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trelliswork.learning.lbfgs import Step
    from trelliswork.models.hmm.em import EMStep


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C only makes the function that is given answer True; the second one interrupts."""
    stop: list[bool] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop:
            raise KeyboardInterrupt  # twice: at once
        stop.append(True)
        print("stopping after this iteration; what was learned will be saved (Ctrl-C again: drop it)", file=sys.stderr)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: bool(stop)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def bar(title: str, total: int, quiet: bool) -> Iterator[Callable[[int, str], None]]:
    """A progress bar on a terminal's stderr; gives a function that sets how far it is, and the text beside it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    shown = not quiet and sys.stderr.isatty()
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True, disable=not shown) as shown_bar:
        task = shown_bar.add_task(title, total=total)
        yield lambda completed, text: shown_bar.update(task, completed=completed, description=text)


@contextmanager
def training_progress(n_tokens: int, max_iter: int, quiet: bool) -> Iterator[Any]:
    """A progress bar for training; gives the callback, which a Ctrl-C makes stop."""
    with bar("reading features", max_iter, quiet) as show, interruptible() as stopped:

        def callback(step: "Step", weights: Any) -> bool:
            show(step.iteration, describe(step, n_tokens, max_iter))
            return stopped()

        yield callback


@contextmanager
def em_progress(n_tokens: int, max_iter: int, quiet: bool) -> Iterator[Any]:
    """The same for EM, whose steps tell the log evidence."""
    with bar("first iterations", max_iter, quiet) as show, interruptible() as stopped:

        def callback(step: "EMStep") -> bool:
            rate = n_tokens * step.iteration / max(step.seconds, 1e-9)
            left = step.seconds / step.iteration * (max_iter - step.iteration)
            about = f"log evidence {step.log_evidence:.2f}  {rate:,.0f} tokens/s  at most {duration(left)} left"
            show(step.iteration, about)
            return stopped()

        yield callback


def describe(step: "Step", n_tokens: int, max_iter: int) -> str:
    """One line about an iteration; the time left is that until ``max_iter``, training may well end before.

    A step that only says what is going on (``stage``, a value of nan) has no figures.
    """
    stage = str(getattr(step, "stage", ""))
    if stage and math.isnan(step.value):
        return stage
    rate = n_tokens * step.n_evaluations / max(step.seconds, 1e-9)
    left = step.seconds / step.iteration * (max_iter - step.iteration)
    parts = [f"objective {step.value:.2f}"]
    if not math.isnan(step.gradient_norm):
        parts.append(f"|gradient| {step.gradient_norm:.3g}")
    parts.append(f"active {step.n_active:,}")
    if step.dev is not None:
        parts.append(f"dev {100 * step.dev:.2f}")
    parts += [f"{rate:,.0f} tokens/s", f"at most {duration(left)} left"]
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, such as ``1:02:03`` or ``0:07``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
