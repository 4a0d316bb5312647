r"""Second-order dependency trees by belief propagation: a tree factor, child sequences, grandparents.

.. math::
    p(y) \propto [y \text{ is a tree}] \exp\Big(\sum_{a \in y} s_a
    + \sum_{(h; i, j) \text{ consecutive children}} s_{hij} + \sum_{(g \to h \to m)} s_{ghm}\Big)

There is one variable (off, on) for each candidate arc, and three kinds of factors: one over all arcs that allows only
trees (Eisner's inside-outside, or the matrix-tree theorem); for each head and side an automaton that reads the
candidate children outwards and scores each with the previous one; for each pair of arcs g -> h -> m a score if both are
on. An iteration sends the messages of the automata and the pairs, and every ``tree_every`` iterations those of the
tree. Smith and Eisner, Dependency Parsing by Belief Propagation (2008); Burkett and Klein (ACL 2013 tutorial).
"""

import numpy as np

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.tree.second_order.kernels import beliefs as kernels
from trelliswork.inference.tree.second_order.kernels.records import (
    Doubles,
    Options,
    Parts,
    Scores,
    SecondOrderResult,
)
from trelliswork.inference.tree.second_order.parts import parts
from trelliswork.inference.tree.second_order.plain import infer as infer_plain

__all__ = ["Parts", "Scores", "SecondOrderResult", "infer", "parts"]


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
    """Compute beliefs and Bethe's log Z of a batch, from scores of its arcs (A,), siblings (S,) and grandparents (G,).

    A score of -inf forbids an arc, and ``projective`` crossing arcs; with ``single_root`` exactly one word depends on
    node 0. The tree factor, the most expensive one, sends its messages every ``tree_every`` iterations, starting with
    the first, and after the last; a ``max_iter`` of five iterations is enough for a parser. A sentence has converged
    when no arc's belief changed by more than ``tolerance`` in an iteration that updated all factors. ``damping`` is the
    share of the old log odds in a new message, in [0, 1); it helps where messages oscillate, and takes much longer.

    Time at most O(n^3 + siblings + grandparents) per iteration and sentence, memory O(n^2 + A + S + G).
    """
    check_count("max_iter", max_iter)
    check_count("tree_every", tree_every)
    if not 0 <= damping < 1:
        raise ValueRangeError(f"damping must be in [0, 1), got {damping!r}: it is the share of the old message.")
    if not tolerance >= 0:
        raise ValueRangeError(f"tolerance must not be negative, got {tolerance!r}.")
    limits = int(max_iter), int(tree_every), float(tolerance), float(damping)
    options = Options(bool(projective), bool(single_root), *limits)
    scores = Scores(
        _scores("arc_scores", arc_scores, len(parts.heads)),
        _scores("sibling_scores", sibling_scores, len(parts.sibling_heads)),
        _scores("grandparent_scores", grandparent_scores, len(parts.grandparent_upper)),
    )
    B = parts.n_sentences
    log_z, converged, n_iter, residual = np.empty(B), np.empty(B, np.bool_), np.empty(B, np.int64), np.empty(B)
    a, s, g = (np.empty(len(own)) for own in scores)
    results = SecondOrderResult(log_z, a, s, g, converged, n_iter, residual, np.ones(len(parts.heads)))
    safe = np.zeros(B, np.bool_)
    if not damping:
        siblings, pairs = np.diff(parts.sibling_ptr), np.diff(parts.grandparent_ptr)
        work = np.diff(parts.arc_ptr) * (parts.n_words + 20) + siblings + pairs  # of an iteration, roughly
        ranges = threads.cut(work * max_iter, least=threads.LEAST_WORK)
        threads.run(kernels.infer, ranges, parts, scores, options, results, safe)
    with np.errstate(divide="ignore", invalid="ignore"):  # in sentences that are not safe
        np.add(scores.arcs, np.log(results.tree_scores), out=results.tree_scores)
    for b in np.flatnonzero(~safe).tolist():  # numbers have left their range
        infer_plain(parts, scores, options, b, results)
    return results


def _scores(name: str, values: object, size: int) -> Doubles:
    """Return scores as float64 (size,); raise an error for nan and +inf."""
    array = np.ascontiguousarray(values, np.float64)
    if array.shape != (size,):
        raise ShapeError(f"{name} must have shape ({size},), one score per part, got {array.shape}.")
    if not (array < np.inf).all():
        bad = int(np.flatnonzero(~(array < np.inf))[0])
        raise ValueRangeError(f"{name} must be finite or -inf, got {array[bad]} at {bad}.")
    return array
