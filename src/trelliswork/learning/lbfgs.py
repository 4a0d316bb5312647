r"""L-BFGS, and OWL-QN for an L1 penalty.

Minimizes :math:`f(w) + c_1 \lVert w \rVert_1` with smooth f, given a function that returns value and gradient. The
two-loop recursion and its history are float32 (directions need no more), weights and values float64. With an L1
penalty the gradient is the pseudo-gradient, steps stay in one orthant and the line search backtracks (Andrew and Gao,
2007, section 3); without, a step must satisfy the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5, 3.6).
"""

import math
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ConvergenceWarning, ValueRangeError
from trelliswork.learning.evaluation import Evaluation
from trelliswork.learning.kernels.vectors import add_scaled, differences, dot, step_to
from trelliswork.learning.report import STOPPED, FitReport, Step
from trelliswork.learning.watch import Watch

Weights = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]
Objective = Callable[[Weights], Evaluation | tuple[float, Weights]]
Pair = tuple[NDArray[np.float32], NDArray[np.float32], float]  # differences of weights and gradients s, y; 1 / s.y
PERIOD = 10  # iterations over which a decrease of the value is judged


@dataclass
class State:
    """State of L-BFGS after an iteration; ``lbfgs`` resumes from it as if it had never stopped."""

    weights: Weights
    value: float
    gradient: Weights
    pairs: list[Pair]  # oldest first
    history: list[Step]

    def to_plain(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain data for JSON, and arrays."""
        plain = {
            "value": self.value,
            "curvatures": [rho for _, _, rho in self.pairs],
            "history": [asdict(step) for step in self.history],
        }
        arrays: dict[str, NDArray[Any]] = {"weights": self.weights, "gradient": self.gradient}
        for k, (s, y, _) in enumerate(self.pairs):
            arrays |= {f"pair.{k}.s": s, f"pair.{k}.y": y}
        return plain, arrays

    @classmethod
    def from_plain(cls, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "State":
        """Build a state from ``to_plain``'s result."""
        return cls(
            arrays["weights"],
            plain["value"],
            arrays["gradient"],
            [(arrays[f"pair.{k}.s"], arrays[f"pair.{k}.y"], rho) for k, rho in enumerate(plain["curvatures"])],
            [Step(**step) for step in plain["history"]],
        )


def lbfgs(
    objective: Objective,
    start: Weights | State,
    *,
    l1: float = 0.0,
    max_iter: int = 200,
    tol: float = 1e-5,
    period: int = PERIOD,
    history_size: int = 6,
    callback: Callable[[Step, State], str | bool | None] | None = None,
) -> tuple[Weights, FitReport]:
    """Minimize ``objective(weights) -> value, gradient`` plus ``l1`` (c_1 above) from first weights or from a state.

    Stops when the value decreased by less than the fraction ``tol`` over the last ``period`` iterations, or when the
    norm of the gradient is below ``tol`` times the norm of the weights (or 1). ``history_size`` update pairs define the
    direction. ``callback`` is called with each `Step` and the `State` after it, which must not be changed; a true
    result stops, and a string is the reason in the report.
    """
    started = time.perf_counter()
    if not isinstance(start, State):
        w = np.array(start, np.float64)
        found = evaluate(objective, w)
        value = found.value + l1 * float(np.abs(w).sum())
        if not np.isfinite(value):
            raise ValueRangeError(
                f"the objective is {value} at the first weights: use other first weights, or check the data."
            )
        start = State(w, value, found.gradient, [], [])
    w, value, gradient = start.weights, start.value, start.gradient
    pairs = deque(start.pairs, maxlen=history_size)
    report = FitReport(False, "", value, list(start.history))
    n_evaluations = 1
    if report.history:
        n_evaluations = report.history[-1].n_evaluations
        started -= report.history[-1].seconds
    iteration = report.history[-1].iteration if report.history else 0
    while True:
        if len(report.history) > period and report.history[-1 - period].value - value < tol * abs(value):
            report.converged = True
            report.reason = f"the value decreased by less than {tol:g} in {period} iterations"
            break
        if iteration >= max_iter:
            report.reason = f"{max_iter} iterations"
            warnings.warn(
                f"L-BFGS stopped after {max_iter} iterations before reaching tol={tol:g}. "
                "Raise max_iter or l2, or loosen tol.",
                ConvergenceWarning,
                stacklevel=2,
            )
            break
        steepest = _pseudo_gradient(w, gradient, l1)
        norm = math.sqrt(dot(steepest, steepest))
        if norm <= tol * max(1.0, math.sqrt(dot(w, w))):
            report.converged, report.reason = True, "the gradient is small"
            break
        direction = _direction(steepest, pairs)
        if l1:
            direction[direction * steepest >= 0] = 0  # no step against the slope
        slope = dot(direction, steepest)
        if slope >= 0:  # the history misleads: drop it
            pairs.clear()
            direction, slope = -steepest, -(norm**2)
        first = 1.0 if pairs else min(1.0, 1.0 / norm)
        search = _backtrack if l1 else _wolfe
        step_taken = search(objective, w, value, gradient, direction, slope, first, l1)
        if step_taken is None:
            if not pairs:
                # Converged if the slope promises no more than single precision can resolve.
                report.converged = -slope * first <= 1e-5 * max(1.0, abs(value))
                report.reason = "no step lowers the value: numerical limit"
                if not report.converged:
                    warnings.warn(
                        f"L-BFGS stopped after {iteration} iterations: no step lowers the value any more, although "
                        f"the norm of the gradient is {norm:.3g}. Scale large feature values down, raise l2, or accept "
                        "the weights as they are.",
                        ConvergenceWarning,
                        stacklevel=2,
                    )
                break
            pairs.clear()
            continue
        new, new_value, new_gradient, used = step_taken
        n_evaluations += used
        s, y = np.empty(len(w), np.float32), np.empty(len(w), np.float32)
        differences(new, w, new_gradient, gradient, s, y)
        curvature = dot(s, y)
        if curvature > 1e-10 * dot(y, y):
            pairs.append((s, y, 1 / curvature))
        w, value, gradient = new, new_value, new_gradient
        iteration += 1  # a search that failed is none
        step = Step(iteration, value, norm, int(np.count_nonzero(w)), n_evaluations, time.perf_counter() - started)
        report.add(step)
        stop = callback(step, State(w, value, gradient, list(pairs), report.history)) if callback is not None else None
        if stop:
            report.reason = stop if isinstance(stop, str) else STOPPED
            break
    report.value = value
    return w, report


def minimize(
    objective: Objective,
    start: Weights,
    watch: Watch,
    *,
    snapshot: Callable[[Weights], Arrays] = lambda w: {"weights": w},
    **options: Any,
) -> tuple[Arrays, FitReport]:
    """Minimize an objective under a watch: resume, measure, checkpoint, keep the best; the options are of ``lbfgs``.

    ``start`` is used unless the watch resumes from a checkpoint. ``snapshot`` maps weights to the named parameters that
    the watch measures and keeps.
    """
    saved = watch.resume()
    weights, report = lbfgs(
        objective,
        start if saved is None else State.from_plain(*saved),
        callback=lambda step, state: watch.after(step, snapshot(state.weights), state.to_plain),
        **options,
    )
    return watch.finish(snapshot(weights), report)


def _pseudo_gradient(w: Weights, gradient: Weights, l1: float) -> Weights:
    """Return the steepest slope of f + l1 |w|; at w = 0 it is zero unless the gradient exceeds l1."""
    if not l1:
        return gradient
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0)
    return np.where(w != 0, gradient + l1 * np.sign(w), at_zero)


