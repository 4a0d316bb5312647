"""Input of every engine of factorial chains: checked scores, and their layout in memory for the kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_lengths, check_scores, check_shape
from trelliswork.compute.padding import mask
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.chain.potentials import whole_vectors
from trelliswork.inference.factorial.layer import Layer

Floats = NDArray[np.floating]
Integers = NDArray[np.int64]
Pair = tuple[int, int]


class Tie:
    """Scores of label pairs of two layers, laid out for the kernels.

    ``log_table`` (S_d, Sp_e) and its transpose ``log_back`` (S_e, Sp_d) are padded with zeros, as are ``table`` and
    ``back``, exp(log_table - shift). ``floor`` is the minimum value of a message, against underflow, or 0 if some pair
    is impossible; ``span`` the difference between the largest and the smallest score of possible pairs.
    """

    def __init__(self, log_between: Floats) -> None:
        top = float(log_between.max())
        self.shift = top if top > -np.inf else 0.0
        self.n_labels = log_between.shape
        finite = log_between[np.isfinite(log_between)]
        self.possible, self.span = finite.size == log_between.size, float(np.ptp(finite)) if finite.size else 0.0
        self.log_table, self.log_back = _padded(log_between), _padded(log_between.T)
        shifted = np.exp(log_between - log_between.dtype.type(self.shift))
        self.table, self.back = _padded(shifted), _padded(shifted.T)
        least = 1e-30 if log_between.dtype == np.float32 else 1e-250
        self.floor = log_between.dtype.type(least if self.possible else 0)


def _padded(table: Floats) -> Floats:
    out = np.zeros((len(table), whole_vectors(table.shape[1], table.dtype)), table.dtype)
    out[:, : table.shape[1]] = table
    return out


class Tables:
    """Transitions of the layers and ties between layers, which are shared by all positions of all sequences."""

    def __init__(self, log_pairwise: Sequence[Floats], log_between: Mapping[Pair, Floats]) -> None:
        self.log_pairwise, self.log_between = tuple(log_pairwise), dict(log_between)
        self.layers = [Layer(matrix) for matrix in log_pairwise]
        self.ties = {pair: Tie(table) for pair, table in log_between.items()}
        self.dtype = self.log_pairwise[0].dtype
        self.product: Any = None  # the product chain of the exact engine, built when it is first needed

    @property
    def n_labels(self) -> list[int]:
        """Number of labels S_d of each layer."""
        return [layer.n_labels for layer in self.layers]

    @cached_property
    def double(self) -> "Tables":
        """The tables in float64."""
        between = {pair: table.astype(np.float64) for pair, table in self.log_between.items()}
        return Tables([matrix.astype(np.float64) for matrix in self.log_pairwise], between)


@dataclass
class Group:
    """Sequences that one thread processes together."""

    log_unary: list[Floats]  # (B, T, Sp_d) of each layer, padded with -inf
    lengths: Integers  # (B,)

    def double(self, n_labels: list[int]) -> "Group":
        """Return the group in float64, with its own padding."""
        unary: list[Floats] = []
        for scores, S in zip(self.log_unary, n_labels, strict=True):
            unary.append(np.ascontiguousarray(scores[:, :, : whole_vectors(S, np.float64)], np.float64))
        return Group(unary, self.lengths)


@dataclass(frozen=True)
class FactorialPotentials:
    """Log-potentials of a ragged batch of factorial chains."""

    log_unary: tuple[Floats, ...]  # (B, T, S_d) of each layer; positions at or after lengths[b] are never read
    tables: Tables
    lengths: Integers  # (B,)

    def scaled(self, factor: float) -> "FactorialPotentials":
        """Return the potentials with all scores multiplied by a factor."""
        by, tables = self.tables.dtype.type(factor), self.tables
        between = {pair: table * by for pair, table in tables.log_between.items()}
        scaled = Tables([matrix * by for matrix in tables.log_pairwise], between)
        return FactorialPotentials(tuple(unary * by for unary in self.log_unary), scaled, self.lengths)

    def group(self, which: Integers) -> Group:
        """Return some of the sequences, cut to the longest of them and laid out for the kernels."""
        lengths = self.lengths[which]
        inside = mask(lengths)
        T, padded = inside.shape[1], []
        for unary in self.log_unary:
            S = unary.shape[2]
            out = np.full((len(which), T, whole_vectors(S, unary.dtype)), -np.inf, unary.dtype)
            out[:, :, :S][inside] = unary[which, :T][inside]
            padded.append(out)
        return Group(padded, lengths)


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
