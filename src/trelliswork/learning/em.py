"""Expectation maximization of any model: iterations under a watch, convergence, random restarts, checkpoints."""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from trelliswork.compute.display import plural
from trelliswork.compute.sharing import current
from trelliswork.errors import ConvergenceWarning
from trelliswork.learning.checkpoint import Arrays, with_prefix
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Saved, Watch

Parameters = TypeVar("Parameters")


class LikelihoodDecrease(ArithmeticError):  # noqa: N818  (named after the event)
    """The objective of EM decreased, which it never does: a mistake in the E- or M-step, or a broken input."""


class Update(NamedTuple):
    """Result of one E-step and one M-step."""

    parameters: Any  # after the M-step
    value: float  # objective of the parameters before: log evidence plus log prior, or a lower bound of it
    log_evidence: float
    beam: Any = None  # statistics of the beams of the E-step


class Updates(Protocol[Parameters]):
    """The E-step and the M-step of a model on its training data; in a group of processes, on those of all ranks."""

    @property
    def tolerated(self) -> float:
        """Decrease that rounding explains, as a fraction of the absolute objective plus ``n_tokens``."""

    @property
    def n_tokens(self) -> float:
        """Tokens of the training data."""

    @property
    def may_decrease(self) -> bool:
        """Whether the objective is a lower bound that may decrease, as within beams; EM then ends."""

    def update(self, parameters: Parameters) -> Update:
        """Return the result of one iteration."""

    def to_arrays(self, parameters: Parameters) -> Arrays:
        """Return parameters as named arrays."""

    def from_arrays(self, arrays: Arrays) -> Parameters:
        """Build parameters from ``to_arrays``'s result."""


def run_em(
    model: Updates[Parameters],
    start: Callable[[int], Parameters],
    watch: Watch,
    *,
    max_iter: int,
    tol: float,
    n_starts: int = 1,
    probe: int = 1,
) -> tuple[Parameters, FitReport]:
    """Run EM from one start, or from several of which the best after ``probe`` iterations continues.

    ``start(k)`` returns the first parameters of start k. Development data are measured after the choice among several
    starts, whose iterations count for ``max_iter``. Stops when an iteration raises the objective by less than the
    fraction ``tol`` of it; 0: run all iterations. The report's ``value`` is the objective of the parameters before the
    last M-step, so those returned are no worse; ``details["restarts"]`` are the objectives of several starts. Raises
    `LikelihoodDecrease` if the objective decreases by more than rounding explains.
    """
    run: _Run[Parameters] = _Run(model, watch)
    probed = 0
    if n_starts > 1:
        probed = min(probe, max_iter)
        while len(run.values) < n_starts and not watch.interrupted:
            number = len(run.values)
            run.climb(partial(start, number), probed, 0.0, stage=f"start {number + 1} of {n_starts}")
            run.compare()
        run.choose()
    if probed < max_iter and not watch.interrupted:
        run.climb(partial(start, 0), max_iter, tol, probed)
    assert run.current is not None
    arrays, report = watch.finish(model.to_arrays(run.current.parameters), run.current.report)
    if n_starts > 1:
        report.details["restarts"] = run.values
    return model.from_arrays(arrays), report


@dataclass
class _Try(Generic[Parameters]):
    """Parameters after some iterations from one start, and their report."""

    parameters: Parameters
    report: FitReport