def _direction(gradient: Weights, pairs: deque[Pair]) -> Weights:
    """Return -H gradient by the two-loop recursion (Nocedal and Wright, algorithm 7.4)."""
    q = -gradient.astype(np.float32)
    coefficients = []
    for s, y, rho in reversed(pairs):
        a = np.float32(rho * dot(s, q))
        add_scaled(q, -a, y)
        coefficients.append(a)
    if pairs:
        s, y, rho = pairs[-1]
        q *= np.float32(1 / (rho * dot(y, y)))
    for (s, y, rho), a in zip(pairs, reversed(coefficients), strict=True):
        add_scaled(q, a - np.float32(rho * dot(y, q)), s)
    return q.astype(np.float64)


_Taken = tuple[Weights, float, Weights, int]


def evaluate(objective: Objective, weights: Weights) -> Evaluation:
    """Return the objective at some weights."""
    found = objective(weights)
    return found if isinstance(found, Evaluation) else Evaluation(*found)


def _backtrack(
    objective: Objective, w: Weights, value: float, gradient: Weights, direction: Weights, slope: float, first: float,
    l1: float,
) -> _Taken | None:  # fmt: skip
    """Halve the step until the penalized value decreases enough; weights that change sign become zero."""
    orthant = np.where(w != 0, np.sign(w), -np.sign(_pseudo_gradient(w, gradient, l1)))
    step = first
    for used in range(1, 41):
        new = w + step * direction
        new[new * orthant < 0] = 0
        found = evaluate(objective, new)
        new_value = found.value + l1 * float(np.abs(new).sum())
        fall = dot(_pseudo_gradient(w, gradient, l1), new - w)
        if np.isfinite(new_value) and new_value <= value + 1e-4 * fall:
            return new, new_value, found.gradient, used
        step *= 0.5
    return None


def _wolfe(
    objective: Objective, w: Weights, value: float, gradient: Weights, direction: Weights, slope: float, first: float,
    l1: float,
) -> _Taken | None:  # fmt: skip
    """Find a step with the strong Wolfe conditions (c1 = 1e-4, c2 = 0.9): bracket, then interpolate."""
    low, low_value, low_slope = 0.0, value, slope
    high: float | None = None
    high_value = np.inf
    step = first
    best: tuple[Weights, Evaluation, int] | None = None
    for used in range(1, 31):
        new = np.empty_like(w)
        step_to(w, step, direction, new)
        found = evaluate(objective, new)
        new_value = found.value
        new_slope = found.slope(direction) if np.isfinite(new_value) else np.inf
        if (
            not np.isfinite(new_value)
            or new_value > value + 1e-4 * step * slope
            or (high is None and low and new_value >= low_value)
        ):
            high, high_value = step, new_value
        else:
            best = new, found, used
            if abs(new_slope) <= -0.9 * slope:
                break
            if new_slope * ((high if high is not None else np.inf) - low) >= 0:
                high, high_value = low, low_value
            low, low_value, low_slope = step, new_value, new_slope
        if high is None:
            step *= 2
            continue
        width = high - low
        # The minimum of the parabola through both values and the slope at the lower end, kept off the ends.
        curve = high_value - low_value - low_slope * width
        ideal = low - 0.5 * low_slope * width**2 / curve if np.isfinite(curve) and curve > 0 else low + 0.5 * width
        inner, outer = sorted((low + 0.1 * width, low + 0.9 * width))
        step = float(np.clip(ideal, inner, outer))
        if abs(width) < 1e-12:
            break
    if best is None or not best[1].value < value:
        return None
    new, found, used = best
    return new, found.value, found.gradient, used
