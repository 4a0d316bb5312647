"""Argument records of the kernels of second-order dependency trees."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Integers = NDArray[np.int32]


class Parts(NamedTuple):
    """Parts of B sentences, one sentence after the other; made by `parts`.

    The parts of a kind that belong to sentence b are ``ptr[b]:ptr[b + 1]``. Siblings are arcs to two consecutive
    children of a head on one side, in outward order; ``previous`` is -1 before the first child, ``next`` -1 after the
    last, both if there are no children on this side. Row k of ``sides`` are the candidate children of a head on one
    side: the first arc, the step to the next (1 or -1), their number, and the first part. Child i (0: none before)
    followed by child j (1 to the number of children + 1: none after) is part ``j (j - 1) / 2 + i``. A side without
    candidates has no parts.
    """

    n_words: Longs  # (B,)
    arc_ptr: Longs  # (B + 1,)
    heads: Integers  # (A,) of the candidate arcs, sorted by head, then modifier; head 0 is the root, words are 1..n
    modifiers: Integers  # (A,)
    sibling_ptr: Longs  # (B + 1,)
    sibling_heads: Integers  # (S,) a word, or 0
    sibling_previous: Integers  # (S,) an arc
    sibling_next: Integers  # (S,) an arc
    sibling_sides: Integers  # (S,) -1 left of the head, 1 right of it
    grandparent_ptr: Longs  # (B + 1,)
    grandparent_upper: Integers  # (G,) an arc g -> h
    grandparent_lower: Integers  # (G,) an arc h -> m, m != g
    node_ptr: Longs  # (B + 1,) of the nodes 0..n of each sentence in the next two arrays
    out_start: Longs  # (nodes + 1,) the arcs out of a node are out_start[node]:out_start[node + 1]
    in_start: Longs  # (nodes + 1,) the arcs into a node, by head, are in_arcs[in_start[node]:in_start[node + 1]]
    in_arcs: Longs  # (A,)
    side_ptr: Longs  # (B + 1,)
    sides: Longs  # (sides, 4)

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

    projective: Any = True
    single_root: Any = True
    max_iter: Any = 5
    tree_every: Any = 1
    tolerance: Any = 1e-4
    damping: Any = 0.0


class SecondOrderResult(NamedTuple):
    """Result of belief propagation.

    ``log_partition`` is Bethe's estimate of log Z, exact without siblings and grandparents; -inf where no tree is
    possible. ``tree_scores`` are the scores of arcs, the messages of all other factors included, that entered the last
    pass of the tree factor: a first-order model with these scores has the beliefs as marginals.
    """

    log_partition: Doubles  # (B,)
    arcs: Doubles  # (A,) beliefs from the last pass of the tree factor: those into a word sum to 1
    siblings: Doubles  # (S,) beliefs
    grandparents: Doubles  # (G,) beliefs
    converged: NDArray[np.bool_]  # (B,)
    n_iter: Longs  # (B,)
    residual: Doubles  # (B,) largest change of an arc's belief in the last iteration
    tree_scores: Doubles  # (A,)


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
