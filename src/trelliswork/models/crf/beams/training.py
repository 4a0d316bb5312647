"""L-BFGS within beams: beams that are held for some iterations, and what to do when they lose too much.

Choosing states anew at every evaluation, as the paper does, makes an objective that jumps: line searches fail, and the
search ends early. So states are chosen by their posterior probabilities and held while L-BFGS takes some steps on
what is then one smooth function, a lower bound of the exact one. Then those that have gained enter, and so on until
nothing changes: the minimum is that of a function whose states include all that matter at the minimum. Iterations
whose gain is lost to states that grew outside are taken back; these states are inside from then on.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from trelliswork.errors import ApproximationWarning, ConvergenceWarning
from trelliswork.inference.chain.beam import Beam
from trelliswork.learning.lbfgs import PERIOD, FitReport, State, Step, Weights, lbfgs
from trelliswork.models.crf.beams.objective import BeamObjective

Plain = dict[str, Any]
After = Callable[[Step, Weights, Callable[[], tuple[Plain, Any]]], str | None]
FIRST_HOLD, SHORTEST_HOLD, LONGEST_HOLD = 3, 5, 20  # iterations on the same states
EASY, HARD = 0.1, 0.3  # what new states cost, as a share of the gain: hold them longer, or not so long
WORTH = 0.01  # of the log-likelihood that a beam loses: to be more exact is of no use
LONG_HOLD = 15  # iterations on the same states where what is outside counts, too
INNER, SETTLED = 10, 100  # times the tolerance: that of iterations between two choices, and from choice to choice
LEAST_EPS = 1e-8
TOO_NOISY = 3
STALLED = 2
LOST = 0.02  # nats a token: more is too much


class BeamSearch:
    """The minimum of a ``BeamObjective``.

    Parameters
    ----------
    objective : BeamObjective
    after : callable
        Called after each iteration with the ``Step``, the weights and a function that gives the state for a
        checkpoint; a text as answer stops.
    hold : bool
        False: choose states at every evaluation, as in the paper.

    Attributes
    ----------
    sampled : int
        Iterations on a sample that came before (``beam_start``): they count among those of ``run``.

    Notes
    -----
    With ``eps="auto"`` a beam that loses by new states what had been gained, three times in a row, gets a tenth of the
    eps.
    """

    def __init__(self, objective: BeamObjective, after: After, *, hold: bool = True) -> None:
        self.objective, self._after, self._holds = objective, after, hold
        self.auto = objective.beam.kind == "kl" and objective.beam.eps == "auto"
        if self.auto:
            objective.beam = replace(objective.beam, eps=Beam().eps)
        self.sampled = 0
        self._before: list[Step] = []  # of the states that were held before
        self._hold = FIRST_HOLD
        self._clock, self._offset = time.perf_counter(), 0.0
        self._begun = False
        self._grow = False  # states that once were held stay
        self._stalled = 0  # choices in a row without gain
        self._noisy = 0  # choices in a row by which more was lost than had been gained
        self._taken = 0  # iterations since then
        self._value = np.inf  # when the states were last chosen
        self._anchor = np.empty(0)  # the weights then
        self._pairs: list[Any] = []  # of the last iteration: the function has hardly changed since

    def run(
        self, start: Weights, saved: tuple[Plain, Any] | None, *, l1: float, max_iter: int, tol: float, memory: int
    ) -> tuple[Weights, FitReport]:
        """Minimise from ``start``, or go on from a checkpoint."""
        options = {"l1": l1, "memory": memory}
        if not self._holds:
            weights, report, stop = self._stage(start, options | {"max_iter": max_iter, "tol": tol})
            report.reason = stop or report.reason
            self._conclude(report)
            return weights, report
        state: State | None = None
        weights = start
        if saved is not None:
            state = self._restore(*saved)
            self._clock -= state.history[-1].seconds + (self._before[-1].seconds if self._before else 0.0)
        max_iter -= self.sampled
        while True:
            if state is None:
                state, ended = self._choose(weights, l1, tol)
                if ended is not None:
                    weights, report = state.weights, FitReport(True, ended, self._value, self._before)
                    break
            left = max_iter - len(self._before)
            limits = {"max_iter": min(self._hold, left), "tol": self._small(state.value, tol) / abs(state.value)}
            weights, report, stop = self._stage(state, options | limits)
            self._taken = len(report.history) - len(self._before)
            self._before, state = report.history, None
            if stop is None and self.objective.completed and self._value - report.value <= self._settled(tol):
                # What was outside has hardly been touched: another choice would tell the same.
                report.converged = True
                report.reason = f"on new states the value fell by less than {SETTLED * tol:g}"
                break
            if stop is not None or len(self._before) >= max_iter:
                n = max_iter + self.sampled
                report.reason = stop or f"{n} iterations"
                if stop is None:
                    warnings.warn(
                        f"L-BFGS stopped after {n} iterations before reaching tol={tol:g}. "
                        "Raise max_iter or the penalties, or loosen tol.",
                        ConvergenceWarning,
                        stacklevel=3,
                    )
                break
        self._conclude(report)
        return weights, report

    def _choose(self, weights: Weights, l1: float, tol: float) -> tuple[State, str | None]:
        """States for the next iterations, and where these begin; or that this is the end, and why."""
        self.objective.hold(weights, grow=self._grow)
        value, gradient = self._evaluate(weights, l1)
        if self.objective.completed:
            return self._judge(weights, value, gradient, l1, tol)
        pairs, reason = self._pairs, None
        if self._begun:
            end = self._before[-1].value if self._before else self._value  # no step was possible
            gain, jump = self._value - end, value - end  # by the iterations, and by the states that have entered
            small = self._small(value, tol)
            self._noisy = self._noisy + 1 if jump > gain else 0
            self._stalled = self._stalled + 1 if gain - jump <= small else 0
            if jump <= small and min(gain, self._recent_fall()) <= small:
                reason = f"the value fell by less than {tol:g} and no state entered"
            elif self._stalled > STALLED:
                reason = "what is gained between two choices of states is lost by the next"
                if jump > gain:
                    weights, value = self._anchor, self._value
            elif jump > gain + small:  # states outside grew unseen: back, and now they are inside
                self._grow, self._hold = True, max(SHORTEST_HOLD, self._hold // 2)
                weights, pairs = self._anchor, []
                value, gradient = self._evaluate(weights, l1)
            elif jump < EASY * gain:
                # Nothing can go wrong while evaluations are exact.
                self._hold = min(2 * self._hold, LONGEST_HOLD * (4 if self.objective.statistics.full else 1))
            elif jump > HARD * gain:
                self._grow, self._hold = True, max(SHORTEST_HOLD, self._hold // 2)
            if self._noisy >= TOO_NOISY:
                self._tighten()
                self._noisy = 0
        self._value, self._anchor, self._begun = value, weights, True
        return State(weights, value, gradient, pairs, []), reason

    def _judge(
        self, weights: Weights, value: float, gradient: Weights, l1: float, tol: float
    ) -> tuple[State, str | None]:
        """The same where what is outside counts: value and gradient are exact at every choice."""
        pairs, reason = self._pairs, None
        fall = self._value - value
        if self._begun and fall < 0:  # too far: the sets and their rest were no longer those of the weights
            self._hold = max(SHORTEST_HOLD, self._hold // 2)
            self._tighten()
            weights, pairs = self._anchor, []
            self.objective.hold(weights)
            value, gradient = self._evaluate(weights, l1)
            self._stalled += 1
            if self._stalled > STALLED:
                reason = "what is gained between two choices of states is lost by the next"
        else:
            self._hold, self._stalled = min(2 * self._hold, LONG_HOLD) if self._begun else LONG_HOLD, 0
            if self._begun and fall <= self._settled(tol):
                reason = f"between two choices of states the value fell by less than {SETTLED * tol:g}"
        self._value, self._anchor, self._begun = value, weights, True
        return State(weights, value, gradient, pairs, []), reason

    def _settled(self, tol: float) -> float:
        return SETTLED * tol * abs(self._value)

    def _small(self, value: float, tol: float) -> float:
        """What is not worth another iteration: a fraction of the value, or of what the beam loses anyway."""
        if self.objective.completed:
            return INNER * tol * abs(value)
        return max(tol * abs(value), WORTH * self.objective.statistics.gap_estimate)

    def _recent_fall(self) -> float:
        """Of the value in the last iterations on the same states; inf if they were too few to tell."""
        values = [step.value for step in self._before[-PERIOD - 1 :]]
        return values[0] - values[-1] if self._taken > PERIOD else np.inf

    def _evaluate(self, weights: Weights, l1: float) -> tuple[float, Weights]:
        value, gradient = self.objective(weights)
        return value + l1 * float(np.abs(weights).sum()), gradient

    def _tighten(self) -> bool:
        """A tenth of the eps, if it may be chosen and is not the least."""
        eps = self.objective.beam.eps
        if not self.auto or not isinstance(eps, float) or eps <= LEAST_EPS:
            return False
        self.objective.beam = self.objective.beam.tighter()
        return True

    def _stage(self, begin: Weights | State, options: dict[str, Any]) -> tuple[Weights, FitReport, str | None]:
        """Iterations on the same states; the report counts from the very first one."""
        reason: list[str] = []

        def callback(step: Step, state: State) -> bool:
            shown = self._shifted(step)
            reason.extend(filter(None, [self._after(shown, state.weights, lambda: self._plain(state))]))
            step.dev, self._pairs = shown.dev, state.pairs
            return bool(reason)

        self._offset = time.perf_counter() - self._clock
        with warnings.catch_warnings():
            if self._holds:
                warnings.simplefilter("ignore", ConvergenceWarning)
            weights, report = lbfgs(self.objective, begin, callback=callback, **options)
        report.history = [*self._before, *map(self._shifted, report.history)]
        return weights, report, reason[0] if reason else None

    def _shifted(self, step: Step) -> Step:
        """A step counted from the very beginning; the time of choosing states counts too."""
        iterations, evaluations = (
            (self._before[-1].iteration, self._before[-1].n_evaluations) if self._before else (0, 0)
        )
        return replace(
            step,
            iteration=step.iteration + iterations,
            n_evaluations=step.n_evaluations + evaluations,
            seconds=step.seconds + self._offset,
        )

    def _plain(self, state: State) -> tuple[Plain, Any]:
        """What a checkpoint keeps: the state of L-BFGS, the beam, and where its states were chosen."""
        plain, arrays = state.to_plain()
        own = {
            "eps": self.objective.beam.eps,
            "hold": self._hold,
            "noisy": self._noisy,
            "stalled": self._stalled,
            "grow": self._grow,
            "sampled": self.sampled,
            "value": self._value,
            "before": [vars(step) for step in self._before],
        }
        held, sets = self.objective.held()
        kept = {f"beam.{name}": values for name, values in sets.items()} | {"beam.anchor": self._anchor}
        return plain | {"beam": own | {"held": held}}, arrays | kept

    def _restore(self, plain: Plain, arrays: Any) -> State:
        own = plain["beam"]
        self.objective.beam = replace(self.objective.beam, eps=own["eps"])
        self._before = [Step(**step) for step in own["before"]]
        self._hold, self._noisy, self._value, self._grow = own["hold"], own["noisy"], own["value"], own["grow"]
        self._stalled, self.sampled = own["stalled"], own.get("sampled", 0)
        self._begun, self._anchor = True, arrays["beam.anchor"]
        sets = {name.removeprefix("beam."): array for name, array in arrays.items() if name.startswith("beam.")}
        self.objective.hold_again(own["held"], sets)
        return State.from_plain(plain, arrays)

    def _conclude(self, report: FitReport) -> None:
        """Put the figures of the beams in the report; warn if much was lost or the search got stuck."""
        figures = report.beam = self.objective.statistics
        lost = figures.gap_estimate / max(figures.n_positions, 1)
        what = None
        if lost > LOST and not self.objective.completed:
            what = (
                f"lost {lost:.3f} nats a token, so the likelihood is overstated by about {figures.gap_estimate:,.0f} "
                f"(objective {report.value:,.0f})"
            )
        if what is not None:
            warnings.warn(
                f"the beam {self.objective.beam} {what}: {figures}. Use a wider one, or kl=auto, which widens itself.",
                ApproximationWarning,
                stacklevel=4,
            )
