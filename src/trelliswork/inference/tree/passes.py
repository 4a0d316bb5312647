"""Inference passes over dependency trees: allocate, call the kernels, recompute in log space if they underflow."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trelliswork.compute import threads
from trelliswork.compute.checks import check_possible, number_of_best
from trelliswork.compute.limits import check_cost
from trelliswork.compute.simd import VECTOR_BYTES
from trelliswork.inference.tree import ranked
from trelliswork.inference.tree.kernels import eisner as eisner_kernels
from trelliswork.inference.tree.kernels import eisner_plain, eisner_topk, matrix_tree_log, mst
from trelliswork.inference.tree.kernels import matrix_tree as matrix_tree_kernels
from trelliswork.inference.tree.potentials import Doubles, Integers, Potentials, arcs

LANES = VECTOR_BYTES // 8
NARROW = 600.0  # if the scores of all words together span less than this, nothing can underflow
MAX_NODES = 300  # about 6.75^n trees, each of weight at most 1, do not overflow
TREES = {"noun": "tree of sentence", "parts": "arcs"}  # for error messages
Kernel = Any  # a compiled function over a range of sentences


@dataclass(frozen=True)
class Passes:
    """Queries on one kind of dependency trees: ``eisner`` or ``matrix_tree``.

    Costs are operations per sentence in units of n^3, for the division of work among threads.
    """

    scaled_kernel: Kernel  # log Z and marginals in probability space
    log_kernel: Kernel  # the same in log space
    best_kernel: Kernel
    topk_kernel: Kernel  # or a function like one
    sample_kernel: Kernel
    cost: float = 1
    best_cost: float = 1
    topk_cost: float = 1
    separate_log_z: bool = False  # whether the kernels can compute log Z without marginals

    def log_partition(self, potentials: Potentials) -> Doubles:
        """Return log Z (B,) of each sentence; -inf where no tree is possible. Time O(n^3)."""
        if self.separate_log_z and _is_narrow(potentials):
            return self._fill(potentials, np.empty((0, 0, 0)))
        return self.expectations(potentials)[0]

    def expectations(self, potentials: Potentials) -> tuple[Doubles, Doubles]:
        """Return log Z (B,) and arc marginals (B, n+1, n+1). Time O(n^3), memory O(n^2) per sentence and thread."""
        marginals = np.empty(potentials.log_arc.shape)
        return self._fill(potentials, marginals), marginals

    def best(self, potentials: Potentials) -> tuple[Integers, Doubles]:
        """Return the best tree of each sentence: heads (B, n), -1 in the padding, and scores (B,).

        Time O(n^3) for projective trees, O(n^2) for spanning trees.
        """
        B, N, _ = potentials.log_arc.shape
        heads, scores = np.full((B, N - 1), -1), np.empty(B)
        threads.run(self.best_kernel, potentials.ranges(1, self.best_cost), potentials.batch, heads, scores)
        check_possible(scores, "no tree to decode", **TREES)
        return heads, scores

    def topk(self, potentials: Potentials, labels: Doubles, k: int) -> tuple[Integers, Integers, Doubles]:
        """Return the k best trees: heads (B, k, n), ranks of their labels (B, k, n) and scores (B, k).

        ``labels`` (B, n+1, n+1, R) holds the scores of the R best labels of each arc, best first; R = 1 without labels.
        Axis 1 is shorter than k if there are fewer trees than that. Time O(n^3 k log k) at worst for projective trees,
        O(k n^3) for spanning trees.
        """
        B, N, _ = potentials.log_arc.shape
        k = number_of_best(k, (N, N - 2), (labels.shape[3], N - 1))
        what = f"a search for the {k:,} best trees of {N - 1:,} words"
        check_cost(what, operations=float(N) ** 3 * self.topk_cost * k, n_bytes=96.0 * N * N * k + 16.0 * B * N * k)
        heads, ranks = np.full((B, k, N - 1), -1), np.full((B, k, N - 1), -1)
        scores = np.full((B, k), -np.inf)
        batch, ranges = potentials.batch._replace(log_arc=labels), potentials.ranges(1, self.topk_cost * k)
        threads.run(self.topk_kernel, ranges, batch, heads, ranks, scores)
        check_possible(scores[:, 0], "no tree to decode", **TREES)
        return heads, ranks, scores

    def sample(self, potentials: Potentials, seeds: Integers) -> Integers:
        """Return exact draws: heads (k, B, n), -1 in the padding, from ``seeds`` (k, B).

        Time O(n^3), then about O(n^2) per draw.
        """
        B, N, _ = potentials.log_arc.shape
        heads, log_z = np.full((*seeds.shape, N - 1), -1), np.empty(B)
        threads.run(self.sample_kernel, potentials.ranges(1, 10), potentials.batch, seeds, log_z, heads)
        check_possible(log_z, "no tree to draw", **TREES)
        return heads

    def _fill(self, p: Potentials, marginals: Doubles) -> Doubles:
        """Fill the marginals (B, n+1, n+1), unless they are empty; return log Z (B,)."""
        log_z, safe = np.empty(len(p.lengths)), np.ones(len(p.lengths), bool)
        threads.run(self.scaled_kernel, p.ranges(LANES, self.cost), p.batch, log_z, safe, marginals)
        which = np.flatnonzero(~safe)
        if which.size:
            ranges = threads.cut((p.lengths[which] + 1) ** 3 * 20, least=threads.LEAST_WORK)
            threads.run(self.log_kernel, ranges, p.batch._replace(order=which), log_z, marginals)
        return log_z


def _is_narrow(p: Potentials) -> bool:
    """Return True if all arcs are possible and their scores so close that no product underflows."""
    N = p.log_arc.shape[1]
    mask = arcs(p.lengths, N - 1)
    low = np.where(mask, p.log_arc, np.inf).min(axis=1)
    if low.min() == -np.inf or N > MAX_NODES:
        return False
    high = np.where(mask, p.log_arc, -np.inf).max(axis=1)
    spans = np.where(low < np.inf, high, 0.0) - np.where(low < np.inf, low, 0.0)  # (B, n+1), 0 where there is no word
    return bool(spans.sum(axis=1).max() < NARROW)


# Projective trees: Eisner's algorithms.
eisner = Passes(
    eisner_kernels.expectations,
    eisner_plain.expectations,
    eisner_plain.best,
    eisner_topk.topk,
    eisner_plain.sample,
    separate_log_z=True,
)
# All spanning trees: the matrix-tree theorem and Chu-Liu-Edmonds.
matrix_tree = Passes(
    matrix_tree_kernels.expectations,
    matrix_tree_log.expectations,
    mst.best,
    ranked.topk,
    matrix_tree_log.sample,
    cost=2,
    best_cost=0.2,
    topk_cost=10,
)
