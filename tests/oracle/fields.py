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


def long_circle_log_z(log_unary: Array, tables: Array, n_positions: int) -> float:
    """Return log Z of a circle of any length by powers of the transfer matrix, whose states are K words."""
    K, C = tables.shape[:2]
    step = np.zeros((C**K, C**K))
    for words in itertools.product(range(C), repeat=K + 1):  # a step drops the first word and adds the last
        score = log_unary[words[-1]] + sum(t[words[K - d], words[K]] for d, t in enumerate(tables, start=1))
        row, column = (np.ravel_multi_index(some, (C,) * K) for some in (words[:-1], words[1:]))
        step[row, column] = np.exp(score)
    result, log_scale = np.eye(C**K), 0.0
    for bit in f"{n_positions:b}":
        result = result @ result @ (step if bit == "1" else np.eye(C**K))
        top = result.max()
        result, log_scale = result / top, 2 * log_scale + np.log(top)
    return float(np.log(np.trace(result)) + log_scale)


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
