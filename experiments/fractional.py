r"""Fractional belief propagation on second-order trees, one sentence at a time: a slow reference with more settings.

A factor with weight :math:`\rho` has its potentials raised to :math:`1 / \rho` and its messages to :math:`\rho`
(Wiegerinck and Heskes, 2003). With :math:`\rho = 1` this is loopy belief propagation; with smaller weights, such as the
edge appearance probabilities of tree-reweighted belief propagation (Wainwright et al., 2005), beliefs are less extreme.
In log odds, :math:`\theta_a = s_a + t_a + \rho_s u_a + \rho_g \sum_k v_{ak}` is the belief of arc a, and each factor
sees it without its own message. The tree factor has weight 1.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference.tree import eisner, matrix_tree, tree_potentials
from trelliswork.inference.tree.second_order.kernels.records import Parts

Doubles = NDArray[np.float64]
LARGEST = 40.0  # log odds of a message


def beliefs(
    parts: Parts,
    arc_scores: Doubles,
    sibling_scores: Doubles,
    grandparent_scores: Doubles,
    *,
    weight: float = 1.0,
    max_iter: int = 5,
    tree_every: int = 1,
    damping: float = 0.0,
    projective: bool = True,
    single_root: bool = True,
) -> Doubles:
    """Return the beliefs of the arcs (A,) of one sentence; ``weight`` is that of siblings and grandparents."""
    n, A = int(parts.n_words[0]), len(parts.heads)
    engine = eisner if projective else matrix_tree
    upper, lower = parts.grandparent_upper, parts.grandparent_lower
    tree, side = np.zeros(A), np.zeros(A)
    above, below = np.zeros(len(upper)), np.zeros(len(upper))  # messages of pairs to their upper and lower arcs

    def pairs() -> Doubles:
        total = np.zeros(A)
        np.add.at(total, upper, above)
        np.add.at(total, lower, below)
        return weight * total

    def mix(old: Doubles, new: Doubles) -> Doubles:
        return np.clip(damping * old + (1 - damping) * new, -LARGEST, LARGEST)

    def tree_marginals() -> tuple[Doubles, Doubles]:
        scores = arc_scores + weight * side + pairs()
        log_arc = np.full((1, n + 1, n + 1), -np.inf)
        log_arc[0, parts.heads, parts.modifiers] = scores
        marginals = engine.expectations(tree_potentials(log_arc, single_root=single_root))[1]
        return scores, np.clip(marginals[0, parts.heads, parts.modifiers], 0.0, 1.0)

    for n_done in range(max_iter):
        if n_done % tree_every == 0:
            scores, p = tree_marginals()
            with np.errstate(divide="ignore"):
                tree = mix(tree, np.log(p) - np.log1p(-p) - scores)
        belief = arc_scores + tree + weight * side + pairs()
        new_side = side.copy()
        for row in parts.sides:
            _automaton(row, belief - side, sibling_scores / weight, new_side)
        side = mix(side, new_side)
        belief = arc_scores + tree + weight * side + pairs()
        up, low, e = belief[upper] - above, belief[lower] - below, grandparent_scores / weight
        new_below = np.logaddexp(0.0, up + e) - np.logaddexp(0.0, up)
        new_above = np.logaddexp(0.0, low + e) - np.logaddexp(0.0, low)
        above, below = mix(above, new_above), mix(below, new_below)
    return tree_marginals()[1]


def _automaton(row: Any, odds: Doubles, scores: Doubles, out: Doubles) -> None:
    """Fill the messages of the children of one side, from the log odds of their arcs; see `Parts` for ``row``."""
    first, step, size, _ = row.tolist()
    arcs = first + step * np.arange(size)
    _, inside, outside = _sequences(row, odds, scores)
    log_z = outside[0]
    on = np.minimum(inside[1:] + outside[1:] - log_z, -1e-15)
    out[arcs] = on - np.log(-np.expm1(on)) - odds[arcs]


def _sequences(row: Any, odds: Doubles, scores: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Return the scores (size + 2, size + 1) of one side, and log sums of sequences up to each child and after it."""
    first, step, size, part = row.tolist()
    E = np.full((size + 2, size + 1), -np.inf)  # child i is followed by child j; size + 1 is the end
    for j in range(1, size + 2):
        E[j, :j] = scores[part + j * (j - 1) // 2 : part + j * (j - 1) // 2 + j]
    arcs = first + step * np.arange(size)
    inside, outside = np.zeros(size + 1), E[size + 1].copy()
    for j in range(1, size + 1):
        inside[j] = odds[arcs[j - 1]] + np.logaddexp.reduce(inside[:j] + E[j, :j])
    for j in range(size - 1, -1, -1):
        later = [odds[arcs[k - 1]] + E[k, j] + outside[k] for k in range(j + 1, size + 1)]
        outside[j] = np.logaddexp.reduce([E[size + 1, j], *later])
    return E, inside, outside
