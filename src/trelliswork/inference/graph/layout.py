"""Layouts of a graph for the kernels.

`flatten` puts all factors into one vector of tables, whatever their number of variables: for elimination, sampling,
mean field and tree-reweighted propagation. `lay_out` and `table_data` number edges and pad tables for the kernels of
message passing. Tables that graphs or factors share are stored once.
"""

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference.graph.kernels import tables as table_kernels
from trelliswork.inference.graph.kernels.records import (
    Flat,
    Layout,
    Neighbors,
    TableData,
    Variables,
    message_width,
    padded,
)
from trelliswork.inference.graph.potentials import Doubles, Integers, Wiring, starts

MAX_TABLE = 1_000_000  # entries of the dense table of a structured factor


def tidy(wiring: Wiring) -> Wiring:
    """Return the same graphs with unary scores in C order, so that kernels are compiled for one type."""
    return wiring.with_unary(np.require(wiring.log_unary, np.float64, ["C", "W"]))


def variables(wiring: Wiring) -> Variables:
    """Return the variables as a record for kernels."""
    return Variables(wiring.n_states, wiring.offsets, wiring.log_unary)


def fixed_variables(wiring: Wiring) -> NDArray[np.bool_]:
    """Return which variables (B, V) have one allowed state: evidence cuts the graph there."""
    allowed = wiring.log_unary > -np.inf
    if not wiring.n_variables:
        return np.zeros((wiring.n_graphs, 0), np.bool_)
    return np.add.reduceat(allowed, wiring.offsets[:-1], axis=1, dtype=np.int64) == 1


def flatten(wiring: Wiring, *, max_table: int = MAX_TABLE) -> Flat:
    """Concatenate the tables of all factors: those of the groups in their order, then structured ones.

    Structured factors become dense tables of at most ``max_table`` entries. Time and memory O(size of all tables and of
    all lists of variables).
    """
    kinds = [(group.variables, group.which, group.log_tables) for group in wiring.groups]
    for factor in wiring.structured:
        table = np.asarray(factor.table(max_table), np.float64)
        kinds.append((np.asarray(factor.variables, np.int64)[None], np.zeros(1, np.int64), table[:, None]))
    tables: list[Doubles] = []
    columns: list[tuple[NDArray[np.integer], ...]] = []  # base, step, n_entries, arity, variables, strides
    start = 0
    for scopes, which, log_tables in kinds:
        F, k = scopes.shape
        shape = log_tables.shape[2:]
        size = int(np.prod(shape))
        tables.append(np.ravel(log_tables))
        columns.append(
            (
                start + which * size,
                np.full(F, log_tables.shape[1] * size if len(log_tables) > 1 else 0),
                np.full(F, size),
                np.full(F, k),
                np.ravel(scopes),
                np.tile(np.cumprod((1, *shape[:0:-1]))[::-1], F),
            )
        )
        start += log_tables.size
    base, step, n_entries, arity, owners, strides = (_joined([row[c] for row in columns]) for c in range(6))
    return Flat(np.concatenate([np.zeros(0), *tables]), base, step, n_entries, starts(arity), owners, strides)


def _joined(parts: list[NDArray[np.integer]]) -> Integers:
    """Concatenate to int64."""
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64, copy=False)


def split_entries(wiring: Wiring, entries: Doubles) -> tuple[Doubles, ...]:
    """Split entries (B, sum of n_entries) of all factors into one array (B, F, s1, .., sk) for each group."""
    pieces, start = [], 0
    for group in wiring.groups:
        size = len(group) * int(np.prod(group.shape))
        pieces.append(entries[:, start : start + size].reshape(len(entries), len(group), *group.shape))
        start += size
    return tuple(pieces)


def neighbors(flat: Flat, n_variables: int) -> Neighbors:
    """List the factors of each variable; time O(L log L)."""
    order = np.argsort(flat.variables, kind="stable")
    factors = np.repeat(np.arange(len(flat.base)), np.diff(flat.ptr))[order]
    ptr = starts(np.bincount(flat.variables, minlength=n_variables))
    return Neighbors(ptr, factors, (order - flat.ptr[factors]).astype(np.int64))


