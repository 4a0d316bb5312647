"""Supervision of training: development data, time limit, checkpoints, progress and callbacks, for every optimizer."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.sharing import current
from trelliswork.errors import ValueRangeError
from trelliswork.learning.checkpoint import Arrays, Checkpoint, with_prefix
from trelliswork.learning.report import STOPPED, Callback, FitReport, Step

_log = logging.getLogger("trelliswork.learning")

Saved = tuple[dict[str, Any], Arrays]  # plain data for JSON, and arrays


_started: list[float] = []  # when the task of which training is a part began, if it is known


@contextmanager
def timed_from(start: float) -> Iterator[None]:
    """Count the time since ``start``, a value of ``time.perf_counter``, for time limits of training in this block."""
    _started.append(start)
    try:
        yield
    finally:
        _started.pop()


class Development(NamedTuple):
    """A metric on held-out data; larger is better."""

    metric: str  # its name
    measure: Callable[[Any], float]  # of named parameter arrays

    @classmethod
    def of_shares(cls, metric: str, n: int, sums: Callable[[Any, int, int], tuple[float, float]]) -> "Development":
        """Return a mean over n items, of which each process measures its share.

        ``sums`` returns the sum of a value over a range of the items, and how many are summed.
        """

        def measure(parameters: Any) -> float:
            group = current()
            return group.ratio(*sums(parameters, *group.share(n)))

        return cls(metric, measure)


class Watch:
    """Actions after each iteration: measure, keep the best parameters, stop early, write checkpoints, call back.

    Training stops after ``patience`` iterations without an improvement of the ``development`` metric, if the
    ``callback``, called with each `Step`, returns true, and before an iteration that would end later than
    ``max_minutes`` if it took as long as the one before.

    An optimizer calls ``resume`` before its first iteration, ``after`` at the end of each one, stops if that returns a
    reason, and ends with ``finish``. Its own criterion is checked before each iteration, so that a run that resumes
    after its last iteration ends at once. Training in several stages calls ``start_stage`` before each.

    The checkpoint stays after training, until the model is saved (`Estimator.save`): the same call would resume from
    it and end with the same result. It stays longer if training was interrupted.
    """

    def __init__(
        self,
        development: Development | None = None,
        *,
        patience: int = 1,
        max_minutes: float | None = None,
        checkpoint: Checkpoint | None = None,
        callback: Callback | None = None,
    ) -> None:
        if max_minutes is not None and not max_minutes > 0:
            raise ValueRangeError(f"max_minutes must be a positive number, got {max_minutes!r}.")
        self.development, self.patience, self.max_minutes = development, patience, max_minutes
        self.checkpoint, self.callback = checkpoint, callback
        self.stage = ""
        self._lead = time.perf_counter() - _started[-1] if _started else 0.0  # seconds before training
        self._last: float | None = None  # seconds of the step before, in the same stage
        self.interrupted = False  # by the caller or the time limit: the checkpoint stays
        self.best, self.best_iteration = -math.inf, 0
        self.best_parameters: Arrays = {}

    def start_stage(self, stage: str, development: Development | None) -> None:
        """Start a stage of training with its own metric: forget the best parameters of the stage before."""
        self.stage, self.development, self._last = stage, development, None
        self.best, self.best_iteration, self.best_parameters = -math.inf, 0, {}

    def announce(self, stage: str, seconds: float = 0.0) -> bool:
        """Tell the callback about work between iterations; return whether training is to stop."""
        announced = Step(0, math.nan, seconds=seconds, stage=stage)
        if current().any(self.callback is not None and bool(self.callback(announced))):
            self.interrupted = True
        return self.interrupted

    def time_is_up(self, seconds: float, more: float = 0.0) -> str | None:
        """Return the reason to stop after ``seconds`` of training if ``more`` would exceed the limit; else ``None``."""
        limit = math.inf if self.max_minutes is None else 60 * self.max_minutes
        used = self._lead + seconds
        return f"time limit of {self.max_minutes:g} minutes" if used >= limit or used + 0.99 * more > limit else None

    def resumes(self) -> bool:
        """Return whether there is a checkpoint to resume from; rank 0 reads it for all."""
        return bool(
            self.checkpoint is not None and current().first(lambda: self.checkpoint and self.checkpoint.path.exists())
        )

    def resume(self) -> Saved | None:
        """Return the optimizer's state in the checkpoint, if there is one, and restore the best parameters."""
        if not self.resumes():
            return None
        saved: list[Saved] = []

        def read() -> Any:
            assert self.checkpoint is not None
            found = self.checkpoint.read()
            assert found is not None
            saved.append(found)
            return found[0]

        plain, arrays = current().first(read), current().first_arrays(lambda: saved[0][1])
        watch = plain["watch"]
        if watch["iteration"]:
            self.best, self.best_iteration = watch["best"], watch["iteration"]
            self.best_parameters = with_prefix(arrays, "watch.")
        return plain, {k: v for k, v in arrays.items() if not k.startswith("watch.")}

    def measure(self, step: Step, parameters: Mapping[str, Any]) -> float | None:
        """Return the metric on the development data, measured once per step; ``None`` without such data."""
        if self.development is not None and step.dev is None:
            value = float(self.development.measure(parameters))  # on all ranks; that of rank 0 decides
            step.dev = current().first(lambda: value)
        return step.dev

    def after(
        self, step: Step, parameters: Mapping[str, Any], state: Callable[[], Saved], *, measure: bool = True
    ) -> str | None:
        """Return why training should stop after this iteration; ``None`` if it should continue.

        The step gets the metric on the development data, unless ``measure`` is false: an optimizer may measure at some
        steps only. Parameters are copied if they are the best so far. ``state`` returns all that the optimizer needs to
        resume, for a checkpoint. That is not written if patience has ended: the one before leads to the same end.
        """
        reason, entered = None, time.perf_counter()
        step.stage = step.stage or self.stage
        if measure and self.measure(step, parameters) is not None:
            assert step.dev is not None
            if step.dev > self.best:
                self.best, self.best_iteration = step.dev, step.iteration
                self.best_parameters = {name: np.array(value) for name, value in parameters.items()}
            elif step.iteration - self.best_iteration >= self.patience:
                assert self.development is not None
                reason = f"no better {self.development.metric} on the development data for {self.patience} iterations"
        ended = reason is not None
        saved = self.checkpoint is not None and not ended and current().first(self.checkpoint.due)
        if saved:  # before the callback, which may raise an exception
            self.save(state)
        if current().any(self.callback is not None and bool(self.callback(step))):
            self.interrupted, reason = True, reason or STOPPED
        if _log.isEnabledFor(logging.DEBUG):
            more = "" if step.dev is None or self.development is None else f", {self.development.metric} {step.dev:.4f}"
            stage = f"{step.stage}, " if step.stage else ""
            _log.debug("%siteration %d: value %.6g%s, %.1f s", stage, step.iteration, step.value, more, step.seconds)
        duration = 0.0 if self._last is None else step.seconds - self._last
        self._last = step.seconds
        if reason is None:
            seconds = step.seconds + time.perf_counter() - entered
            reason = current().first(lambda: self.time_is_up(seconds, duration))
            self.interrupted = self.interrupted or reason is not None
        if self.interrupted and self.checkpoint is not None and not saved and (self.stage or not ended):
            self.save(state)
        return reason

    def save(self, state: Callable[[], Saved]) -> None:
        """Write the checkpoint now, on rank 0."""
        assert self.checkpoint is not None
        plain, arrays = state()
        if current().rank > 0:
            return
        watch = {"best": self.best if self.best_iteration else None, "iteration": self.best_iteration}
        best = {f"watch.{name}": value for name, value in self.best_parameters.items()}
        self.checkpoint.write(plain | {"watch": watch}, arrays | best)

    def finish(self, parameters: Arrays, report: FitReport) -> tuple[Arrays, FitReport]:
        """Return the best parameters if there is a metric, else the last ones; complete the report.

        The report gets the checkpoint, to be removed when the model is saved, unless training was interrupted.
        """
        report.checkpoint = None if self.interrupted else self.checkpoint
        report.details |= current().usage()
        if self.development is not None and self.best_iteration:
            report.metric, report.dev = self.development.metric, self.best
            report.reason += f"; kept iteration {self.best_iteration} with {report.metric} {self.best:.4f}"
            parameters = self.best_parameters
        _log.info("training ended after %d iterations: %s", report.n_iter, report.reason)
        return parameters, report


def open_checkpoint(path: str | os.PathLike[str] | None, fingerprint: Callable[[], str]) -> Checkpoint | None:
    """Return the checkpoint at a path; ``None`` without a path, and then the fingerprint is not computed."""
    return None if path is None else Checkpoint(path, "".join(current().gather(fingerprint())))
