"""CRF training: L-BFGS, also within beams and of higher order, averaged SGD, and the averaged perceptron."""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.limits import check_cost
from trelliswork.errors import ConvergenceWarning, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.inference.chain.beam import EXACT, Beam, chosen_beam
from trelliswork.learning import whole
from trelliswork.learning.checkpoint import Arrays
from trelliswork.learning.lbfgs import minimize
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Development, Saved, Watch
from trelliswork.metrics.tagging import Score, evaluate_tagging
from trelliswork.models.crf.beams.objective import BeamObjective
from trelliswork.models.crf.beams.start import first_weights
from trelliswork.models.crf.beams.training import BeamSearch
from trelliswork.models.crf.learned import Learned
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.crf.online import OnlineChain, OnlineState
from trelliswork.models.crf.problem import Problem
from trelliswork.models.crf.weights import Scorer

Weights = NDArray[np.float64]
Algorithm = Literal["lbfgs", "sgd", "perceptron"]
FIRST_ITERATIONS = 30  # with order 1, before training with a higher order
ITERATIONS = {"lbfgs": 500, "sgd": 30, "perceptron": 10}  # defaults of max_iter


@dataclass(frozen=True)
class Settings:
    """Training settings; the parameters of `CRF` of the same names."""

    algorithm: Algorithm
    l1: float
    l2: float
    max_iter: int | None
    tol: float
    history_size: int
    batch_size: int | None
    learning_rate: float | None
    seed: int
    order: int
    beam: Beam | str | None

    def check(self) -> None:
        """Raise an error for settings that exclude each other, rather than ignore one."""
        if self.l1 and self.algorithm != "lbfgs":
            raise ValueRangeError("an L1 penalty needs algorithm='lbfgs' (OWL-QN): set l1=0, or choose that.")
        if self.algorithm != "lbfgs" and (self.order > 1 or self.beam not in (None, "auto")):
            raise ValueRangeError("order above 1 and a beam need algorithm='lbfgs': choose that, or leave them out.")
        if self.learning_rate is not None and self.algorithm != "sgd":
            raise ValueRangeError("learning_rate needs algorithm='sgd': choose that, or leave learning_rate out.")
        chosen_beam(self.beam, 1)  # raises an error for text that is not a beam

    @property
    def iterations(self) -> int:
        """Maximum number of iterations or epochs."""
        return self.max_iter or ITERATIONS[self.algorithm]

    @property
    def search(self) -> dict[str, Any]:
        """Options of L-BFGS."""
        return {"l1": self.l1, "max_iter": self.iterations, "tol": self.tol, "history_size": self.history_size}


def tagging_development(
    attributes: Attributes,
    gold: Sequence[Sequence[str]],
    learned: Learned,
    beam: Beam | None,
    ask: Any,
) -> Development:
    """Return the metric on labeled sentences: chunk F1 if the labels follow a scheme, else token accuracy.

    ``learned`` lacks the weights, ``ask`` finds the best labels.
    """
    share = slice(*whole.share(len(gold)))
    own, scorer = gold[share], Scorer.of(attributes.part(share.start, share.stop), learned.layout)

    def measure(parameters: Mapping[str, Any]) -> float:
        predicted: list[list[str]] = []
        weights = replace(learned, weights=parameters["weights"]).laid_out(scorer.layout)
        for potentials in scorer.potentials(weights):
            found = zip(ask.best_labels(potentials, beam).tolist(), potentials.lengths.tolist(), strict=True)
            predicted += [learned.labels.strings(row[:n]) for row, n in found]
        counts = np.zeros(3, np.int64)  # a Score; of tokens, every one is predicted
        if own or predicted or not gold:
            report = evaluate_tagging(own, predicted, scheme=learned.scheme)
            correct = sum(label.correct for label in report.labels.values())
            counts[:] = report.chunks or (correct, report.n_tokens, report.n_tokens)
        return Score(*whole.summed(counts)[0].tolist()).f1

    return Development("F1" if learned.scheme else "accuracy", measure)


def learn(problem: Problem, settings: Settings, start: Weights | None, watch: Watch) -> tuple[Weights, FitReport]:
    """Return the weights of a problem and the report.

    If the watch has a checkpoint that exists, training resumes from it, with the result of an uninterrupted run.
    """
    if settings.algorithm == "lbfgs":
        training_beam(problem, settings.beam)  # raises an error before work that would be lost
    if start is None:
        start = np.zeros(problem.n_features)
        if problem.structure is not None and not watch.resumes():
            start = _first_order_weights(problem, settings, watch)
    train = _lbfgs if settings.algorithm == "lbfgs" else _online
    parameters, report = train(problem, settings, start, watch)
    return parameters["weights"], report


