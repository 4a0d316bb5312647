"""Argument records of the kernels of second-order dependency trees."""

from typing import Any, NamedTuple


class Net(NamedTuple):
    """The fields of ``Parts`` that the kernels read."""

    n_words: Any
    arc_ptr: Any
    heads: Any
    modifiers: Any
    sibling_ptr: Any
    grandparent_ptr: Any
    grandparent_upper: Any
    grandparent_lower: Any
    node_ptr: Any
    out_start: Any
    in_start: Any
    in_arcs: Any
    side_ptr: Any
    sides: Any


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


class Results(NamedTuple):
    """Output arrays, the fields of ``SecondOrderResult``."""

    log_z: Any
    arcs: Any
    siblings: Any
    grandparents: Any
    converged: Any
    n_iter: Any
    residual: Any
    tree_scores: Any


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
