"""Supervision of training: development data, time limit, checkpoints, progress and callbacks, for every optimizer."""

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from trelliswork.learning.checkpoint import Arrays, Checkpoint, with_prefix
from trelliswork.learning.report import STOPPED, Callback, FitReport, Step

Saved = tuple[dict[str, Any], Arrays]  # plain data for JSON, and arrays


class Development(NamedTuple):
    """A metric on held-out data; larger is better."""

    metric: str  # its name
    measure: Callable[[Mapping[str, Any]], float]  # of named parameter arrays


class Watch:
    """Actions after each iteration: measure, keep the best parameters, stop early, write checkpoints, call back.

    Training stops after ``patience`` iterations without an improvement of the ``development`` metric, after the first
    iteration that ends later than ``max_minutes``, and if the ``callback``, called with each `Step`, returns true.

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
        self.development, self.patience, self.max_minutes = development, patience, max_minutes
        self.checkpoint, self.callback = checkpoint, callback
        self.stage = ""
        self.interrupted = False  # by the caller or the time limit: the checkpoint stays
        self.best, self.best_iteration = -math.inf, 0
        self.best_parameters: Arrays = {}

    def start_stage(self, stage: str, development: Development | None) -> None:
        """Start a stage of training with its own metric: forget the best parameters of the stage before."""
        self.stage, self.development = stage, development
        self.best, self.best_iteration, self.best_parameters = -math.inf, 0, {}

    def announce(self, stage: str, seconds: float = 0.0) -> bool:
        """Tell the callback about work between iterations; return whether training is to stop."""
        if self.callback is not None and self.callback(Step(0, math.nan, seconds=seconds, stage=stage)):
            self.interrupted = True
        return self.interrupted

    def resume(self) -> Saved | None:
        """Return the optimizer's state in the checkpoint, if there is one, and restore the best parameters."""
        saved = self.checkpoint.read() if self.checkpoint is not None else None
        if saved is None:
            return None
        plain, arrays = saved
        watch = plain["watch"]
        if watch["iteration"]:
            self.best, self.best_iteration = watch["best"], watch["iteration"]
            self.best_parameters = with_prefix(arrays, "watch.")
        return plain, {k: v for k, v in arrays.items() if not k.startswith("watch.")}

    def measure(self, step: Step, parameters: Mapping[str, Any]) -> float | None:
        """Return the metric on the development data, measured once per step; ``None`` without such data."""
        if self.development is not None and step.dev is None:
            step.dev = self.development.measure(parameters)
        return step.dev

    def after(
        self, step: Step, parameters: Mapping[str, Any], state: Callable[[], Saved], *, measure: bool = True
    ) -> str | None:
        """Return why training should stop after this iteration; ``None`` if it should continue.

        The step gets the metric on the development data, unless ``measure`` is false: an optimizer may measure at some
        steps only. Parameters are copied if they are the best so far. ``state`` returns all that the optimizer needs to
        resume, for a checkpoint. That is not written if patience has ended: the one before leads to the same end.
        """
        reason = None
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
        saved = self.checkpoint is not None and not ended and self.checkpoint.due()
        if saved:  # before the callback, which may raise an exception
            self.save(state)
        if self.callback is not None and self.callback(step):
            self.interrupted, reason = True, reason or STOPPED
        if reason is None and self.max_minutes is not None and step.seconds >= 60 * self.max_minutes:
            self.interrupted, reason = True, f"time limit of {self.max_minutes:g} minutes"
        if self.interrupted and self.checkpoint is not None and not saved and (self.stage or not ended):
            self.save(state)
        return reason

    def save(self, state: Callable[[], Saved]) -> None:
        """Write the checkpoint now."""
        assert self.checkpoint is not None
        plain, arrays = state()
        watch = {"best": self.best if self.best_iteration else None, "iteration": self.best_iteration}
        best = {f"watch.{name}": value for name, value in self.best_parameters.items()}
        self.checkpoint.write(plain | {"watch": watch}, arrays | best)

    def finish(self, parameters: Arrays, report: FitReport) -> tuple[Arrays, FitReport]:
        """Return the best parameters if there is a metric, else the last ones; complete the report.

        The report gets the checkpoint, to be removed when the model is saved, unless training was interrupted.
        """
        report.checkpoint = None if self.interrupted else self.checkpoint
        if self.development is not None and self.best_iteration:
            report.metric, report.dev = self.development.metric, self.best
            report.reason += f"; kept iteration {self.best_iteration} with {report.metric} {self.best:.4f}"
            parameters = self.best_parameters
        return parameters, report


def open_checkpoint(path: str | os.PathLike[str] | None, fingerprint: Callable[[], str]) -> Checkpoint | None:
    """Return the checkpoint at a path; ``None`` without a path, and then the fingerprint is not computed."""
    return None if path is None else Checkpoint(path, fingerprint())
