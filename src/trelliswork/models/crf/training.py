"""How a CRF learns: the algorithms, a watch on development data, checkpoints, and a start from another model."""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Vocabulary
from trelliswork.data.schemes import Scheme
from trelliswork.errors import ConvergenceWarning, ValueRangeError
from trelliswork.inference.chain.beam import EXACT, Beam, chosen_beam
from trelliswork.learning.checkpoint import Arrays, Checkpoint
from trelliswork.learning.lbfgs import FitReport, State, Step, lbfgs
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models.crf.beams.objective import BeamObjective
from trelliswork.models.crf.beams.start import first_weights
from trelliswork.models.crf.beams.training import BeamSearch
from trelliswork.models.crf.data import Problem
from trelliswork.models.crf.decoding import best_labels
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.crf.online import OnlineChain, OnlineState
from trelliswork.models.crf.scoring import Scorer

Weights = NDArray[np.float64]
Algorithm = Literal["lbfgs", "sgd", "perceptron"]
Callback = Callable[[Step, Weights], bool | None]
FIRST_ITERATIONS = 30  # of the first order, before a higher one
ITERATIONS = {"lbfgs": 500, "sgd": 30, "perceptron": 10}  # at most, unless told otherwise


@dataclass(frozen=True)
class Settings:
    """How it is to be learned; the parameters of ``CRF`` of the same names."""

    algorithm: Algorithm
    l1: float
    l2: float
    max_iter: int | None
    tol: float
    memory: int
    batch_size: int | None
    rate: float | None
    seed: int
    patience: int
    order: int
    beam: Beam | str | None

    def check(self) -> None:
        """Refuse what does not fit together, rather than ignore it."""
        if self.algorithm not in ITERATIONS:
            raise ValueRangeError(f"algorithm must be 'lbfgs', 'sgd' or 'perceptron', got {self.algorithm!r}.")
        for name in ("l1", "l2", "tol"):
            if not getattr(self, name) >= 0:
                raise ValueRangeError(f"{name} must be 0 or more, got {getattr(self, name)}.")
        if self.l1 and self.algorithm != "lbfgs":
            raise ValueRangeError("an L1 penalty needs algorithm='lbfgs' (OWL-QN): set l1=0, or choose that.")
        if self.patience < 1:
            raise ValueRangeError(f"patience must be at least 1, got {self.patience}.")
        check_count("order", self.order)
        if self.algorithm != "lbfgs" and (self.order > 1 or self.beam not in (None, "auto")):
            raise ValueRangeError("order above 1 and a beam need algorithm='lbfgs': choose that, or leave them out.")
        chosen_beam(self.beam, 1)  # refuses what cannot be read


class Development:
    """Labelled sentences that training does not see: chunk F1 if the labels follow a scheme, else token accuracy."""

    def __init__(
        self, scorer: Scorer, gold: list[list[str]], labels: Vocabulary, scheme: Scheme | None, beam: Beam | None
    ) -> None:
        self._scorer, self._gold, self._labels, self._scheme, self._beam = scorer, gold, labels, scheme, beam

    @property
    def metric(self) -> str:
        """The name of the figure."""
        return "F1" if self._scheme else "accuracy"

    def measure(self, weights: Weights) -> float:
        """The figure, between 0 and 1."""
        items = self._labels.items
        predicted: list[list[str]] = []
        for potentials in self._scorer.potentials(weights):
            found = best_labels(potentials, self._beam)
            rows = zip(found.tolist(), potentials.lengths.tolist(), strict=True)
            predicted += [[items[j] for j in row[:n]] for row, n in rows]
        report = evaluate_tagging(self._gold, predicted, scheme=self._scheme)
        if self._scheme:
            assert report.chunks is not None
            return report.chunks.f1
        return report.accuracy


