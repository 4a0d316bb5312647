"""The exact engine: one chain over all combinations of labels, its transitions applied layer by layer.

A position costs N (S_1 + ... + S_D) products for N = S_1 ... S_D states: 70,000 for the 1,035 combinations of 45 tags
and 23 chunk labels, where the matrix of the product chain would need a million.
"""

import math

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.potentials import whole_vectors
from trelliswork.inference.factorial.kernels.product import Factors, Layout, Outputs, forward_backward, viterbi
from trelliswork.inference.factorial.layer import log_space_expectations
from trelliswork.inference.factorial.potentials import Floats, Group, Integers, Tables
from trelliswork.inference.factorial.sweeps import Options, Solution, Sums

MAX_STATES = 20_000  # of the product chain
MAX_DENSE = 3_000  # states of the product chain in log space, for sequences that underflow


class Product:
    """Product chain of some tables, laid out for the kernels; float64."""

    def __init__(self, tables: Tables) -> None:
        S = tables.n_labels
        if n_states(tables) > MAX_STATES:
            raise ValueRangeError(
                f"{' x '.join(map(str, S))} labels have {n_states(tables):,} combinations, the exact engine supports "
                f"at most {MAX_STATES:,}: use engine='bp' or 'structured_mean_field'."
            )
        self.tables, width = tables, whole_vectors(S[-1], np.float64)
        self.shape = (*S[:-1], width)
        starts = np.cumsum([0, *(n * n for n in S[:-1])])
        self.layout = Layout(np.array(S), np.cumsum([0, *S[:-1]]), starts, width)
        self.log_ties = self._log_ties().reshape(-1)
        top = float(self.log_ties.max())
        tie_shift = top if top > -np.inf else 0.0
        pairwise = [matrix.astype(np.float64) for matrix in tables.log_pairwise]
        tops = [max(float(m.max()), -1e300) for m in pairwise]
        scaled = [np.exp(m - top) for m, top in zip(pairwise, tops, strict=True)]
        self.factors = Factors(
            matrices=self._concatenated(scaled, 0.0),
            transposed=self._concatenated([m.T for m in scaled], 0.0),
            log_shift=sum(tops),
            ties=np.exp(self.log_ties - tie_shift),
            tie_shift=tie_shift,
        )
        self.log_matrices = self._concatenated(pairwise, -np.inf)

    def _log_ties(self) -> NDArray[np.float64]:
        """Return the scores (S_1, .., Sp_D) of label combinations; -inf in the padding."""
        S = self.tables.n_labels
        out = np.full(self.shape, -np.inf)
        out[..., : S[-1]] = 0
        for (d, e), table in self.tables.log_between.items():
            shape = [1] * len(S)
            shape[d], shape[e] = S[d], S[e]
            out[..., : S[-1]] += table.reshape(shape)
        return out

    def _concatenated(self, matrices: list[NDArray[np.float64]], fill: float) -> Floats:
        """Return all matrices in one array, with the rows of the last one padded."""
        last = np.full((len(matrices[-1]), self.layout.width), fill)
        last[:, : len(last)] = matrices[-1]
        return np.concatenate([m.reshape(-1) for m in (*matrices[:-1], last)])

    def scores(self, group: Group) -> NDArray[np.float64]:
        """Return the unary scores of all layers (B, T, sum of S_d)."""
        S = self.tables.n_labels
        return np.concatenate([u[:, :, :n] for u, n in zip(group.log_unary, S, strict=True)], axis=2, dtype=np.float64)

    def solve(self, group: Group, sums: Sums | None, weight: Floats | None) -> Solution:
        """Return log Z and marginals, and add weighted counts to ``sums``."""
        S, B = self.tables.n_labels, len(group.lengths)
        scores = self.scores(group)
        weights = np.ones(B) if weight is None else weight.astype(np.float64)
        log_z, safe, marginals = np.empty(B), np.ones(B, bool), np.zeros(scores.shape)
        states = np.zeros(self.factors.ties.size if sums is not None else 0)
        steps = np.zeros(self.factors.matrices.size if sums is not None else 0)
        out = Outputs(weights, log_z, safe, marginals, states, steps)
        forward_backward(0, B, group.lengths, scores, self.layout, self.factors, out)
        if sums is not None:
            self._add(states, steps * self.factors.matrices, sums)
        for b in np.flatnonzero(~safe):
            log_z[b] = self._dense(scores[b, : group.lengths[b]], marginals[b], weights[b], sums)
        split = np.split(marginals, self.layout.places[1:], axis=2)
        padded = []
        for part, unary, n in zip(split, group.log_unary, S, strict=True):
            padded.append(np.zeros_like(unary))
            padded[-1][:, :, :n] = part
        return Solution(log_z, padded, np.ones(B, np.int64), np.zeros(B), group.log_unary)

    def _add(self, states: Floats, steps: Floats, sums: Sums) -> None:
        """Add counts of states (N,) and of transitions (like ``matrices``) to the sums."""
        S, D = self.tables.n_labels, len(self.shape)
        cube = states.reshape(self.shape)[..., : S[-1]]
        for (d, e), counts in sums.between.items():
            counts += cube.sum(axis=tuple(k for k in range(D) if k not in (d, e)))
        for d, counts in enumerate(sums.transitions):
            start, width = self.layout.starts[d], self.shape[d]
            counts += steps[start : start + S[d] * width].reshape(S[d], width)[:, : S[d]]

    def _dense(self, scores: Floats, marginals: Floats, weight: float, sums: Sums | None) -> float:
        """Compute one sequence in log space, with the whole matrix: return log Z, fill marginals, add counts."""
        S = self.tables.n_labels
        n = math.prod(S)
        if n > MAX_DENSE:
            raise ValueRangeError(
                f"a sequence underflows, and log space supports at most {MAX_DENSE:,} states, got {n:,}: "
                "reduce the range of the scores, or use engine='bp'."
            )
        labels = np.stack(np.unravel_index(np.arange(n), S), axis=1)
        keep = np.ravel_multi_index(tuple(labels.T), self.shape)
        unary = self.log_ties[keep] + sum(scores[:, self.layout.places[d] + labels[:, d]] for d in range(len(S)))
        matrix = np.zeros((n, n))
        for d, table in enumerate(self.tables.log_pairwise):
            matrix += table.astype(np.float64)[np.ix_(labels[:, d], labels[:, d])]
        T = len(scores)
        log_z, nodes, pairs = log_space_expectations(np.array([T]), unary[None], matrix, counts=sums is not None)
        for d, place in enumerate(self.layout.places):
            hits = np.eye(S[d])[labels[:, d]]
            marginals[:T, place : place + S[d]] = nodes[0] @ hits
            if sums is not None:
                sums.transitions[d] += weight * (hits.T @ pairs[0] @ hits)
        if sums is not None:
            for (d, e), counts in sums.between.items():
                np.add.at(counts, (labels[:, d], labels[:, e]), weight * nodes[0].sum(axis=0))
        return float(log_z[0])

    def best(self, group: Group) -> tuple[list[Integers], NDArray[np.float64]]:
        """Return the best labels (B, T) of each layer, -1 in the padding, and their scores (B,)."""
        B, T = group.log_unary[0].shape[:2]
        states, scores = np.full((B, T), -1, np.int64), np.empty(B)
        digits = np.stack(np.unravel_index(np.arange(self.log_ties.size), self.shape), axis=1)
        digits[:, -1] %= self.tables.n_labels[-1]  # padding gets any label; it is impossible
        unary = self.scores(group)
        viterbi(0, B, group.lengths, unary, self.layout, digits, self.log_matrices, self.log_ties, states, scores)
        labels = np.unravel_index(np.maximum(states, 0), self.shape)
        return [np.where(states < 0, -1, row) for row in labels], scores


def solve(
    tables: Tables, group: Group, options: Options, sums: Sums | None = None, weight: Floats | None = None
) -> Solution:
    """Run exact inference on one group, serially; the options are ignored."""
    return product_of(tables).solve(group, sums, weight)


def n_states(tables: Tables) -> int:
    """Return the number of states of the product chain."""
    return math.prod(tables.n_labels)


def product_of(tables: Tables) -> Product:
    """Return the product chain of some tables, built once."""
    if tables.product is None:
        tables.product = Product(tables)
    product: Product = tables.product
    return product
