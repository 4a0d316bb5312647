"""Training of factorial CRFs: L-BFGS, the development metric, feature maps and ties of the layers."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ConvergenceWarning, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.inference.factorial import FactorialPotentials
from trelliswork.learning import whole
from trelliswork.learning.lbfgs import minimize
from trelliswork.learning.report import FitReport
from trelliswork.learning.watch import Development, Watch
from trelliswork.models.factorial.data import Column, joined
from trelliswork.models.factorial.learned import Learned
from trelliswork.models.factorial.objective import FactorialObjective
from trelliswork.models.factorial.scoring import FactorialScorer

Decode = Callable[[FactorialPotentials], list[NDArray[np.int64]]]


def joint_development(
    attributes: Attributes, columns: Sequence[Column], learned: Learned, decode: Decode
) -> Development:
    """Return the metric on labeled sentences: the fraction of tokens with all labels correct.

    ``learned`` lacks the weights.
    """
    joint, names = joined(columns), [layer.labels.items for layer in learned.layers]
    allowed = [layer.allowed for layer in learned.layers]

    @cache
    def scorer(first: int, last: int) -> FactorialScorer:
        return FactorialScorer(attributes.part(first, last), learned.layout, allowed)

    def sums(parameters: Mapping[str, Any], first: int, last: int) -> tuple[float, float]:
        correct, sentences = 0, iter(joint[first:last])
        for potentials in scorer(first, last).potentials(parameters["weights"]):
            layers = [rows.tolist() for rows in decode(potentials)]
            for b, gold in enumerate(islice(sentences, len(potentials.lengths))):
                found = ([own[j] for j in rows[b][: len(gold)]] for own, rows in zip(names, layers, strict=True))
                correct += sum(map(tuple.__eq__, zip(*found, strict=True), gold))
        return correct, sum(map(len, joint[first:last]))

    return Development.of_shares("joint accuracy", len(joint), sums)


def learn(objective: FactorialObjective, watch: Watch, **options: Any) -> tuple[NDArray[np.float64], FitReport]:
    """Return the weights by L-BFGS and the report; warn if the engine had not converged at the end."""
    parameters, report = minimize(objective, np.zeros(objective.layout.n_features), watch, **options)
    n_unconverged = int(whole.total(objective.n_unconverged))
    residual = float(whole.largest(np.array([objective.residual]))[0])
    if n_unconverged:
        warnings.warn(
            f"{objective.engine} had not converged for {n_unconverged} sentences after "
            f"{objective.options.max_iter} sweeps (a marginal still changed by {residual:.2g}). Raise "
            "max_sweeps or l2, loosen sweep_tol, or, with engine='bp', set damping=0.5.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return parameters["weights"], report


def tie_numbers(ties: Sequence[tuple[str, str]] | None, layers: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return tied layers as numbers d < e; all pairs if ``ties`` is ``None``."""
    if ties is None:
        return tuple(combinations(range(len(layers)), 2))
    names = list(layers)
    for tie in ties:
        if len(tie) != 2 or tie[0] == tie[1] or not set(tie) <= set(names):
            raise ValueRangeError(f"ties must be pairs of the layers {', '.join(names)}, got {tie!r}.")
    pairs = {(names.index(a), names.index(b)) for a, b in ties}
    return tuple(sorted({(min(pair), max(pair)) for pair in pairs}))
