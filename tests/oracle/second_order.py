"""Second-order dependency trees by enumeration: the ground truth of the tests."""

import itertools
from dataclasses import dataclass

import numpy as np

from tests.oracle.trees import trees
from trelliswork.inference.tree.second_order import Parts


@dataclass
class SecondOrderTrees:
    """All trees of one sentence with their parts and scores; parts of other sentences are off."""

    scores: np.ndarray  # (n_trees,)
    arcs: np.ndarray  # (n_trees, A)
    siblings: np.ndarray  # (n_trees, S)
    grandparents: np.ndarray  # (n_trees, G)

    @property
    def log_z(self) -> float:
        top = self.scores.max(initial=-np.inf)
        return -np.inf if top == -np.inf else float(top + np.log(np.exp(self.scores - top).sum()))

    @property
    def probabilities(self) -> np.ndarray:
        return np.zeros_like(self.scores) if self.log_z == -np.inf else np.exp(self.scores - self.log_z)


def siblings_of(heads: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
    """Return (head, side, previous, next) for each pair of consecutive children; 0 means none."""
    n, siblings = len(heads), set()
    for h in range(n + 1):
        for side in (-1, 1):
            children = [d for d in range(1, n + 1) if heads[d - 1] == h and (d > h) == (side > 0)][::side]
            steps = [0, *children, 0]
            siblings |= {(h, side, a, b) for a, b in itertools.pairwise(steps)}
    return siblings


def enumerate_second_order(
    parts: Parts, b: int, arc_scores, sibling_scores, grandparent_scores, *, projective: bool, single_root: bool
) -> SecondOrderTrees:
    """Return all trees of sentence b that consist of candidate arcs."""
    candidates = range(parts.arc_ptr[b], parts.arc_ptr[b + 1])
    number = {(int(parts.heads[a]), int(parts.modifiers[a])): a for a in candidates}
    rows = []
    for row in trees(int(parts.n_words[b]), projective, single_root):
        heads = tuple(int(h) for h in row)
        if any((h, d) not in number for d, h in enumerate(heads, 1)):
            continue
        on = {number[h, d] for d, h in enumerate(heads, 1)}
        steps = siblings_of(heads)
        arcs = np.array([a in on for a in range(len(parts.heads))], bool)
        siblings, grandparents = np.zeros(len(parts.sibling_heads), bool), np.zeros(len(parts.grandparent_upper), bool)
        for k in range(parts.sibling_ptr[b], parts.sibling_ptr[b + 1]):
            ends = [
                int(parts.modifiers[a]) if a >= 0 else 0 for a in (parts.sibling_previous[k], parts.sibling_next[k])
            ]
            siblings[k] = (int(parts.sibling_heads[k]), int(parts.sibling_sides[k]), *ends) in steps
        for k in range(parts.grandparent_ptr[b], parts.grandparent_ptr[b + 1]):
            grandparents[k] = parts.grandparent_upper[k] in on and parts.grandparent_lower[k] in on
        score = arc_scores[arcs].sum() + sibling_scores[siblings].sum() + grandparent_scores[grandparents].sum()
        rows.append((score, arcs, siblings, grandparents))
    if not rows:
        sizes = (len(parts.heads), len(parts.sibling_heads), len(parts.grandparent_upper))
        return SecondOrderTrees(np.zeros(0), *(np.zeros((0, size), bool) for size in sizes))
    return SecondOrderTrees(*(np.array(column) for column in zip(*rows, strict=True)))
