"""The exact engine: one chain over all combinations of labels, its transitions applied layer by layer.

Cost N (S_1 + ... + S_D) a position, N = S_1 ... S_D states: 45 tags and 23 chunk labels are 1,035 states and 70,000
products, where the matrix of the product chain would ask for a million.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.kernels import log_space as log_kernels
from trelliswork.inference.chain.layout import whole_vectors
from trelliswork.inference.factorial.kernels import product as product_kernels
from trelliswork.inference.factorial.potentials import Floats, Group, Integers, Tables
from trelliswork.inference.factorial.sweeps import Options, Solution, Sums

compiled: Any = product_kernels
in_log_space: Any = log_kernels
MAX_STATES = 20_000  # of the product chain
MAX_DENSE = 3_000  # in log space, which sequences need that underflow in probability space


class Product:
    """The product chain of some tables, laid out for the kernels; float64."""

    def __init__(self, tables: Tables) -> None:
        S = tables.n_labels
        if n_states(tables) > MAX_STATES:
            raise ValueRangeError(
                f"{' x '.join(map(str, S))} labels have {n_states(tables):,} combinations, the exact engine takes at "
                f"most {MAX_STATES:,}: use engine='bp' or 'structured_mean_field'."
            )
        self.tables, self.sizes = tables, np.array(S)
        self.padded = whole_vectors(S[-1], np.float64)
        self.shape = (*S[:-1], self.padded)
        self.places = np.cumsum([0, *S[:-1]])
        log_ties = self._log_ties()
        top = float(log_ties.max())
        self.log_ties, self.tie_shift = log_ties.reshape(-1), top if top > -np.inf else 0.0
        self.ties = np.exp(self.log_ties - self.tie_shift)
        pairwise = [matrix.astype(np.float64) for matrix in tables.log_pairwise]
        tops = [max(float(m.max()), -1e300) for m in pairwise]
        self.shift = sum(tops)
        scaled = [np.exp(m - top) for m, top in zip(pairwise, tops, strict=True)]
        self.matrices, self.starts = self._side_by_side(scaled, 0.0)
        self.matrices_t, _ = self._side_by_side([m.T for m in scaled], 0.0)
        self.log_matrices, _ = self._side_by_side(pairwise, -np.inf)

    def _log_ties(self) -> NDArray[np.float64]:
        """Scores (S_1, .., Sp_D) of label combinations; -inf in the padding."""
        S = self.tables.n_labels
        out = np.full(self.shape, -np.inf)
        out[..., : S[-1]] = 0
        for (d, e), table in self.tables.log_between.items():
            shape = [1] * len(S)
            shape[d], shape[e] = S[d], S[e]
            out[..., : S[-1]] += table.reshape(shape)
        return out

    def _side_by_side(self, matrices: list[NDArray[np.float64]], fill: float) -> tuple[Floats, Integers]:
        """All matrices in one array, the last one's rows padded; and where each begins."""
        last = np.full((len(matrices[-1]), self.padded), fill)
        last[:, : len(last)] = matrices[-1]
        flat = [m.reshape(-1) for m in (*matrices[:-1], last)]
        return np.concatenate(flat), np.cumsum([0, *(len(m) for m in flat[:-1])])

    def scores(self, group: Group) -> NDArray[np.float64]:
        """Unary scores (B, T, sum of S_d), layers side by side."""
        S = self.tables.n_labels
        return np.concatenate([u[:, :, :n] for u, n in zip(group.log_unary, S, strict=True)], axis=2, dtype=np.float64)

    def solve(self, group: Group, sums: Sums | None, weight: Floats | None) -> Solution:
        """log Z, marginals and, weighted, counts."""
        S, B = self.tables.n_labels, len(group.lengths)
        scores = self.scores(group)
        alpha = np.ones(B) if weight is None else weight.astype(np.float64)
        log_z, safe, marginals = np.empty(B), np.ones(B, bool), np.zeros(scores.shape)
        joint = np.zeros(self.ties.size if sums is not None else 0)
        steps = np.zeros(self.matrices.size if sums is not None else 0)
        compiled.forward_backward(
            0, B, group.lengths, scores, self.places, self.sizes, self.starts, self.padded, self.matrices,
            self.matrices_t, self.shift, self.ties, self.tie_shift, alpha, log_z, safe, marginals, joint, steps,
        )  # fmt: skip
        if sums is not None:
            self._add(joint, steps * self.matrices, sums)
        for b in np.flatnonzero(~safe):
            log_z[b] = self._dense(scores[b, : group.lengths[b]], marginals[b], alpha[b], sums)
        split = np.split(marginals, self.places[1:], axis=2)
        padded = []
        for part, unary, n in zip(split, group.log_unary, S, strict=True):
            out = np.zeros_like(unary)
            out[:, :, :n] = part
            padded.append(out)
        return Solution(log_z, padded, np.ones(B, np.int64), np.zeros(B), group.log_unary)

    def _add(self, joint: Floats, steps: Floats, sums: Sums) -> None:
        """Add counts of states (N,) and of transitions (like ``matrices``) to the sums."""
        S, D = self.tables.n_labels, len(self.shape)
        cube = joint.reshape(self.shape)[..., : S[-1]]
        for (d, e), counts in sums.between.items():
            counts += cube.sum(axis=tuple(k for k in range(D) if k not in (d, e)))
        for d, counts in enumerate(sums.transitions):
            width = self.padded if d == D - 1 else S[d]
            part = steps[self.starts[d] : self.starts[d] + S[d] * width]
            counts += part.reshape(S[d], width)[:, : S[d]]

    def _dense(self, scores: Floats, marginals: Floats, weight: float, sums: Sums | None) -> float:
        """One sequence in log space, with the whole matrix: log Z; fills marginals, adds counts."""
        S = self.tables.n_labels
        n = math.prod(S)
        if n > MAX_DENSE:
            raise ValueRangeError(
                f"a sequence underflows, and log space takes at most {MAX_DENSE:,} of the product's states, got {n:,}: "
                "bring the scores closer together, or use engine='bp'."
            )
        labels = np.stack(np.unravel_index(np.arange(n), S), axis=1)
        keep = np.ravel_multi_index(tuple(labels.T), self.shape)
        unary = self.log_ties[keep] + sum(scores[:, self.places[d] + labels[:, d]] for d in range(len(S)))
        matrix = np.zeros((n, n))
        for d, table in enumerate(self.tables.log_pairwise):
            matrix += table.astype(np.float64)[np.ix_(labels[:, d], labels[:, d])]
        lengths, T = np.array([len(scores)]), len(scores)
        log_z, log_alpha, nodes = np.empty(1), np.full((1, T, n), -np.inf), np.zeros((1, T, n))
        pairs = np.zeros((1 if sums is not None else 0, n, n))
        in_log_space.forward(0, 1, lengths, unary[None], matrix[None], 0, 0, log_alpha, log_z)
        in_log_space.backward(
            0, 1, lengths, unary[None], matrix[None], 0, 0, log_alpha, log_z, nodes, np.empty((0, 0, n, n)), pairs
        )
        for d in range(len(S)):
            hits = np.eye(S[d])[labels[:, d]]
            marginals[:T, self.places[d] : self.places[d] + S[d]] = nodes[0] @ hits
            if sums is not None:
                sums.transitions[d] += weight * (hits.T @ pairs[0] @ hits)
        if sums is not None:
            for (d, e), counts in sums.between.items():
                np.add.at(counts, (labels[:, d], labels[:, e]), weight * nodes[0].sum(axis=0))
        return float(log_z[0])

    def best(self, group: Group) -> tuple[list[Integers], NDArray[np.float64]]:
        """The best labelling of all layers together: labels (B, T) of each, -1 in the padding; scores (B,)."""
        B, T = group.log_unary[0].shape[:2]
        states, scores = np.full((B, T), -1, np.int64), np.empty(B)
        digits = np.stack(np.unravel_index(np.arange(self.ties.size), self.shape), axis=1)
        digits[:, -1] %= self.tables.n_labels[-1]  # padding has some label; it is impossible anyway
        compiled.viterbi(
            0, B, group.lengths, self.scores(group), digits, self.places, self.sizes, self.starts, self.padded,
            self.log_matrices, self.log_ties, states, scores,
        )  # fmt: skip
        found = np.unravel_index(np.maximum(states, 0), self.shape)
        return [np.where(states < 0, -1, labels) for labels in found], scores


def solve(
    tables: Tables, group: Group, options: Options, sums: Sums | None = None, weight: Floats | None = None
) -> Solution:
    """Exact inference on one group, serial; the options have no say."""
    return product_of(tables).solve(group, sums, weight)


def n_states(tables: Tables) -> int:
    """States of the product chain."""
    return math.prod(tables.n_labels)


def product_of(tables: Tables) -> Product:
    """The product chain of some tables, made once."""
    if tables.product is None:
        tables.product = Product(tables)
    found: Product = tables.product
    return found
