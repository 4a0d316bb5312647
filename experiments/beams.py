"""Paper 2, sections 4.1 and 4.2: beams on sequences from random hidden Markov models."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.synthetic import SyntheticHMM, synthetic_hmm
from experiments.tables import Curve, Say, Table
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import EXACT, Beam, BeamStatistics
from trelliswork.inference.chain.beam import passes as beam_passes
from trelliswork.learning.lbfgs import Weights, lbfgs
from trelliswork.learning.report import FitReport, Step
from trelliswork.models.crf.beams.objective import BeamObjective
from trelliswork.models.crf.beams.start import first_weights
from trelliswork.models.crf.beams.training import BeamSearch
from trelliswork.models.crf.layout import FeatureLayout
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.crf.problem import Labeling, Problem, Tokens

ENOUGH = 0.99  # fraction of exact paths that makes a criterion good enough
EXACT_PATHS = 1e-9


def decoding(
    *,
    n_models: int = 5,
    n_sequences: int = 100,
    n_states: int = 100,
    n_symbols: int = 1000,
    length: int = 75,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Measure the number of states that each criterion needs for the exact Viterbi path.

    The paper gives neither the number of states nor of symbols; the former is that of its training experiment. A
    criterion is tightened until at least 99 % of the paths are exact.
    """
    problems = []
    for k in range(n_models):
        say(f"model {k + 1} of {n_models}")
        drawn = synthetic_hmm(
            n_sequences, np.random.default_rng([seed, k]), n_states=n_states, n_symbols=n_symbols, length=length
        )
        p = chain.chain_potentials(drawn.log_unary(), drawn.log_transition)
        problems.append((p, chain.viterbi(p)[1]))

    def measure(beam: Beam) -> tuple[float, float]:
        paths = [beam_passes.viterbi(p, beam) for p, _ in problems]
        right = [np.abs(path.scores - best) < EXACT_PATHS for path, (_, best) in zip(paths, problems, strict=True)]
        return float(np.mean(right)), float(np.mean([path.mean_size for path in paths]))

    def least(make: Callable[[float], Beam], values: list[float]) -> Beam:
        """Return the first beam, from loose to tight, that is good enough."""
        return next((beam for beam in map(make, values) if measure(beam)[0] >= ENOUGH), make(values[-1]))

    looks: list[tuple[str, Beam, str | float | None]] = [
        ("minimum divergence, as in the paper, both passes", Beam("kl", eps=0.001, min_size=4, refine=True), 9.6),
        ("minimum divergence, as in the paper, forward only", Beam("kl", eps=0.001, min_size=4), None),
    ]
    eps = [float(f"{0.5 / 1.5**k:.2g}") for k in range(24)]
    sizes, thresholds = [float(n) for n in range(2, n_states + 1)], [0.25 * k for k in range(1, 100)]
    criteria: list[tuple[str, str, Callable[[float], Beam], list[float], str | float | None]] = [
        (
            "divergence, both passes",
            "minimum divergence, both passes",
            lambda e: Beam("kl", e, 4, refine=True),
            eps,
            None,
        ),
        ("divergence, forward only", "minimum divergence, forward only", lambda e: Beam("kl", e, 4), eps, None),
        ("fixed sizes", "fixed size", lambda n: Beam("size", size=int(n)), sizes, "20 to 25"),
        ("thresholds", "threshold", lambda d: Beam("threshold", threshold=d, min_size=1), thresholds, 30.4),
    ]
    for about, name, make, values, theirs in criteria:
        say(about)
        looks.append((name, least(make, values), theirs))
    table = Table(
        f"States per position for the exact Viterbi path: {n_states} states, {n_symbols} symbols, length {length}",
        ["criterion", "beam", "exact paths %", "states", "states in the paper"],
        notes=[
            f"{n_models} random models, {n_sequences} sequences each, seed {seed}; target: at least 99 % exact paths.",
            "Both passes: states after the backward pass; the forward pass keeps more.",
        ],
    )
    for name, beam, theirs in looks:
        right, states = measure(beam)
        table.rows.append([name, str(beam), 100 * right, states, theirs])
        note = f"{beam}: {100 * right:.1f} % exact paths; the paper does not give its number of symbols"
        table.add(name, theirs, states, "states per position", None, note)
    return table


