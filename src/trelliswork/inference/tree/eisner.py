"""Projective trees: Eisner's algorithms by their kernels."""

import numpy as np

from trelliswork.inference.tree import passes
from trelliswork.inference.tree.kernels import (
    eisner as eisner_kernels,
)
from trelliswork.inference.tree.kernels import (
    eisner_log as eisner_log_kernels,
)
from trelliswork.inference.tree.kernels import (
    eisner_max as eisner_max_kernels,
)
from trelliswork.inference.tree.potentials import Doubles, Integers, Potentials, arcs

# Scores that span less than this, over all words, cannot underflow at all.
SPAN = 600.0
# 6.75^n trees or so, each of weight at most 1, do not overflow.
MOST_NODES = 300


def log_partition(potentials: Potentials) -> Doubles:
    """log Z (B,) of each sentence; -inf where no tree is possible. Time O(n^3)."""
    if not _narrow(potentials):
        return expectations(potentials)[0]
    return _fill(potentials, np.empty((0, 0, 0)))


def expectations(potentials: Potentials) -> tuple[Doubles, Doubles]:
    """log Z (B,) and the marginals of arcs (B, n+1, n+1). Time O(n^3), memory O(n^2) a sentence and thread."""
    marginals = np.empty(potentials.log_arc.shape)
    return _fill(potentials, marginals), marginals


def best(potentials: Potentials) -> tuple[Integers, Doubles]:
    """The best tree of each sentence (``passes.best``). Time O(n^3)."""
    return passes.best(potentials, eisner_max_kernels.best, 1)


def topk(potentials: Potentials, labels: Doubles, k: int) -> tuple[Integers, Integers, Doubles]:
    """The k best trees (``passes.topk``). Time O(n^3 k log k) at worst."""
    return passes.topk(potentials, labels, k, eisner_max_kernels.topk, 1)


def sample(potentials: Potentials, seeds: Integers) -> Integers:
    """Exact draws (``passes.sample``). Time O(n^3), then O(n^2) a draw."""
    return passes.sample(potentials, seeds, eisner_log_kernels.sample)


def _fill(p: Potentials, marginals: Doubles) -> Doubles:
    return passes.expectations(p, eisner_kernels.expectations, eisner_log_kernels.expectations, marginals, 1)


def _narrow(p: Potentials) -> bool:
    """True if all arcs are possible and their scores so near to each other that no product underflows."""
    N = p.log_arc.shape[1]
    mask = arcs(p.lengths, N - 1)
    low = np.where(mask, p.log_arc, np.inf).min(axis=1)
    if low.min() == -np.inf or N > MOST_NODES:
        return False
    high = np.where(mask, p.log_arc, -np.inf).max(axis=1)
    spans = np.where(low < np.inf, high, 0.0) - np.where(low < np.inf, low, 0.0)  # (B, n+1), 0 where there is no word
    return bool(spans.sum(axis=1).max() < SPAN)
