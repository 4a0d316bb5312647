"""All factors of a graph in one layout, whatever their number of variables: what the compiled engines walk over.

The tables of all groups lie behind each other in one vector. A factor is a place in it, its variables, and how far
the state of each moves that place; a table that graphs or factors share is stored once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference.graph.factors import ChainFactor
from trelliswork.inference.graph.wiring import Doubles, Integers, Wiring

MAX_TABLE = 1_000_000  # entries of the dense table of a structured factor


class Flat(NamedTuple):
    """Factors over two and more variables as flat arrays; compiled code takes it as it is.

    Parameters
    ----------
    tables : ndarray (n,)
        All log-tables behind each other.
    base, step : ndarray of int (F,)
        The table of factor f for graph b begins at ``base[f] + b * step[f]``.
    n_entries : ndarray of int (F,)
        The size of its table.
    ptr : ndarray of int (F + 1,)
        The variables of factor f lie at ``ptr[f]:ptr[f + 1]`` of the next two arrays.
    variables, strides : ndarray of int (L,)
        Each variable, and how far its state moves the place in the table.
    """

    tables: Doubles
    base: Integers
    step: Integers
    n_entries: Integers
    ptr: Integers
    variables: Integers
    strides: Integers


def tidy(wiring: Wiring) -> Wiring:
    """The same graphs with unary scores as compiled code wants them, in C order: one machine code for all."""
    return wiring.with_unary(np.require(wiring.log_unary, np.float64, ["C", "W"]))


def fixed_variables(wiring: Wiring) -> NDArray[np.bool_]:
    """Which variables (B, V) have one allowed state: evidence cuts the graph there."""
    allowed = wiring.log_unary > -np.inf
    if not wiring.n_variables:
        return np.zeros((wiring.n_graphs, 0), np.bool_)
    return np.add.reduceat(allowed, wiring.offsets[:-1], axis=1, dtype=np.int64) == 1


def flatten(wiring: Wiring, *, max_table: int = MAX_TABLE) -> Flat:
    """Lay out all factors: those of the groups in their order, then structured ones.

    A `ChainFactor` becomes a table for each step, other structured factors take part by their dense tables.

    Raises
    ------
    ValueRangeError
        If a structured factor has more than ``max_table`` entries (raised by its ``table``).

    Notes
    -----
    Time and memory O(size of all tables and of all lists of variables).
    """
    kinds = [(group.variables, group.which, group.log_tables) for group in wiring.groups]
    for factor in wiring.structured:
        if isinstance(factor, ChainFactor):
            steps = np.stack([factor.variables[:-1], factor.variables[1:]], axis=1)
            which = np.arange(len(steps)) if factor.log_pairwise.shape[1] > 1 else np.zeros(len(steps), np.int64)
            kinds.append((steps, which, factor.log_pairwise))
            continue
        table = np.asarray(factor.table(max_table), np.float64)
        kinds.append((np.asarray(factor.variables, np.int64)[None], np.zeros(1, np.int64), table[:, None]))
    tables: list[Doubles] = []
    columns: list[tuple[NDArray[np.integer], ...]] = []  # base, step, n_entries, arity, variables, strides
    start = 0
    for names, which, log_tables in kinds:
        F, k = names.shape
        shape = log_tables.shape[2:]
        size = int(np.prod(shape))
        tables.append(np.ravel(log_tables))
        columns.append(
            (
                start + which * size,
                np.full(F, log_tables.shape[1] * size if len(log_tables) > 1 else 0),
                np.full(F, size),
                np.full(F, k),
                np.ravel(names),
                np.tile(np.cumprod((1, *shape[:0:-1]))[::-1], F),
            )
        )
        start += log_tables.size
    base, step, n_entries, arity, variables, strides = (_joined([row[c] for row in columns]) for c in range(6))
    ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(arity)])
    return Flat(np.concatenate([np.zeros(0), *tables]), base, step, n_entries, ptr, variables, strides)


def _joined(parts: Sequence[NDArray[np.integer]]) -> Integers:
    """One int64 vector of several."""
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64, copy=False)


def split_entries(wiring: Wiring, entries: Doubles) -> tuple[Doubles, ...]:
    """Cut entries (B, sum of n_entries) of all factors into one array (B, F, s1, .., sk) for each group."""
    cut, start = [], 0
    for group in wiring.groups:
        size = len(group) * int(np.prod(group.shape))
        cut.append(entries[:, start : start + size].reshape(len(entries), len(group), *group.shape))
        start += size
    return tuple(cut)


@dataclass(frozen=True)
class Touching:
    """The factors of each variable: those of v lie at ``ptr[v]:ptr[v + 1]`` of ``factors``, their axes in ``axes``."""

    ptr: Integers
    factors: Integers
    axes: Integers


def touching(flat: Flat, n_variables: int) -> Touching:
    """List the factors of each variable; time O(L log L)."""
    order = np.argsort(flat.variables, kind="stable")
    factors = np.repeat(np.arange(len(flat.base)), np.diff(flat.ptr))
    counts = np.bincount(flat.variables, minlength=n_variables)
    ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Touching(ptr, factors[order], (order - flat.ptr[factors[order]]).astype(np.int64))