@dataclass
class Watch:
    """What happens after each iteration: measure, remember the best, write a checkpoint, tell the caller."""

    development: Development | None
    patience: int
    checkpoint: Checkpoint | None
    callback: Callback | None
    best: float = -math.inf
    best_iteration: int = 0
    best_weights: Weights = field(default_factory=lambda: np.empty(0))

    def after(self, step: Step, weights: Weights, state: Callable[[], tuple[dict[str, Any], Arrays]]) -> str | None:
        """Why training should stop now; ``None`` if it should go on."""
        if self.development is not None:
            step.dev = self.development.measure(weights)
            if step.dev > self.best:
                self.best, self.best_iteration, self.best_weights = step.dev, step.iteration, weights.copy()
        if self.checkpoint is not None and self.checkpoint.due():
            self._write(state)
        if self.callback is not None and self.callback(step, weights):
            if self.checkpoint is not None:
                self._write(state)
            return "stopped by the caller"
        if self.development is not None and step.iteration - self.best_iteration >= self.patience:
            return f"no better on the development data for {self.patience} iterations"
        return None

    def _write(self, state: Callable[[], tuple[dict[str, Any], Arrays]]) -> None:
        assert self.checkpoint is not None
        plain, arrays = state()
        plain["watch"] = {"best": self.best if self.best_iteration else None, "iteration": self.best_iteration}
        self.checkpoint.write(plain, arrays | {"watch.weights": self.best_weights})

    def restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        """Remember what a checkpoint remembers."""
        found = plain["watch"]
        if found["iteration"]:
            self.best, self.best_iteration = found["best"], found["iteration"]
            self.best_weights = arrays["watch.weights"]

    def finish(self, weights: Weights, report: FitReport) -> tuple[Weights, FitReport]:
        """The best weights if there was something to measure them by, else the last; and the report."""
        if self.checkpoint is not None and report.reason != "stopped by the caller":
            self.checkpoint.remove()
        if self.development is not None and self.best_iteration:
            metric = self.development.metric
            report.reason += f"; kept iteration {self.best_iteration} with {metric} {self.best:.4f}"
            weights = self.best_weights
        return weights, report


def learn(problem: Problem, settings: Settings, start: Weights | None, watch: Watch) -> tuple[Weights, FitReport]:
    """Find the weights of a problem.

    A checkpoint that is there already is gone on from; the result is then that of a run without interruption.
    """
    saved = watch.checkpoint.read() if watch.checkpoint is not None else None
    if saved is not None:
        watch.restore(*saved)
    if start is None:
        start = np.zeros(problem.n_features)
        if problem.structure is not None and saved is None:
            start = _from_first_order(problem, settings, watch)
    run = _by_lbfgs if settings.algorithm == "lbfgs" else _online
    return watch.finish(*run(problem, settings, start, watch, saved))