def _first_order_weights(problem: Problem, settings: Settings, watch: Watch) -> Weights:
    """Return weights after a few iterations with order 1, as the start of a higher order.

    The objective is convex, so the start does not change the result; but beams are small from the first evaluation on.
    """
    assert problem.structure is not None
    pairs, n_longer = problem.structure.grams[0], sum(map(len, problem.structure.grams[1:]))
    lower = replace(problem, layout=replace(problem.layout, transitions=pairs), structure=None)
    max_iter = min(settings.max_iter or FIRST_ITERATIONS, FIRST_ITERATIONS)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        first = replace(settings, order=1, beam="auto", max_iter=max_iter)
        parameters, _ = _lbfgs(lower, first, np.zeros(lower.n_features), Watch(callback=watch.callback))
    weights = parameters["weights"]
    return np.concatenate([weights[: len(pairs)], np.zeros(n_longer), weights[len(pairs) :]])


def _lbfgs(problem: Problem, settings: Settings, start: Weights, watch: Watch) -> tuple[Arrays, FitReport]:
    beam = training_beam(problem, settings.beam)
    if beam is None:
        return minimize(ChainObjective(problem, l2=settings.l2), start, watch, **settings.search)
    objective = BeamObjective(problem, beam=beam, l2=settings.l2)
    search = BeamSearch(objective, lambda step, weights, state: watch.after(step, {"weights": weights}, state))
    saved = watch.resume()
    if saved is None and problem.structure is None and not start.any():
        start, search.sampled = first_weights(objective, l1=settings.l1, max_iter=settings.iterations)
    weights, report = search.run(start, saved, **settings.search)
    return watch.finish({"weights": weights}, report)


def training_beam(problem: Problem, beam: Beam | str | None) -> Beam | None:
    """Return the beam to train with; ``None`` for the exact kernels, which know dense transitions only."""
    if problem.structure is not None:
        n_states = problem.structure.transitions.n_states
        chosen = chosen_beam(beam, n_states, shared=False)
        if chosen is None:
            check_cost(
                f"exact training with {n_states:,} states per token",
                n_bytes=24.0 * n_states * len(problem.labeling.gold),
                remedy='Train with a lower order, or within a beam, such as "kl=0.005,min=10".',
            )
        return EXACT if chosen is None else chosen
    if problem.layout.n_edge_attributes and beam == "auto":
        return None
    return chosen_beam(beam, problem.layout.n_labels)


def one_pass(problem: Problem, settings: Settings, state: OnlineState | None) -> tuple[Weights, FitReport, OnlineState]:
    """Train one epoch, continuing from ``state``; return weights, report and the new state."""
    chains = _online_chain(problem, settings)
    if state is not None:
        chains.restore(state)
    loss = chains.epoch()
    return chains.state.mean, FitReport(False, "one part of the data", loss), chains.state


def _online_chain(problem: Problem, settings: Settings) -> OnlineChain:
    options: dict[str, Any] = {"batch_size": settings.batch_size, "rate": settings.learning_rate, "seed": settings.seed}
    return OnlineChain(problem, kind=settings.algorithm, l2=settings.l2, **options)  # type: ignore[arg-type]


def _online(problem: Problem, settings: Settings, start: Weights, watch: Watch) -> tuple[Arrays, FitReport]:
    """Train epochs of averaged SGD or the averaged perceptron; the value of a step is the loss during the epoch."""
    chains = _online_chain(problem, settings)
    chains.load(start)
    report = FitReport(False, f"{settings.iterations} epochs", np.nan)
    saved = watch.resume()
    if saved is not None:
        plain, arrays = saved
        chains.restore(OnlineState(arrays["weights"], arrays["mean"], **plain["numbers"]))
        report.history = [Step(**step) for step in plain["history"]]
    started = time.perf_counter() - report.seconds

    def state() -> Saved:
        now = chains.state
        numbers = {"epochs": now.epochs, "steps": now.steps, "rate": now.rate}
        return {"numbers": numbers, "history": report.steps()}, {"weights": now.weights, "mean": now.mean}

    weights = chains.state.mean
    while True:
        epoch, losses = len(report.history) + 1, [step.value for step in report.history[-2:]]
        if 0 in losses or (len(losses) == 2 and abs(losses[0] - losses[1]) <= settings.tol * abs(losses[1])):
            report.converged, report.reason = True, "the loss of an epoch no longer changes"
            break
        if epoch > settings.iterations:
            break
        loss = chains.epoch()
        weights = chains.state.mean
        active = int(np.count_nonzero(weights))
        report.add(Step(epoch, loss, np.nan, active, epoch, time.perf_counter() - started))
        reason = watch.after(report.history[-1], {"weights": weights}, state)
        if reason is not None:
            report.reason = reason
            break
    return watch.finish({"weights": weights}, report)
