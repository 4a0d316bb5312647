"""Argument records of the kernels of second-order dependency trees."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Integers = NDArray[np.int32]


class Parts(NamedTuple):
    """Parts of B sentences, one sentence after the other; made by `parts`.

    Attributes
    ----------
    n_words : ndarray of int (B,)
    arc_ptr : ndarray of int (B + 1,)
        The candidate arcs of sentence b are ``arc_ptr[b]:arc_ptr[b + 1]``.
    heads, modifiers : ndarray of int (A,)
        Sorted by head, then modifier. Head 0 is the root, words are 1..n.
    sibling_ptr : ndarray of int (B + 1,)
    sibling_heads : ndarray of int (S,)
        A word (or 0).
    sibling_previous, sibling_next : ndarray of int (S,)
        Arcs to two consecutive children of the head on one side, in outward order; ``previous`` is -1 before the
        first child, ``next`` -1 after the last. Both -1: no children on this side.
    sibling_sides : ndarray of int (S,)
        -1 left of the head, 1 right of it.
    grandparent_ptr : ndarray of int (B + 1,)
    grandparent_upper, grandparent_lower : ndarray of int (G,)
        Arcs g -> h and h -> m, m != g.
    node_ptr : ndarray of int (B + 1,)
        Nodes 0..n of sentence b are ``node_ptr[b]:node_ptr[b + 1]`` in the following arrays.
    out_start : ndarray of int (nodes + 1,)
        The arcs out of a node are ``out_start[node]:out_start[node + 1]``.
    in_start : ndarray of int (nodes + 1,)
    in_arcs : ndarray of int (A,)
        The arcs into a node, by head: ``in_arcs[in_start[node]:in_start[node + 1]]``.
    side_ptr : ndarray of int (B + 1,)
    sides : ndarray of int (sides, 4)
        Candidate children of a head on one side: the first arc, the step to the next (1 or -1), their number, and the
        first part. Child i (0: none before) followed by child j (1 to the number of children + 1: none after) is part
        ``j (j - 1) / 2 + i``. A side without candidates has no parts.
    """

    n_words: Longs
    arc_ptr: Longs
    heads: Integers
    modifiers: Integers
    sibling_ptr: Longs
    sibling_heads: Integers
    sibling_previous: Integers
    sibling_next: Integers
    sibling_sides: Integers
    grandparent_ptr: Longs
    grandparent_upper: Integers
    grandparent_lower: Integers
    node_ptr: Longs
    out_start: Longs
    in_start: Longs
    in_arcs: Longs
    side_ptr: Longs
    sides: Longs

    @property
    def n_sentences(self) -> int:
        """Number of sentences B."""
        return len(self.n_words)


class Scores(NamedTuple):
    """Scores of arcs (A,), siblings (S,) and grandparents (G,)."""

    arcs: Any
    siblings: Any
    grandparents: Any


class Options(NamedTuple):
    """Settings of belief propagation; see ``second_order.infer``."""

    projective: Any
    single_root: Any
    max_iter: Any
    tree_every: Any
    tolerance: Any
    damping: Any


class SecondOrderResult(NamedTuple):
    """Result of belief propagation.

    Attributes
    ----------
    log_partition : ndarray (B,)
        Bethe's estimate of log Z, exact without siblings and grandparents; -inf where no tree is possible.
    arcs : ndarray (A,)
        Beliefs of the arcs, from the last pass of the tree factor: those into a word sum to 1.
    siblings : ndarray (S,)
    grandparents : ndarray (G,)
        Beliefs of the other parts.
    converged : ndarray of bool (B,)
    n_iter : ndarray of int (B,)
    residual : ndarray (B,)
        Largest change of an arc's belief in the last iteration.
    tree_scores : ndarray (A,)
        Scores of arcs, the messages of all other factors included, that entered the last pass of the tree factor: a
        first-order model with these scores has the beliefs as marginals.
    """

    log_partition: Doubles
    arcs: Doubles
    siblings: Doubles
    grandparents: Doubles
    converged: NDArray[np.bool_]
    n_iter: Longs
    residual: Doubles
    tree_scores: Doubles


class Arcs(NamedTuple):
    """Candidate arcs of one sentence, numbered from 0."""

    heads: Any  # (A,)
    modifiers: Any  # (A,)
    out: Any  # (n+2,) arcs out of node i start at out[i]
    middle: Any  # (n+1,) those to its right start at middle[i]
    into: Any  # (n+2,) arcs into node i are in_arcs[into[i]:into[i + 1]]
    after: Any  # (n+1,) those from its right start at after[i]
    in_arcs: Any  # (A,)


class Charts(NamedTuple):
    """Charts of Eisner's recursions and the derivatives of log Z by them; names as in ``eisner``."""

    R: Any  # (n+1, stride), flat
    L: Any  # (n+1, stride), flat
    S: Any  # (A,)
    I: Any  # (A,)  # noqa: E741
    low: Any  # (n+1,) scratch
    OR: Any  # (n+1, stride), flat
    OL: Any  # (n+1, stride), flat
    OI: Any  # (A,)


class Elimination(NamedTuple):
    """Scratch space of ``spanning.derivatives``, flat float64 arrays of at least the given sizes."""

    A: Any  # (n+1)^2: row k holds the weights of the heads of the word at position k, the root's on the diagonal
    G: Any  # (n+1)^2 derivatives
    place: Any  # n+1: position of each word
    scratch: Any  # 3 (n+1)
