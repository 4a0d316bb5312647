r"""Dense grammars: inside-outside in scaled probability space, by matrix products over all spans of one width.

A grammar has N nonterminals (symbols 0..N-1, over spans of two positions or more) and P preterminals (N..N+P-1, over
single positions), S = N + P. With :math:`\rho` the rules and :math:`e` scores of symbols over spans,

.. math:: \beta_{ij}(A) = e_{ij}(A) \sum_{x, y} \rho(A, x, y) \sum_r \beta_{ir}(x) \beta_{r+1,j}(y) .

Every span's numbers are divided by their largest; its logarithm is kept. Only one position on either side can be a
preterminal, so its part of a rule is summed once for all spans that begin (or end) there: that leaves products of N by
N, N^3 a span. The way back is the derivative of log Z.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count, check_possible
from trelliswork.inference.span.brackets import Doubles, Integers
from trelliswork.inference.span.kernels import grammar as scaled_kernels
from trelliswork.inference.span.kernels import grammar_log as grammar_kernels

TREES = {"noun": "tree of sentence", "parts": "rules and spans"}  # for messages
LIMIT = 1e270  # of derivatives: a number below the smallest normal one, times this, is nothing


@dataclass(frozen=True)
class Grammar:
    """Scores of a batch of sentences under one grammar, float64.

    Attributes
    ----------
    log_root : ndarray (N,)
    log_rules : ndarray (N, S, S)
    log_terminals : ndarray (B, n, P)
    log_symbols : ndarray (B, n, n, S) or None
        Scores (evidence) of symbols over spans i..j, both ends included.
    lengths : ndarray (B,)
    """

    log_root: Doubles
    log_rules: Doubles
    log_terminals: Doubles
    log_symbols: Doubles | None
    lengths: Integers

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, n, N, P."""
        B, n, P = self.log_terminals.shape
        return B, n, len(self.log_root), P

    def take(self, which: NDArray[np.integer]) -> "Grammar":
        """The sentences ``which`` alone."""
        symbols = None if self.log_symbols is None else self.log_symbols[which]
        return Grammar(self.log_root, self.log_rules, self.log_terminals[which], symbols, self.lengths[which])


@dataclass
class Expected:
    """log Z (B,) and expectations: roots (B, N), rules (B, N, S, S), symbols over spans (B, n, n, S)."""

    log_z: Doubles
    roots: Doubles
    rules: Doubles
    symbols: Doubles

    @property
    def terminals(self) -> Doubles:
        """p(preterminal) of each position (B, n, P)."""
        n, N = self.symbols.shape[1], self.roots.shape[1]
        return self.symbols[:, np.arange(n), np.arange(n), N:]


def expectations(grammar: Grammar) -> Expected:
    """All expectations. Time O(n^2 N^3 + n^3 N^2 + n P N S), memory O(n^2 S + N S^2) a sentence."""
    found, safe, _ = _scaled(grammar)
    which = np.flatnonzero(~safe)
    if which.size:
        mended, _ = log_expectations(grammar.take(which))
        found.log_z[which], found.roots[which] = mended.log_z, mended.roots
        found.rules[which], found.symbols[which] = mended.rules, mended.symbols
    return found


def log_expectations(grammar: Grammar) -> tuple[Expected, Doubles]:
    """The same in log space, much slower and right for every input; and the inside chart (B, n, n, S)."""
    g = grammar
    B, n, N, P = g.sizes
    S = N + P
    symbols = np.zeros((B, n, n, S)) if g.log_symbols is None else g.log_symbols
    found = Expected(np.empty(B), np.zeros((B, N)), np.zeros((B, N, S, S)), np.zeros((B, n, n, S)))
    chart = np.full((B, n, n, S), -np.inf)

    def work(start: int, stop: int) -> None:
        grammar_kernels.expectations(
            start, stop, g.lengths, g.log_root, g.log_rules, g.log_terminals, symbols,
            chart, found.log_z, found.roots, found.rules, found.symbols,
        )  # fmt: skip

    threads.run(work, threads.cut(g.lengths**2 * N * S, least=1))
    return found, chart


def inside_chart(grammar: Grammar) -> Doubles:
    """log beta (B, n, n, S), -inf where nothing is possible."""
    _, safe, chart = _scaled(grammar, charts=True)
    which = np.flatnonzero(~safe)
    if which.size:
        chart[which] = log_expectations(grammar.take(which))[1]
    return chart


