"""What both kinds of dependency trees do alike around their kernels: allocate, call, mend."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count, check_possible
from trelliswork.compute.simd import VECTOR_BYTES
from trelliswork.inference.tree.potentials import Doubles, Integers, Potentials

LANES = VECTOR_BYTES // 8
# A derivative of log Z times the smallest normal number, some n^3 times, stays far below the last digit of 1.
LIMIT = 1e280
TREES = {"noun": "tree of sentence", "parts": "arcs"}  # for messages
Kernel = Any  # a compiled function over a range of sentences


def expectations(p: Potentials, scaled: Kernel, in_log_space: Kernel, marginals: Doubles, cost: float) -> Doubles:
    """Fill the marginals (B, n+1, n+1), unless they are empty; return log Z (B,). What underflows goes to log space."""
    log_z, safe = np.empty(len(p.lengths)), np.ones(len(p.lengths), bool)
    threads.run(
        lambda start, stop: scaled(
            start, stop, p.order, p.lengths, p.log_arc, p.single_root, LIMIT, log_z, safe, marginals
        ),
        p.ranges(LANES, cost),
    )
    _mend(p, in_log_space, np.flatnonzero(~safe), log_z, marginals)
    return log_z


def _mend(p: Potentials, kernel: Kernel, which: NDArray[np.int64], log_z: Doubles, marginals: Doubles) -> None:
    if which.size:
        threads.run(
            lambda start, stop: kernel(start, stop, which, p.lengths, p.log_arc, p.single_root, log_z, marginals),
            threads.cut((p.lengths[which] + 1) ** 3 * 20, least=threads.LEAST_WORK),
        )


def best(p: Potentials, kernel: Kernel, cost: float) -> tuple[Integers, Doubles]:
    """The best tree of each sentence: heads (B, n), -1 in the padding, and scores (B,)."""
    B, N, _ = p.log_arc.shape
    heads, scores = np.full((B, N - 1), -1), np.empty(B)
    threads.run(
        lambda start, stop: kernel(start, stop, p.order, p.lengths, p.log_arc, p.single_root, heads, scores),
        p.ranges(1, cost),
    )
    check_possible(scores, "no tree to decode", **TREES)
    return heads, scores


def topk(p: Potentials, labels: Doubles, k: int, kernel: Kernel, cost: float) -> tuple[Integers, Integers, Doubles]:
    """The k best trees: heads (B, k, n), ranks of their labels (B, k, n) and scores (B, k).

    ``labels`` (B, n+1, n+1, R) holds the scores of the R best labels of each arc, best first; R = 1 without labels.
    """
    check_count("k", k)
    B, N, _ = p.log_arc.shape
    heads, ranks = np.full((B, k, N - 1), -1), np.full((B, k, N - 1), -1)
    scores = np.full((B, k), -np.inf)
    threads.run(
        lambda start, stop: kernel(start, stop, p.order, p.lengths, labels, p.single_root, heads, ranks, scores),
        p.ranges(1, cost * k),
    )
    check_possible(scores[:, 0], "no tree to decode", **TREES)
    return heads, ranks, scores


def sample(p: Potentials, seeds: Integers, kernel: Kernel) -> Integers:
    """Exact draws: heads (k, B, n), -1 in the padding, from ``seeds`` (k, B)."""
    heads, log_z = np.full((*seeds.shape, p.log_arc.shape[1] - 1), -1), np.empty(len(p.lengths))
    threads.run(
        lambda start, stop: kernel(start, stop, p.order, p.lengths, p.log_arc, p.single_root, seeds, log_z, heads),
        p.ranges(1, 10),
    )
    check_possible(log_z, "no tree to draw", **TREES)
    return heads
