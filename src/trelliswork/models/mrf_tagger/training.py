"""MRF tagger training: from tagged sentences to the weights that maximize the bound."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.features.knowledge import KNOWLEDGE, Knowledge
from trelliswork.learning import whole
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.evaluation import Evaluation
from trelliswork.learning.lbfgs import minimize
from trelliswork.learning.report import Callback, FitReport
from trelliswork.learning.watch import Development
from trelliswork.models.base import watch_for
from trelliswork.models.mrf_tagger.features import TaggerFeatures
from trelliswork.models.mrf_tagger.learned import Learned
from trelliswork.models.mrf_tagger.objective import TaggerObjective, tagger_moments

Floats = NDArray[np.float64]


def learn(
    model: Any,
    words: Sequence[Sequence[str]],
    tags: Sequence[Sequence[str]],
    dev: Any,  # words and tags, or None
    checkpoint: str | os.PathLike[str] | None,
    callback: Callback | None,
    max_minutes: float | None,
) -> tuple[Learned, FitReport]:
    """Count, and maximize the bound by L-BFGS, with the parameters of a `MRFTagger`."""
    K, n_words = model.order, model.n_words
    labels = Vocabulary.from_sequences(tags)
    knowledge = Knowledge.of(*(getattr(model, name) for name in KNOWLEDGE))
    features = TaggerFeatures.fit(words, model.min_count, knowledge)
    T, C = len(labels) + 1, len(features.words)
    w = np.array([features.words.id(word) for sentence in words for word in sentence], np.int64)
    y = np.array([labels.id(label) for sentence in tags for label in sentence], np.int64)
    ends = np.cumsum([0, *map(len, words)])
    own, neighbor = features.tables(features.words.items)
    moments = tagger_moments(w, y, ends, K, n_words, T, C)
    objective = TaggerObjective(moments, [own, *[neighbor] * (n_words - 1)], l2=model.l2)
    layout, scales = objective.layout, objective.scales()
    seen = np.zeros((C, T - 1), np.uint8)
    seen[w, y] = 1
    lexicon = whole.largest(seen) > 0

    def build(z: Floats, value: float) -> Learned:
        x = scales * z
        phi, U = layout.weights(x)
        bound = -(value - objective.penalty(x)) / moments.n_positions
        weights = [u.copy() for u in U]
        return Learned(labels, features, phi.copy(), weights, lexicon, bound, layout.cover(x).weights())

    def evaluated(z: Floats) -> dict[str, Floats]:
        at = objective(scales * z)
        return {"value": np.array([at.value]), "gradient": scales * at.gradient}

    def scaled(z: Floats) -> Evaluation:
        """Return value and gradient of one process, since they take the same time for any number of sentences."""
        arrays = whole.of_first(lambda: evaluated(z))
        return Evaluation(float(arrays["value"][0]), arrays["gradient"])

    def mark() -> str:
        # Limits are left out: a longer run may resume from a shorter one.
        plain = model._values("max_iter", *KNOWLEDGE)
        plain["dev"] = [[list(sentence) for sentence in part] for part in dev or ()]
        plain["names"] = features.words.items, labels.items, features.own.items
        vectors = None if knowledge.vectors is None else own[:, len(features.own) :].toarray()
        return fingerprint(plain, w, y, ends, vectors)

    def accuracy(parameters: Mapping[str, Any]) -> float:
        found = build(parameters["weights"], math.nan), FitReport(False, "", math.nan)
        return float(type(model)(**model.get_params())._set(*found).score(*dev))

    development = None if dev is None else Development("accuracy", accuracy)
    watch = watch_for(model, development, checkpoint, mark, callback, max_minutes)
    start = objective.start(features.lead()) / scales
    best, report = minimize(scaled, start, watch, max_iter=model.max_iter, tol=model.tol)
    if watch.best_iteration:
        report.value = next(step.value for step in report.history if step.iteration == watch.best_iteration)
    return build(best["weights"], report.value), report
