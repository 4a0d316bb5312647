"""MRF tagger training: from tagged sentences to the weights that maximize the bound."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.lbfgs import minimize
from trelliswork.learning.report import Callback, FitReport
from trelliswork.learning.watch import Watch, open_checkpoint
from trelliswork.models.mrf_tagger.features import TaggerFeatures
from trelliswork.models.mrf_tagger.objective import TaggerObjective, tagger_moments

Floats = NDArray[np.float64]


@dataclass
class Learned:
    """A trained MRF tagger.

    Attributes
    ----------
    labels : Vocabulary
        T tags; the pad, number T in arrays, is not listed.
    features : TaggerFeatures
    phi : ndarray (K, T + 1, T + 1)
        Scores of pairs of tags.
    weights : list of L ndarrays (features, T + 1)
        Weights of the features of words at each offset.
    lexicon : ndarray of bool (C, T)
        Tags of each word in the training data.
    bound : float
        Lower bound on the log-likelihood per position.
    cover_weights : ndarray (K, L)
    report : FitReport
    """

    labels: Vocabulary
    features: TaggerFeatures
    phi: Floats
    weights: list[Floats]
    lexicon: NDArray[np.bool_]
    bound: float
    cover_weights: Floats
    report: FitReport


@dataclass(frozen=True)
class _Accuracy:
    """Accuracy of the model that parameters define."""

    score: Callable[[Learned], float]
    build: Callable[[Floats, FitReport], Learned]
    metric: str = "accuracy"

    def measure(self, parameters: Mapping[str, Any]) -> float:
        """Return the accuracy of named parameter arrays."""
        return self.score(self.build(parameters["weights"], FitReport(False, "", math.nan)))


def learn(
    words: Sequence[Sequence[str]],
    tags: Sequence[Sequence[str]],
    parameters: Mapping[str, Any],
    *,
    score: Callable[[Learned], float] | None = None,
    identity: Mapping[str, Any],
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
) -> Learned:
    """Count, and maximize the bound by L-BFGS.

    Parameters
    ----------
    words, tags : lists of lists of str
    parameters : dict
        Parameters of `MRFTagger`.
    score : callable, optional
        Returns the accuracy of a model on the development data.
    identity : dict
        Plain data that identifies the run for a checkpoint: parameters and development data.
    checkpoint, callback
        Of ``fit``.
    """
    K, n_words, l2 = parameters["order"], parameters["n_words"], parameters["l2"]
    labels, features = Vocabulary.from_sequences(tags), TaggerFeatures.fit(words, parameters["min_count"])
    T, C = len(labels) + 1, len(features.words)
    w = np.array([features.words.id(word) for sentence in words for word in sentence])
    y = np.array([labels.id(label) for sentence in tags for label in sentence])
    ends = np.cumsum([0, *map(len, words)])
    own, neighbor = features.tables(features.words.items)
    moments = tagger_moments(w, y, ends, K, n_words, T, C)
    objective = TaggerObjective(moments, [own, *[neighbor] * (n_words - 1)], l2=l2)
    layout, scales = objective.layout, objective.scales()
    lexicon = np.zeros((C, T - 1), bool)
    lexicon[w, y] = True

    def build(z: Floats, report: FitReport) -> Learned:
        x = scales * z
        phi, U = layout.weights(x)
        bound = -(report.value - objective.penalty(x)) / moments.n_positions
        weights = [u.copy() for u in U]
        return Learned(labels, features, phi.copy(), weights, lexicon, bound, layout.cover(x).weights(), report)

    def scaled(z: Floats) -> tuple[float, Floats]:
        value, gradient = objective(scales * z)
        return value, scales * gradient

    names = {"words": features.words.items, "labels": labels.items}
    watch = Watch(
        None if score is None else _Accuracy(score, build),
        patience=parameters["patience"],
        max_minutes=parameters["max_minutes"],
        checkpoint=open_checkpoint(checkpoint, lambda: fingerprint({**identity, **names}, w, y, ends)),
        callback=callback,
    )
    start = objective.start(features.lead()) / scales
    best, report = minimize(scaled, start, watch, max_iter=parameters["max_iter"], tol=parameters["tol"])
    if watch.best_iteration:
        report.value = next(step.value for step in report.history if step.iteration == watch.best_iteration)
    return build(best["weights"], report)
