"""Input of every engine of factorial chains: checked scores, and the tables that all sequences share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_lengths, check_scores, check_shape
from trelliswork.compute.padding import mask
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.chain import Potentials, chain_potentials, queries

Floats = NDArray[np.floating]
Integers = NDArray[np.int64]
Pair = tuple[int, int]


class Tie:
    """Scores of label pairs of two layers: ``log_table`` (S_d, S_e), and ``table``, exp(log_table - shift).

    ``floor`` is the minimum value of a message, against underflow, or 0 if some pair is impossible; ``span`` the
    difference between the largest and the smallest score of possible pairs.
    """

    def __init__(self, log_table: Floats) -> None:
        top = float(log_table.max())
        self.log_table, self.shift = log_table, top if top > -np.inf else 0.0
        self.table = np.exp(log_table - log_table.dtype.type(self.shift))
        finite = log_table[np.isfinite(log_table)]
        self.possible, self.span = finite.size == log_table.size, float(np.ptp(finite)) if finite.size else 0.0
        least = 1e-30 if log_table.dtype == np.float32 else 1e-250
        self.floor = log_table.dtype.type(least if self.possible else 0)


class Tables:
    """Transitions of the layers and ties between layers, which are shared by all positions of all sequences."""

    def __init__(self, log_pairwise: Sequence[Floats], log_between: Mapping[Pair, Floats]) -> None:
        self.log_pairwise, self.log_between = tuple(log_pairwise), dict(log_between)
        self.ties = {pair: Tie(table) for pair, table in log_between.items()}
        self.dtype = self.log_pairwise[0].dtype

    @property
    def n_labels(self) -> list[int]:
        """Number of labels S_d of each layer."""
        return [len(matrix) for matrix in self.log_pairwise]

    def tied_to(self, d: int) -> list[int]:
        """Return the layers that are tied to layer d."""
        return [a + b - d for a, b in self.ties if d in (a, b)]

    def chain(self, d: int, log_unary: Floats, lengths: Integers) -> Potentials:
        """Return layer d as a chain with these unary scores (B, T, S_d); its transitions are laid out once."""
        first = self._chains[d]
        p = Potentials(log_unary, first.log_pairwise, 0, 0, lengths)
        vars(p).update(transitions=first.transitions, lengths=lengths)
        return p

    @cached_property
    def _chains(self) -> list[Potentials]:
        return [chain_potentials(np.zeros((1, 1, len(m)), m.dtype), m, check_values=False) for m in self.log_pairwise]

    @cached_property
    def double(self) -> "Tables":
        """The tables in float64."""
        between = {pair: table.astype(np.float64) for pair, table in self.log_between.items()}
        return Tables([matrix.astype(np.float64) for matrix in self.log_pairwise], between)


@dataclass(frozen=True)
class FactorialPotentials:
    """Log-potentials of a ragged batch of factorial chains."""

    log_unary: tuple[Floats, ...]  # (B, T, S_d) of each layer; positions at or after lengths[b] are never read
    tables: Tables
    lengths: Integers  # (B,)
    rules: Any = None  # of the layers: ``layers[d]`` and ``joint`` answer queries about the chains, as `queries` does

    def asked(self, d: int) -> Any:
        """Return what answers queries about the chain of layer d: `queries`, or its rules."""
        return queries if self.rules is None else self.rules.layers[d]

    def scaled(self, factor: float) -> "FactorialPotentials":
        """Return the potentials with all scores multiplied by a factor."""
        by, tables = self.tables.dtype.type(factor), self.tables
        between = {pair: table * by for pair, table in tables.log_between.items()}
        scaled = Tables([matrix * by for matrix in tables.log_pairwise], between)
        return replace(self, log_unary=tuple(unary * by for unary in self.log_unary), tables=scaled)

    def take(self, which: Integers) -> "FactorialPotentials":
        """Return some of the sequences, cut to the longest of them."""
        lengths, rules = self.lengths[which], self.rules and self.rules.taken(which)
        unary = tuple(u[which, : lengths.max()] for u in self.log_unary)
        return FactorialPotentials(unary, self.tables, lengths, rules)

    def double(self) -> "FactorialPotentials":
        """Return the potentials in float64."""
        unary = tuple(u.astype(np.float64) for u in self.log_unary)
        return replace(self, log_unary=unary, tables=self.tables.double)


def factorial_potentials(
    log_unary: Sequence[object],
    log_pairwise: Sequence[object],
    log_between: Mapping[Pair, object],
    lengths: object = None,
) -> FactorialPotentials:
    """Check log-potentials; the arrays themselves are left unchanged.

    ``log_unary[d][b, t, j]`` scores label j of layer d at position t, -inf forbids it; ``log_pairwise[d][i, j]`` scores
    label i before label j in layer d; ``log_between[d, e][i, j]``, d < e, scores labels i of layer d and j of layer e
    at the same position. ``lengths`` (B,) are the numbers of positions, all T by default.
    """
    if not len(log_unary) or len(log_unary) != len(log_pairwise):
        raise ShapeError(
            "log_unary and log_pairwise must have one array for each layer, "
            f"got {len(log_unary)} and {len(log_pairwise)} arrays."
        )
    arrays = [np.asarray(a) for a in (*log_unary, *log_pairwise, *log_between.values())]
    dtype = np.float32 if all(a.dtype == np.float32 for a in arrays) else np.float64
    unary: list[Floats] = [np.ascontiguousarray(a, dtype) for a in log_unary]
    pairwise: list[Floats] = [np.ascontiguousarray(a, dtype) for a in log_pairwise]
    sizes = check_shape("log_unary[0]", unary[0].shape, "B T S")
    B, T = sizes["B"], sizes["T"]
    if 0 in unary[0].shape:
        raise ShapeError(f"log_unary[0] must have shape (B, T, S) without zeros, got {unary[0].shape}.")
    checked = check_lengths(lengths, B, T)
    valid = mask(checked, T)
    n_labels = []
    for d, (scores, matrix) in enumerate(zip(unary, pairwise, strict=True)):
        S = check_shape(f"log_unary[{d}]", scores.shape, "B T S", B=B, T=T)["S"]
        check_shape(f"log_pairwise[{d}]", matrix.shape, "S S", S=S)
        check_scores(f"log_unary[{d}]", scores, valid)
        check_scores(f"log_pairwise[{d}]", matrix)
        n_labels.append(S)
    between: dict[Pair, Floats] = {}
    for (d, e), given in log_between.items():
        if not 0 <= d < e < len(unary):
            raise ValueRangeError(
                f"log_between ties layers d < e, numbered 0 to {len(unary) - 1}, got ({d}, {e}): "
                "swap the layers and transpose the table."
            )
        table: Floats = np.ascontiguousarray(given, dtype)
        check_shape(f"log_between[{d}, {e}]", table.shape, "S_d S_e", S_d=n_labels[d], S_e=n_labels[e])
        check_scores(f"log_between[{d}, {e}]", table)
        between[d, e] = table
    return FactorialPotentials(tuple(unary), Tables(pairwise, between), checked)
