"""Binary bracketings with a score for every span: allocate, call the kernels."""

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_possible, number_of_best
from trelliswork.compute.limits import check_cost
from trelliswork.inference.span.kernels import brackets
from trelliswork.inference.span.potentials import Doubles, Integers, finite

TREES = {"noun": "tree of sentence", "parts": "spans"}  # for error messages


def _ranges(lengths: Integers, cost: int) -> list[tuple[int, int]]:
    return threads.cut((lengths + 1) ** 3 * cost, least=threads.LEAST_WORK)


def _shifted(log_span: Doubles, lengths: Integers) -> tuple[Doubles, Doubles]:
    """Return scores less the largest of each sentence, and the sum (B,) of these over the 2 n - 1 spans of a tree.

    Otherwise small differences would be lost beside large scores.
    """
    at = np.arange(log_span.shape[1])
    inside = (at[:, None] <= at) & (at < lengths[:, None, None])
    top = finite(np.where(inside, log_span, -np.inf).max(axis=(1, 2)))
    return log_span - top[:, None, None], (2 * lengths - 1) * top


def expectations(log_span: Doubles, lengths: Integers) -> tuple[Doubles, Doubles]:
    """Return log Z (B,) and span marginals (B, n, n) from scores (B, n, n). Time O(n^3), memory O(n^2)."""
    log_z, marginals = np.empty(len(lengths)), np.empty(log_span.shape)
    scores, shift = _shifted(log_span, lengths)
    threads.run(brackets.expectations, _ranges(lengths, 10), lengths, scores, log_z, marginals)
    return log_z + shift, marginals


def topk(log_span: Doubles, lengths: Integers, k: int) -> tuple[Integers, Doubles]:
    """Return the k best bracketings: charts (B, k, n, n), the rank of a span's label or -1, and scores (B, k).

    ``log_span`` (B, n, n, R) holds the scores of the R best labels of each span, best first; R = 1 without labels. Axis
    1 of the results is shorter than k if there are fewer trees than that.
    """
    B, n, _, R = log_span.shape
    k = number_of_best(k, (4, n - 1), (R, 2 * n - 1))
    what = f"a search for the {k:,} best trees of {n:,} words"
    check_cost(what, operations=float(n) ** 3 * k, n_bytes=(64.0 + 8.0 * B) * n * n * k)
    charts, scores = np.full((B, k, n, n), -1), np.full((B, k), -np.inf)
    threads.run(brackets.topk, _ranges(lengths, k), lengths, log_span, charts, scores)
    check_possible(scores[:, 0], "no tree to decode", **TREES)
    return charts, scores


def sample(log_span: Doubles, lengths: Integers, seeds: Integers) -> Integers:
    """Return exact draws: charts (k, B, n, n), 0 at the spans of a tree and -1 elsewhere, from ``seeds`` (k, B)."""
    n = log_span.shape[1]
    log_z, charts = np.empty(len(lengths)), np.full((*seeds.shape, n, n), -1)
    threads.run(brackets.sample, _ranges(lengths, 10), lengths, _shifted(log_span, lengths)[0], seeds, log_z, charts)
    check_possible(log_z, "no tree to draw", **TREES)
    return charts


def read(charts: Integers, lengths: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the splits (B, n, n) of charts (B, n, n), -1 where there is none, and whether each is a tree (B,).

    A tree of m words has 2 m - 1 spans, one of them over all words, and those of two words or more have a split.
    """
    B, n, _ = charts.shape
    at = np.arange(n)
    spans = (charts >= 0) & (at[:, None] <= at) & (at < lengths[:, None, None])
    splits = np.full(charts.shape, -1)
    for r in range(n - 2, -1, -1):  # the first split counts
        splits[spans & spans[:, :, r, None] & spans[:, None, r + 1]] = r
    good = (spans.sum(axis=(1, 2)) == 2 * lengths - 1) & spans[np.arange(B), 0, lengths - 1]
    return splits, good & (~spans | (splits >= 0) | np.eye(n, dtype=bool)).all(axis=(1, 2))
