"""From tagged sentences to the weights of a field tagger."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.learning.lbfgs import FitReport, State, Step, lbfgs
from trelliswork.models.mrf_tagger.features import TaggerFeatures
from trelliswork.models.mrf_tagger.objective import TaggerObjective, tagger_moments

Floats = NDArray[np.float64]


@dataclass
class Learned:
    """What a field tagger consists of.

    Attributes
    ----------
    tags : Vocabulary
        T tags; the pad, number T in arrays, is not listed.
    features : TaggerFeatures
    phi : ndarray (K, T + 1, T + 1)
        Scores of pairs of tags.
    weights : list of L ndarrays (features, T + 1)
        Weights of the features of words at each offset.
    lexicon : ndarray of bool (C, T)
        Which words of training had which tags.
    bound : float
        Lower bound on the log-likelihood per position.
    cover_weights : ndarray (K, L)
    report : FitReport
    """

    tags: Vocabulary
    features: TaggerFeatures
    phi: Floats
    weights: list[Floats]
    lexicon: NDArray[np.bool_]
    bound: float
    cover_weights: Floats
    report: FitReport


def learn(
    words: Sequence[Sequence[str]],
    labels: Sequence[Sequence[str]],
    *,
    K: int,
    n_words: int,
    l2: float,
    rare: int,
    max_iter: int,
    tol: float,
    patience: int,
    measure: Callable[[Learned], float] | None,
    callback: Callable[[Step, Floats], bool | None] | None,
) -> Learned:
    """Count, and maximise the bound by L-BFGS; ``measure`` gives the figure to stop early by."""
    tags, features = Vocabulary.from_sequences(labels), TaggerFeatures.fit(words, rare)
    T, C = len(tags) + 1, len(features.words)
    w = np.array([features.words.id(word) for sentence in words for word in sentence])
    y = np.array([tags.id(label) for sentence in labels for label in sentence])
    ends = np.cumsum([0, *map(len, words)])
    own, neighbour = features.tables(features.words.items)
    moments = tagger_moments(w, y, ends, K, n_words, T, C)
    objective = TaggerObjective(moments, [own, *[neighbour] * (n_words - 1)], l2=l2)
    layout, scales = objective.layout, objective.scales()
    lexicon = np.zeros((C, T - 1), bool)
    lexicon[w, y] = True

    def learned(z: Floats, report: FitReport) -> Learned:
        x = scales * z
        phi, U = layout.weights(x)
        penalty = 0.5 * l2 * float(x[: layout.n_weights] @ x[: layout.n_weights])
        bound = -(report.value - penalty) / moments.n_positions
        weights = [u.copy() for u in U]
        return Learned(tags, features, phi.copy(), weights, lexicon, bound, layout.cover(x).weights(), report)

    def scaled(z: Floats) -> tuple[float, Floats]:
        value, gradient = objective(scales * z)
        return value, scales * gradient

    best, best_iteration, best_z, best_value = -math.inf, 0, None, 0.0
    tired: list[str] = []

    def after(step: Step, state: State) -> bool:
        nonlocal best, best_iteration, best_z, best_value
        if measure is not None:
            step.dev = measure(learned(state.weights, FitReport(False, "", step.value)))
            if step.dev > best:
                best, best_iteration, best_z, best_value = step.dev, step.iteration, state.weights.copy(), step.value
            if step.iteration - best_iteration >= patience:
                tired.append(f"no better on the development data for {patience} iterations")
        asked = callback is not None and bool(callback(step, scales * state.weights))
        return asked or bool(tired)

    z, report = lbfgs(scaled, objective.start(features.lead()) / scales, max_iter=max_iter, tol=tol, callback=after)
    if tired:
        report.reason, report.converged = tired[0], True
    if best_z is not None:
        z, report.value = best_z, best_value
    return learned(z, report)
