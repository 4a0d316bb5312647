"""Binary bracketings with a score for every span: allocate, call the kernels."""

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count, check_possible
from trelliswork.inference.span.kernels import brackets
from trelliswork.inference.span.potentials import Doubles, Integers

TREES = {"noun": "tree of sentence", "parts": "spans"}  # for error messages


def _ranges(lengths: Integers, cost: int) -> list[tuple[int, int]]:
    return threads.cut((lengths + 1) ** 3 * cost, least=threads.LEAST_WORK)


def expectations(log_span: Doubles, lengths: Integers) -> tuple[Doubles, Doubles]:
    """Return log Z (B,) and span marginals (B, n, n) from scores (B, n, n). Time O(n^3), memory O(n^2)."""
    log_z, marginals = np.empty(len(lengths)), np.empty(log_span.shape)
    threads.run(brackets.expectations, _ranges(lengths, 10), lengths, log_span, log_z, marginals)
    return log_z, marginals


def topk(log_span: Doubles, lengths: Integers, k: int) -> tuple[Integers, Doubles]:
    """Return the k best bracketings: charts (B, k, n, n), the rank of a span's label or -1, and scores (B, k).

    ``log_span`` (B, n, n, R) holds the scores of the R best labels of each span, best first; R = 1 without labels.
    """
    check_count("k", k)
    B, n = log_span.shape[:2]
    charts, scores = np.full((B, k, n, n), -1), np.full((B, k), -np.inf)
    threads.run(brackets.topk, _ranges(lengths, k), lengths, log_span, charts, scores)
    check_possible(scores[:, 0], "no tree to decode", **TREES)
    return charts, scores


def sample(log_span: Doubles, lengths: Integers, seeds: Integers) -> Integers:
    """Return exact draws: charts (k, B, n, n), 0 at the spans of a tree and -1 elsewhere, from ``seeds`` (k, B)."""
    n = log_span.shape[1]
    log_z, charts = np.empty(len(lengths)), np.full((*seeds.shape, n, n), -1)
    threads.run(brackets.sample, _ranges(lengths, 10), lengths, log_span, seeds, log_z, charts)
    check_possible(log_z, "no tree to draw", **TREES)
    return charts


def read(charts: Integers, lengths: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the splits (B, n, n) of charts (B, n, n), -1 where there is none, and whether each is a tree (B,)."""
    splits, good = np.full(charts.shape, -1), np.empty(len(lengths), bool)
    brackets.read(lengths, charts, splits, good)
    return splits, good
