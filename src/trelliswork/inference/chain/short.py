"""Queries on one short sentence whose log-potentials are given by their addresses, such as those of tensors.

With few words and labels, what Python does around a kernel takes longer than the kernel. A NumPy view of a tensor takes
0.7 us, as much as the whole of Viterbi's algorithm for 20 words and 10 labels; its address takes 0.1 us.
"""

from typing import NamedTuple

import numpy as np

from trelliswork.compute.kernels.scores import are_scores_at
from trelliswork.inference.chain.kernels import forward_backward, viterbi
from trelliswork.inference.chain.potentials import Floats, Integers


class ShortSentence(NamedTuple):
    """Sizes of one sentence; each query takes the addresses of its log-potentials (T, S) and (S, S), contiguous.

    Addresses are not kept: a tensor that is copied or moved has another one.
    """

    like: Floats  # an empty array of the dtype of the potentials
    length: int  # 1 to T
    n_positions: int
    n_labels: int

    def are_scores(self, unary: int, pairwise: int) -> bool:
        """Return whether the potentials contain neither nan nor +inf, the padding included."""
        T, S = self.n_positions, self.n_labels
        return bool(are_scores_at(self.like, unary, T * S, pairwise, S * S))

    def viterbi(self, unary: int, pairwise: int) -> tuple[Integers, Floats] | None:
        """Return the best labels (1, T), -1 in the padding, and their score (1,); ``None`` if there are none."""
        like, length, T, S = self
        labels, scores = np.empty((1, T), np.int64), np.empty(1, like.dtype)
        found = viterbi.one_sentence_at(like, length, unary, pairwise, S, labels, scores)
        return (labels, scores) if found else None

    def expectations(self, unary: int, pairwise: int) -> tuple[Floats, Floats, Floats] | None:
        """Return log Z (1,), marginals (1, T, S) and counts of transitions (1, S, S); ``None`` if not safe."""
        like, length, T, S = self
        log_z, nodes, sums = np.empty(1, like.dtype), np.empty((1, T, S), like.dtype), np.empty((1, S, S), like.dtype)
        safe = forward_backward.one_sentence_at(like, length, unary, pairwise, log_z, nodes, sums)
        return (log_z, nodes, sums) if safe else None