def _from_first_order(problem: Problem, settings: Settings, watch: Watch) -> Weights:
    """Weights of a few iterations of the first order, as the start of a higher one.

    The objective is convex, so the start does not matter to the result; but with it beams are small from the first
    evaluation on, and few of the long ones are needed.
    """
    assert problem.structure is not None
    pairs, n_longer = problem.structure.grams[0], sum(map(len, problem.structure.grams[1:]))
    lower = replace(problem, layout=replace(problem.layout, transitions=pairs), structure=None)
    most = min(settings.max_iter or FIRST_ITERATIONS, FIRST_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        begin, own = np.zeros(lower.n_features), Watch(None, settings.patience, None, watch.callback)
        weights, _ = _by_lbfgs(lower, replace(settings, order=1, beam="auto", max_iter=most), begin, own, None)
    return np.concatenate([weights[: len(pairs)], np.zeros(n_longer), weights[len(pairs) :]])


Saved = tuple[dict[str, Any], Arrays] | None


def _by_lbfgs(
    problem: Problem, settings: Settings, start: Weights, watch: Watch, saved: Saved
) -> tuple[Weights, FitReport]:
    beam = training_beam(problem, settings.beam)
    if beam is not None:
        return _within_beams(problem, settings, beam, start, watch, saved)
    objective = ChainObjective(
        problem.tokens,
        problem.labelling,
        problem.layout,
        l2=settings.l2,
        weights=problem.sentence_weights,
        label_weights=problem.label_weights,
        allowed=problem.allowed,
    )
    reason: list[str] = []

    def after(step: Step, state: State) -> bool:
        reason.extend(filter(None, [watch.after(step, state.weights, state.to_plain)]))
        return bool(reason)

    weights, report = lbfgs(
        objective,
        start if saved is None else State.from_plain(*saved),
        l1=settings.l1,
        max_iter=settings.max_iter or ITERATIONS["lbfgs"],
        tol=settings.tol,
        memory=settings.memory,
        callback=after,
    )
    report.reason = reason[0] if reason else report.reason
    return weights, report


def training_beam(problem: Problem, beam: Beam | str | None) -> Beam | None:
    """The beam to learn with; ``None`` for the exact kernels, which know the first order only."""
    if problem.structure is not None:
        found = chosen_beam(beam, problem.structure.transitions.n_states, shared=False)
        return EXACT if found is None else found
    return chosen_beam(beam, problem.layout.n_labels, shared=problem.layout.n_edge_attributes == 0)


def _within_beams(
    problem: Problem, settings: Settings, beam: Beam, start: Weights, watch: Watch, saved: Saved
) -> tuple[Weights, FitReport]:
    if problem.label_weights is not None or not problem.labelling.complete:
        raise ValueRangeError(
            "within a beam, and above the first order, every token needs its one label, and label weights are not "
            "possible: use order=1 without a beam for that."
        )
    objective = BeamObjective(
        problem.tokens,
        problem.labelling,
        problem.layout,
        beam=beam,
        l2=settings.l2,
        weights=problem.sentence_weights,
        allowed=problem.allowed,
        structure=problem.structure,
    )
    search, max_iter = BeamSearch(objective, watch.after), settings.max_iter or ITERATIONS["lbfgs"]
    if saved is None and problem.structure is None and not start.any():
        start, search.sampled = first_weights(
            objective,
            problem.tokens,
            problem.labelling,
            l1=settings.l1,
            weights=problem.sentence_weights,
            max_iter=max_iter,
        )
    return search.run(start, saved, l1=settings.l1, max_iter=max_iter, tol=settings.tol, memory=settings.memory)


def one_pass(problem: Problem, settings: Settings, state: OnlineState | None) -> tuple[Weights, FitReport, OnlineState]:
    """One epoch of stochastic training, from where ``state`` ended: weights, report and the state after it."""
    chains = _chains(problem, settings)
    if state is not None:
        chains.restore(state)
    loss = chains.epoch()
    return chains.average(), FitReport(False, "one part of the data", loss), chains.state()


def _chains(problem: Problem, settings: Settings) -> OnlineChain:
    if problem.layout.n_edge_attributes or problem.label_weights is not None:
        raise ValueRangeError(
            "edge features (B templates with columns) and label weights need algorithm='lbfgs': leave them out, or "
            "choose that."
        )
    kind: Any = settings.algorithm
    return OnlineChain(
        problem.tokens,
        problem.labelling.gold,
        problem.layout,
        kind=kind,
        l2=settings.l2 if kind == "sgd" else 0.0,
        weights=problem.sentence_weights,
        allowed=problem.allowed,
        batch_size=settings.batch_size,
        rate=settings.rate,
        seed=settings.seed,
        sets=None if problem.labelling.complete else np.where(problem.labelling.sets, 0, -np.inf).astype(np.float32),
        set_ids=None if problem.labelling.complete else problem.labelling.set_ids,
    )


def _online(
    problem: Problem, settings: Settings, start: Weights, watch: Watch, saved: Saved
) -> tuple[Weights, FitReport]:
    """Epochs of averaged SGD or of the averaged perceptron; the value of a step is the epoch's loss on its way."""
    chains = _chains(problem, settings)
    chains.load(start)
    report = FitReport(False, "", math.nan)
    began = time.perf_counter()
    if saved is not None:
        plain, arrays = saved
        chains.restore(OnlineState.from_parts(arrays, plain["numbers"]))
        report.history = [Step(**step) for step in plain["history"]]
        began -= report.history[-1].seconds
    most = settings.max_iter or ITERATIONS[settings.algorithm]

    def state() -> tuple[dict[str, Any], Arrays]:
        now = chains.state()
        return {"numbers": now.numbers(), "history": [vars(step) for step in report.history]}, dict(now.arrays())

    weights = chains.average()
    for epoch in range(len(report.history) + 1, most + 1):
        loss = chains.epoch()
        weights = chains.average()
        step = Step(epoch, loss, math.nan, int(np.count_nonzero(weights)), epoch, time.perf_counter() - began)
        report.history.append(step)
        reason = watch.after(step, weights, state)
        if reason is not None:
            report.reason = reason
            break
        if loss == 0 or (epoch > 1 and abs(report.history[-2].value - loss) <= settings.tol * abs(loss)):
            report.converged, report.reason = True, "the loss of an epoch no longer changes"
            break
    else:
        report.reason = f"{most} epochs"
    report.value = report.history[-1].value
    return weights, report
