r"""Temperatures: one divisor for the scores of each kind of factor, fitted on sentences that training has not seen.

.. math:: s'_a = s_a / T_{arcs}, \quad s'_{hij} = s_{hij} / T_{siblings}, \quad s'_{ghm} = s_{ghm} / T_{grandparents},
    \quad p(\ell \mid tree) \propto \exp(s_\ell / T_{labels})

With order 2, the scores that belief propagation sends to the tree factor in the end have a temperature too, and the
probabilities of arcs are a mixture, :math:`(1 - \lambda) p_T + \lambda p_1`, with the beliefs at temperature 1:
tempered beliefs alone are too low for uncertain arcs, sharp ones too high for all.

Trees minimize the negative mean log-probability of the known heads; first one temperature for all kinds of parts, then
each in turn, as one-dimensional searches, each with the best :math:`\lambda`, in which the loss is convex. Labels
minimize that of the known labels of the arcs with the correct head, which is convex in 1 / T. Temperatures change
probabilities; the minimum-risk tree is still that of temperature 1, since tempered beliefs were found to choose worse
trees. Guo et al., On Calibration of Modern Neural Networks (2017).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from trelliswork.models.parser.data import Doubles, Gold
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.labels import LabelModel, numbers_of, tempered
from trelliswork.models.parser.scoring import (
    LEAST_SHARE,
    TREE_KINDS,
    Beliefs,
    Judge,
    Scored,
    TreeScorer,
    flat_heads,
    tree_kinds,
)

LOWEST, HIGHEST = 0.2, 10.0  # limits of a temperature
LARGEST_SHARE = 0.9  # of beliefs at temperature 1
PRECISION = 0.01  # of a share, and of the logarithm of a temperature
MAX_WORDS = 20_000  # of the sentences that trees are fitted on: a few numbers need no more
TINY = 1e-12  # probability of a head that pruning excludes


def bounded(loss: Callable[[float], float], low: float, high: float) -> float:
    """Return the number between two limits with the smallest loss, by Brent's method."""
    from scipy.optimize import minimize_scalar  # slow to import

    return float(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": PRECISION}).x)


def minimize(loss: Callable[[float], float]) -> float:
    """Return the temperature with the smallest loss, by a search of its logarithm."""
    return math.exp(bounded(lambda t: loss(math.exp(t)), math.log(LOWEST), math.log(HIGHEST)))


def gold_probabilities(beliefs: Beliefs, gold: Gold) -> Doubles:
    """Return the probabilities of the known heads of a batch."""
    heads = gold.rows(beliefs.sentences)
    rows, words = np.nonzero(heads >= 0)
    p: Doubles = beliefs.arcs[rows, heads[rows, words], words + 1]
    return p


def with_temperatures(scorer: TreeScorer, labels: LabelModel | None, judge: Judge) -> TreeScorer:
    """Return the model with the temperatures and the shares that fit sentences with known heads.

    Temperatures of labels need known labels. Trees are fitted on the first sentences with `MAX_WORDS` words. Time:
    about 40 times that of belief propagation.
    """
    tokens, gold = judge
    scorer = _fit_trees(scorer.at_temperature_1(), tokens, gold)
    if labels is not None and gold.labels is not None:
        fitted = _fit_labels(scorer, labels, tokens, gold)
        scorer = replace(scorer, temperatures={**scorer.temperatures, "labels": fitted})
    return scorer if scorer.share is None else replace(scorer, share=_fit_share(scorer, tokens, gold))


def _fit_trees(scorer: TreeScorer, tokens: ParseTokens, gold: Gold) -> TreeScorer:
    """Fit the temperatures of the scores of arcs, and with order 2 of siblings and grandparents, and the share."""
    batches = _scored_batches(scorer, tokens)

    def of_gold(temperatures: Mapping[str, float]) -> Doubles:
        model = replace(scorer, temperatures=temperatures, sharp=0.0)
        rows = [gold_probabilities(model.infer(batch), gold) for batch in batches]
        return np.concatenate(rows) if rows else np.zeros(0)

    sharp_p = of_gold({})
    n_heads = len(sharp_p)
    if not n_heads:
        return scorer
    mixed, kinds = scorer.order == 2, tree_kinds(scorer.order == 2)
    best = dict.fromkeys(kinds, 1.0)

    def loss(temperatures: Mapping[str, float]) -> tuple[float, float]:
        """Return the loss with the best share of sharp beliefs, and that share."""
        p = of_gold(temperatures)

        def mean(share: float) -> float:
            values = np.log(np.clip((1 - share) * p + share * sharp_p, TINY, 1.0))
            return -float(values.sum()) / n_heads

        plain = mean(0.0), 0.0
        if not mixed:
            return plain
        share = bounded(mean, 0.0, LARGEST_SHARE)
        return min(plain, (mean(share), share))

    value, share = loss(best)

    def moved(names: tuple[str, ...], t: float) -> dict[str, float]:
        return best | {name: min(max(best[name] * t, LOWEST), HIGHEST) for name in names}

    parts = tuple(kind for kind in kinds if kind in TREE_KINDS)
    for names in dict.fromkeys([parts, *((kind,) for kind in kinds)]):
        candidate = moved(names, minimize(lambda t: loss(moved(names, t))[0]))  # noqa: B023
        found, its_share = loss(candidate)
        if found < value:
            best, value, share = candidate, found, its_share
    return replace(scorer, temperatures=best, sharp=share)


def _fit_labels(scorer: TreeScorer, labels: LabelModel, tokens: ParseTokens, gold: Gold) -> float:
    """Return the temperature of labels, on the arcs of predicted trees that have the correct head."""
    heads = flat_heads(scorer, tokens, gold.offsets)
    numbers = numbers_of(labels.labels, gold)
    at = np.flatnonzero((heads == gold.heads) & (numbers >= 0))
    if not len(at):
        return 1.0
    rows, known = labels.probabilities(tokens, heads, gold.offsets)[at], numbers[at]

    def loss(temperature: float) -> float:
        p = tempered(rows, temperature)[np.arange(len(at)), known]
        return -float(np.log(np.clip(p, TINY, 1.0)).sum()) / len(at)

    return minimize(loss)


def _scored_batches(scorer: TreeScorer, tokens: ParseTokens) -> list[Scored]:
    """Return the scores of the first sentences, with `MAX_WORDS` words."""
    enough = np.flatnonzero(np.cumsum(tokens.lengths) - tokens.lengths < MAX_WORDS)
    return [scorer.scored(tokens, some) for some in scorer.batches(tokens, enough)]


def _fit_share(scorer: TreeScorer, tokens: ParseTokens, gold: Gold) -> float:
    """Return the share of all trees in the mixture with projective ones that fits sentences with known heads.

    It minimizes the negative mean log-probability of the known heads, which is convex in the share.
    """
    batches = _scored_batches(scorer, tokens)
    few, many = (
        np.concatenate([gold_probabilities(model.infer(batch), gold) for batch in batches] or [np.zeros(0)])
        for model in (replace(scorer, share=share, sharp=0.0) for share in (0.0, 1.0))
    )

    def loss(share: float) -> float:
        return -float(np.log(np.clip((1 - share) * few + share * many, TINY, 1.0)).sum())

    best = math.exp(bounded(lambda log_share: loss(math.exp(log_share)), math.log(LEAST_SHARE), 0.0))
    return min((0.0, best, 1.0), key=loss)