@dataclass(frozen=True)
class CRFProblem:
    """Training and test sequences of one random model, for a CRF with one weight per symbol and state."""

    tokens: Tokens
    gold: NDArray[np.int32]
    layout: FeatureLayout
    test: SyntheticHMM

    @classmethod
    def draw(
        cls, n_train: int, n_test: int, seed: int, *, n_states: int, n_symbols: int, length: int = 75
    ) -> "CRFProblem":
        """Draw a problem."""
        drawn = synthetic_hmm(
            n_train + n_test, np.random.default_rng(seed), n_states=n_states, n_symbols=n_symbols, length=length
        )
        n = n_train * length
        symbols, offsets = drawn.symbols[:n_train].reshape(-1).astype(np.int32), np.arange(0, n + 1, length)
        tokens, layout = Tokens(offsets, np.arange(n + 1), symbols), FeatureLayout.all_pairs(n_symbols, n_states)
        test = drawn._replace(states=drawn.states[n_train:], symbols=drawn.symbols[n_train:])
        return cls(tokens, drawn.states[:n_train].reshape(-1).astype(np.int32), layout, test)

    @property
    def given(self) -> Problem:
        """The training sequences, as objectives take them."""
        return Problem(self.tokens, Labeling(self.gold), self.layout)

    def accuracy(self, weights: Weights) -> float:
        """Return the fraction of test states that exact Viterbi decoding finds."""
        S, n = self.layout.n_labels, len(self.layout.transitions)
        transition = weights[:n].reshape(S, S)
        state = weights[n:].reshape(-1, S)
        right = []
        for symbols, states in zip(self.test.symbols, self.test.states, strict=True):
            p = chain.chain_potentials(state[symbols][None], transition)
            right.append((chain.viterbi(p)[0][0] == states).mean())
        return float(np.mean(right))


class Run(NamedTuple):
    """Outcome of one training."""

    weights: Weights
    report: FitReport
    path: list[tuple[float, Weights]]  # seconds and weights after each iteration


class ForwardBeams:
    """Objective within beams that a forward pass chooses at every evaluation, as in the paper; the first is exact."""

    def __init__(self, problem: CRFProblem, beam: Beam, l2: float) -> None:
        self._shape = len(problem.tokens.offsets) - 1, -1
        self._symbols, self._gold = problem.tokens.ids, problem.gold
        self._n_states, self._l2, self._beam, self._next = problem.layout.n_labels, l2, beam, EXACT
        self.statistics = BeamStatistics(0.0, 0, 0.0, 0, 0, True)

    def __call__(self, weights: Weights) -> tuple[float, Weights]:
        """Return value and gradient."""
        S, gold, symbols = self._n_states, self._gold.reshape(self._shape), self._symbols
        transition, state = weights[: S * S].reshape(S, S), weights[S * S :].reshape(-1, S)
        scores = state[symbols].reshape(*gold.shape, S).astype(np.float32)
        p = chain.chain_potentials(scores, transition.astype(np.float32))
        expected = beam_passes.expectations(p, self._next, gold=gold, counts=True)
        self.statistics, self._next = expected.statistics, self._beam
        residual = expected.by_label(None, S)
        residual[np.arange(len(residual)), gold.reshape(-1)] -= 1
        counts, by_symbol = expected.counts, np.zeros_like(state)
        assert counts is not None
        np.subtract.at(counts, (gold[:, :-1], gold[:, 1:]), 1)
        np.add.at(by_symbol, symbols, residual)
        value = float((expected.log_z - chain.score(p, gold.astype(np.int64))).sum() + self._l2 * weights @ weights)
        return value, np.concatenate([counts.reshape(-1), by_symbol.reshape(-1)]) + 2 * self._l2 * weights


