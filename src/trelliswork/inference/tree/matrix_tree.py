"""Spanning trees (projective or not): allocate, choose a kernel, call it, mend in log space what underflowed."""

import numpy as np

from trelliswork.inference import threads
from trelliswork.inference.checks import check_count, check_possible
from trelliswork.inference.simd import VECTOR_BYTES
from trelliswork.inference.tree import matrix_tree_kernels, matrix_tree_log_kernels, mst_kernels
from trelliswork.inference.tree.potentials import Doubles, Integers, Potentials

LANES = VECTOR_BYTES // 8
# A derivative of log Z times the smallest normal number, some n^3 times, stays far below the last digit of 1.
LIMIT = 1e280


def log_partition(potentials: Potentials) -> Doubles:
    """log Z (B,) of each sentence; -inf where no tree is possible. Time O(n^3)."""
    return expectations(potentials)[0]


def expectations(potentials: Potentials) -> tuple[Doubles, Doubles]:
    """log Z (B,) and the marginals of arcs (B, n+1, n+1). Time O(n^3), memory O(n^2) a sentence and thread."""
    p = potentials
    log_z, safe = np.empty(len(p.lengths)), np.ones(len(p.lengths), bool)
    marginals = np.empty(p.log_arc.shape)
    threads.run(
        lambda start, stop: matrix_tree_kernels.expectations(
            start, stop, p.order, p.lengths, p.log_arc, p.single_root, LIMIT, log_z, safe, marginals
        ),
        p.ranges(LANES, 2),
    )
    which = np.flatnonzero(~safe)
    if which.size:
        threads.run(
            lambda start, stop: matrix_tree_log_kernels.expectations(
                start, stop, which, p.lengths, p.log_arc, p.single_root, log_z, marginals
            ),
            threads.cut((p.lengths[which] + 1) ** 3 * 20, least=threads.LEAST_WORK),
        )
    return log_z, marginals


def best(potentials: Potentials) -> tuple[Integers, Doubles]:
    """The best tree of each sentence: heads (B, n), -1 in the padding, and scores (B,). Time O(n^2)."""
    p = potentials
    B, N, _ = p.log_arc.shape
    heads, scores = np.full((B, N - 1), -1), np.empty(B)
    threads.run(
        lambda start, stop: mst_kernels.best(start, stop, p.order, p.lengths, p.log_arc, p.single_root, heads, scores),
        p.ranges(1, 0.2),
    )
    check_possible(scores, "no tree to decode")
    return heads, scores


def topk(potentials: Potentials, labels: Doubles, k: int) -> tuple[Integers, Integers, Doubles]:
    """The k best trees: heads (B, k, n), ranks of their labels (B, k, n) and scores (B, k). Time O(k n^3).

    ``labels`` (B, n+1, n+1, R) holds the scores of the R best labels of each arc, best first; R = 1 without labels.
    """
    check_count("k", k)
    p = potentials
    B, N, _ = p.log_arc.shape
    heads, ranks = np.full((B, k, N - 1), -1), np.full((B, k, N - 1), -1)
    scores = np.full((B, k), -np.inf)
    threads.run(
        lambda start, stop: mst_kernels.topk(
            start, stop, p.order, p.lengths, labels, p.single_root, heads, ranks, scores
        ),
        p.ranges(1, 10 * k),
    )
    check_possible(scores[:, 0], "no tree to decode")
    return heads, ranks, scores


def sample(potentials: Potentials, seeds: Integers) -> Integers:
    """Exact draws: heads (k, B, n), -1 in the padding, from ``seeds`` (k, B). Time O(n^3), then O(n^2) or so a draw."""
    p = potentials
    heads, log_z = np.full((*seeds.shape, p.log_arc.shape[1] - 1), -1), np.empty(len(p.lengths))
    threads.run(
        lambda start, stop: matrix_tree_log_kernels.sample(
            start, stop, p.order, p.lengths, p.log_arc, p.single_root, seeds, log_z, heads
        ),
        p.ranges(1, 10),
    )
    check_possible(log_z, "no tree to draw")
    return heads
