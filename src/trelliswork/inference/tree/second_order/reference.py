r"""Fractional belief propagation on second-order trees, one sentence at a time: a slow reference with more settings.

A factor with weight :math:`\rho` has its potentials raised to :math:`1 / \rho` and its messages to :math:`\rho`
(Wiegerinck and Heskes, 2003). With :math:`\rho = 1` this is loopy belief propagation; with smaller weights, such as the
edge appearance probabilities of tree-reweighted belief propagation (Wainwright et al., 2005), beliefs are less extreme.
In log odds, :math:`\theta_a = s_a + t_a + \rho_s u_a + \rho_g \sum_k v_{ak}` is the belief of arc a, and each factor
sees it without its own message. The tree factor has weight 1.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference.tree import eisner, matrix_tree, tree_potentials
from trelliswork.inference.tree.second_order.kernels.records import Options, Parts

Doubles = NDArray[np.float64]
# From the log odds of arcs (A,): log Z with each arc on and off (A, 2), and then the marginals of arcs and other parts.
Conditioned = tuple[Doubles, Doubles, Doubles]
Factor = Callable[[Doubles], Conditioned]
LARGEST = 40.0  # log odds of a message
INFINITE = 1e3  # log odds that stand for infinite ones
AT_ONCE = 4_000_000  # entries of the matrices of arcs that are computed together


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


def gradients(
    parts: Parts, scores: tuple[Doubles, Doubles, Doubles], by_arcs: Doubles, options: Options
) -> tuple[Doubles, Doubles, Doubles]:
    r"""Return the derivatives of a loss by the scores of one sentence, from those by its beliefs (A,).

    All ``max_iter`` iterations of loopy belief propagation in reverse, in log space, accurate for every input. A factor
    (the tree, or all automata) with inputs x sends to arc a

    .. math:: m_a = \log Z(a \text{ on}) - x_a - \log Z(a \text{ off}), \quad
        \frac{\partial m_a}{\partial x_b} = p(b \mid a \text{ on}) - p(b \mid a \text{ off}), \; b \ne a,

    from one pass for each state of each arc. Infinite messages are constant.
    """
    arc_scores, sibling_scores, pair_scores = scores
    A = len(parts.heads)
    upper, lower = parts.grandparent_upper, parts.grandparent_lower
    factors: tuple[Factor, Factor] = (
        lambda x: _tree_conditioned(parts, x, options),
        lambda x: _automata_conditioned(parts, x, sibling_scores),
    )

    def message(factor: Factor, x: Doubles) -> Doubles:
        log_z = factor(x)[0]
        on, off = np.maximum(log_z, -1e300).T
        m = np.where(x > -np.inf, on - np.where(x > -np.inf, x, 0.0) - off, 0.0)
        return np.clip(m, -INFINITE, INFINITE)

    def sums(above: Doubles, below: Doubles) -> Doubles:
        total = np.zeros(A)
        np.add.at(total, upper, above)
        np.add.at(total, lower, below)
        return total

    def back(factor: Factor, x: Doubles, bar: Doubles) -> tuple[Doubles, Doubles]:
        """Return the derivatives by a factor's inputs and by the scores of its parts, from those by its messages."""
        log_z, arcs, pieces = factor(x)
        bar = np.where(np.isfinite(log_z).all(axis=1), bar, 0.0)
        by_input = bar @ (arcs[:, 0] - arcs[:, 1]) - bar  # without the derivative of m_a by x_a, which is 0
        return by_input, bar @ (pieces[:, 0] - pieces[:, 1])

    states = [(np.zeros(A), np.zeros(A), np.zeros(len(upper)), np.zeros(len(upper)))]
    for r in range(options.max_iter):
        t, s, above, below = states[-1]
        damping = options.damping if r else 0.0
        G = sums(above, below)
        if r % options.tree_every == 0:
            t = damping * t + (1 - damping) * message(factors[0], arc_scores + s + G)
        if len(sibling_scores):
            s = damping * s + (1 - damping) * message(factors[1], arc_scores + t + G)
        T = arc_scores + t + s + G
        up, low = T[upper] - above, T[lower] - below
        new_above = np.logaddexp(0.0, low + pair_scores) - np.logaddexp(0.0, low)
        new_below = np.logaddexp(0.0, up + pair_scores) - np.logaddexp(0.0, up)
        above, below = damping * above + (1 - damping) * new_above, damping * below + (1 - damping) * new_below
        states.append((t, s, above, below))
    _, s, above, below = states[-1]
    x = arc_scores + s + sums(above, below)
    log_z, arcs, _ = factors[0](x)
    log_odds = np.where(x > -np.inf, np.clip(log_z, -1e300, 1e300) @ np.array([1.0, -1.0]), -np.inf)
    p = _sigmoid(log_odds)
    by_score = (by_arcs * p * (1 - p)) @ (arcs[:, 0] - arcs[:, 1])  # covariances: p (1 - p) times the derivative of m
    by_sibling, by_pair = np.zeros(len(sibling_scores)), np.zeros(len(upper))
    bar_t, bar_s, bar_above, bar_below = np.zeros(A), by_score, by_score[upper], by_score[lower]
    for r in range(options.max_iter - 1, -1, -1):
        t, s, _, _ = states[r + 1]
        old_s, above, below = states[r][1:]
        damping = options.damping if r else 0.0
        G = sums(above, below)
        T = arc_scores + t + s + G
        up, low = T[upper] - above, T[lower] - below
        to_above, to_below = (1 - damping) * bar_above, (1 - damping) * bar_below
        on_up, on_low = _sigmoid(up + pair_scores), _sigmoid(low + pair_scores)
        from_up, from_low = to_below * (on_up - _sigmoid(up)), to_above * (on_low - _sigmoid(low))
        by_pair = by_pair + to_below * on_up + to_above * on_low
        bar_T = sums(from_up, from_low)
        bar_above, bar_below = damping * bar_above - from_up, damping * bar_below - from_low
        bar_arcs, bar_t, bar_s, bar_G = bar_T, bar_t + bar_T, bar_s + bar_T, bar_T
        if len(sibling_scores):
            bar, by_part = back(factors[1], arc_scores + t + G, (1 - damping) * bar_s)
            by_sibling += by_part
            bar_arcs, bar_t, bar_s, bar_G = bar_arcs + bar, bar_t + bar, damping * bar_s, bar_G + bar
        if r % options.tree_every == 0:
            bar, _ = back(factors[0], arc_scores + old_s + G, (1 - damping) * bar_t)
            bar_arcs, bar_t, bar_s, bar_G = bar_arcs + bar, damping * bar_t, bar_s + bar, bar_G + bar
        bar_above, bar_below = bar_above + bar_G[upper], bar_below + bar_G[lower]
        by_score = by_score + bar_arcs
    return by_score, by_sibling, by_pair


