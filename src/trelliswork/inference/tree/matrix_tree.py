"""Spanning trees, projective or not: the matrix-tree theorem and Chu-Liu-Edmonds by their kernels."""

import numpy as np

from trelliswork.inference.tree import passes
from trelliswork.inference.tree.kernels import (
    matrix_tree as matrix_tree_kernels,
)
from trelliswork.inference.tree.kernels import (
    matrix_tree_log as matrix_tree_log_kernels,
)
from trelliswork.inference.tree.kernels import (
    mst as mst_kernels,
)
from trelliswork.inference.tree.potentials import Doubles, Integers, Potentials


def log_partition(potentials: Potentials) -> Doubles:
    """log Z (B,) of each sentence; -inf where no tree is possible. Time O(n^3)."""
    return expectations(potentials)[0]


def expectations(potentials: Potentials) -> tuple[Doubles, Doubles]:
    """log Z (B,) and the marginals of arcs (B, n+1, n+1). Time O(n^3), memory O(n^2) a sentence and thread."""
    marginals = np.empty(potentials.log_arc.shape)
    kernels = matrix_tree_kernels.expectations, matrix_tree_log_kernels.expectations
    return passes.expectations(potentials, *kernels, marginals, 2), marginals


def best(potentials: Potentials) -> tuple[Integers, Doubles]:
    """The best tree of each sentence (``passes.best``). Time O(n^2)."""
    return passes.best(potentials, mst_kernels.best, 0.2)


def topk(potentials: Potentials, labels: Doubles, k: int) -> tuple[Integers, Integers, Doubles]:
    """The k best trees (``passes.topk``). Time O(k n^3)."""
    return passes.topk(potentials, labels, k, mst_kernels.topk, 10)


def sample(potentials: Potentials, seeds: Integers) -> Integers:
    """Exact draws (``passes.sample``). Time O(n^3), then O(n^2) or so a draw."""
    return passes.sample(potentials, seeds, matrix_tree_log_kernels.sample)
