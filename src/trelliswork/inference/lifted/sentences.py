r"""Sentences of a given length between K pads: scores, and log partition functions exactly or from above.

.. math:: s(t) = \sum_i \theta^0(t_i) + \sum_l \sum_i \theta^l(x_i, x_{i+l})

over the M words and the pairs with at least one word in the padded sentence x; pads and pairs of pads, which are
constant for a given length, are excluded. A chain cover (``reference`` (4)) also bounds :math:`\log Z_M`: with fixed
pads, words at distance l form l chains that start and end with a pad, whose sums take O(M C^2) time and no Perron root.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from trelliswork.inference.lifted import tiles
from trelliswork.inference.lifted.exponentials import ExpTable
from trelliswork.inference.lifted.potentials import Table

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
PAD = 0


def score_parts(log_unary: Array, tables: "Sequence[Table]", sentences: Sequence[Any]) -> Array:
    """Return s(t) of each sentence in parts: the unary scores, then those of each distance, shape (n, K + 1)."""
    K = len(tables)
    parts = np.zeros((len(sentences), K + 1))
    if not len(sentences):
        return parts
    rows = np.repeat(np.arange(len(sentences)), [len(s) + 2 * K for s in sentences])
    padded = np.concatenate([np.concatenate([np.zeros(K, np.int64), s, np.zeros(K, np.int64)]) for s in sentences])
    padded = padded.astype(np.int64)
    words = padded != PAD
    parts[:, 0] = np.bincount(rows[words], log_unary[padded[words]], len(sentences))
    for distance, table in enumerate(tables, start=1):
        left, right, row = padded[:-distance], padded[distance:], rows[:-distance]
        counted = (row == rows[distance:]) & (words[:-distance] | words[distance:])
        scores = table.pairs(left[counted], right[counted])
        parts[:, distance] = np.bincount(row[counted], scores, len(sentences))
    return parts


def chain_log_z(log_unary: Array, table: "Table", max_length: int) -> Array:
    """Return log Z of chains of 0, 1, ..., ``max_length`` words between two pads, shape (max_length + 1,)."""
    log_z = np.zeros(max_length + 1)
    if max_length == 0:
        return log_z
    ends = _column(table, PAD)
    exp = ExpTable(table)
    unary = without_pad(log_unary)
    log_alpha = unary + table.rows(np.array([PAD]))[0].double().numpy()
    for n in range(1, max_length + 1):
        if n > 1:
            log_alpha = unary + exp.transposed(log_alpha)
        log_z[n] = logsumexp(log_alpha + ends)
    return log_z


def cover_log_z(weights: Array, unaries: Array, tables: "Sequence[Table]", max_length: int) -> Array:
    """Return an upper bound of log Z_M for M = 0, ..., ``max_length``; exact if K = 1 and its weight is 1.

    ``weights`` (K,) are rho of the distances, whose remainder to 1 is the weight of single words; ``unaries`` (K + 1,
    C) are a of the parts of the cover, single words first, with the weighted sum theta^0; ``tables`` are theta^l.
    """
    lengths = np.arange(max_length + 1)
    bound = (1 - weights.sum()) * lengths * float(logsumexp(without_pad(unaries[0])))
    for distance, (rho, a, table) in enumerate(zip(weights, unaries[1:], tables, strict=True), start=1):
        longest = -(-max_length // distance)
        chains = chain_log_z(a, table.scaled(1 / rho), longest)
        for first in range(distance):
            bound += rho * chains[(lengths - first + distance - 1).clip(0) // distance]
    return bound


class ChainSampler:
    """Exact samples of chains of up to ``max_length`` words between two pads.

    Time O(max_length C^2) once, then O(C) per word (times the rank of the table).
    """

    def __init__(self, log_unary: Array, table: "Table", max_length: int) -> None:
        self.table, self.unary = table, without_pad(log_unary)
        exp = ExpTable(table) if max_length > 1 else None
        # Log weights (C,) of everything after a word, if it is the last, last but one, ...
        self.to_come = [_column(table, PAD)]
        for _ in range(max_length - 1):
            assert exp is not None
            self.to_come.append(exp.times(self.unary + self.to_come[-1]))

    def log_z(self, length: int) -> float:
        """Return log Z of chains of ``length`` words."""
        first = self.table.rows(np.array([PAD]))[0].double().numpy()
        return float(logsumexp(first + self.unary + self.to_come[length - 1]))

    def draw(self, uniforms: Array) -> Ids:
        """Draw words (n, length) with random numbers between 0 and 1 of that shape."""
        n, length = uniforms.shape
        words = np.zeros((n, length), np.int64)
        before = np.full(n, PAD)
        for i in range(length):
            ahead = torch.from_numpy(self.unary + self.to_come[length - 1 - i])
            before = words[:, i] = draw(self.table.rows(before), ahead, uniforms[:, i])
        return words


def draw(scores: torch.Tensor, log_unary: torch.Tensor, uniforms: Array) -> Ids:
    """Draw a word for each row of scores (n, C), with probability proportional to exp(scores + log_unary)."""
    scores = scores + log_unary.to(scores.dtype)
    scores = torch.exp(scores - scores.amax(1, keepdim=True))
    sums = scores.double().cumsum(1)
    levels = torch.from_numpy(np.ascontiguousarray(uniforms))[:, None] * sums[:, -1:]
    words = torch.searchsorted(sums, levels, right=True)[:, 0]
    return words.clamp_(max=scores.shape[1] - 1).numpy()


def gibbs_sweep(
    log_unary: Array, tables: "Sequence[Table]", words: Ids, uniforms: Array, multipliers: Array | None = None
) -> None:
    """Resample every word (n, M) given its K neighbors on both sides, from left to right, in place.

    ``uniforms`` (n, M) are random numbers, ``multipliers`` (K,) factors of the tables.
    """
    K, (n, M) = len(tables), words.shape
    unary = torch.from_numpy(without_pad(log_unary))
    padded = np.zeros((n, M + 2 * K), np.int64)
    padded[:, K : K + M] = words
    factors = np.ones(K) if multipliers is None else multipliers

    def work(start: int, stop: int) -> None:
        rows = padded[start:stop]
        for i in range(K, K + M):
            rows[:, i] = draw(blanket(tables, rows, i, factors), unary, uniforms[start:stop, i - K])

    size = max(8, -(-n // 16))
    tiles.run(work, [(a, min(a + size, n)) for a in range(0, n, size)])
    words[:] = padded[:, K : K + M]


def blanket(tables: "Sequence[Table]", rows: Ids, i: int, factors: Array | None = None) -> torch.Tensor:
    """Return the scores (n, C) of every word at position i given the other words, without its unary score."""
    total: torch.Tensor | None = None
    for distance, table in enumerate(tables, start=1):
        both = table.rows(rows[:, i - distance]) + table.columns(rows[:, i + distance])
        if factors is not None:
            both = both * float(factors[distance - 1])
        total = both if total is None else total + both
    assert total is not None
    return total


def without_pad(log_unary: Array) -> Array:
    """Return the unary scores with pads impossible."""
    unary = np.array(log_unary, np.float64)
    unary[PAD] = -np.inf
    return unary


def _column(table: "Table", word: int) -> Array:
    return table.columns(np.array([word]))[0].double().numpy()
