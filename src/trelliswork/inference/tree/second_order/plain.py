"""Second-order belief propagation in log space, in NumPy, one sentence at a time: accurate for every input.

A message is a pair of logarithms (off, on), the larger 0. The factors are those of ``second_order``. Used where odds
would overflow, where scores of parts forbid them, and for damping.
"""

import numpy as np

from trelliswork.inference.tree.second_order.kernels.records import (
    Doubles,
    Longs,
    Options,
    Parts,
    Scores,
    SecondOrderResult,
)
from trelliswork.inference.tree.second_order.kernels.tree_factor import TreeArcs, batch_messages


class Sentence:
    """The messages to the arcs of one sentence."""

    def __init__(self, parts: Parts, scores: Scores, options: Options, b: int) -> None:
        a, s, g = (slice(ptr[b], ptr[b + 1]) for ptr in (parts.arc_ptr, parts.sibling_ptr, parts.grandparent_ptr))
        self.places, self.options = (a, s, g), options
        heads, self.modifiers = parts.heads[a].astype(np.int64), parts.modifiers[a].astype(np.int64)
        self.arcs = TreeArcs(parts.n_words[b], heads, self.modifiers, options.single_root, options.projective)
        self.upper, self.lower = parts.grandparent_upper[g] - a.start, parts.grandparent_lower[g] - a.start
        self.sides = parts.sides[parts.side_ptr[b] : parts.side_ptr[b + 1]] - np.array([a.start, 0, 0, s.start])
        self.siblings, self.grandparents = scores.siblings[s], scores.grandparents[g]
        A, G = len(heads), len(self.upper)
        self.unary = np.stack([np.zeros(A), scores.arcs[a]], axis=1)
        self.tree, self.side = np.zeros((A, 2)), np.zeros((A, 2))
        self.to_upper, self.to_lower = np.zeros((G, 2)), np.zeros((G, 2))

    def without(self, own: Doubles, at: Longs | slice = slice(None)) -> Doubles:
        """Return the sums of all messages to the arcs ``at`` except their ``own``; -inf counts, so that it can go."""
        total, zeros = np.zeros(self.tree.shape), np.zeros(self.tree.shape, np.int64)
        everywhere = np.arange(len(total))
        for to, messages in (
            (everywhere, self.unary), (everywhere, self.tree), (everywhere, self.side),
            (self.upper, self.to_upper), (self.lower, self.to_lower),
        ):  # fmt: skip
            np.add.at(total, to, finite(messages))
            np.add.at(zeros, to, messages == -np.inf)
        possible = zeros[at] == (own == -np.inf)
        return np.where(possible, total[at] - finite(own), -np.inf)

    def from_tree(self) -> tuple[float, Doubles, Doubles, Doubles]:
        """Return the log value of the tree factor, its messages, its log beliefs, and what it received, each (A, 2)."""
        q = self.without(self.tree)
        out, beliefs, value = np.empty(q.shape), np.empty(q.shape), np.empty(1)
        batch_messages(0, 1, self.arcs, q[None], False, out[None], beliefs[None], value)
        return float(value[0]), out, beliefs, q

    def from_sides(self) -> tuple[float, Doubles, Doubles]:
        """Return the sum of the log values of the automata, their messages, and the beliefs of siblings."""
        q, out, beliefs, value = self.without(self.side), np.zeros(self.side.shape), np.zeros(len(self.siblings)), 0.0
        for arc, step, size, part in self.sides:
            n_parts = (size + 1) * (size + 2) // 2
            own = arc + step * np.arange(size)
            mass, out[own], beliefs[part : part + n_parts] = _automaton(q[own], self.siblings[part : part + n_parts])
            value += mass
        return value, out, beliefs

    def from_pairs(self) -> tuple[float, tuple[Doubles, Doubles], Doubles]:
        """Return the sum of the log values of the pairs, their messages to upper and lower arcs, and their beliefs."""
        u, d = self.without(self.to_upper, self.upper), self.without(self.to_lower, self.lower)
        either, score = np.logaddexp, self.grandparents
        both = u[:, 1] + d[:, 1] + score
        mass = either(either(u[:, 0], u[:, 1]) + d[:, 0], either(u[:, 0] + d[:, 1], both))
        to_upper, to_lower = (
            np.stack([either(q[:, 0], q[:, 1]), either(q[:, 0], q[:, 1] + score)], axis=1) for q in (d, u)
        )
        return float(mass.sum()), (to_upper, to_lower), np.exp(both - finite(mass))

    def iterate(self) -> tuple[bool, int, float]:
        """Send messages until convergence; return whether it was reached, the number of iterations and the residual."""
        options, before, change = self.options, np.full(len(self.tree), -1.0), 0.0
        if not len(self.sides) and not len(self.upper):
            return True, 0, change
        for number in range(options.max_iter):
            damping, with_tree = options.damping if number else 0.0, number % options.tree_every == 0
            if with_tree:
                _commit(self.tree, self.from_tree()[1], damping)
            _commit(self.side, self.from_sides()[1], damping)
            for old, new in zip((self.to_upper, self.to_lower), self.from_pairs()[1], strict=True):
                _commit(old, new, damping)
            off, on = self.without(np.zeros(self.tree.shape)).T
            belief = np.exp(on - finite(np.logaddexp(off, on)))
            change, before = float(np.abs(belief - before).max(initial=0.0)), belief
            if change <= options.tolerance and with_tree:  # all factors took part
                return True, number + 1, change
        return False, options.max_iter, change