def train(
    problem: CRFProblem,
    beam: Beam | None,
    *,
    l2: float,
    max_iter: int,
    tol: float = 1e-5,
    hold: bool = True,
    keep_path: bool = False,
) -> Run:
    """Train a CRF, exactly or within a beam; ``hold=False`` chooses states at every evaluation, as in the paper."""
    path: list[tuple[float, Weights]] = []

    def after(step: Step, weights: Weights, *_: Any) -> None:
        if keep_path:
            path.append((step.seconds, weights.copy()))

    start = np.zeros(problem.layout.n_features)
    options: dict[str, Any] = {"l1": 0.0, "max_iter": max_iter, "tol": tol, "history_size": 6}
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        if beam is not None and hold:
            objective = BeamObjective(problem.given, beam=beam, l2=l2)
            search = BeamSearch(objective, after)
            start, search.sampled = first_weights(objective, max_iter=max_iter)
            weights, report = search.run(start, None, **options)
        else:
            exact = ChainObjective(problem.given, l2=l2)
            each = None if beam is None else ForwardBeams(problem, beam, l2)
            weights, report = lbfgs(
                each or exact, start, callback=lambda step, state: after(step, state.weights), **options
            )
            report.beam = None if each is None else each.statistics
    return Run(weights, report, path)


def training(
    *,
    n_sequences: int = 50,
    n_states: int = 100,
    n_symbols: int = 1000,
    l2: float = 0.003,
    max_iter: int = 200,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Measure learning curves of CRF training with several kinds of inference (figure 1 of the paper).

    Minimum divergence as in the paper (KL at most 0.5, at least 30 states), exact, a fixed beam of 30, and a larger
    fixed beam and a threshold that keep on average as many states as minimum divergence; all choose states at every
    evaluation. The last row is our own method: states are chosen by the posterior and held.
    """
    problem = CRFProblem.draw(n_sequences, n_sequences, seed, n_states=n_states, n_symbols=n_symbols)
    exact_value = ChainObjective(problem.given, l2=l2)
    table = Table(
        f"CRF training on {n_sequences} sequences of a random HMM with {n_states} states",
        ["method", "beam", "seconds", "iterations", "log-likelihood", "test accuracy %", "states", "ended"],
        notes=[
            "log-likelihood: exact, of the training data, without the penalty; test accuracy: exact decoding.",
            "Paper: minimum divergence a quarter of the exact time, no loss; fixed 30 ends early; threshold 67.1 %.",
        ],
        axes=("seconds", "log-likelihood of the training data"),
    )
    divergence = Beam("kl", eps=0.5, min_size=min(30, n_states))

    def look(name: str, beam: Beam | None, paper: float | None = None, *, hold: bool = False) -> Run:
        """Train, measure, and add a row and a curve."""
        say(name)
        run = train(problem, beam, l2=l2, max_iter=max_iter, hold=hold, keep_path=True)
        values = [-(exact_value(w)[0] - l2 * float(w @ w)) for _, w in run.path]
        table.curves.append(Curve(name, [seconds for seconds, _ in run.path], values))
        report = run.report
        kept = float(n_states) if report.beam is None else report.beam.mean_size
        accuracy, text = 100 * problem.accuracy(run.weights), "" if beam is None else str(beam)
        table.rows.append([name, text, report.seconds, report.n_iter, values[-1], accuracy, kept, report.reason])
        note = f"{text or 'exact'}, {kept:.1f} states per token; ended: {report.reason}"
        if paper is not None:
            note += "; another random model than the paper's, which does not give its number of symbols"
        table.add(f"{name}: test accuracy", paper, accuracy, "%", report.seconds, note)
        return run

    look("exact", None)
    run = look("minimum divergence", divergence)
    look("fixed, small", Beam("size", size=min(30, n_states)))
    states = _mean_states(problem, divergence, run.weights, l2)
    look("fixed, as many states", Beam("size", size=max(1, round(states))))
    look("threshold, as many states", _calibrated(problem, states, run.weights, l2), 67.1)
    look("minimum divergence, held", Beam("kl", eps=0.01, min_size=2), hold=True)
    return table


def _mean_states(problem: CRFProblem, beam: Beam, weights: Weights, l2: float) -> float:
    """Return the mean number of states per token that a beam keeps at these weights."""
    objective = ForwardBeams(problem, beam, l2)
    for _ in range(2):  # the first evaluation is exact
        objective(weights)
    return objective.statistics.mean_size


def _calibrated(problem: CRFProblem, states: float, weights: Weights, l2: float) -> Beam:
    """Return a threshold that keeps about this number of states at these weights, by bisection."""
    low, high = 0.0, 60.0
    for _ in range(12):
        middle = (low + high) / 2
        kept = _mean_states(problem, Beam("threshold", threshold=middle, min_size=1), weights, l2)
        low, high = (middle, high) if kept < states else (low, middle)
    return Beam("threshold", threshold=round(high, 2), min_size=1)
