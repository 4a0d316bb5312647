r"""Low-rank grammars: rules that pass through R hidden values, and inside-outside among these values alone.

A rule's weight is a sum of products of nonnegative factors,

.. math:: \rho(A, x, y) = \sum_r U(A, r) V(r, x) W(r, y) .

For a span i..j with inside numbers :math:`\beta_{ij}` let :math:`l_{ij} = V \beta_{ij}` and :math:`w_{ij} = W
\beta_{ij}`, once for each span. Splits are then sums of products of R numbers,

.. math:: c_{ij}(r) = \sum_k l_{ik}(r) w_{k+1,j}(r), \qquad \beta_{ij} = U c_{ij},

time O(n^3 R + n^2 N R) instead of O(n^3 N^2 + n^2 N^3). Longer than one position, :math:`l_{ij} = (V U) c_{ij}`: the
R x R products are made once, and the chart never leaves rank space (Yang, Liu and Tu, 2022): O(n^3 R + n^2 R^2). The
way back is the derivative of log Z; the derivatives by the two products are sums over spans, and those by U, V, W
follow from them once for the whole batch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_lengths, check_scores, check_shape
from trelliswork.inference.span.brackets import Doubles, Integers
from trelliswork.inference.span.grammar import LIMIT, Grammar
from trelliswork.inference.span.kernels import lowrank as lowrank_kernels
from trelliswork.inference.span.kernels import lowrank_log as lowrank_log_kernels


@dataclass(frozen=True)
class LowRankGrammar:
    """Scores of a batch of sentences under one low-rank grammar, float64; -inf is impossible.

    Attributes
    ----------
    log_root : ndarray (N,)
    log_up : ndarray (N, R)
        log U: from the symbol above to the rank.
    log_left, log_right : ndarray (R, S)
        log V, log W: from the rank to the two symbols below; nonterminals first, then P = S - N preterminals.
    log_terminals : ndarray (B, n, P)
    lengths : ndarray (B,)
    """

    log_root: Doubles
    log_up: Doubles
    log_left: Doubles
    log_right: Doubles
    log_terminals: Doubles
    lengths: Integers

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """B, n, N, P, R."""
        B, n, P = self.log_terminals.shape
        return B, n, len(self.log_root), P, len(self.log_left)

    def check(self) -> None:
        """Refuse shapes and values that do not fit."""
        sizes = check_shape("log_root", self.log_root.shape, "N")
        sizes = check_shape("log_up", self.log_up.shape, "N R", **sizes)
        sizes = check_shape("log_left", self.log_left.shape, "R S", **sizes)
        check_shape("log_right", self.log_right.shape, "R S", **sizes)
        P = sizes["S"] - sizes["N"]
        found = check_shape("log_terminals", self.log_terminals.shape, "B n P", P=P)
        check_lengths(self.lengths, found["B"], found["n"])
        for name in ("log_root", "log_up", "log_left", "log_right"):
            check_scores(name, getattr(self, name))
        check_scores("log_terminals", self.log_terminals, np.arange(found["n"]) < self.lengths[:, None])

    def take(self, which: NDArray[np.integer]) -> "LowRankGrammar":
        """The sentences ``which`` alone."""
        shared = self.log_root, self.log_up, self.log_left, self.log_right
        return LowRankGrammar(*shared, self.log_terminals[which], self.lengths[which])

    def dense(self) -> Grammar:
        """The same grammar with all its rules laid out, (N, S, S)."""
        log_rules = dense_rules(self.log_up, self.log_left, self.log_right)
        return Grammar(self.log_root, log_rules, self.log_terminals, None, self.lengths)


@dataclass
class RankExpected:
    """log Z (B,) and expectations.

    Attributes
    ----------
    log_z : ndarray (B,)
    roots, ups, lefts, rights : ndarray (N,), (N, R), (R, S), (R, S)
        How often each entry of a factor is used, summed over the sentences with their weights: the gradients by
        ``log_root``, ``log_up``, ``log_left``, ``log_right``.
    terminals : ndarray (B, n, P)
        p(preterminal) of each position, of each sentence.
    spans : ndarray (B, n, n)
        p(span in the tree) of each sentence; 1 for single positions.
    symbols : ndarray (B, n, n, S) or None
        p(symbol over span), if asked for.
    """

    log_z: Doubles
    roots: Doubles
    ups: Doubles
    lefts: Doubles
    rights: Doubles
    terminals: Doubles
    spans: Doubles
    symbols: Doubles | None


def dense_rules(log_up: Doubles, log_left: Doubles, log_right: Doubles) -> Doubles:
    """Log rules (N, S, S) of the factors. Time O(N S^2 R)."""
    up_top, left_top, right_top = (_finite(x.max(axis=1)) for x in (log_up.T, log_left, log_right))
    shifts = up_top + left_top + right_top  # by rank
    top = _finite(shifts.max())
    up = np.exp(log_up - up_top + shifts - top)
    left, right = np.exp(log_left - left_top[:, None]), np.exp(log_right - right_top[:, None])
    with np.errstate(divide="ignore"):
        return np.log(np.einsum("ar,rx,ry->axy", up, left, right, optimize=True)) + top


def expectations(grammar: LowRankGrammar, weights: Doubles | None = None, *, symbols: bool = False) -> RankExpected:
    """log Z and all expectations.

    Parameters
    ----------
    grammar : LowRankGrammar
    weights : ndarray (B,), optional
        Of the sentences, in the counts that are summed over them; 1 by default.
    symbols : bool
        Whether p(symbol over span) is wanted, O(n^2 N R) more a sentence.

    Notes
    -----
    Time O(n^3 R + n^2 R^2 + n P R) a sentence and O(N R^2) a batch; memory O(n^2 R) a thread. In float64 and scaled; a
    sentence whose numbers underflow where it could count is done again in log space.
    """
    g = grammar
    B, n, N, P, R = g.sizes
    by = np.ones(B) if weights is None else np.asarray(weights, np.float64)
    left_top, right_top = _finite(g.log_left.max(axis=1)), _finite(g.log_right.max(axis=1))
    scores = g.log_up + (left_top + right_top)
    top, root_top = _finite(scores.max()), _finite(g.log_root.max())
    root, up = np.exp(g.log_root - root_top), np.exp(scores - top)
    left, right = np.exp(g.log_left - left_top[:, None]), np.exp(g.log_right - right_top[:, None])
    inner = [np.ascontiguousarray(x) for x in (left[:, :N] @ up, right[:, :N] @ up)]
    outer = [np.ascontiguousarray(x[:, N:]) for x in (left, right)]
    matrices = [y for x in (*inner, *outer) for y in (x, np.ascontiguousarray(x.T))]
    leaf_scale = g.log_terminals.max(axis=2)
    leaves = np.exp(g.log_terminals - _finite(leaf_scale)[..., None])
    costs = g.lengths**3 * R // 2 + g.lengths**2 * R * R * 3 + g.lengths * P * R * 6
    ranges = threads.cut(costs, least=threads.LEAST_WORK)
    numbers = {start: number for number, (start, _) in enumerate(ranges)}
    sums = [np.zeros((len(ranges), *shape)) for shape in ((R,), (R, R), (R, R), (R, P), (R, P))]
    log_z, safe = np.empty(B), np.empty(B, bool)
    spans, terminals = np.zeros((B, n, n)), np.zeros((B, n, P))
    charts = np.zeros((B if symbols else 0, n, n, 3, R))

    given: tuple[Any, ...] = (g.lengths, by, root @ up, top, *matrices, leaves, leaf_scale, LIMIT)
    out: tuple[Any, ...] = (log_z, safe, *sums, spans, terminals, charts)

    def work(start: int, stop: int) -> None:
        lowrank_kernels.expectations(*(start, stop, numbers[start], *given, *out))

    threads.run(work, ranges)
    log_z += root_top
    by_root, by_inner_left, by_inner_right, by_leaf_left, by_leaf_right = (x.sum(axis=0) for x in sums)
    ups = root[:, None] * by_root + left[:, :N].T @ by_inner_left + right[:, :N].T @ by_inner_right
    found = RankExpected(
        log_z,
        root * (up @ by_root),
        up * ups,
        left * np.concatenate([by_inner_left @ up.T, by_leaf_left], axis=1),
        right * np.concatenate([by_inner_right @ up.T, by_leaf_right], axis=1),
        terminals,
        spans,
        None,
    )
    if symbols:
        mixed, by_left, by_right = charts[..., 0, :], charts[..., 1, :], charts[..., 2, :]
        found.symbols = np.zeros((B, n, n, N + P))
        found.symbols[..., :N] = (mixed @ up.T) * (by_left @ left[:, :N] + by_right @ right[:, :N])
        at = np.arange(n)
        found.symbols[:, at, at, N:] = terminals
        whole = np.arange(B), 0, g.lengths - 1
        over_all = (mixed[whole] @ up.T) * root
        total = over_all.sum(axis=1, keepdims=True)
        found.symbols[(*whole, slice(None, N))] = over_all / np.where(total > 0, total, 1)
    _mend(g, by, safe, found)
    return found


def log_expectations(grammar: LowRankGrammar, weights: Doubles | None = None, *, symbols: bool = False) -> RankExpected:
    """The same in log space, much slower and right for every input."""
    g = grammar
    B, n, N, P, R = g.sizes
    by = np.ones(B) if weights is None else np.asarray(weights, np.float64)
    ranges = threads.cut(g.lengths**2 * N * R, least=1)
    numbers = {start: number for number, (start, _) in enumerate(ranges)}
    sums = [np.zeros((len(ranges), *shape)) for shape in ((N,), (N, R), (R, N + P), (R, N + P))]
    log_z, spans, terminals = np.empty(B), np.zeros((B, n, n)), np.zeros((B, n, P))
    over = np.zeros((B if symbols else 0, n, n, N + P))

    given: tuple[Any, ...] = (g.lengths, by, g.log_root, g.log_up, g.log_left, g.log_right, g.log_terminals)
    out: tuple[Any, ...] = (log_z, *sums, spans, terminals, over)

    def work(start: int, stop: int) -> None:
        lowrank_log_kernels.expectations(*(start, stop, numbers[start], *given, *out))

    threads.run(work, ranges)
    roots, ups, lefts, rights = (x.sum(axis=0) for x in sums)
    return RankExpected(log_z, roots, ups, lefts, rights, terminals, spans, over if symbols else None)


def _mend(g: LowRankGrammar, by: Doubles, safe: NDArray[np.bool_], found: RankExpected) -> None:
    """Do the sentences that are not safe again in log space; the kernel added nothing of theirs to the sums."""
    which = np.flatnonzero(~safe)
    if not which.size:
        return
    again = log_expectations(g.take(which), by[which], symbols=found.symbols is not None)
    found.log_z[which], found.spans[which], found.terminals[which] = again.log_z, again.spans, again.terminals
    for name in ("roots", "ups", "lefts", "rights"):
        getattr(found, name)[:] += getattr(again, name)
    if found.symbols is not None and again.symbols is not None:
        found.symbols[which] = again.symbols


def _finite(values: Doubles) -> Doubles:
    """-inf becomes 0: a divisor for what is zero anyway."""
    return np.where(values > -np.inf, values, 0.0)
