r"""Estimates of log Z of sentences by annealed importance sampling (Neal, 2001) from an exactly sampled chain.

The path goes from the chain of distance 1, with unary :math:`a_1` and table :math:`\theta^1 / \rho_1`, to the field:
:math:`\beta` multiplies the field's scores, :math:`1 - \beta` the chain's. Weights are unbiased for the ratio of the
partition functions, so the estimate of Z is unbiased; that of log Z has a small negative bias.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from trelliswork.compute.checks import check_count
from trelliswork.inference.lifted.potentials import Table, check_tables
from trelliswork.inference.lifted.sentences import ChainSampler, gibbs_sweep, score_parts

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LogZEstimate:
    """An estimate of log Z."""

    value: float
    standard_error: float  # of the value, from the spread of the weights
    effective: float  # number of samples; if it is below a tenth of them, increase ``n_steps``
    kind: str = "estimate"


def annealed_log_z(
    log_unary: Array,
    tables: "Sequence[Table]",
    length: int,
    *,
    base_unary: Array,
    base_scale: float = 1.0,
    n_samples: int = 64,
    n_steps: int = 50,
    seed: int = 0,
) -> LogZEstimate:
    """Estimate log Z of sentences of one length.

    The initial chain has the unary scores ``base_unary`` (C,) and ``base_scale`` times the table of distance 1.
    ``n_samples`` chains go through ``n_steps`` temperatures between the two models, with one Gibbs sweep at each. Time
    O(n_samples n_steps length K C) for low-rank tables (times their rank).
    """
    K, _ = check_tables(log_unary, list(tables))
    for name, value in (("length", length), ("n_samples", n_samples), ("n_steps", n_steps)):
        check_count(name, value)
    rng = np.random.default_rng(seed)
    sampler = ChainSampler(base_unary, tables[0].scaled(base_scale), length)
    log_z, words = sampler.log_z(length), sampler.draw(rng.random((n_samples, length)))
    log_weights = np.zeros(n_samples)
    betas = np.linspace(0, 1, n_steps + 1)
    for before, beta in pairwise(betas):
        parts = score_parts(log_unary, tables, list(words))
        base = base_unary[words].sum(1) + base_scale * parts[:, 1]
        log_weights += (beta - before) * (parts.sum(1) - base)
        if beta < 1:
            unary = (1 - beta) * base_unary + beta * log_unary
            multipliers = np.full(K, beta)
            multipliers[0] += (1 - beta) * base_scale
            gibbs_sweep(unary, tables, words, rng.random((n_samples, length)), multipliers)
    mean = float(logsumexp(log_weights)) - np.log(n_samples)
    ratios = np.exp(log_weights - mean)
    error = float(ratios.std(ddof=1) / np.sqrt(n_samples)) if n_samples > 1 else np.inf
    return LogZEstimate(log_z + mean, error, float(ratios.sum() ** 2 / (ratios**2).sum()))
