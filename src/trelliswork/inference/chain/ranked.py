"""The k best labelings of linear chains: the graph of a chain, for `Recursions`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_possible, number_of_best
from trelliswork.inference.chain.potentials import Integers, Potentials
from trelliswork.inference.semirings import Lattice, Recursions, labels_of


class Sizes(NamedTuple):
    """What `edges` reads: lengths (B,), T, the number of labels, whether all positions have the same transitions."""

    lengths: Integers
    n_positions: int
    n_labels: int
    shared: bool


def edges(sizes: Sizes, b: int, v: int, sources: Integers, parts: Integers, pairs: Integers) -> int:
    """List the edges into node v. Nodes are 0, then S labels of each position, and the last one."""
    S = sizes.n_labels
    t, j = (v - 1) // S, (v - 1) % S
    if t == 0:
        sources[0], parts[0], pairs[0] = 0, j, -1
        return 1
    for i in range(S):
        sources[i], parts[i], pairs[i] = v - j - S + i, -1, -1
        if t < sizes.lengths[b] and sizes.shared:
            parts[i], pairs[i] = t * S + j, i * S + j
        elif t < sizes.lengths[b]:
            parts[i] = (sizes.n_positions + (t - 1) * S + i) * S + j
    return S


CHAINS = Recursions(edges)


def topk(potentials: Potentials, k: int) -> tuple[Integers, NDArray[np.float64]]:
    """Return labels (B, k, T) and scores (B, k) of the k best labelings of each sequence, all different, best first.

    Axis 1 is shorter than k if there are fewer labelings than that, S^T. Labels are -1 in the padding and, like scores
    of -inf, where a sequence has fewer possible labelings.
    Time O(T S^2 k) in the worst case, memory O(T S k) per thread.
    """
    p = potentials
    B, T, S = p.log_unary.shape
    lattice = Lattice(Sizes(p.lengths, T, S, p.shared), 2 + p.lengths * S, S, T + 2)
    parts, pairs = p.log_unary.astype(np.float64), p.log_pairwise[:1].astype(np.float64)
    if not p.shared:
        matrix = np.arange(B)[:, None] * p.batch_step + np.arange(T - 1) * p.time_step
        steps = parts[:, 1:, None] + p.log_pairwise[matrix]  # a transition with the label that it leads to
        parts = np.concatenate([parts, steps.reshape(B, -1, S)], axis=1)
    paths, scores = CHAINS.topk(lattice, parts.reshape(B, -1), pairs.reshape(-1), number_of_best(k, (S, T)))
    check_possible(scores[:, 0], "no labeling to decode")
    return labels_of(paths, T, S, S), scores
