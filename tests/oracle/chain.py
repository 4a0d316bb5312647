"""Linear chains by enumeration of all labelings: the ground truth of the tests."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from trelliswork.inference.chain.beam.sparse import SparseChain


@dataclass
class Enumerated:
    """All labelings of one sequence with their scores, in lexicographic order."""

    labelings: np.ndarray  # (S^T, T)
    scores: np.ndarray  # (S^T,)

    @property
    def log_z(self) -> float:
        top = self.scores.max()
        return -np.inf if top == -np.inf else float(top + np.log(np.exp(self.scores - top).sum()))

    @property
    def probabilities(self) -> np.ndarray:
        if self.log_z == -np.inf:
            return np.zeros_like(self.scores)
        return np.exp(self.scores - self.log_z)

    def marginals(self, n_labels: int) -> np.ndarray:
        hits = self.labelings[:, :, None] == np.arange(n_labels)
        return np.einsum("n,ntj->tj", self.probabilities, hits.astype(float))

    def edges(self, n_labels: int) -> np.ndarray:
        hits = (self.labelings[:, :, None] == np.arange(n_labels)).astype(float)
        return np.einsum("n,nti,ntj->tij", self.probabilities, hits[:, :-1], hits[:, 1:])

    def entropy(self) -> float:
        p = self.probabilities
        return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def enumerate_chain(log_unary: np.ndarray, log_pairwise: np.ndarray) -> Enumerated:
    """Enumerate all labelings of one sequence; log_unary (T, S), log_pairwise (T-1, S, S)."""
    T, S = log_unary.shape
    labelings = np.array(list(product(range(S), repeat=T)))
    scores = log_unary[np.arange(T), labelings].sum(axis=1)
    scores = scores + log_pairwise[np.arange(T - 1), labelings[:, :-1], labelings[:, 1:]].sum(axis=1)
    return Enumerated(labelings, scores)


def enumerate_batch(log_unary: np.ndarray, log_pairwise: np.ndarray, lengths: np.ndarray) -> list[Enumerated]:
    """Enumerate each sequence of a ragged batch; log_pairwise (S, S) or (B, T-1, S, S) or with axes of 1."""
    B, T, S = log_unary.shape
    pairwise = np.broadcast_to(log_pairwise, (B, T - 1, S, S)) if T > 1 else np.zeros((B, 0, S, S))
    unary, pairwise = log_unary.astype(np.float64), pairwise.astype(np.float64)
    return [enumerate_chain(unary[b, :n], pairwise[b, : n - 1]) for b, n in enumerate(lengths)]


def sparse_chain(log_unary, transitions, log_weights, lengths=None, *, log_start=None, log_end=None):
    """Return a chain with sparse transitions; ``log_start`` and ``log_end`` (S,) score the first and last states."""
    unary, S = np.asarray(log_unary), transitions.n_states
    start, end = (np.zeros(S, unary.dtype) if x is None else np.array(x, unary.dtype) for x in (log_start, log_end))
    start[~transitions.first] = -np.inf
    lengths = np.full(len(unary), unary.shape[1]) if lengths is None else np.asarray(lengths)
    return SparseChain(unary, transitions, np.asarray(log_weights, unary.dtype), start, end, lengths)
