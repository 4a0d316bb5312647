r"""Low-rank grammars: rules that factor through R hidden values, and inside-outside over these values alone.

A rule's weight is a sum of products of nonnegative factors,

.. math:: \rho(A, x, y) = \sum_r U(A, r) V(r, x) W(r, y) .

For a span i..j with inside numbers :math:`\beta_{ij}` let :math:`l_{ij} = V \beta_{ij}` and :math:`w_{ij} = W
\beta_{ij}`, once for each span. Splits are then sums of products of R numbers,

.. math:: c_{ij}(r) = \sum_k l_{ik}(r) w_{k+1,j}(r), \qquad \beta_{ij} = U c_{ij},

time O(n^3 R + n^2 N R) instead of O(n^3 N^2 + n^2 N^3). For spans longer than one position, :math:`l_{ij} = (V U)
c_{ij}`: the R x R products are computed once, and the chart never leaves rank space (Yang, Liu and Tu, 2022):
O(n^3 R + n^2 R^2). The outside pass is the derivative of log Z; the derivatives by the two products are sums over
spans, and those by U, V, W follow from them once for the whole batch.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference.span import plain
from trelliswork.inference.span.kernels import lowrank
from trelliswork.inference.span.potentials import Doubles, LowRankGrammar, dense_rules, finite

__all__ = ["LowRankGrammar", "RankExpected", "dense_rules", "expectations", "log_expectations"]


@dataclass
class RankExpected:
    """log Z and expectations.

    Those of a factor are the expected number of uses of each of its entries, summed over the sentences with their
    weights: the gradients by ``log_root``, ``log_up``, ``log_left``, ``log_right``.
    """

    log_z: Doubles  # (B,)
    roots: Doubles  # (N,)
    ups: Doubles  # (N, R)
    lefts: Doubles  # (R, S)
    rights: Doubles  # (R, S)
    terminals: Doubles  # (B, n, P) p(preterminal) of each position
    spans: Doubles  # (B, n, n) p(span in the tree); 1 for single positions
    symbols: Doubles | None  # (B, n, n, S) p(symbol over span), if requested


def expectations(grammar: LowRankGrammar, weights: Doubles | None = None, *, symbols: bool = False) -> RankExpected:
    """Return log Z and all expectations.

    ``weights`` (B,) are those of the sentences in the counts that are summed over them, 1 by default; ``symbols`` also
    computes p(symbol over span), O(n^2 N R) more per sentence.

    Time O(n^3 R + n^2 R^2 + n P R) per sentence and O(N R^2) per batch; memory O(n^2 R) per thread. In scaled float64;
    sentences with significant underflow are recomputed in log space.
    """
    g = grammar
    B, n, N, P, R = g.sizes
    by = np.ones(B) if weights is None else np.asarray(weights, np.float64)
    left_top, right_top = finite(g.log_left.max(axis=1)), finite(g.log_right.max(axis=1))
    scores = g.log_up + (left_top + right_top)
    top, root_top = finite(scores.max()), finite(g.log_root.max())
    root, up = np.exp(g.log_root - root_top), np.exp(scores - top)
    left, right = np.exp(g.log_left - left_top[:, None]), np.exp(g.log_right - right_top[:, None])
    inner = [np.ascontiguousarray(x) for x in (left[:, :N] @ up, right[:, :N] @ up)]
    outer = [np.ascontiguousarray(x[:, N:]) for x in (left, right)]
    matrices = [y for x in (*inner, *outer) for y in (x, np.ascontiguousarray(x.T))]
    leaf_scale = g.log_terminals.max(axis=2)
    leaves = np.exp(g.log_terminals - finite(leaf_scale)[..., None])
    costs = g.lengths**3 * R // 2 + g.lengths**2 * R * R * 3 + g.lengths * P * R * 6
    ranges = threads.cut(costs, least=threads.LEAST_WORK)
    numbers = {start: number for number, (start, _) in enumerate(ranges)}
    factors = lowrank.Factors(root @ up, float(top), *matrices)
    sentences = lowrank.Sentences(g.lengths, by, leaves, leaf_scale)
    sums = lowrank.Sums(*(np.zeros((len(ranges), *shape)) for shape in ((R,), (R, R), (R, R), (R, P), (R, P))))
    out = lowrank.Output(
        log_z=np.empty(B),
        safe=np.empty(B, bool),
        spans=np.zeros((B, n, n)),
        terminals=np.zeros((B, n, P)),
        charts=np.zeros((B if symbols else 0, n, n, 3, R)),
    )
    threads.run(
        lambda start, stop: lowrank.expectations(start, stop, numbers[start], factors, sentences, sums, out), ranges
    )
    by_root, by_inner_left, by_inner_right, by_leaf_left, by_leaf_right = (x.sum(axis=0) for x in sums)
    ups = root[:, None] * by_root + left[:, :N].T @ by_inner_left + right[:, :N].T @ by_inner_right
    expected = RankExpected(
        out.log_z + root_top,
        root * (up @ by_root),
        up * ups,
        left * np.concatenate([by_inner_left @ up.T, by_leaf_left], axis=1),
        right * np.concatenate([by_inner_right @ up.T, by_leaf_right], axis=1),
        out.terminals,
        out.spans,
        None,
    )
    if symbols:
        mixed, by_left, by_right = out.charts[..., 0, :], out.charts[..., 1, :], out.charts[..., 2, :]
        expected.symbols = np.zeros((B, n, n, N + P))
        expected.symbols[..., :N] = (mixed @ up.T) * (by_left @ left[:, :N] + by_right @ right[:, :N])
        at = np.arange(n)
        expected.symbols[:, at, at, N:] = out.terminals
        whole = np.arange(B), 0, g.lengths - 1
        over_all = (mixed[whole] @ up.T) * root
        total = over_all.sum(axis=1, keepdims=True)
        expected.symbols[(*whole, slice(None, N))] = over_all / np.where(total > 0, total, 1)
    _recompute(g, by, out.safe, expected)
    return expected


def log_expectations(grammar: LowRankGrammar, weights: Doubles | None = None, *, symbols: bool = False) -> RankExpected:
    """Return the expectations, computed in log space: accurate for every input, but slow."""
    g = grammar
    B, n, N, P, R = g.sizes
    roots, ups, lefts, rights = (np.zeros(shape) for shape in ((N,), (N, R), (R, N + P), (R, N + P)))
    log_z, over = np.empty(B), np.zeros((B, n, n, N + P))
    for b, m in enumerate(g.lengths):
        factors = g.log_root, g.log_up, g.log_left, g.log_right, g.log_terminals[b, :m]
        log_z[b], over[b, :m, :m], *counts = plain.lowrank(*factors)
        for total, own in zip((roots, ups, lefts, rights), (over[b, 0, m - 1, :N], *counts), strict=True):
            total += own * (1.0 if weights is None else weights[b])
    at = np.arange(n)
    terminals, spans = over[:, at, at, N:], over.sum(axis=3)
    return RankExpected(log_z, roots, ups, lefts, rights, terminals, spans, over if symbols else None)


def _recompute(g: LowRankGrammar, by: Doubles, safe: NDArray[np.bool_], expected: RankExpected) -> None:
    """Recompute the unsafe sentences in log space; the kernel has left them out of the sums."""
    which = np.flatnonzero(~safe)
    if not which.size:
        return
    again = log_expectations(g.take(which), by[which], symbols=expected.symbols is not None)
    expected.log_z[which], expected.spans[which] = again.log_z, again.spans
    expected.terminals[which] = again.terminals
    for name in ("roots", "ups", "lefts", "rights"):
        getattr(expected, name)[:] += getattr(again, name)
    if expected.symbols is not None and again.symbols is not None:
        expected.symbols[which] = again.symbols
