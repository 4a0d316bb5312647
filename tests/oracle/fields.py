"""Markov random fields over words by enumeration: N words in a circle, and sentences between pads."""

import itertools

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def log_sum(values: list[float]) -> float:
    top = max(values)
    return float(np.log(np.exp(np.array(values) - top).sum()) + top)


def circle_score(log_unary: Array, tables: Array, words: tuple[int, ...]) -> float:
    N = len(words)
    return sum(
        log_unary[words[i]] + sum(t[words[i], words[(i + d) % N]] for d, t in enumerate(tables, start=1))
        for i in range(N)
    )


def circle_log_z(log_unary: Array, tables: Array, n_positions: int) -> float:
    everything = itertools.product(range(len(log_unary)), repeat=n_positions)
    return log_sum([circle_score(log_unary, tables, words) for words in everything])


def sentence_score(log_unary: Array, tables: Array, words: tuple[int, ...]) -> float:
    """Return the score of words and of pairs with at least one word, between K pads (0) on both sides."""
    K = len(tables)
    x = (0,) * K + tuple(words) + (0,) * K
    total = sum(log_unary[w] for w in words)
    for d, table in enumerate(tables, start=1):
        total += sum(table[x[i], x[i + d]] for i in range(len(x) - d) if x[i] or x[i + d])
    return float(total)


def sentences(n_words: int, length: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(1, n_words), repeat=length))


def sentence_log_z(log_unary: Array, tables: Array, length: int) -> float:
    return log_sum([sentence_score(log_unary, tables, s) for s in sentences(len(log_unary), length)])