def lay_out(wiring: Wiring) -> Layout:
    """Number the edges of a graph; time and memory linear in its size."""
    V = wiring.n_variables
    widths = message_width(wiring.n_states)
    owners = _joined([*(group.variables.ravel() for group in wiring.groups), *(f.variables for f in wiring.structured)])
    arities = [np.full(len(group), group.variables.shape[1]) for group in wiring.groups]
    arity = _joined([*arities, np.array([len(factor.variables) for factor in wiring.structured], np.int64)])
    by_variable = np.argsort(owners, kind="stable")
    fac_edge = np.empty(len(owners), np.int64)
    fac_edge[by_variable] = np.arange(len(owners))
    edge_variable = owners[by_variable]
    fac_start = starts(arity)
    edge_factor = np.repeat(np.arange(len(arity)), arity)[by_variable]
    var_start = starts(np.bincount(owners, minlength=V))
    order = np.empty(V + len(arity), np.int64)
    n_components = table_kernels.breadth_first(var_start, edge_factor, fac_start, fac_edge, edge_variable, order)
    return Layout(
        wiring.n_states, widths, starts(widths), var_start, starts(widths[edge_variable]), edge_variable, edge_factor,
        fac_start, fac_edge, order,
        n_tables=len(arity) - len(wiring.structured),
        is_forest=len(owners) == V + len(arity) - n_components,
    )  # fmt: skip


def table_data(wiring: Wiring) -> TableData:
    """Exponentiate each table once and pad it; time and memory linear in the size of the tables."""
    rows = max([1] + [len(group.log_tables) for group in wiring.groups])
    logs = [_for_rows(group.log_tables, rows) for group in wiring.groups]
    sizes, log_sizes = [], []
    for group in wiring.groups:
        *most, last = group.shape
        if len(most) == 1:
            sizes.append(most[0] * int(message_width(last)) + last * int(message_width(most[0])))
        else:
            sizes.append(int(np.prod(most)) * padded(last))
        log_sizes.append(int(np.prod(group.shape)))
    n_tables = [group.log_tables.shape[1] for group in wiring.groups]
    weights = np.empty((rows, sum(n * size for n, size in zip(n_tables, sizes, strict=True))))
    shifts, weight_at, log_at = [np.zeros((rows, 0))], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    first = first_log = 0
    lowest = 1.0
    for group, log_tables, n, size, log_size in zip(wiring.groups, logs, n_tables, sizes, log_sizes, strict=True):
        tops, lows = np.empty((rows, n)), np.empty((rows, n))
        *most, last = group.shape
        given = (log_tables, int(np.prod(most)), last, len(most) == 1, weights, first, tops, lows)
        ranges = threads.cut(np.full(n, rows * log_size), least=threads.LEAST_WORK)
        threads.run(table_kernels.exponentiate, ranges, *given)
        lowest = min(lowest, float(lows.min(initial=1.0)))
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
        lowest,
    )


def _for_rows(tables: Doubles, rows: int) -> Doubles:
    """Return (1 or B, U, s1, .., sk) as (rows, U * size), contiguous and writable: one type for Numba."""
    return np.require(np.broadcast_to(tables.reshape(len(tables), -1), (rows, tables[0].size)), requirements=["C", "W"])


def pad_states(layout: Layout, flat: Doubles, fill: float) -> Doubles:
    """Convert (B, sum of states) to (B, sum of widths)."""
    if flat.shape[1] == layout.state_at[-1]:  # no padding
        return flat.copy()
    out = np.full((len(flat), layout.state_at[-1]), fill)
    out[:, _inside(layout)] = flat
    return out


def unpad_states(layout: Layout, padded_states: Doubles) -> Doubles:
    """Convert (B, sum of widths) to (B, sum of states)."""
    return padded_states if layout.n_states.sum() == layout.state_at[-1] else padded_states[:, _inside(layout)]


def _inside(layout: Layout) -> NDArray[np.bool_]:
    """Return which entries of a padded vector of states are states."""
    first = np.repeat(layout.state_at[:-1], layout.widths)
    return np.arange(layout.state_at[-1]) - first < np.repeat(layout.n_states, layout.widths)
