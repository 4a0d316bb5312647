r"""Dense grammars: inside-outside in scaled probability space, by matrix products over all spans of one width.

A grammar has N nonterminals (symbols 0..N-1, over spans of two positions or more) and P preterminals (N..N+P-1, over
single positions), S = N + P. With :math:`\rho` the rules and :math:`e` scores of symbols over spans,

.. math:: \beta_{ij}(A) = e_{ij}(A) \sum_{x, y} \rho(A, x, y) \sum_r \beta_{ir}(x) \beta_{r+1,j}(y) .

The numbers of each span are divided by their maximum, whose logarithm is kept. Only single positions can be
preterminals, so their part of a rule is summed once for all spans that start (or end) there: that leaves products of N
by N, N^3 per span. The outside pass is the derivative of log Z.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_possible, number_of_best
from trelliswork.compute.limits import check_cost
from trelliswork.inference.span import plain
from trelliswork.inference.span.kernels import derivations
from trelliswork.inference.span.kernels import grammar as scaled
from trelliswork.inference.span.potentials import Doubles, Grammar, Integers, finite

TREES = {"noun": "tree of sentence", "parts": "rules and spans"}  # for error messages


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
    """Return all expectations. Time O(n^2 N^3 + n^3 N^2 + n P N S), memory O(n^2 S + N S^2) per sentence."""
    expected, safe, _ = _scaled(grammar)
    which = np.flatnonzero(~safe)
    if which.size:
        again, _ = log_expectations(grammar.take(which))
        expected.log_z[which], expected.roots[which] = again.log_z, again.roots
        expected.rules[which], expected.symbols[which] = again.rules, again.symbols
    return expected


def log_expectations(grammar: Grammar) -> tuple[Expected, Doubles]:
    """Return the expectations and the inside chart (B, n, n, S), from log space: right for every input, but slow."""
    B, n, N, P = grammar.sizes
    expected, chart, scores = _zeros(B, n, N, N + P), np.full((B, n, n, N + P), -np.inf), _scores(grammar)
    for b, m in enumerate(grammar.lengths):
        sentence = scores.log_terminals[b, :m], scores.log_symbols[b, :m, :m]
        log_z, inside, expected.rules[b], symbols = plain.grammar(scores.log_root, scores.log_rules, *sentence)
        expected.log_z[b], chart[b, :m, :m], expected.symbols[b, :m, :m] = log_z, inside, symbols
        expected.roots[b] = symbols[0, m - 1, :N]
    return expected, chart


def inside_chart(grammar: Grammar) -> Doubles:
    """Return log beta (B, n, n, S), -inf where nothing is possible."""
    _, safe, chart = _scaled(grammar, charts=True)
    which = np.flatnonzero(~safe)
    if which.size:
        chart[which] = log_expectations(grammar.take(which))[1]
    return chart


def topk(grammar: Grammar, k: int) -> tuple[Integers, Doubles]:
    """Return the k best trees: charts (B, k, n, n) of symbols, -1 for no span, and scores (B, k).

    Axis 1 is shorter than k if there are fewer trees than that. Time O(n^3 N S^2) at worst.
    """
    B, n, N, P = grammar.sizes
    k = number_of_best(k, (4, n - 1), (N, n - 1), (P, n))
    what = f"a search for the {k:,} best trees of {n:,} words"
    check_cost(what, operations=float(n) ** 3 * N * k, n_bytes=8.0 * n * n * k * (6 * N + P + B))
    trees, values, scores = np.full((B, k, n, n), -1), np.full((B, k), -np.inf), _scores(grammar)
    ranges = threads.cut(grammar.lengths**3 * N**3, least=threads.LEAST_WORK)
    threads.run(derivations.topk, ranges, scores, trees, values)
    check_possible(values[:, 0], "no tree to decode", **TREES)
    return trees, values


def sample(grammar: Grammar, seeds: Integers) -> Integers:
    """Return exact draws: charts (k, B, n, n) of symbols, -1 for no span, from ``seeds`` (k, B)."""
    B, n, N, _ = grammar.sizes
    trees, scores, chart = np.full((*seeds.shape, n, n), -1), _scores(grammar), inside_chart(grammar)
    whole = grammar.log_root + chart[np.arange(B), 0, grammar.lengths - 1, :N]
    top = whole.max(axis=1)
    check_possible(top, "no tree to draw", **TREES)
    log_z = top + np.log(np.exp(whole - top[:, None]).sum(axis=1))
    ranges = threads.cut(grammar.lengths**2 * N**2 * len(seeds), least=threads.LEAST_WORK)
    threads.run(derivations.sample, ranges, scores, chart, log_z, seeds, trees)
    return trees


def _scores(g: Grammar) -> derivations.Scores:
    """Return the argument record of the kernels in log space."""
    B, n, N, P = g.sizes
    symbols = np.zeros((B, n, n, N + P)) if g.log_symbols is None else g.log_symbols
    return derivations.Scores(g.log_root, g.log_rules, g.log_terminals, symbols, g.lengths)


def _zeros(B: int, n: int, N: int, S: int) -> Expected:
    return Expected(np.empty(B), np.zeros((B, N)), np.zeros((B, N, S, S)), np.zeros((B, n, n, S)))


def _scaled(g: Grammar, charts: bool = False) -> tuple[Expected, NDArray[np.bool_], Doubles]:
    """Return expectations in scaled probability space, which sentences are safe, and the inside charts if requested."""
    B, n, N, P = g.sizes
    S = N + P
    shift = finite(g.log_rules.reshape(N, -1).max(axis=1))
    rules = np.exp(g.log_rules - shift[:, None, None])
    pairs = np.ascontiguousarray(rules[:, :N, :N].reshape(N, N * N).T)  # (xy, A)
    left = np.ascontiguousarray(rules[:, N:].swapaxes(0, 1)).reshape(P, N * S)  # (x, Ay)
    right = np.ascontiguousarray(rules[:, :N, N:].transpose(2, 0, 1)).reshape(P, N * N)  # (y, Ax)
    pairs_t, left_t, right_t = (np.ascontiguousarray(matrix.T) for matrix in (pairs, left, right))
    scores = g.log_terminals
    if g.log_symbols is not None:
        at = np.arange(n)
        scores = scores + g.log_symbols[:, at, at, N:]
    leaf_scale = scores.max(axis=2)
    leaves = np.exp(scores - finite(leaf_scale)[..., None])
    symbols = np.empty((0, 0, 0, 0)) if g.log_symbols is None else g.log_symbols
    top = finite(g.log_root.max())
    expected, safe = _zeros(B, n, N, S), np.empty(B, bool)
    chart = np.full((B if charts else 0, n, n, S), -np.inf)
    root = np.exp(g.log_root - top)
    factors = scaled.Rules(root, shift, rules, pairs, pairs_t, left, left_t, right, right_t)
    sentences = scaled.Sentences(g.lengths, leaves, leaf_scale, symbols)
    out = scaled.Output(expected.log_z, safe, expected.roots, expected.rules, expected.symbols, chart)
    costs = g.lengths**3 * N**2 + g.lengths**2 * N**3 + g.lengths * P * N * S * 3
    ranges = threads.cut(costs, least=threads.LEAST_WORK)
    threads.run(scaled.expectations, ranges, factors, sentences, out)
    expected.log_z += top
    return expected, safe, chart
