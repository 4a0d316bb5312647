r"""Temperatures: one divisor for the scores of each kind of factor, fitted on sentences that training has not seen.

.. math:: s'_a = s_a / T_{arcs}, \quad s'_{hij} = s_{hij} / T_{siblings}, \quad s'_{ghm} = s_{ghm} / T_{grandparents},
    \quad p(\ell \mid tree) \propto \exp(s_\ell / T_{labels})

With order 2, the scores that belief propagation sends to the tree factor in the end have a temperature too.

Trees minimize the negative mean log-probability of the known heads; first one temperature for all kinds of parts, then
each in turn, as one-dimensional searches. Labels minimize that of the known labels of the arcs with the correct head,
which is convex in 1 / T. Temperatures change probabilities; the minimum-risk tree is still that of temperature 1,
since tempered beliefs were found to choose worse trees. Guo et al., On Calibration of Modern Neural Networks (2017).
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trelliswork.compute.sharing import current
from trelliswork.models.parser.data import Gold
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.labels import LabelModel
from trelliswork.models.parser.scoring import TreeScorer, flat_heads
from trelliswork.models.parser.temperatures import TREE_KINDS, Temperatures, tempered, tree_kinds

LOWEST, HIGHEST = 0.2, 10.0  # limits of a temperature
PRECISION = 0.01  # of its logarithm
MAX_WORDS = 20_000  # of the sentences that trees are fitted on: a few numbers need no more
TINY = 1e-12  # probability of a head that pruning excludes


def minimize(loss: Callable[[float], float]) -> float:
    """Return the temperature with the smallest loss, by Brent's method on its logarithm."""
    from scipy.optimize import minimize_scalar  # slow to import

    limits = math.log(LOWEST), math.log(HIGHEST)
    result = minimize_scalar(lambda t: loss(math.exp(t)), bounds=limits, method="bounded", options={"xatol": PRECISION})
    return math.exp(float(result.x))


def fit_temperatures(scorer: TreeScorer, labels: LabelModel | None, tokens: ParseTokens, gold: Gold) -> Temperatures:
    """Return the temperatures that fit sentences with known heads, and labels of some; others keep their temperature.

    Trees are fitted on the first sentences with `MAX_WORDS` words. In a group of processes, each rank has its own
    sentences, and temperatures are those of all. Time: about 40 times that of belief propagation.
    """
    temperatures = _fit_trees(scorer, tokens, gold)
    if current().any(labels is not None and gold.labels is not None) and labels is not None:
        scorer = replace(scorer, temperatures=temperatures)
        temperatures = replace(temperatures, labels=_fit_labels(scorer, labels, tokens, gold))
    return temperatures


def _fit_trees(scorer: TreeScorer, tokens: ParseTokens, gold: Gold) -> Temperatures:
    """Return temperatures of the scores of arcs, and with order 2 of siblings and grandparents."""
    enough = np.flatnonzero(np.cumsum(tokens.lengths) - tokens.lengths < MAX_WORDS)
    batches = [scorer.scored(tokens, some) for some in scorer.batches(tokens, enough)]
    n_heads = current().total(sum(int((gold.rows(batch.sentences) >= 0).sum()) for batch in batches))
    kinds = tree_kinds(scorer.second is not None)

    def loss(temperatures: Temperatures) -> float:
        model = replace(scorer, temperatures=temperatures)
        total = 0.0
        for batch in batches:
            heads = gold.rows(batch.sentences)
            rows, words = np.nonzero(heads >= 0)
            p = model.infer(batch).arcs[rows, heads[rows, words], words + 1]
            total -= float(np.log(np.clip(p, TINY, 1.0)).sum())
        return current().total(total) / max(n_heads, 1)

    best = scorer.temperatures
    if not n_heads:
        return best
    value = loss(best)

    def moved(names: tuple[str, ...], t: float) -> Temperatures:
        return replace(best, **{name: min(max(getattr(best, name) * t, LOWEST), HIGHEST) for name in names})

    parts = tuple(kind for kind in kinds if kind in TREE_KINDS)
    for names in dict.fromkeys([parts, *((kind,) for kind in kinds)]):
        candidate = moved(names, minimize(lambda t: loss(moved(names, t))))  # noqa: B023
        found = loss(candidate)
        if found < value:
            best, value = candidate, found
    return best


def _fit_labels(scorer: TreeScorer, labels: LabelModel, tokens: ParseTokens, gold: Gold) -> float:
    """Return the temperature of labels, on the arcs of predicted trees that have the correct head."""
    numbers: dict[str | None, int] = {name: k for k, name in enumerate(labels.labels)}
    known = np.array([numbers.get(name, -1) for name in gold.labels or [None] * len(gold.heads)], np.int64)
    heads = flat_heads(scorer, tokens, gold.offsets)
    at = np.flatnonzero((heads == gold.heads) & (known >= 0))
    n_labels = current().total(len(at))
    if not n_labels:
        return labels.temperature
    rows = replace(labels, temperature=1.0).probabilities(tokens, heads, gold.offsets)[at]

    def loss(temperature: float) -> float:
        p = tempered(rows, temperature)[np.arange(len(at)), known[at]]
        return -current().total(float(np.log(np.clip(p, TINY, 1.0)).sum())) / n_labels

    return minimize(loss)


def fit_crossing_cost(scorer: TreeScorer, tokens: ParseTokens, gold: Gold) -> float:
    """Return the cost of crossing arcs with the most correct heads; the largest, if several have the most.

    A sentence gets its best tree if that is expected to have more correct arcs, by at least this cost, than its best
    projective tree. The search is exact: costs between two sentences' differences have the same effect.
    """
    scorer = replace(scorer, crossing_cost=TINY, temperatures=Temperatures())
    rows: list[tuple[float, int]] = []
    for sentences in scorer.batches(tokens):
        heads, crossing, lead = scorer.alternatives(scorer.beliefs(tokens, sentences))
        given = gold.rows(sentences)
        more = ((crossing == given) & (given >= 0)).sum(axis=1) - ((heads == given) & (given >= 0)).sum(axis=1)
        rows += [(d, k) for d, k in zip(lead.tolist(), more.tolist(), strict=True) if TINY < d < math.inf]
    rows = sorted(row for own in current().gather(rows) for row in own)
    best, cost = 0, float(len(gold.heads)) if rows else 0.0
    total = 0
    for k in range(len(rows) - 1, -1, -1):  # lower the cost from sentence to sentence
        total += rows[k][1]
        if total > best:
            best, cost = total, (rows[k][0] + (rows[k - 1][0] if k else 0.0)) / 2
    return cost
