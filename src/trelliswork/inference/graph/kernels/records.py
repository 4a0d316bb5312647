"""Records of arrays that kernels of several engines take together.

They are defined beside the kernels because the order of their fields is part of the compiled code.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.simd import VECTOR_BYTES

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
LANES = VECTOR_BYTES // 8  # float64 numbers per SIMD vector


def padded(n_states: Any) -> Any:
    """Return numbers of states, rounded up to whole SIMD vectors."""
    return -(-n_states // LANES) * LANES


class Variables(NamedTuple):
    """Variables of B graphs, as in `Wiring`."""

    n_states: Integers  # (V,)
    offsets: Integers  # (V + 1,)
    log_unary: Doubles  # (B, N)


class Flat(NamedTuple):
    """Factors over two or more variables in one vector of tables.

    Parameters
    ----------
    tables : ndarray (n,)
        All log-tables, concatenated.
    base, step : ndarray of int (F,)
        The table of factor f for graph b starts at ``base[f] + b * step[f]``.
    n_entries : ndarray of int (F,)
        The size of its table.
    ptr : ndarray of int (F + 1,)
        The axes of factor f are ``ptr[f]:ptr[f + 1]`` of the next two arrays.
    variables, strides : ndarray of int (L,)
        The variable of each axis, and the distance in the table between two of its states.
    """

    tables: Doubles
    base: Integers
    step: Integers
    n_entries: Integers
    ptr: Integers
    variables: Integers
    strides: Integers


class Neighbors(NamedTuple):
    """Factors of each variable: those of v are ``ptr[v]:ptr[v + 1]`` of ``factors``, and v is their axis ``axes``."""

    ptr: Integers
    factors: Integers
    axes: Integers


class Layout(NamedTuple):
    """The shape of a graph for message passing.

    A message belongs to an edge between a variable and a factor. Edges are numbered by variable, so that the messages
    to one variable are contiguous. Each takes the variable's number of states rounded up to whole SIMD vectors, its
    width. Factors are numbered group by group, the structured ones last.

    Parameters
    ----------
    n_states, widths : ndarray of int (V,)
        States of each variable, and the same rounded up to whole vectors.
    state_at : ndarray of int (V + 1,)
        Start of each variable in a padded flat vector of states.
    var_start : ndarray of int (V + 1,)
        Edges of variable v: ``var_start[v]:var_start[v + 1]``.
    edge_at : ndarray of int (E + 1,)
        Start of the message of each edge; the last entry is the length of all messages.
    edge_variable, edge_factor : ndarray of int (E,)
        The two ends of an edge.
    fac_start : ndarray of int (F + 1,)
        Slots of factor f: ``fac_edge[fac_start[f]:fac_start[f + 1]]`` are its edges in the order of its variables.
    fac_edge : ndarray of int (E,)
    order : ndarray of int (V + F,)
        All variables v and factors V + f in breadth-first order, component by component.
    n_tables : int
        Number of table factors; higher numbers are structured factors.
    is_forest : bool
        Whether the graph has no cycle.
    """

    n_states: Integers
    widths: Integers
    state_at: Integers
    var_start: Integers
    edge_at: Integers
    edge_variable: Integers
    edge_factor: Integers
    fac_start: Integers
    fac_edge: Integers
    order: Integers
    n_tables: int
    is_forest: bool


class TableData(NamedTuple):
    """Tables of all factors for message passing, of all graphs or (in kernels) of one, without the first axis.

    Parameters
    ----------
    weights : ndarray (1 or B, W)
        exp(table - shift), last axis padded with zeros to whole vectors; over two variables followed by the transpose.
    log_weights : ndarray (1 or B, W')
        The tables as given, not padded.
    shifts : ndarray (1 or B, F)
        The largest entry of each factor's table, or 0 if it is -inf.
    weight_at, log_at : ndarray of int (F,)
        Start of each factor's table in ``weights`` and ``log_weights``.
    lowest : float
        The smallest entry of ``weights`` for a possible value; 0 if one underflowed.
    """

    weights: Doubles
    log_weights: Doubles
    shifts: Doubles
    weight_at: Integers
    log_at: Integers
    lowest: float


class Messages(NamedTuple):
    """Messages in log space, of all graphs or (in kernels) of one, without the first axis.

    Parameters
    ----------
    log_unary : ndarray (B, N)
        Padded to widths.
    log_r, log_q : ndarray (B, M)
        Messages to variables and to factors.
    rows : ndarray (B, 3, 4 * widest)
        Scratch.
    """

    log_unary: Doubles
    log_r: Doubles
    log_q: Doubles
    rows: Doubles
