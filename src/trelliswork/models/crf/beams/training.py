"""L-BFGS within beams that are held for some iterations, and what happens when they lose too much.

With states chosen at every evaluation, as in the paper, the objective jumps: line searches fail, and the search ends
early. So states are chosen by their posterior probabilities and held while L-BFGS takes some steps on a smooth
function, a lower bound of the exact one. Then states are chosen again, until nothing changes: the result minimizes a
function whose states include all that matter at the minimum. Iterations whose gain is lost to states that became
probable outside are undone; these states are inside from then on.
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
EASY, HARD = 0.1, 0.3  # cost of new states as a share of the gain: below, hold longer; above, hold shorter
WORTH = 0.01  # of the log-likelihood that a beam loses: more precision is of no use
LONG_HOLD = 15  # iterations on the same states if those outside are included
INNER, SETTLED = 10, 100  # multiples of the tolerance: between two choices, and from choice to choice
LEAST_EPS = 1e-8
TOO_NOISY = 3
STALLED = 2
SAVED = ("hold", "noisy", "stalled", "grow", "value")  # attributes in a checkpoint
LOST = 0.02  # nats per token above which a warning is given


class BeamSearch:
    """Minimization of a ``BeamObjective``.

    ``after`` is called after each iteration with the ``Step``, the weights and a function that returns the state for a
    checkpoint; a string as result stops and is the reason. ``sampled`` earlier iterations on a sample (``start``) count
    as iterations of ``run``. With ``eps="auto"``, eps is divided by 10 after three choices in a row by which more was
    lost than gained.
    """

    def __init__(self, objective: BeamObjective, after: After) -> None:
        self.objective, self._after = objective, after
        self.auto = objective.beam.by == "kl" and objective.beam.eps == "auto"
        if self.auto:
            objective.beam = replace(objective.beam, eps=Beam().eps)
        self.sampled = 0
        self._before: list[Step] = []  # iterations on the states held earlier
        self._hold = FIRST_HOLD
        self._clock, self._offset = time.perf_counter(), 0.0
        self._started = False
        self._grow = False  # whether states that were held once are kept
        self._stalled = 0  # choices in a row without gain
        self._noisy = 0  # choices in a row by which more was lost than gained
        self._taken = 0  # iterations since the last choice
        self._value = np.inf  # at the last choice
        self._anchor = np.empty(0)  # weights at the last choice
        self._pairs: list[Any] = []  # of the last iteration: a choice changes the function little

    def run(
        self,
        start: Weights,
        saved: tuple[Plain, Any] | None,
        *,
        l1: float,
        max_iter: int,
        tol: float,
        history_size: int,
    ) -> tuple[Weights, FitReport]:
        """Minimize from ``start``, or resume from a checkpoint."""
        options = {"l1": l1, "history_size": history_size}
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
            limits = {
                "max_iter": min(self._hold, left),
                "tol": self._small(state.value, tol) / (abs(state.value) or 1.0),
            }
            weights, report, stop = self._stage(state, options | limits)
            self._taken = len(report.history) - len(self._before)
            self._before, state = report.history, None
            if stop is None and self.objective.completed and self._value - report.value <= self._settled(tol):
                # The states outside have hardly changed: another choice would give the same sets.
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
        """Choose states for the next iterations; return where these start, and the reason if the search is over."""
        self.objective.hold(weights, grow=self._grow)
        value, gradient = self._evaluate(weights, l1)
        if self.objective.completed:
            return self._judge(weights, value, gradient, l1, tol)
        pairs, reason = self._pairs, None
        if self._started:
            end = self._before[-1].value if self._before else self._value  # no step was possible
            gain, jump = self._value - end, value - end  # by the iterations, and by new states
            small = self._small(value, tol)
            self._noisy = self._noisy + 1 if jump > gain else 0
            self._stalled = self._stalled + 1 if gain - jump <= small else 0
            if jump <= small and min(gain, self._recent_fall()) <= small:
                reason = f"the value fell by less than {tol:g} and no state entered"
            elif self._stalled > STALLED:
                reason = "the gain between two choices of states is lost by the next choice"
                if jump > gain:
                    weights, value = self._anchor, self._value
            elif jump > gain + small:  # states outside became probable: go back, with them inside
                self._grow, self._hold = True, max(SHORTEST_HOLD, self._hold // 2)
                weights, pairs = self._anchor, []
                value, gradient = self._evaluate(weights, l1)
            elif jump < EASY * gain:
                # Exact evaluations can be repeated longer.
                self._hold = min(2 * self._hold, LONGEST_HOLD * (4 if self.objective.statistics.full else 1))
            elif jump > HARD * gain:
                self._grow, self._hold = True, max(SHORTEST_HOLD, self._hold // 2)
            if self._noisy >= TOO_NOISY:
                self._tighten()
                self._noisy = 0
        self._value, self._anchor, self._started = value, weights, True
        return State(weights, value, gradient, pairs, []), reason

    def _judge(
        self, weights: Weights, value: float, gradient: Weights, l1: float, tol: float
    ) -> tuple[State, str | None]:
        """Judge a choice if the states outside are included: its value and gradient are exact."""
        pairs, reason = self._pairs, None
        fall = self._value - value
        if self._started and fall < 0:  # too far from the weights where sets and rest were computed
            self._hold = max(SHORTEST_HOLD, self._hold // 2)
            self._tighten()
            weights, pairs = self._anchor, []
            self.objective.hold(weights)
            value, gradient = self._evaluate(weights, l1)
            self._stalled += 1
            if self._stalled > STALLED:
                reason = "the gain between two choices of states is lost by the next choice"
        else:
            self._hold, self._stalled = min(2 * self._hold, LONG_HOLD) if self._started else LONG_HOLD, 0
            if self._started and fall <= self._settled(tol):
                reason = f"between two choices of states the value fell by less than {SETTLED * tol:g}"
        self._value, self._anchor, self._started = value, weights, True
        return State(weights, value, gradient, pairs, []), reason

    def _settled(self, tol: float) -> float:
        return SETTLED * tol * abs(self._value)

    def _small(self, value: float, tol: float) -> float:
        """Return the smallest gain worth another iteration: a fraction of the value, or of the loss of the beam."""
        if self.objective.completed:
            return INNER * tol * abs(value)
        return max(tol * abs(value), WORTH * self.objective.statistics.gap_estimate)

    def _recent_fall(self) -> float:
        """Return the decrease of the value in the last iterations on the same states; inf if there were too few."""
        values = [step.value for step in self._before[-PERIOD - 1 :]]
        return values[0] - values[-1] if self._taken > PERIOD else np.inf

    def _evaluate(self, weights: Weights, l1: float) -> tuple[float, Weights]:
        found = self.objective(weights)
        return found.value + l1 * float(np.abs(weights).sum()), found.gradient

    def _tighten(self) -> None:
        """Divide eps by 10 if it is automatic and not the least."""
        eps = self.objective.beam.eps
        if self.auto and isinstance(eps, float) and eps > LEAST_EPS:
            self.objective.beam = self.objective.beam.tighter()

    def _stage(self, start: Weights | State, options: dict[str, Any]) -> tuple[Weights, FitReport, str | None]:
        """Run iterations on the same states; the report includes all earlier iterations."""
        reason: str | None = None

        def callback(step: Step, state: State) -> str | None:
            nonlocal reason
            shown = self._shifted(step)
            reason = self._after(shown, state.weights, lambda: self._plain(state))
            step.dev, step.stage, self._pairs = shown.dev, shown.stage, state.pairs
            return reason

        self._offset = time.perf_counter() - self._clock
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            weights, report = lbfgs(self.objective, start, callback=callback, **options)
        report.history = [*self._before, *map(self._shifted, report.history)]
        report.n_iter = len(report.history)
        return weights, report, reason

    def _shifted(self, step: Step) -> Step:
        """Return a step counted from the start of training, with the time for choosing states."""
        shown = replace(step, seconds=step.seconds + self._offset)
        if self._before:
            shown.iteration += self._before[-1].iteration
            shown.n_evaluations += self._before[-1].n_evaluations
        return shown

    def _plain(self, state: State) -> tuple[Plain, Any]:
        """Return the state for a checkpoint: that of L-BFGS, the beam, and the choice of states."""
        plain, arrays = state.to_plain()
        held, sets = self.objective.held()
        own = {name: getattr(self, f"_{name}") for name in SAVED} | {"sampled": self.sampled, "held": held}
        own |= {"eps": self.objective.beam.eps, "before": [vars(step) for step in self._before]}
        kept = {f"beam.{name}": values for name, values in sets.items()} | {"beam.anchor": self._anchor}
        return plain | {"beam": own}, arrays | kept

    def _restore(self, plain: Plain, arrays: Any) -> State:
        own = plain["beam"]
        self.objective.beam = replace(self.objective.beam, eps=own["eps"])
        self._before = [Step(**step) for step in own["before"]]
        for name in SAVED:
            setattr(self, f"_{name}", own[name])
        self.sampled = own.get("sampled", 0)
        self._started, self._anchor = True, arrays["beam.anchor"]
        sets = {name.removeprefix("beam."): array for name, array in arrays.items() if name.startswith("beam.")}
        self.objective.hold_again(own["held"], sets, self._anchor)
        state = State.from_plain(plain, arrays)
        self._pairs = state.pairs
        return state

    def _conclude(self, report: FitReport) -> None:
        """Store the statistics of the beams in the report; warn if much was lost."""
        statistics = report.beam = self.objective.statistics
        lost = statistics.gap_estimate / max(statistics.n_positions, 1)
        if lost > LOST and not self.objective.completed:
            warnings.warn(
                f"the beam {self.objective.beam} lost {lost:.3f} nats per token, so the likelihood is overstated by "
                f"about {statistics.gap_estimate:,.0f} (objective {report.value:,.0f}): {statistics}. "
                "Use a wider beam, or kl=auto, which widens itself.",
                ApproximationWarning,
                stacklevel=4,
            )
