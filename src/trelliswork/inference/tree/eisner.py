"""Projective trees: allocate, choose a kernel, call it, mend in log space what underflowed."""

import numpy as np

from trelliswork.inference import threads
from trelliswork.inference.checks import check_count, check_possible
from trelliswork.inference.simd import VECTOR_BYTES
from trelliswork.inference.tree import eisner_kernels, eisner_log_kernels, eisner_max_kernels
from trelliswork.inference.tree.potentials import Doubles, Integers, Potentials, arcs

LANES = VECTOR_BYTES // 8
# A derivative of log Z times the smallest normal number, some n^3 times, stays far below the last digit of 1.
LIMIT = 1e280
# Scores that span less than this, over all words, cannot underflow at all.
SPAN = 600.0
# 6.75^n trees or so, each of weight at most 1, do not overflow.
MOST_NODES = 300


def log_partition(potentials: Potentials) -> Doubles:
    """log Z (B,) of each sentence; -inf where no tree is possible. Time O(n^3)."""
    p = potentials
    if not _narrow(p):
        return expectations(p)[0]
    log_z, safe = np.empty(len(p.lengths)), np.ones(len(p.lengths), bool)
    none = np.empty((0, 0, 0))
    threads.run(
        lambda start, stop: eisner_kernels.expectations(
            start, stop, p.order, p.lengths, p.log_arc, p.single_root, LIMIT, log_z, safe, none
        ),
        p.ranges(LANES),
    )
    return _mend(p, log_z, safe, none)[0]


def expectations(potentials: Potentials) -> tuple[Doubles, Doubles]:
    """log Z (B,) and the marginals of arcs (B, n+1, n+1). Time O(n^3), memory O(n^2) a sentence and thread."""
    p = potentials
    log_z, safe = np.empty(len(p.lengths)), np.ones(len(p.lengths), bool)
    marginals = np.empty(p.log_arc.shape)
    threads.run(
        lambda start, stop: eisner_kernels.expectations(
            start, stop, p.order, p.lengths, p.log_arc, p.single_root, LIMIT, log_z, safe, marginals
        ),
        p.ranges(LANES),
    )
    return _mend(p, log_z, safe, marginals)


def best(potentials: Potentials) -> tuple[Integers, Doubles]:
    """The best tree of each sentence: heads (B, n), -1 in the padding, and scores (B,). Time O(n^3)."""
    p = potentials
    B, N, _ = p.log_arc.shape
    heads, scores = np.full((B, N - 1), -1), np.empty(B)
    threads.run(
        lambda start, stop: eisner_max_kernels.best(
            start, stop, p.order, p.lengths, p.log_arc, p.single_root, heads, scores
        ),
        p.ranges(1),
    )
    check_possible(scores, "no tree to decode")
    return heads, scores


def topk(potentials: Potentials, labels: Doubles, k: int) -> tuple[Integers, Integers, Doubles]:
    """The k best trees: heads (B, k, n), ranks of their labels (B, k, n) and scores (B, k).

    ``labels`` (B, n+1, n+1, R) holds the scores of the R best labels of each arc, best first; R = 1 without labels.
    """
    check_count("k", k)
    p = potentials
    B, N, _ = p.log_arc.shape
    heads, ranks = np.full((B, k, N - 1), -1), np.full((B, k, N - 1), -1)
    scores = np.full((B, k), -np.inf)
    threads.run(
        lambda start, stop: eisner_max_kernels.topk(
            start, stop, p.order, p.lengths, labels, p.single_root, heads, ranks, scores
        ),
        p.ranges(1, k),
    )
    check_possible(scores[:, 0], "no tree to decode")
    return heads, ranks, scores


def sample(potentials: Potentials, seeds: Integers) -> Integers:
    """Exact draws: heads (k, B, n), -1 in the padding, from ``seeds`` (k, B). Time O(n^3), then O(n^2) a draw."""
    p = potentials
    heads, log_z = np.full((*seeds.shape, p.log_arc.shape[1] - 1), -1), np.empty(len(p.lengths))
    threads.run(
        lambda start, stop: eisner_log_kernels.sample(
            start, stop, p.order, p.lengths, p.log_arc, p.single_root, seeds, log_z, heads
        ),
        p.ranges(1, 10),
    )
    check_possible(log_z, "no tree to draw")
    return heads


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


def _mend(p: Potentials, log_z: Doubles, safe: np.ndarray, marginals: Doubles) -> tuple[Doubles, Doubles]:
    """Compute in log space what underflowed (or is impossible)."""
    which = np.flatnonzero(~safe)
    if which.size:
        threads.run(
            lambda start, stop: eisner_log_kernels.expectations(
                start, stop, which, p.lengths, p.log_arc, p.single_root, log_z, marginals
            ),
            threads.cut((p.lengths[which] + 1) ** 3 * 20, least=threads.LEAST_WORK),
        )
    return log_z, marginals
