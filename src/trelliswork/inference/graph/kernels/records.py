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
NARROW = 2  # variables of at most so many states have messages of two numbers, not of whole vectors


def padded(n_states: Any) -> Any:
    """Return numbers of states, rounded up to whole SIMD vectors."""
    return -(-n_states // LANES) * LANES


def message_width(n_states: Any) -> Any:
    """Return the lengths of messages to variables with these numbers of states."""
    return np.where(np.asarray(n_states) <= NARROW, NARROW, padded(n_states))


class Variables(NamedTuple):
    """Variables of B graphs, as in `Wiring`."""

    n_states: Integers  # (V,)
    offsets: Integers  # (V + 1,)
    log_unary: Doubles  # (B, N)


class Flat(NamedTuple):
    """Factors over two or more variables in one vector of tables.

    The table of factor f for graph b starts at ``base[f] + b * step[f]``; its axes are ``ptr[f]:ptr[f + 1]``.
    """

    tables: Doubles  # (n,) all log-tables, concatenated
    base: Integers  # (F,)
    step: Integers  # (F,)
    n_entries: Integers  # (F,) size of the table
    ptr: Integers  # (F + 1,)
    variables: Integers  # (L,) of each axis
    strides: Integers  # (L,) distance in the table between two states of the axis


class Neighbors(NamedTuple):
    """Factors of each variable: those of v are ``ptr[v]:ptr[v + 1]`` of ``factors``, and v is their axis ``axes``."""

    ptr: Integers
    factors: Integers
    axes: Integers


class Layout(NamedTuple):
    """The shape of a graph for message passing.

    A message belongs to an edge between a variable and a factor. Edges are numbered by variable, so that the messages
    to one variable are contiguous. Each takes the variable's number of states rounded up to 2 or to whole SIMD vectors,
    its width. Factors are numbered group by group, the structured ones last; the edges of factor f, in the order of its
    variables, are ``fac_edge[fac_start[f]:fac_start[f + 1]]``.
    """

    n_states: Integers  # (V,)
    widths: Integers  # (V,) numbers of states, rounded up to 2 or whole vectors
    state_at: Integers  # (V + 1,) start of each variable in a padded flat vector of states
    var_start: Integers  # (V + 1,) the edges of variable v are ``var_start[v]:var_start[v + 1]``
    edge_at: Integers  # (E + 1,) start of the message of each edge, and the length of all messages
    edge_variable: Integers  # (E,) one end of each edge
    edge_factor: Integers  # (E,) the other end
    fac_start: Integers  # (F + 1,)
    fac_edge: Integers  # (E,)
    order: Integers  # (V + F,) all variables v and factors V + f, breadth first, component by component
    n_tables: int  # number of table factors
    is_forest: bool  # whether the graph has no cycle


class TableData(NamedTuple):
    """Tables of all factors for message passing, of all graphs or (in kernels) of one, without the first axis.

    ``weights`` are exp(table - shift), last axis padded with zeros: over two variables to the width of the last one,
    and followed by the transpose; over more to whole vectors.
    """

    weights: Doubles  # (1 or B, W)
    log_weights: Doubles  # (1 or B, W') the tables as given, not padded
    shifts: Doubles  # (1 or B, F) largest entry of each factor's table, or 0 if it is -inf
    weight_at: Integers  # (F,) start of each factor's table in ``weights``
    log_at: Integers  # (F,) and in ``log_weights``
    lowest: float  # smallest entry of ``weights`` for a possible value; 0 if one underflowed


class Pairs(NamedTuple):
    """For each edge of a factor over two variables: the other edge, and the table with the states of this one as rows.

    ``to`` is -1 for edges of larger factors, which are listed in ``large``.
    """

    to: Integers  # (E,)
    table_at: Integers  # (E,)
    large: Integers


class Messages(NamedTuple):
    """Messages in log space, of all graphs or (in kernels) of one, without the first axis."""

    log_unary: Doubles  # (B, N) padded to widths
    log_r: Doubles  # (B, M) to variables
    log_q: Doubles  # (B, M) to factors
    rows: Doubles  # (B, 3, 4 * widest) scratch
    weights: Doubles  # (1 or B, E) with which the messages of an edge count
