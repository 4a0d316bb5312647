"""Dependency trees, binary bracketings and derivations of grammars by enumeration: the ground truth of the tests."""

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np


def is_tree(heads: tuple[int, ...]) -> bool:
    """Return True if a path leads from every word 1..n to node 0 (``heads[d - 1]`` is the head of word d)."""
    for d in range(1, len(heads) + 1):
        seen = set()
        while d != 0:
            if d in seen:
                return False
            seen.add(d)
            d = heads[d - 1]
    return True


def is_projective(heads: tuple[int, ...]) -> bool:
    """Return True if no two arcs cross, those from node 0 included."""
    arcs = [(min(h, d), max(h, d)) for d, h in enumerate(heads, 1)]
    return not any(a < c < b < d for a, b in arcs for c, d in arcs)


@cache
def trees(n: int, projective: bool, single_root: bool) -> np.ndarray:
    """Return all trees over n words, heads (n_trees, n)."""
    rows = [
        heads
        for heads in product(range(n + 1), repeat=n)
        if (not single_root or heads.count(0) == 1) and is_tree(heads) and (not projective or is_projective(heads))
    ]
    return np.array(rows)


@dataclass
class Enumerated:
    """All structures with their scores."""

    structures: np.ndarray  # (n_structures, ...)
    scores: np.ndarray  # (n_structures,)

    @property
    def log_z(self) -> float:
        top = self.scores.max()
        return -np.inf if top == -np.inf else float(top + np.log(np.exp(self.scores - top).sum()))

    @property
    def probabilities(self) -> np.ndarray:
        if self.log_z == -np.inf:
            return np.zeros_like(self.scores)
        return np.exp(self.scores - self.log_z)

    def entropy(self) -> float:
        p = self.probabilities
        return float(-(p[p > 0] * np.log(p[p > 0])).sum())

    def arc_marginals(self) -> np.ndarray:
        """Return p(h -> d), (n+1, n+1)."""
        n = self.structures.shape[1]
        marginals = np.zeros((n + 1, n + 1))
        for d in range(n):
            np.add.at(marginals[:, d + 1], self.structures[:, d], self.probabilities)
        return marginals


def enumerate_trees(log_arc: np.ndarray, projective: bool, single_root: bool) -> Enumerated:
    """Return all trees of one sentence; log_arc (n+1, n+1)."""
    n = len(log_arc) - 1
    heads = trees(n, projective, single_root)
    return Enumerated(heads, log_arc[heads, np.arange(1, n + 1)].astype(np.float64).sum(axis=1))


@cache
def bracketings(i: int, j: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return all binary bracketings of positions i..j, each a tuple of its spans (ends included)."""
    if i == j:
        return (((i, i),),)
    return tuple(
        ((i, j), *left, *right) for r in range(i, j) for left in bracketings(i, r) for right in bracketings(r + 1, j)
    )


@cache
def derivations(i: int, j: int, symbol: int, n_nonterminals: int, n_symbols: int) -> tuple[tuple, ...]:
    """Return all trees over i..j with this root symbol, each a tuple of (i, j, symbol, split, left, right) nodes."""
    if i == j:
        return (((i, j, symbol, -1, -1, -1),),) if symbol >= n_nonterminals else ()
    if symbol >= n_nonterminals:
        return ()
    return tuple(
        ((i, j, symbol, r, x, y), *left, *right)
        for r in range(i, j)
        for x in range(n_symbols)
        for y in range(n_symbols)
        for left in derivations(i, r, x, n_nonterminals, n_symbols)
        for right in derivations(r + 1, j, y, n_nonterminals, n_symbols)
    )
