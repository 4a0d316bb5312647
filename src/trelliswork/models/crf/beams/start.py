"""Initial weights for a search within beams: by training on a sample of the sentences, or by counting.

At zero weights all states are equal, so a search within beams has to start with exact evaluations, and states that are
chosen too early must be chosen again. Some iterations on every eighth sentence cost as much as two or three exact
evaluations and show which states matter. Counts cost nothing, but the score of a state that is never inside is never
lowered, unless the states outside are included (``rest``).
"""

import warnings
from dataclasses import replace

import numpy as np

from trelliswork.errors import ConvergenceWarning
from trelliswork.learning import whole
from trelliswork.learning.lbfgs import Weights, lbfgs
from trelliswork.models.crf.beams.objective import BeamObjective
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.crf.problem import Labeling, Problem, counting

EVERY = 8  # one in EVERY sentences is in the sample
FEWEST = 30  # sentences of a useful sample
ITERATIONS = 15
PRIOR = 5.0  # pseudo-count that counts are compared with


def first_weights(objective: BeamObjective, *, l1: float = 0.0, max_iter: int = 100) -> tuple[Weights, int]:
    """Return initial weights and the iterations they took: by counts if the objective ``completes``, else by a sample.

    ``l1`` and ``max_iter`` are those of the training.
    """
    if objective.completes:
        return counted_start(objective.problem), 0
    return sampled_start(objective.problem, l2=objective.l2, l1=l1, max_iter=max_iter)


def sampled_start(problem: Problem, *, l2: float = 0.0, l1: float = 0.0, max_iter: int = 100) -> tuple[Weights, int]:
    """Return weights (n_features,) after some iterations of exact training on a sample, and their number.

    There are at most ``max_iter / 2`` iterations, and none if there are too few sentences. Each sentence of the sample
    counts ``EVERY`` times, so that the penalties have the same relative weight as with all sentences.
    """
    n_sentences = len(problem.tokens.offsets) - 1
    before, _ = whole.place(n_sentences)
    which = np.arange((EVERY // 2 - before) % EVERY, n_sentences, EVERY)
    start = np.zeros(problem.layout.n_features)
    if whole.total(len(which)) < FEWEST or max_iter < 2:
        return start, 0
    tokens, token = problem.tokens.sentences(which)
    known, alpha = Labeling(problem.labeling.gold[token]), EVERY * problem.alpha[which]
    objective = ChainObjective(replace(problem, tokens=tokens, labeling=known, weights=alpha), l2=l2)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        sampled, report = lbfgs(objective, start, l1=l1, max_iter=min(ITERATIONS, max_iter // 2))
    return sampled, report.n_iter


def counted_start(problem: Problem) -> Weights:
    r"""Return weights (n_features,) from counts, without training: nonnegative, 0 for unseen events.

    .. math:: w_{a,y} = \log(1 + c(a, y) / (5 p(a))) / m \qquad w_{x,y} = \log(1 + c(x, y) / (5 p(y)))

    with counts c of attribute or label x together with label y, frequencies p (of a: events per token) and m attributes
    per token: the ratio of the probabilities of a smoothed hidden Markov model to those of unseen events. Counts are
    those of all ranks.
    """
    from scipy.sparse import csr_matrix  # taggers do without, but for this

    tokens, layout = problem.tokens, problem.layout
    L, n = layout.n_labels, len(layout.transitions)
    gold, lengths = problem.labeling.gold.astype(np.int64), np.diff(tokens.offsets)
    by = np.repeat(problem.alpha.astype(np.float64), lengths)
    at = np.flatnonzero(counting(lengths))  # tokens that are not the first of their sentence
    pairs = whole.summed(np.bincount(gold[at - 1] * L + gold[at], by[at], L * L).astype(np.float64))[0].reshape(L, L)
    start = np.zeros(layout.n_features)
    expected = PRIOR * (pairs.sum(axis=0) + 0.5) / (pairs.sum() + 0.5 * L)
    start[:n] = np.log1p(pairs / expected).reshape(-1)[layout.transitions]
    per_token = np.diff(tokens.token_ptr)
    event = np.repeat(by, per_token)
    if tokens.values is not None:
        event = event * np.maximum(tokens.values, 0)
    rows = csr_matrix((event, tokens.ids, tokens.token_ptr), (len(gold), layout.n_attributes))
    together = rows.T @ csr_matrix((np.ones(len(gold)), gold, np.arange(len(gold) + 1)), (len(gold), L))
    count = np.asarray(together[layout.attributes, layout.labels], np.float64).reshape(-1)
    often = whole.summed(np.asarray(rows.sum(axis=0)).reshape(-1))[0] / max(whole.total(by.sum()), 1e-300)
    ratio = whole.summed(count)[0] / (PRIOR * np.maximum(often[layout.attributes], 1e-300))
    mean = whole.total(per_token.sum()) / max(1.0, whole.total(len(per_token)))
    start[n : n + len(ratio)] = np.log1p(ratio) / max(1.0, mean)
    return whole.of_first(lambda: {"start": start})["start"]  # the last bits of logarithms may differ
