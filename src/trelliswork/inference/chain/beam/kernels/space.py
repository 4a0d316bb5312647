"""Working memory of ``beam_kernels``, and rows of transition scores made of edge features when they are needed.

Numba's disk cache does not notice edits here in the kernels that call it: ``make clean-kernels`` after a change.
"""

from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import get, put


class Space(NamedTuple):
    """Working memory for one sequence at a time; nothing in it outlives the sequence but what the caller copies."""

    emission: np.ndarray  # (T, Sp) e_t
    belief: np.ndarray  # (T, Sp) when refining, else (1, Sp)
    rows: np.ndarray  # (S, Sp) exponentiated rows of transitions by position, else (0, Sp)
    ptr: np.ndarray  # (T + 1,)
    states: np.ndarray  # (T S,)
    alpha: np.ndarray  # (T S,) then the marginals
    scale: np.ndarray  # (T,) c_t
    shift: np.ndarray  # (T,) what was taken out of the transitions into t
    kept: np.ndarray  # (T,) share of the mass that was kept
    tops: np.ndarray  # (T,) what was taken out of the scores of t
    chosen: np.ndarray  # (S,)
    work: np.ndarray  # (Sp,)
    beta: np.ndarray  # (Sp,)
    ahead: np.ndarray  # (Sp,)
    dense: np.ndarray  # (Sp,) the same by state
    row: np.ndarray  # (Sp,)
    coefficient: np.ndarray  # (S,)
    offset: np.ndarray  # (S,)
    guess: np.ndarray  # (1,) of ``select``


@helper
def make_space(T, S, Sp, refine, is_log, like):
    """Allocate a ``Space`` in the precision of the array ``like``."""
    dtype = like.dtype
    return Space(
        np.empty((T, Sp), dtype), np.zeros((T if refine else 1, Sp), dtype), np.empty((S if is_log else 0, Sp), dtype),
        np.zeros(T + 1, np.int64), np.empty(T * S, np.int32), np.empty(T * S, dtype),
        np.empty(T, dtype), np.zeros(T), np.zeros(T), np.zeros(T),
        np.empty(S, np.int32), np.empty(Sp, dtype),
        np.zeros(Sp, dtype), np.zeros(Sp, dtype), np.zeros(Sp, dtype), np.zeros(Sp, dtype),
        np.empty(S, dtype), np.empty(S, np.int64), np.full(1, 0.03, dtype),
    )  # fmt: skip


class Edges(NamedTuple):
    """Edge features of tokens (see ``edge_kernels``), from which rows of transition scores are made when needed."""

    wanted: bool
    token_ptr: np.ndarray
    ids: np.ndarray
    ptr: np.ndarray
    pairs: np.ndarray
    weights: np.ndarray
    log_transition: np.ndarray  # (S, S)


@helper
def edge_row(edges, token, i, S, matrix, to):
    """matrix[to : to + S] = scores of stepping from state i into a token, flat."""
    for j in range(S):
        put(matrix, to + j, get(edges.log_transition, i * S + j))
    for at in range(edges.token_ptr[token], edges.token_ptr[token + 1]):
        begin, end = edges.ptr[edges.ids[at]], edges.ptr[edges.ids[at] + 1]
        if end - begin == S * S:  # a weight for every pair: they lie in order
            for j in range(S):
                put(matrix, to + j, get(matrix, to + j) + get(edges.weights, begin + i * S + j))
            continue
        while begin < end:  # the first feature of row i; pairs are sorted
            middle = (begin + end) // 2
            if edges.pairs[middle] < i * S:
                begin = middle + 1
            else:
                end = middle
        while begin < edges.ptr[edges.ids[at] + 1] and edges.pairs[begin] < (i + 1) * S:
            matrix_at = to + edges.pairs[begin] - i * S
            put(matrix, matrix_at, get(matrix, matrix_at) + edges.weights[begin])
            begin += 1


@helper
def edge_rows(edges, token, states, first, n, S, matrix, base):
    """Make the rows of n states in the matrix (S, S) that begins at flat index ``base``."""
    for a in range(first, first + n):
        edge_row(edges, token, states[a], S, matrix, base + states[a] * S)
