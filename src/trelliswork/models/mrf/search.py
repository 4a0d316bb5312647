"""L-BFGS on the bound of a Markov random field: early stop on other moments, checkpoints, what was learned."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ConvergenceWarning
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.learning.lbfgs import FitReport, State, Step, lbfgs
from trelliswork.models.mrf.objective import Frequencies, MomentObjective

Array = NDArray[np.float64]
Callback = Callable[[Step, Array], bool | None]
STOPPED = "stopped by the caller"


@dataclass
class Learned:
    """Parameters with the unaries that belong to them.

    Attributes
    ----------
    parameters : ndarray (P,)
    unaries : ndarray (K + 1, C)
        Of the cover, single words first; with them its bound of A / N is 0.
    report : FitReport
        ``history[i].dev`` is the bound of the development moments, a position.
    dev : float or None
        The best of them, that of the parameters.
    """

    parameters: Array
    unaries: Array
    report: FitReport
    dev: float | None


class _Watch:
    """Looks at each iteration: development bound, best parameters, checkpoint, the caller's wish."""

    def __init__(
        self,
        objective: MomentObjective,
        dev: Frequencies | None,
        patience: int,
        checkpoint: Checkpoint | None,
        callback: Callback | None,
    ) -> None:
        self.objective, self.dev, self.patience = objective, dev, patience
        self.checkpoint, self.callback = checkpoint, callback
        self.best: tuple[float, int, Array, Array] | None = None  # bound, iteration, parameters, unaries
        self.reason = ""

    def after(self, step: Step, state: State) -> bool:
        """True if training is to stop."""
        parameters = state.weights / self.objective.scale
        if self.dev is not None:
            if self.objective.unaries_at is not state.weights:  # the line search went further and came back
                self.objective(state.weights)
            unaries = self.objective.unaries
            assert unaries is not None
            step.dev = self.objective.bound(parameters, unaries, self.dev)
            if self.best is None or step.dev > self.best[0]:
                self.best = step.dev, step.iteration, parameters, unaries
            elif step.iteration - self.best[1] >= self.patience:
                self.reason = f"no better bound of the development data in {self.patience} iterations"
        if self.checkpoint is not None and self.checkpoint.due():
            self.checkpoint.write(*self.to_plain(state))
        if self.callback is not None and self.callback(step, parameters) and not self.reason:
            self.reason = STOPPED
            if self.checkpoint is not None:
                self.checkpoint.write(*self.to_plain(state))
        return bool(self.reason)

    def to_plain(self, state: State) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All that a later run needs to go on."""
        plain, arrays = state.to_plain()
        if self.best is not None:
            plain["best"] = [self.best[0], self.best[1]]
            arrays |= {"best.parameters": self.best[2], "best.unaries": self.best[3]}
        return plain, arrays

    def from_plain(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> State:
        """The state of an interrupted run."""
        if "best" in plain:
            self.best = (*plain["best"], arrays["best.parameters"], arrays["best.unaries"])
        return State.from_plain(plain, arrays)


def train(
    objective: MomentObjective,
    start: Array,
    *,
    dev: Frequencies | None = None,
    patience: int = 10,
    max_iter: int = 300,
    tol: float = 1e-5,
    memory: int = 10,
    checkpoint: Checkpoint | None = None,
    callback: Callback | None = None,
) -> Learned:
    """Maximise the bound.

    Parameters
    ----------
    objective : MomentObjective
    start : ndarray (P,)
        Parameters to begin with, not scaled.
    dev : Frequencies, optional
        Other moments: the parameters with their best bound are kept, and training ends after ``patience`` iterations
        without a better one. Their bound needs no inference.
    max_iter, tol, memory
        Of ``lbfgs``.
    checkpoint : Checkpoint, optional
        Where an interrupted run goes on from; removed at the end, but kept if the caller stops.
    callback : callable, optional
        Called with each ``Step`` and the parameters; a true answer stops.
    """
    watch = _Watch(objective, dev, patience, checkpoint, callback)
    begin: Array | State = start * objective.scale
    saved = checkpoint.read() if checkpoint is not None else None
    if saved is not None:
        begin = watch.from_plain(*saved)
    with warnings.catch_warnings():
        if dev is not None:
            warnings.simplefilter("ignore", ConvergenceWarning)  # the development data decide
        weights, report = lbfgs(
            objective, begin, max_iter=max_iter, tol=tol, memory=memory, period=5, callback=watch.after
        )
    if watch.reason:
        report = replace(report, reason=watch.reason)
    if checkpoint is not None and watch.reason != STOPPED:
        checkpoint.remove()
    if watch.best is not None:
        bound, iteration, parameters, unaries = watch.best
        report.converged = True if watch.reason.startswith("no better") else report.converged
        value = next(step.value for step in report.history if step.iteration == iteration)
        return Learned(parameters, unaries, replace(report, value=value), bound)
    if objective.unaries_at is not weights:
        objective(weights)
    assert objective.unaries is not None
    return Learned(weights / objective.scale, objective.unaries, report, None)
