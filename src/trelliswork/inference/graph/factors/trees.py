"""Tree factors: binary variables represent arcs, and those that are on must form a dependency tree."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph.factors.common import StructuredFactor, integers
from trelliswork.inference.graph.potentials import BestPropagation, Doubles, Integers, Propagation
from trelliswork.inference.tree import eisner, matrix_tree, tree_potentials
from trelliswork.inference.tree.potentials import is_tree
from trelliswork.inference.tree.second_order.kernels.tree_factor import TreeArcs, batch_messages


class TreeFactor(StructuredFactor):
    """Base class of `ProjectiveTreeFactor` and `SpanningTreeFactor`."""

    projective: bool
    _max_exponent: int  # maxima of a graph take time O(n ** exponent); sums take O(n ** 3)

    def __init__(self, variables: Any, heads: Any, modifiers: Any, n_words: int, *, single_root: bool = True) -> None:
        self.variables, self.heads, self.modifiers = (
            integers(name, values, 1)
            for name, values in (("variables", variables), ("heads", heads), ("modifiers", modifiers))
        )
        K = len(self.variables)
        if len(self.heads) != K or len(self.modifiers) != K:
            raise ShapeError(
                f"heads and modifiers must have shape (K,) with K={K} variables, got {self.heads.shape} and "
                f"{self.modifiers.shape}: each variable represents one arc."
            )
        check_count("n_words", n_words)
        self.n_words, self.single_root = int(n_words), bool(single_root)
        bad = np.flatnonzero(
            (self.heads < 0)
            | (self.heads > n_words)
            | (self.modifiers < 1)
            | (self.modifiers > n_words)
            | (self.heads == self.modifiers)
        )
        if bad.size:
            a = bad[0]
            raise ValueRangeError(
                f"arc {a} goes from {self.heads[a]} to {self.modifiers[a]}, but {n_words} words have arcs from "
                f"0..{n_words} to another of 1..{n_words}; 0 is the root."
            )
        twice = np.unique(self.heads * (n_words + 1) + self.modifiers, return_counts=True)[1] > 1
        if twice.any():
            raise ValueRangeError("two variables represent the same arc: give each arc one variable.")
        self.n_states = np.full(K, 2)
        self.n_graphs = 1

    def _run(self, log_messages: Doubles, maximize: bool) -> tuple[Doubles, Doubles, Doubles, Doubles]:
        """Return values (B,), beliefs and messages (B, K, 2), and the incoming messages (B, K, 2)."""
        B, K = len(log_messages), len(self.variables)
        q = np.ascontiguousarray(log_messages, np.float64).reshape(B, K, 2)
        values, beliefs, out = np.empty(B), np.empty_like(q), np.empty_like(q)
        arcs = TreeArcs(self.n_words, self.heads, self.modifiers, self.single_root, self.projective)
        cost = 20 * (self.n_words + 1) ** (self._max_exponent if maximize else 3)
        ranges = threads.cut(np.full(B, cost), least=threads.LEAST_WORK)
        threads.run(batch_messages, ranges, arcs, q, maximize, out, beliefs, values)
        return values, beliefs, out, q

    def propagate(self, log_messages: Doubles) -> Propagation:
        """Sum over trees; see `Propagator`."""
        values, beliefs, out, _ = self._run(log_messages, False)
        return Propagation(values, beliefs.reshape(len(values), -1), out.reshape(len(values), -1))

    def best(self, log_messages: Doubles) -> BestPropagation:
        """Maximize over trees; see `Propagator`."""
        values, _, out, q = self._run(log_messages, True)
        assignment = np.full(q.shape[:2], -1)
        for b in np.flatnonzero(values > -np.inf):
            assignment[b] = self._best_tree(q[b])
        return BestPropagation(values, out.reshape(len(values), -1), assignment)

    def _best_tree(self, q: Doubles) -> Integers:
        """Return the best states (K,) under messages (K, 2); some tree must be possible."""
        scores = np.full((1, self.n_words + 1, self.n_words + 1), -np.inf)
        forced = q[:, 0] == -np.inf
        odds = np.where(forced, q[:, 1], q[:, 1] - np.where(forced, 0, q[:, 0]))
        taken = np.isin(self.modifiers, self.modifiers[forced]) & ~forced
        scores[0, self.heads, self.modifiers] = np.where(taken, -np.inf, odds)
        passes = eisner if self.projective else matrix_tree
        heads, _ = passes.best(tree_potentials(scores, single_root=self.single_root))
        on: Integers = (heads[0, self.modifiers - 1] == self.heads).astype(np.int64)
        return on

    def score(self, assignment: Integers) -> Doubles:
        """Return log f (B,) of states (B, K): 0 for a tree, -inf for anything else."""
        return np.array([0.0 if self._allows(row == 1) else -np.inf for row in assignment])

    def _allows(self, on: NDArray[np.bool_]) -> bool:
        heads = np.full(self.n_words, -1)
        heads[self.modifiers[on] - 1] = self.heads[on]
        if on.sum() != self.n_words or (heads < 0).any():
            return False
        return is_tree(heads, projective=self.projective, single_root=self.single_root)


class ProjectiveTreeFactor(TreeFactor):
    r"""The arcs that are on form a projective dependency tree: :math:`f(x) = 1` if they do, else 0.

    Parameters
    ----------
    variables : array of int (K,)
        Binary variables; state 1 is on.
    heads, modifiers : array of int (K,)
        The arc of each variable, from head 0..n (0 is the root) to word 1..n. Arcs without a variable are off.
    n_words : int
        n.
    single_root : bool
        True if exactly one word hangs from the root.

    Notes
    -----
    All messages come from one inside-outside run, O(n^3) per graph, in log space. The message to an arc's state on is
    the derivative of the sum by the arc's weight; the message to off is the sum of the other arcs into the same word.
    Nothing is subtracted, so arcs that messages or evidence force on or off need no special case. Smith and Eisner
    (2008); Burkett and Klein (2013).
    """

    projective = True
    _max_exponent = 3


class SpanningTreeFactor(TreeFactor):
    r"""The arcs that are on form a dependency tree, whether arcs cross or not; see `ProjectiveTreeFactor`.

    Notes
    -----
    The derivatives come from one elimination of words, O(n^3) per graph. Derivatives that are differences of nearly
    equal numbers would lose digits: their words, and all words of a graph in which messages or evidence force an arc
    on, are recomputed by one elimination each without subtraction, O(n^3) per word and O(n^4) per graph at worst. The
    maxima of ``best`` take one best tree per arc: O(n^2) trees of O(n^2).
    """

    projective = False
    _max_exponent = 4