def infer(parts: Parts, scores: Scores, options: Options, b: int, results: SecondOrderResult) -> None:
    """Fill the results of sentence b."""
    sentence = Sentence(parts, scores, options, b)
    a, s, g = sentence.places
    results.converged[b], results.n_iter[b], results.residual[b] = sentence.iterate()
    value, out, beliefs, q = sentence.from_tree()
    _commit(sentence.tree, out, 0.0)
    forced = q[:, 0] == -np.inf  # such an arc excludes all others into its word
    n_forced = np.bincount(sentence.modifiers, forced, len(q) + 1)[sentence.modifiers]
    results.tree_scores[a] = np.where(n_forced > forced, -np.inf, q[:, 1] - finite(q[:, 0]))
    results.arcs[a] = np.exp(beliefs[:, 1])
    # Bethe's value: the sum over factors, minus each variable's value times its number of factors besides the tree.
    on_sides, _, results.siblings[s] = sentence.from_sides()
    on_pairs, _, results.grandparents[g] = sentence.from_pairs()
    mass = np.logaddexp(*sentence.without(np.zeros(q.shape)).T)
    touched = [arc + step * np.arange(size) for arc, step, size, _ in sentence.sides]
    degree = np.bincount(np.concatenate([*touched, sentence.upper, sentence.lower]), minlength=len(q))
    possible = min(value, on_sides, on_pairs, mass.min(initial=0.0)) > -np.inf
    results.log_partition[b] = value + on_sides + on_pairs - degree @ mass if possible else -np.inf
    if not possible:
        results.tree_scores[a] = -np.inf
        results.arcs[a], results.siblings[s], results.grandparents[g] = 0.0, 0.0, 0.0


def finite(values: Doubles) -> Doubles:
    """Replace -inf by 0."""
    return np.where(values > -np.inf, values, 0.0)


def _commit(old: Doubles, new: Doubles, damping: float) -> None:
    """Store messages (n, 2), the larger entries 0; log odds are mixed with the old ones where both are finite."""
    new = new - finite(new.max(axis=1, keepdims=True, initial=-np.inf))
    mixed = (np.minimum(old, new) > -np.inf).all(axis=1) if damping else np.zeros(len(old), bool)
    odds = (1 - damping) * (new[mixed, 1] - new[mixed, 0]) + damping * (old[mixed, 1] - old[mixed, 0])
    new[mixed] = np.stack([np.minimum(-odds, 0.0), np.minimum(odds, 0.0)], axis=1)
    old[:] = new


def _automaton(q: Doubles, scores: Doubles) -> tuple[float, Doubles, Doubles]:
    """Run the automaton over the children of one side, whose state is the last child.

    Return its log value, its messages (size, 2) from the others' q (size, 2), and the beliefs of its parts.
    ``beta[j, i]``: prefixes before candidate j whose last child is i. ``gamma[i]``: continuations.
    """
    size, total = len(q), np.logaddexp.reduce
    beta, out, beliefs = np.full((size + 2, size + 1), -np.inf), np.empty(q.shape), np.empty(len(scores))
    beta[1, 0] = 0.0
    parts = [slice(j * (j - 1) // 2, j * (j + 1) // 2) for j in range(size + 2)]  # that end in child j
    for j in range(1, size + 1):
        out[j - 1, 1] = total(beta[j, :j] + scores[parts[j]])
        beta[j + 1, :j] = beta[j, :j] + q[j - 1, 0]
        beta[j + 1, j] = out[j - 1, 1] + q[j - 1, 1]
    gamma = scores[parts[size + 1]].copy()
    beliefs[parts[size + 1]] = beta[size + 1] + gamma
    value = float(total(beta[size + 1] + gamma))
    for j in range(size, 0, -1):
        out[j - 1, 1] += gamma[j]
        out[j - 1, 0] = total(beta[j, :j] + gamma[:j])
        following = scores[parts[j]] + q[j - 1, 1] + gamma[j]
        beliefs[parts[j]] = beta[j, :j] + following
        gamma[:j] = np.logaddexp(q[j - 1, 0] + gamma[:j], following)
    return value, out, np.exp(beliefs - value) if value > -np.inf else np.zeros(len(scores))