def topk(grammar: Grammar, k: int) -> tuple[Integers, Doubles]:
    """The k best trees: charts (B, k, n, n) of symbols, -1 for no span; scores (B, k). Time O(n^3 N S^2) at worst."""
    check_count("k", k)
    g = grammar
    B, n, N, P = g.sizes
    trees, scores = np.full((B, k, n, n), -1), np.full((B, k), -np.inf)
    symbols = np.zeros((B, n, n, N + P)) if g.log_symbols is None else g.log_symbols

    def work(start: int, stop: int) -> None:
        grammar_kernels.topk(start, stop, g.lengths, g.log_root, g.log_rules, g.log_terminals, symbols, trees, scores)

    threads.run(work, threads.cut(g.lengths**3 * N**3, least=threads.LEAST_WORK))
    check_possible(scores[:, 0], "no tree to decode", **TREES)
    return trees, scores


def sample(grammar: Grammar, seeds: Integers) -> Integers:
    """Exact draws: charts (k, B, n, n) of symbols, -1 for no span, from ``seeds`` (k, B)."""
    g = grammar
    B, n, N, P = g.sizes
    trees = np.full((*seeds.shape, n, n), -1)
    symbols = np.zeros((B, n, n, N + P)) if g.log_symbols is None else g.log_symbols
    chart = inside_chart(g)
    whole = g.log_root + chart[np.arange(B), 0, g.lengths - 1, :N]
    top = whole.max(axis=1)
    check_possible(top, "no tree to draw", **TREES)
    log_z = top + np.log(np.exp(whole - top[:, None]).sum(axis=1))

    def work(start: int, stop: int) -> None:
        grammar_kernels.sample(start, stop, g.lengths, g.log_root, g.log_rules, symbols, chart, log_z, seeds, trees)

    threads.run(work, threads.cut(g.lengths**2 * N**2 * len(seeds), least=threads.LEAST_WORK))
    return trees


def _scaled(g: Grammar, charts: bool = False) -> tuple[Expected, NDArray[np.bool_], Doubles]:
    """Expectations in scaled probability space, which sentences to believe, and the inside charts if asked for."""
    B, n, N, P = g.sizes
    S = N + P
    shift = _finite(g.log_rules.reshape(N, -1).max(axis=1))
    rules = np.exp(g.log_rules - shift[:, None, None])
    pairs = np.ascontiguousarray(rules[:, :N, :N].reshape(N, N * N).T)  # (xy, A)
    left_rules = np.ascontiguousarray(rules[:, N:].swapaxes(0, 1)).reshape(P, N * S)  # (x, Ay)
    right_rules = np.ascontiguousarray(rules[:, :N, N:].transpose(2, 0, 1)).reshape(P, N * N)  # (y, Ax)
    pairs_t, left_t, right_t = (np.ascontiguousarray(matrix.T) for matrix in (pairs, left_rules, right_rules))
    scores = g.log_terminals
    if g.log_symbols is not None:
        at = np.arange(n)
        scores = scores + g.log_symbols[:, at, at, N:]
    leaf_scale = scores.max(axis=2)
    leaves = np.exp(scores - _finite(leaf_scale)[..., None])
    symbols = np.empty((0, 0, 0, 0)) if g.log_symbols is None else g.log_symbols
    top = _finite(g.log_root.max())
    root = np.exp(g.log_root - top)
    found = Expected(np.empty(B), np.zeros((B, N)), np.zeros((B, N, S, S)), np.zeros((B, n, n, S)))
    chart = np.full((B if charts else 0, n, n, S), -np.inf)
    safe = np.empty(B, bool)

    def work(start: int, stop: int) -> None:
        scaled_kernels.expectations(
            start, stop, g.lengths, root, shift, rules, pairs, pairs_t, left_rules, left_t, right_rules, right_t,
            leaves, leaf_scale, symbols, LIMIT, found.log_z, safe, found.roots, found.rules, found.symbols, chart,
        )  # fmt: skip

    costs = g.lengths**2 * N**3 + g.lengths * P * N * S * 3
    threads.run(work, threads.cut(costs, least=threads.LEAST_WORK))
    found.log_z += top
    return found, safe, chart


def _finite(values: Doubles) -> Doubles:
    """-inf becomes 0: a divisor for what is zero anyway."""
    return np.where(values > -np.inf, values, 0.0)
