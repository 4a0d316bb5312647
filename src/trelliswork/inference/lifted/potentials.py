"""Tables of scores of word pairs at some distance: of low rank, or sparse."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from trelliswork.errors import ShapeError

Ids = NDArray[np.int64]
Scores = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LowRankTable:
    """Scores left[x] . right[y] of a word x and a word y after it, for arrays (C, D) in float32 or float64."""

    left: NDArray[Any]
    right: NDArray[Any]

    def __post_init__(self) -> None:
        if self.left.ndim != 2 or self.left.shape != self.right.shape:
            raise ShapeError(f"left and right must have one shape (C, D), got {self.left.shape}, {self.right.shape}.")

    @property
    def n_words(self) -> int:
        """Size of the vocabulary, C."""
        return len(self.left)

    def rows(self, ids: Any) -> torch.Tensor:
        """Return the scores (n, C) of some left words with every right word."""
        return torch.from_numpy(self.left[ids]) @ torch.from_numpy(self.right).T

    def columns(self, ids: Ids) -> torch.Tensor:
        """Return the scores (n, C) of some right words with every left word."""
        return torch.from_numpy(self.right[ids]) @ torch.from_numpy(self.left).T

    def pairs(self, left: Ids, right: Ids) -> Scores:
        """Return the scores (n,) of some pairs."""
        return np.einsum("nd,nd->n", self.left[left].astype(np.float64), self.right[right].astype(np.float64))

    def scaled(self, factor: float) -> "LowRankTable":
        """Return the table with all scores multiplied by a number."""
        return LowRankTable(self.left, (self.right * factor).astype(self.right.dtype))


@dataclass(frozen=True, eq=False)
class SparseTable:
    """Scores of some pairs, as a csr_matrix (C, C) or an array that becomes one, and its transpose; others are zero."""

    matrix: Any
    transposed: Any = None

    def __post_init__(self) -> None:
        matrix = csr_matrix(self.matrix)
        if matrix.shape[0] != matrix.shape[1]:
            raise ShapeError(f"the table must have shape (C, C), got {matrix.shape}.")
        object.__setattr__(self, "matrix", matrix)
        if self.transposed is None:
            object.__setattr__(self, "transposed", matrix.T.tocsr())

    @property
    def n_words(self) -> int:
        """Size of the vocabulary, C."""
        return int(self.matrix.shape[0])

    def rows(self, ids: Any) -> torch.Tensor:
        """Return the scores (n, C) of some left words with every right word."""
        return torch.from_numpy(self.matrix[ids].toarray())

    def columns(self, ids: Ids) -> torch.Tensor:
        """Return the scores (n, C) of some right words with every left word."""
        return torch.from_numpy(self.transposed[ids].toarray())

    def pairs(self, left: Ids, right: Ids) -> Scores:
        """Return the scores (n,) of some pairs."""
        if not len(left):
            return np.zeros(0)
        return np.asarray(self.matrix[left, right], np.float64).ravel()

    def scaled(self, factor: float) -> "SparseTable":
        """Return the table with all scores multiplied by a number."""
        return SparseTable(self.matrix * factor, self.transposed * factor)


Table = LowRankTable | SparseTable


def dense(table: Table) -> Scores:
    """Return all scores (C, C) in float64, for small vocabularies."""
    return table.rows(slice(0, table.n_words)).numpy().astype(np.float64)


def check_tables(log_unary: Scores, tables: list[Table]) -> tuple[int, int]:
    """Return the numbers of distances and words, K and C; raise if shapes do not fit."""
    if log_unary.ndim != 1:
        raise ShapeError(f"log_unary must have shape (C,), got {log_unary.shape}.")
    if not tables:
        raise ShapeError("at least one table is required: the model has one per distance.")
    for distance, table in enumerate(tables, start=1):
        if table.n_words != len(log_unary):
            raise ShapeError(f"the table of distance {distance} has {table.n_words} words, log_unary {len(log_unary)}.")
    return len(tables), len(log_unary)
