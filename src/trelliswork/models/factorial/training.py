"""How a factorial CRF learns: what its layers see and which are tied, L-BFGS, a watch on development data."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ConvergenceWarning, ValueRangeError
from trelliswork.features.feature_map import FeatureMap, Features
from trelliswork.inference.factorial import FactorialPotentials
from trelliswork.learning.lbfgs import FitReport, State, Step, lbfgs
from trelliswork.models.crf.training import Development, Watch
from trelliswork.models.factorial.data import Column, LabelLayer, joined
from trelliswork.models.factorial.objective import FactorialObjective
from trelliswork.models.factorial.scoring import FactorialScorer

Decode = Callable[[FactorialPotentials], list[NDArray[np.int64]]]


class JointDevelopment(Development):
    """Labelled sentences that training does not see: the part of the tokens with all labels right."""

    def __init__(
        self, scorer: FactorialScorer, gold: Sequence[Column], layers: Sequence[LabelLayer], decode: Decode
    ) -> None:
        self._joint_scorer, self._joint_gold, self._layers, self._decode = scorer, joined(gold), layers, decode

    @property
    def metric(self) -> str:
        """The name of the figure."""
        return "joint accuracy"

    def measure(self, weights: NDArray[np.float64]) -> float:
        """The figure, between 0 and 1."""
        right = n_tokens = 0
        sentences = iter(self._joint_gold)
        names = [layer.labels.items for layer in self._layers]
        for potentials in self._joint_scorer.potentials(weights):
            found = [labels.tolist() for labels in self._decode(potentials)]
            for b, n in enumerate(potentials.lengths.tolist()):
                gold = next(sentences)
                for t in range(n):
                    right += all(names[d][found[d][b][t]] == gold[t][d] for d in range(len(names)))
                n_tokens += n
        return right / n_tokens


def learn(
    objective: FactorialObjective, watch: Watch, max_iter: int, tol: float, memory: int
) -> tuple[NDArray[np.float64], FitReport]:
    """Find the weights by L-BFGS; warns if the engine had not settled at the end."""
    reason: list[str] = []

    def after(step: Step, state: State) -> bool:
        reason.extend(filter(None, [watch.after(step, state.weights, state.to_plain)]))
        return bool(reason)

    start = np.zeros(objective.layout.n_features)
    weights, report = lbfgs(objective, start, max_iter=max_iter, tol=tol, memory=memory, callback=after)
    report.reason = reason[0] if reason else report.reason
    if objective.n_unconverged:
        warnings.warn(
            f"{objective.engine} had not settled for {objective.n_unconverged} sentences after "
            f"{objective.options.max_iter} sweeps (a marginal still moved by {objective.residual:.2g}). Raise "
            "max_sweeps or l2, loosen tolerance, or, with engine='bp', set damping=0.5.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return watch.finish(weights, report)


def tie_numbers(ties: Sequence[tuple[str, str]] | None, layers: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Tied layers as numbers d < e; all pairs if ``ties`` is ``None``."""
    if ties is None:
        return tuple(combinations(range(len(layers)), 2))
    names = list(layers)
    for tie in ties:
        if len(tie) != 2 or tie[0] == tie[1] or not set(tie) <= set(names):
            raise ValueRangeError(f"ties must be pairs of the layers {', '.join(names)}, got {tie!r}.")
    found = {(names.index(a), names.index(b)) for a, b in ties}
    return tuple(sorted({(min(pair), max(pair)) for pair in found}))


def feature_maps(
    features: Features | Mapping[str, Features], layers: Sequence[str], **options: Any
) -> list[FeatureMap]:
    """The feature map of each layer: one for all, or one for each."""
    if not isinstance(features, Mapping):
        return [FeatureMap(features, **options)] * len(layers)
    if set(features) != set(layers):
        raise ValueRangeError(f"features by layer must name the layers {', '.join(layers)}, got {', '.join(features)}.")
    return [FeatureMap(features[name], **options) for name in layers]
