r"""Second-order dependency trees by belief propagation: a tree factor, child sequences, grandparents.

.. math::
    p(y) \propto [y \text{ is a tree}] \exp\Big(\sum_{a \in y} s_a
    + \sum_{(h; i, j) \text{ consecutive children}} s_{hij} + \sum_{(g \to h \to m)} s_{ghm}\Big)

One variable (off, on) for each candidate arc. The factors: one over all arcs that lets trees through (Eisner's
inside-outside, or the matrix-tree theorem); for each head and side an automaton that reads the candidate children
outwards and scores each with the one before it; for each pair of arcs g -> h -> m a score if both are on. An iteration
passes the messages of the automata and of the pairs, and those of the tree every so often. Smith and Eisner,
Dependency Parsing by Belief Propagation (2008); Burkett and Klein (ACL 2013 tutorial), tree factors.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.tree.second_order.kernels import (
    beliefs as second_order_kernels,
)
from trelliswork.inference.tree.second_order.kernels import (
    log_space as second_order_log_kernels,
)
from trelliswork.inference.tree.second_order.kernels.beliefs import Found, Net, Options
from trelliswork.inference.tree.second_order.parts import Doubles, Longs, Parts, parts

__all__ = ["Parts", "SecondOrderResult", "infer", "parts"]


@dataclass(frozen=True, slots=True)
class SecondOrderResult:
    """What belief propagation found.

    Parameters
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
        The largest change of an arc's belief in the last iteration.
    tree_scores : ndarray (A,)
        What the other factors and the arcs' own scores told the tree factor in its last pass: under these scores of
        arcs alone the marginals of a tree's arcs are the beliefs.
    """

    log_partition: Doubles
    arcs: Doubles
    siblings: Doubles
    grandparents: Doubles
    converged: NDArray[np.bool_]
    n_iter: Longs
    residual: Doubles
    tree_scores: Doubles


def infer(
    parts: Parts,
    arc_scores: object,
    sibling_scores: object = (),
    grandparent_scores: object = (),
    *,
    projective: bool = True,
    single_root: bool = True,
    max_iter: int = 5,
    tree_every: int = 1,
    tolerance: float = 1e-4,
    damping: float = 0.0,
) -> SecondOrderResult:
    """Beliefs and Bethe's log Z of a batch of sentences.

    Parameters
    ----------
    parts : Parts
    arc_scores : array (A,)
        -inf forbids an arc.
    sibling_scores : array (S,)
    grandparent_scores : array (G,)
    projective : bool
        Whether arcs must not cross.
    single_root : bool
        True if exactly one word hangs from node 0.
    max_iter : int
        At most so many iterations; five are enough for a parser.
    tree_every : int
        The tree factor, which costs most, sends its messages in every so manieth iteration, from the first on, and
        after the last.
    tolerance : float
        A sentence is done when no arc's belief changed by more in an iteration in which all factors took part.
    damping : float
        Share of the old log odds in a new message, 0 to below 1: helps where messages swing.

    Notes
    -----
    Time O(n^3 + siblings + grandparents) an iteration and sentence at most, memory O(n^2 + A + S + G).
    """
    check_count("max_iter", max_iter)
    check_count("tree_every", tree_every)
    if not 0 <= damping < 1:
        raise ValueRangeError(f"damping must lie in [0, 1), got {damping!r}: it is the share of the old message.")
    if not tolerance >= 0:
        raise ValueRangeError(f"tolerance must not be negative, got {tolerance!r}.")
    A, S, G = len(parts.heads), len(parts.sibling_heads), len(parts.grandparent_upper)
    scores = (
        _scores("arc_scores", arc_scores, A),
        _scores("sibling_scores", sibling_scores, S),
        _scores("grandparent_scores", grandparent_scores, G),
    )
    B = parts.n_sentences
    found = SecondOrderResult(
        np.empty(B),
        np.empty(A),
        np.empty(S),
        np.empty(G),
        np.empty(B, np.bool_),
        np.empty(B, np.int64),
        np.empty(B),
        np.ones(A),
    )
    options = Options(projective, single_root, max_iter, tree_every, float(tolerance), float(damping))
    net = Net(*(getattr(parts, name) for name in Net._fields))
    safe = np.ones(B, np.bool_)
    arrays = Found(*(getattr(found, name) for name in SecondOrderResult.__slots__))
    work = np.diff(parts.arc_ptr) * (parts.n_words + 20) + np.diff(parts.sibling_ptr) + np.diff(parts.grandparent_ptr)
    threads.run(
        lambda start, stop: second_order_kernels.infer(start, stop, net, *scores, options, arrays, safe),
        threads.cut(work * max_iter, least=threads.LEAST_WORK),
    )
    with np.errstate(divide="ignore", invalid="ignore"):  # of sentences that are not safe
        np.add(scores[0], np.log(found.tree_scores), out=found.tree_scores)
    which = np.flatnonzero(~safe)
    if which.size:
        threads.run(
            lambda start, stop: second_order_log_kernels.infer(
                start, stop, which, net, parts.grandparent_upper, parts.grandparent_lower, *scores, options, arrays
            ),
            threads.cut((parts.n_words[which] + 1) ** 3 * 20 * max_iter, least=threads.LEAST_WORK),
        )
    return found


def _scores(name: str, values: object, size: int) -> Doubles:
    """Float64 (size,) without nan and +inf."""
    array = np.ascontiguousarray(values, np.float64)
    if array.shape != (size,):
        raise ShapeError(f"{name} must have shape ({size},), one score a part, got {array.shape}.")
    if not (array < np.inf).all():
        bad = int(np.flatnonzero(~(array < np.inf))[0])
        raise ValueRangeError(f"{name} must be finite or -inf, got {array[bad]} at {bad}.")
    return array