class _Run(Generic[Parameters]):
    """State of EM: the present start, the best start so far, and the objectives of all that were compared."""

    def __init__(self, model: Updates[Parameters], watch: Watch) -> None:
        self.model, self.watch = model, watch
        self.started = time.perf_counter()
        self.values: list[float] = []
        self.best: _Try[Parameters] | None = None
        self.current: _Try[Parameters] | None = None
        saved = watch.resume()
        if saved is not None:
            plain, arrays = saved
            self.values = plain["values"]
            self.best, self.current = (self._restored(name, plain, arrays) for name in ("best", "current"))
            assert self.current is not None
            self.started -= self.current.report.seconds

    def climb(
        self, start: Callable[[], Parameters], max_iter: int, tol: float, settled_after: int = 0, *, stage: str = ""
    ) -> None:
        """Iterate until convergence, or until a limit or the watch ends it; a named ``stage`` is not measured."""
        if self.current is None:
            self.current = _Try(start(), FitReport(False, "", -math.inf))
        now, report = self.current, self.current.report
        while True:
            if report.n_iter > settled_after and _settled(report, tol):
                report.converged, report.reason = True, f"the objective rose by less than {tol:g} of its value"
                return
            if report.n_iter >= max_iter:
                report.reason = plural(max_iter, "iterations")
                if tol > 0:
                    warnings.warn(
                        f"EM stopped after {plural(max_iter, 'iterations')} before reaching tol={tol:g}. "
                        "Raise max_iter or loosen tol.",
                        ConvergenceWarning,
                        stacklevel=4,
                    )
                return
            now.parameters, value, log_evidence, report.beam = self.model.update(now.parameters)
            value = _of_first(value)
            before, seconds = report.value, time.perf_counter() - self.started
            report.add(Step(report.n_iter + 1, value, seconds=seconds, stage=stage, log_evidence=log_evidence))
            if self._decreased(before, report):
                return
            arrays = self.model.to_arrays(now.parameters)
            reason = self.watch.after(report.history[-1], arrays, self._state, measure=not stage)
            if reason is not None:
                report.reason = reason
                return

    def compare(self) -> None:
        """End the present start: keep it if it is the best so far."""
        tried, self.current = self.current, None
        assert tried is not None
        self.values.append(tried.report.value)
        if self.best is None or tried.report.value > self.best.report.value:
            self.best = tried
        if self.watch.interrupted:
            self.best.report.reason = tried.report.reason

    def choose(self) -> None:
        """Continue with the best start, unless that has happened before the checkpoint."""
        if self.best is not None:
            self.current, self.best = self.best, None

    def _decreased(self, before: float, report: FitReport) -> bool:
        """Return whether the objective decreased; raise an error if it must not."""
        value, tolerated = report.value, self.model.tolerated * (abs(before) + self.model.n_tokens)
        if self.model.may_decrease and value < before:
            report.reason = f"the objective within beams fell from {before:.1f} to {value:.1f}"
            return True
        if value < before - tolerated:
            raise LikelihoodDecrease(
                f"the objective fell from {before!r} to {value!r} in iteration {report.n_iter}; only {tolerated:g} "
                "could be rounding. Please report this, with the data if possible."
            )
        return False

    def _state(self) -> Saved:
        plain: dict[str, Any] = {"values": self.values}
        arrays: Arrays = {}
        for name, tried in (("best", self.best), ("current", self.current)):
            if tried is not None:
                plain[name] = [vars(step) for step in tried.report.history]
                arrays |= {f"{name}.{key}": array for key, array in self.model.to_arrays(tried.parameters).items()}
        return plain, arrays

    def _restored(self, name: str, plain: dict[str, Any], arrays: Arrays) -> _Try[Parameters] | None:
        if name not in plain:
            return None
        history = [Step(**step) for step in plain[name]]
        parameters = self.model.from_arrays(with_prefix(arrays, f"{name}."))
        return _Try(parameters, FitReport(False, "", history[-1].value, history))


def _of_first(value: float) -> float:
    """Return the value of rank 0: it decides when all end, though other processors may round otherwise."""
    return float(current().first(lambda: value))


def _settled(report: FitReport, tol: float) -> bool:
    """Return whether the last iteration raised the objective by less than ``tol`` of its value; never if it is 0."""
    if not tol or len(report.history) < 2:
        return False
    return report.value - report.history[-2].value < tol * abs(report.value)
