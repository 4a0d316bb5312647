"""Where messages and tables lie: flat arrays for the kernels of belief propagation.

A message belongs to an edge between a variable and a factor. Edges are numbered by variable, so that the messages to
one variable lie behind each other; each takes the variable's number of states rounded up to whole SIMD vectors, its
width.
Factors are numbered group by group, the structured ones last.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.simd import VECTOR_BYTES
from trelliswork.inference.graph.kernels import tables as table_kernels
from trelliswork.inference.graph.wiring import Doubles, Integers, Wiring

LANES = VECTOR_BYTES // 8


@dataclass(frozen=True)
class Layout:
    """The shape of a graph for the kernels; numbers of edges, factors, ... as in the module's words.

    Parameters
    ----------
    n_states, widths : ndarray of int (V,)
        States of each variable, and rounded up to whole vectors.
    state_at : ndarray of int (V + 1,)
        Where the states of a variable begin in a padded flat vector of states.
    var_start : ndarray of int (V + 1,)
        Edges of variable v: ``var_start[v]:var_start[v + 1]``.
    edge_at : ndarray of int (E + 1,)
        Where the message of an edge begins; the last entry is the length of all messages.
    edge_variable, edge_factor : ndarray of int (E,)
        The two ends of an edge.
    fac_start : ndarray of int (F + 1,)
        Slots of factor f: ``fac_edge[fac_start[f]:fac_start[f + 1]]`` are its edges in the order of its variables.
    fac_edge : ndarray of int (E,)
    n_tables : int
        Table factors; those from there on are structured.
    order : ndarray of int (V + F,)
        All variables v and factors V + f in breadth-first order, component by component.
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
    n_tables: int
    order: Integers
    is_forest: bool

    @property
    def variable_order(self) -> Integers:
        """The variables in breadth-first order (V,)."""
        return self.order[self.order < len(self.n_states)]


@dataclass(frozen=True)
class TableData:
    """The tables of all factors, flat.

    Parameters
    ----------
    weights : ndarray (1 or B, W)
        exp(table - shift), last axis padded with zeros to whole vectors; over two variables also transposed, behind it.
    log_weights : ndarray (1 or B, W')
        The tables as they came, not padded.
    shifts : ndarray (1 or B, F)
        The largest entry of each factor's table, or 0 if it is -inf.
    weight_at, log_at : ndarray of int (F,)
        Where a factor's table begins in them.
    lowest : float
        The smallest entry of ``weights`` that stands for a possible value, 0 if one was lost.
    """

    weights: Doubles
    log_weights: Doubles
    shifts: Doubles
    weight_at: Integers
    log_at: Integers
    lowest: float


def lay_out(wiring: Wiring) -> Layout:
    """Number the edges of a graph; time and memory linear in its size."""
    V = wiring.n_variables
    widths = -(-wiring.n_states // LANES) * LANES
    slots = [group.variables.ravel() for group in wiring.groups] + [factor.variables for factor in wiring.structured]
    arities = [np.full(len(group), group.variables.shape[1]) for group in wiring.groups]
    arities += [np.array([len(factor.variables)]) for factor in wiring.structured]
    variables = np.concatenate([np.zeros(0, np.int64), *slots]).astype(np.int64)
    arity = np.concatenate([np.zeros(0, np.int64), *arities]).astype(np.int64)
    by_variable = np.argsort(variables, kind="stable")
    fac_edge = np.empty(len(variables), np.int64)
    fac_edge[by_variable] = np.arange(len(variables))
    edge_variable = variables[by_variable]
    fac_start = _starts(arity)
    edge_factor = np.repeat(np.arange(len(arity)), arity)[by_variable]
    var_start = _starts(np.bincount(variables, minlength=V))
    order = np.empty(V + len(arity), np.int64)
    n_components = table_kernels.breadth_first(var_start, edge_factor, fac_start, fac_edge, edge_variable, order)
    return Layout(
        wiring.n_states, widths, _starts(widths), var_start, _starts(widths[edge_variable]), edge_variable, edge_factor,
        fac_start, fac_edge, len(arity) - len(wiring.structured), order,
        is_forest=len(variables) == V + len(arity) - n_components,
    )  # fmt: skip


def table_data(wiring: Wiring) -> TableData:
    """Exponentiate each table once and pad it; time and memory linear in the size of the tables."""
    rows = max([1] + [len(group.log_tables) for group in wiring.groups])
    logs = [_for_rows(group.log_tables, rows) for group in wiring.groups]
    sizes, log_sizes = [], []
    for group in wiring.groups:
        *most, last = group.shape
        size = int(np.prod(most)) * _width(last) + (last * _width(most[0]) if len(most) == 1 else 0)
        sizes.append(size)
        log_sizes.append(int(np.prod(group.shape)))
    n_tables = [group.log_tables.shape[1] for group in wiring.groups]
    weights = np.empty((rows, sum(n * size for n, size in zip(n_tables, sizes, strict=True))))
    shifts, weight_at, log_at = [np.zeros((rows, 0))], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    first = first_log = 0
    lowest = np.ones(rows)
    for group, log_tables, n, size, log_size in zip(wiring.groups, logs, n_tables, sizes, log_sizes, strict=True):
        tops, found = np.empty((rows, n)), np.empty((rows, n))
        *most, last = group.shape
        args = (log_tables, int(np.prod(most)), last, len(most) == 1, weights, first, tops, found)
        exponentiate = partial(_exponentiate, args)
        threads.run(exponentiate, threads.cut(np.full(n, rows * log_size), least=threads.LEAST_WORK))
        lowest = np.minimum(lowest, found.min(axis=1))
        shifts.append(tops[:, group.which])
        weight_at.append(first + group.which * size)
        log_at.append(first_log + group.which * log_size)
        first += n * size
        first_log += n * log_size
    return TableData(
        weights,
        logs[0] if len(logs) == 1 else np.concatenate([np.zeros((rows, 0)), *logs], axis=1),
        np.concatenate(shifts, axis=1),
        np.concatenate(weight_at),
        np.concatenate(log_at),
        float(lowest.min()),
    )


def _exponentiate(args: tuple[Any, ...], start: int, stop: int) -> None:
    table_kernels.exponentiate(start, stop, *args)


def _width(n_states: int) -> int:
    return -(-n_states // LANES) * LANES


def pad_states(layout: Layout, flat: Doubles, fill: float) -> Doubles:
    """(B, sum of states) to (B, sum of widths)."""
    out = np.full((len(flat), layout.state_at[-1]), fill)
    out[:, _inside(layout)] = flat
    return out


def unpad_states(layout: Layout, padded: Doubles) -> Doubles:
    """(B, sum of widths) to (B, sum of states)."""
    return padded[:, _inside(layout)]


def _inside(layout: Layout) -> NDArray[np.bool_]:
    """Which places of a padded vector of states hold states."""
    starts = np.repeat(layout.state_at[:-1], layout.widths)
    return np.arange(layout.state_at[-1]) - starts < np.repeat(layout.n_states, layout.widths)


def _starts(sizes: Integers) -> Integers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _for_rows(tables: Doubles, rows: int) -> Doubles:
    """(1 or B, U, s1, .., sk) as (rows, U * size), contiguous and writable: to Numba anything else is another type."""
    return np.require(np.broadcast_to(tables.reshape(len(tables), -1), (rows, tables[0].size)), requirements=["C", "W"])
