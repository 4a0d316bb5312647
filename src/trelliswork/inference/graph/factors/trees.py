"""Tree factors: binary variables that stand for arcs, of which those that are on must form a dependency tree."""

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph.wiring import BestPropagation, Doubles, Integers, Propagation
from trelliswork.inference.tree.potentials import is_tree
from trelliswork.inference.tree.second_order.kernels.tree_factor import tree_batch


class TreeFactor:
    """What `ProjectiveTreeFactor` and `SpanningTreeFactor` have in common."""

    projective: bool
    _max_exponent: int  # the maxima of a graph take time O(n ** exponent); sums take O(n ** 3)

    def __init__(self, variables: Any, heads: Any, modifiers: Any, n_words: int, *, single_root: bool = True) -> None:
        self.variables, self.heads, self.modifiers = (
            _numbers(name, values)
            for name, values in (("variables", variables), ("heads", heads), ("modifiers", modifiers))
        )
        K = len(self.variables)
        if len(self.heads) != K or len(self.modifiers) != K:
            raise ShapeError(
                f"heads and modifiers must have shape (K,) with K={K} variables, got {self.heads.shape} and "
                f"{self.modifiers.shape}: each variable stands for one arc."
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
            raise ValueRangeError("two variables stand for the same arc: give each arc one variable.")
        self.n_states = np.full(K, 2)
        self.n_graphs = 1

    def _run(self, log_messages: Doubles, maximise: bool) -> tuple[Doubles, Doubles, Doubles, Doubles]:
        """Messages (B, 2K) in; values (B,), beliefs and messages (B, K, 2), and messages in, out."""
        B, K = len(log_messages), len(self.variables)
        q = np.ascontiguousarray(log_messages, np.float64).reshape(B, K, 2)
        values, beliefs, out = np.empty(B), np.empty_like(q), np.empty_like(q)
        threads.run(
            lambda start, stop: tree_batch(
                start, stop, self.n_words, self.heads, self.modifiers, q, self.single_root, self.projective, maximise,
                out, beliefs, values,
            ),
            threads.cut(
                np.full(B, 20 * (self.n_words + 1) ** (self._max_exponent if maximise else 3)),
                least=threads.LEAST_WORK,
            ),
        )  # fmt: skip
        return values, beliefs, out, q

    def propagate(self, log_messages: Doubles) -> Propagation:
        """Sums over trees; see `Propagator`."""
        values, beliefs, out, _ = self._run(log_messages, False)
        return Propagation(values, beliefs.reshape(len(values), -1), out.reshape(len(values), -1))

    def best(self, log_messages: Doubles) -> BestPropagation:
        """Maxima over trees; see `Propagator`."""
        values, _, out, q = self._run(log_messages, True)
        assignment = np.full(q.shape[:2], -1)
        for b in np.flatnonzero(values > -np.inf):
            assignment[b] = self._best_tree(q[b])
        return BestPropagation(values, out.reshape(len(values), -1), assignment)

    def _best_tree(self, q: Doubles) -> Integers:
        """The best states (K,) under messages (K, 2), some tree being possible."""
        from trelliswork.inference.tree import eisner, matrix_tree, tree_potentials

        scores = np.full((1, self.n_words + 1, self.n_words + 1), -np.inf)
        forced = q[:, 0] == -np.inf
        odds = np.where(forced, q[:, 1], q[:, 1] - np.where(forced, 0, q[:, 0]))
        taken = np.isin(self.modifiers, self.modifiers[forced]) & ~forced
        scores[0, self.heads, self.modifiers] = np.where(taken, -np.inf, odds)
        engine: Any = eisner if self.projective else matrix_tree
        heads, _ = engine.best(tree_potentials(scores, single_root=self.single_root))
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

    def table(self, max_size: int = 1_000_000) -> Doubles:
        """The dense log-table (1, 2, .., 2)."""
        K = len(self.variables)
        if max_size < 2.0**K:
            raise ValueRangeError(
                f"{type(self).__name__} over {K} variables has a table of {2.0**K:.3g} entries, "
                f"more than max_size={max_size}: use an engine that asks for its messages, such as 'bp'."
            )
        states = np.array(list(product(range(2), repeat=K)), dtype=np.int64)
        return self.score(states).reshape(1, *(2,) * K)


class ProjectiveTreeFactor(TreeFactor):
    r"""Arcs that are on form a projective dependency tree: :math:`f(x) = 1` if they do, else 0.

    Parameters
    ----------
    variables : array of int (K,)
        Binary variables; state 1 is on.
    heads, modifiers : array of int (K,)
        The arc that each stands for, from head 0..n (0 is the root) to word 1..n. Arcs without a variable are off.
    n_words : int
        n.
    single_root : bool
        True if exactly one word hangs from the root.

    Notes
    -----
    All messages come from one inside-outside run, O(n^3) a graph, in log space: to an arc's state on, the derivative of
    the sum by the arc's weight; to off, what the other arcs into the same word add up to. Nothing is subtracted, so
    arcs that messages or evidence force on or off need no care. Smith and Eisner (2008); Burkett and Klein (2013).
    """

    projective = True
    _max_exponent = 3


class SpanningTreeFactor(TreeFactor):
    r"""Arcs that are on form a dependency tree, whether arcs cross or not; see `ProjectiveTreeFactor`.

    Notes
    -----
    The derivatives come from one elimination of words, O(n^3) a graph. Those that are differences of nearly equal
    numbers would have lost their digits: their words, and all words of a graph in which messages or evidence force an
    arc on, are eliminated for once more each, without subtraction, O(n^3) a word and so O(n^4) a graph at worst. The
    maxima of ``best`` take a best tree for each arc: O(n^2) trees of O(n^2).
    """

    projective = False
    _max_exponent = 4


def _numbers(name: str, values: Any) -> Integers:
    array = np.asarray(values)
    if array.ndim != 1 or len(array) < 1 or array.dtype.kind not in "iu":
        raise ShapeError(f"{name} must be a list of one or more whole numbers, got {values!r}.")
    return array.astype(np.int64)
