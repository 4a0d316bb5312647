"""Factorial chains by enumeration of all labelings of all layers, as a chain over label combinations."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.oracle.chain import Enumerated, enumerate_chain


@dataclass
class EnumeratedFactorial:
    """All labelings of one sequence; ``combinations`` (N, D) are the labels of each state of the product chain."""

    chain: Enumerated
    combinations: np.ndarray
    n_labels: list[int]

    @property
    def log_z(self) -> float:
        return self.chain.log_z

    def marginals(self) -> list[np.ndarray]:
        nodes = self.chain.marginals(len(self.combinations))
        return [nodes @ np.eye(S)[self.combinations[:, d]] for d, S in enumerate(self.n_labels)]

    def counts(self) -> list[np.ndarray]:
        pairs = self.chain.edges(len(self.combinations)).sum(axis=0)
        hits = [np.eye(S)[self.combinations[:, d]] for d, S in enumerate(self.n_labels)]
        return [h.T @ pairs @ h for h in hits]

    def between(self, d: int, e: int) -> np.ndarray:
        nodes = self.chain.marginals(len(self.combinations)).sum(axis=0)
        out = np.zeros((self.n_labels[d], self.n_labels[e]))
        np.add.at(out, (self.combinations[:, d], self.combinations[:, e]), nodes)
        return out

    def best(self) -> tuple[float, np.ndarray]:
        """Return the best score and its labels (T, D)."""
        at = self.chain.scores.argmax()
        return float(self.chain.scores[at]), self.combinations[self.chain.labelings[at]]


def enumerate_factorial(log_unary, log_pairwise, log_between) -> EnumeratedFactorial:
    """Enumerate one sequence; log_unary are (T, S_d), log_pairwise (S_d, S_d), log_between {(d, e): (S_d, S_e)}."""
    n_labels = [u.shape[1] for u in log_unary]
    states = np.array(list(product(*(range(S) for S in n_labels))))
    unary = sum(u[:, states[:, d]] for d, u in enumerate(log_unary))
    for (d, e), table in log_between.items():
        unary = unary + table[states[:, d], states[:, e]]
    pairwise = sum(m[np.ix_(states[:, d], states[:, d])] for d, m in enumerate(log_pairwise))
    T = len(log_unary[0])
    chain = enumerate_chain(unary, np.broadcast_to(pairwise, (T - 1, *pairwise.shape)))
    return EnumeratedFactorial(chain, states, n_labels)
