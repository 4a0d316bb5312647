"""Factorial chains by enumeration of all labellings of all layers, by way of the chain over label combinations."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.oracle.chain import Enumerated, enumerate_chain


@dataclass
class EnumeratedFactorial:
    """Every labelling of one sequence; ``combinations`` (N, D) are the labels of each state of the product."""

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
        """The best score and its labels (T, D)."""
        at = self.chain.scores.argmax()
        return float(self.chain.scores[at]), self.combinations[self.chain.labellings[at]]


def enumerate_factorial(log_unary, log_pairwise, log_between) -> EnumeratedFactorial:
    """One sequence: log_unary a list of (T, S_d), log_pairwise of (S_d, S_d), log_between {(d, e): (S_d, S_e)}."""
    n_labels = [u.shape[1] for u in log_unary]
    states = np.array(list(product(*(range(S) for S in n_labels))))
    unary = sum(u[:, states[:, d]] for d, u in enumerate(log_unary))
    for (d, e), table in log_between.items():
        unary = unary + table[states[:, d], states[:, e]]
    pairwise = sum(m[np.ix_(states[:, d], states[:, d])] for d, m in enumerate(log_pairwise))
    T = len(log_unary[0])
    chain = enumerate_chain(unary, np.broadcast_to(pairwise, (T - 1, *pairwise.shape)))
    return EnumeratedFactorial(chain, states, n_labels)


def _log_sum(x, axis):
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - top).sum(axis=axis)) + np.squeeze(top, axis=axis)


def _log_chain(unary, pairwise):
    """log Z and log marginals (T, S) of one chain, all in log space."""
    T = len(unary)
    alpha, beta = unary.copy(), np.zeros_like(unary)
    for t in range(1, T):
        alpha[t] = unary[t] + _log_sum(alpha[t - 1][:, None] + pairwise, 0)
    for t in range(T - 2, -1, -1):
        beta[t] = _log_sum(pairwise + (unary[t + 1] + beta[t + 1])[None], 1)
    log_z = float(_log_sum(alpha[-1], 0))
    return log_z, alpha + beta - log_z


def reference_bp(log_unary, log_pairwise, log_between, n_sweeps):
    """Belief propagation on one sequence as it is written down, every message in log space: value and marginals."""
    D = len(log_unary)
    message = {}
    for d, e in log_between:
        message[e, d], message[d, e] = np.zeros_like(log_unary[d]), np.zeros_like(log_unary[e])
    tables = {**log_between, **{(e, d): table.T for (d, e), table in log_between.items()}}
    log_z, belief = np.zeros(D), [None] * D
    for sweep in range(n_sweeps):
        for d in range(D):
            for e in range(D):
                if (e, d) in tables and (sweep > 0 or e < d):
                    cavity = belief[e] - message[d, e]
                    said = _log_sum(cavity[:, :, None] + tables[e, d][None], 1)
                    message[e, d] = said - said.max(axis=1, keepdims=True)
            heard = sum((m for (_, to), m in message.items() if to == d), np.zeros_like(log_unary[d]))
            log_z[d], belief[d] = _log_chain(log_unary[d] + heard, log_pairwise[d])
    value = float(log_z.sum())
    for d, e in log_between:
        pair = (belief[d] - message[e, d])[:, :, None] + (belief[e] - message[d, e])[:, None] + log_between[d, e]
        value += float(_log_sum(pair.reshape(len(pair), -1), 1).sum())
    return value, [np.exp(b) for b in belief]
