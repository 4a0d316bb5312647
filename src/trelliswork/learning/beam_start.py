"""Weights to begin a search within beams with: those that a sample of the sentences teaches.

At zero weights all states look alike, so a search within beams has to begin with exact evaluations, and states that
are chosen too early must be chosen again. Some iterations on every eighth sentence cost as much as two or three exact
evaluations and tell which states matter.
"""

import warnings

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ConvergenceWarning
from trelliswork.learning.crf_layout import Allowed, FeatureLayout, Labelling, Tokens, counting
from trelliswork.learning.crf_objective import ChainObjective
from trelliswork.learning.lbfgs import Weights, lbfgs

EVERY = 8  # of so many sentences one is in the sample
FEWEST = 30  # sentences that tell something
ITERATIONS = 15


def sampled_start(
    tokens: Tokens,
    labelling: Labelling,
    layout: FeatureLayout,
    *,
    l2: float = 0.0,
    l1: float = 0.0,
    weights: NDArray[np.floating] | None = None,
    allowed: Allowed | None = None,
    max_iter: int = 100,
) -> tuple[Weights, int]:
    """Weights (n_features,) after some iterations of exact training on a sample, and how many these were.

    At most half of ``max_iter``; with few sentences none, and zero weights. Each sentence of the sample counts
    ``EVERY`` times, so that the penalties weigh as much as they will with all.
    """
    lengths = np.diff(tokens.offsets)
    which = np.arange(EVERY // 2, len(lengths), EVERY)
    start = np.zeros(layout.n_features)
    if len(which) < FEWEST or max_iter < 2:
        return start, 0
    size = lengths[which]
    token = np.repeat(tokens.offsets[which], size) + counting(size)
    alpha = np.full(len(which), float(EVERY)) if weights is None else EVERY * np.asarray(weights)[which]
    objective = ChainObjective(
        tokens.take(token, size), Labelling(labelling.gold[token]), layout, l2=l2, weights=alpha, allowed=allowed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found, report = lbfgs(objective, start, l1=l1, max_iter=min(ITERATIONS, max_iter // 2))
    return found, report.n_iter