def _sigmoid(x: Doubles) -> Doubles:
    return np.exp(-np.logaddexp(0.0, -x))


def _tree_conditioned(parts: Parts, x: Doubles, options: Options) -> Conditioned:
    """Return log Z (A, 2) and marginals (A, 2, A) of trees with each arc on and off; nothing for other parts."""
    n, A, heads, modifiers = int(parts.n_words[0]), len(x), parts.heads, parts.modifiers
    engine = eisner if options.projective else matrix_tree
    log_z, marginals = np.empty((A, 2)), np.zeros((A, 2, A))
    for some in np.array_split(np.arange(A), -(-A * 2 * (n + 1) ** 2 // AT_ONCE)):
        rows = np.broadcast_to(x, (len(some), 2, A)).copy()
        rows[:, 0][(modifiers == modifiers[some, None]) & (np.arange(A) != some[:, None])] = -np.inf
        rows[np.arange(len(some)), 1, some] = -np.inf
        log_arc = np.full((2 * len(some), n + 1, n + 1), -np.inf)
        log_arc[:, heads, modifiers] = rows.reshape(-1, A)
        values, expected = engine.expectations(tree_potentials(log_arc, single_root=options.single_root))
        log_z[some] = values.reshape(-1, 2)
        marginals[some] = expected[:, heads, modifiers].reshape(-1, 2, A)
    return log_z, marginals, np.zeros((A, 2, 0))


def _automata_conditioned(parts: Parts, x: Doubles, scores: Doubles) -> Conditioned:
    """Return log Z (A, 2) of the automata with each arc on and off, and marginals of arcs and of sibling parts."""
    A = len(x)
    log_z, arcs, pieces = np.zeros((A, 2)), np.zeros((A, 2, A)), np.zeros((A, 2, len(scores)))
    for row in parts.sides:
        first, step, size, part = row.tolist()
        own = first + step * np.arange(size)
        for i, a in enumerate(own.tolist(), start=1):
            for state, odds in enumerate((x, np.where(np.arange(A) == a, -np.inf, x))):
                E, inside, outside = _sequences(row, odds, scores, forced=i if state == 0 else None)
                log_z[a, state] = outside[0]
                for j in range(1, size + 2 if outside[0] > -np.inf else 0):
                    k, end = part + j * (j - 1) // 2, odds[own[j - 1]] + outside[j] if j <= size else 0.0
                    pieces[a, state, k : k + j] = np.exp(inside[:j] + E[j, :j] + end - outside[0])
                    if j <= size:
                        arcs[a, state, own[j - 1]] = pieces[a, state, k : k + j].sum()
    return log_z, arcs, pieces


def _sequences(row: Any, odds: Doubles, scores: Doubles, forced: int | None = None) -> tuple[Doubles, Doubles, Doubles]:
    """Return the scores (size + 2, size + 1) of one side, and log sums of sequences up to each child and after it.

    Child ``forced`` (from 1) is in all sequences.
    """
    first, step, size, part = row.tolist()
    E = np.full((size + 2, size + 1), -np.inf)  # child i is followed by child j; size + 1 is the end
    for j in range(1, size + 2):
        E[j, :j] = scores[part + j * (j - 1) // 2 : part + j * (j - 1) // 2 + j]
    if forced is not None:
        E[forced + 1 :, :forced] = -np.inf
    arcs = first + step * np.arange(size)
    inside, outside = np.zeros(size + 1), E[size + 1].copy()
    for j in range(1, size + 1):
        inside[j] = odds[arcs[j - 1]] + np.logaddexp.reduce(inside[:j] + E[j, :j])
    for j in range(size - 1, -1, -1):
        later = [odds[arcs[k - 1]] + E[k, j] + outside[k] for k in range(j + 1, size + 1)]
        outside[j] = np.logaddexp.reduce([E[size + 1, j], *later])
    return E, inside, outside
