"""Figure 5 of paper 0: training by exact likelihood against training by the lifted bound, on a tiny text."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from experiments.tables import Curve, Say, Table
from trelliswork.errors import ConvergenceWarning
from trelliswork.inference.lifted import ChainCover, SparseTable, Star
from trelliswork.learning.lbfgs import lbfgs
from trelliswork.models.mrf.objective import MomentObjective
from trelliswork.models.mrf.shapes import Frequencies, PairShape

Array = NDArray[np.float64]


def mrf_exact(
    *, n_positions: int = 12, n_words: int = 4, max_iter: int = 100, seed: int = 0, say: Say = lambda _: None
) -> Table:
    """Compare models trained exactly, by the star and by the chain cover: log-likelihoods and bounds per position.

    ``n_positions`` and ``n_words`` are N and C of the paper; the order is 1. The text is drawn from a random chain and
    closed to a circle.
    """
    rng = np.random.default_rng(seed)
    text = _text(rng, n_positions, n_words)
    frequencies = _frequencies(text, n_words)
    table = Table(
        f"A text of {n_positions} words, {n_words} different ones, order 1: log-likelihood per position",
        ["trained by", "exact", "star bound", "endless chain", "iterations"],
        notes=[
            "In nats per position. The chain bound is that of an endless circle: for a short text it may be above the",
            "exact value. The paper shows curves only: --plot draws ours.",
        ],
        axes=("iteration", "log-likelihood per position"),
    )
    shape = PairShape((csr_matrix(np.ones((n_words, n_words))),))
    runs: list[tuple[str, Any]] = [
        ("exact likelihood", _Exact(frequencies, n_positions)),
        ("star bound", MomentObjective(shape, frequencies, np.array([0.5]))),
        ("chain bound", MomentObjective(shape, frequencies, np.array([1.0]))),
    ]
    for name, objective in runs:
        say(f"training by {name}")
        curve, truth = Curve(f"{name}: objective"), Curve(f"{name}: exact likelihood")

        def watch(step: Any, state: Any, o: Any = objective, c: Curve = curve, t: Curve = truth) -> None:
            c.add(step.iteration, -step.value)
            t.add(step.iteration, _likelihood(*_field(o, state.weights, n_words), frequencies, n_positions))

        start = np.zeros(n_words + n_words**2)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            weights, report = lbfgs(objective, start, max_iter=max_iter, tol=1e-9, callback=watch)
        log_unary, scores = _field(objective, weights, n_words)
        data = _of_data(log_unary, scores, frequencies)
        likelihood = _likelihood(log_unary, scores, frequencies, n_positions)
        star = data - Star(log_unary, [SparseTable(scores)]).tighten(tol=1e-9, max_passes=500).value
        endless = data - ChainCover(log_unary, [SparseTable(scores)]).tighten().value
        table.rows.append([name, likelihood, star, endless, report.n_iter])
        table.curves += [curve] if name == "exact likelihood" else [curve, truth]
        names = ("exact log-likelihood", "star bound", "endless chain")
        for what, value in zip(names, (likelihood, star, endless), strict=True):
            note = "the paper's figure is a picture without numbers"
            table.add(f"trained by {name}: {what}", None, value, "nats per position", None, note)
    return table


class _Exact:
    """Objective: minus the exact log-likelihood per position of the circle, and its gradient."""

    def __init__(self, frequencies: Frequencies, n_positions: int) -> None:
        self.frequencies, self.n_positions = frequencies, n_positions

    def __call__(self, weights: Array) -> tuple[float, Array]:
        C = len(self.frequencies.unary)
        log_unary, scores = weights[:C], weights[C:].reshape(C, C)
        log_z, edges = _circle(log_unary, scores, self.n_positions)
        gradient = np.concatenate(
            [self.frequencies.unary - edges.sum(0), (self.frequencies.pairs[0].toarray() - edges).ravel()]
        )
        return log_z / self.n_positions - _of_data(log_unary, scores, self.frequencies), -gradient


def _circle(log_unary: Array, scores: Array, n_positions: int) -> tuple[float, Array]:
    """Return log Z of a circle, and the marginals (C, C) of its pairs."""
    log_step = scores + log_unary
    top = log_step.max()
    step = np.exp(log_step - top)
    edges = step * np.linalg.matrix_power(step, n_positions - 1).T  # a pair times all paths through the rest
    return float(np.log(edges.sum())) + n_positions * top, edges / edges.sum()


def _field(objective: Any, weights: Array, C: int) -> tuple[Array, Array]:
    """Return the unary and the table at the weights of the optimizer."""
    if isinstance(objective, _Exact):
        return weights[:C], weights[C:].reshape(C, C)
    objective(weights)
    values, _ = objective.shape.parts(weights / objective.scale)
    return objective.rho @ objective.unaries, float(objective.weights[0]) * values[0].reshape(C, C)


def _of_data(log_unary: Array, scores: Array, frequencies: Frequencies) -> float:
    """Return the score of the text per position, before the normalization."""
    return float(frequencies.unary @ log_unary + (frequencies.pairs[0].toarray() * scores).sum())


def _likelihood(log_unary: Array, scores: Array, frequencies: Frequencies, n_positions: int) -> float:
    return _of_data(log_unary, scores, frequencies) - _circle(log_unary, scores, n_positions)[0] / n_positions


def _text(rng: np.random.Generator, n_positions: int, n_words: int) -> NDArray[np.int64]:
    """Draw words from a random chain."""
    step = rng.dirichlet(np.full(n_words, 0.5), n_words)
    text = [int(rng.integers(n_words))]
    for _ in range(n_positions - 1):
        text.append(int(rng.choice(n_words, p=step[text[-1]])))
    return np.array(text)


def _frequencies(text: NDArray[np.int64], C: int) -> Frequencies:
    pairs = np.zeros((C, C))
    np.add.at(pairs, (text, np.roll(text, -1)), 1 / len(text))
    matrix = csr_matrix(pairs)
    return Frequencies(np.bincount(text, minlength=C) / len(text), (matrix,), (matrix.T.tocsr(),), len(text))
