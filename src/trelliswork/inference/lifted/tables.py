"""Tables of scores of pairs of words: low rank, sparse, dense or biased; no larger in memory than they must be."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.errors import ShapeError

Ids = NDArray[np.int64]
Scores = NDArray[np.float64]


class Table(Protocol):
    """Scores theta(x, y) of a word x and the word y that stands some distance behind it."""

    @property
    def n_words(self) -> int:
        """C."""

    def rows(self, ids: Any) -> torch.Tensor:
        """Scores (n, C) of some left words (ids or a slice) with every right word."""

    def columns(self, ids: Ids) -> torch.Tensor:
        """Scores (n, C) of some right words with every left word."""

    def pairs(self, left: Ids, right: Ids) -> Scores:
        """Scores (n,) of some pairs."""

    def scaled(self, factor: float) -> "Table":
        """All scores times a number."""


@dataclass(frozen=True, eq=False)
class LowRankTable:
    """theta(x, y) = left[x] . right[y].

    Parameters
    ----------
    left, right : ndarray (C, D)
        float32 or float64.
    """

    left: NDArray[Any]
    right: NDArray[Any]

    def __post_init__(self) -> None:
        if self.left.ndim != 2 or self.left.shape != self.right.shape:
            raise ShapeError(f"left and right must have one shape (C, D), got {self.left.shape}, {self.right.shape}.")

    @property
    def n_words(self) -> int:
        """C."""
        return len(self.left)

    def rows(self, ids: Any) -> torch.Tensor:
        """Scores (n, C) of some left words with every right word."""
        return torch.from_numpy(self.left[ids]) @ torch.from_numpy(self.right).T

    def columns(self, ids: Ids) -> torch.Tensor:
        """Scores (n, C) of some right words with every left word."""
        return torch.from_numpy(self.right[ids]) @ torch.from_numpy(self.left).T

    def pairs(self, left: Ids, right: Ids) -> Scores:
        """Scores (n,) of some pairs."""
        return np.einsum("nd,nd->n", self.left[left].astype(np.float64), self.right[right].astype(np.float64))

    def scaled(self, factor: float) -> "LowRankTable":
        """All scores times a number."""
        return LowRankTable(self.left, (self.right * factor).astype(self.right.dtype))


@dataclass(frozen=True, eq=False)
class SparseTable:
    """Scores of some pairs; all others are 0.

    Parameters
    ----------
    matrix : scipy.sparse.csr_matrix (C, C)
    transposed : scipy.sparse.csr_matrix (C, C), optional
        Its transpose, if it is at hand.
    """

    matrix: Any
    transposed: Any = None

    def __post_init__(self) -> None:
        if self.matrix.shape[0] != self.matrix.shape[1]:
            raise ShapeError(f"the table must have shape (C, C), got {self.matrix.shape}.")
        if self.transposed is None:
            object.__setattr__(self, "transposed", self.matrix.T.tocsr())

    @property
    def n_words(self) -> int:
        """C."""
        return int(self.matrix.shape[0])

    def rows(self, ids: Any) -> torch.Tensor:
        """Scores (n, C) of some left words with every right word."""
        return torch.from_numpy(self.matrix[ids].toarray())

    def columns(self, ids: Ids) -> torch.Tensor:
        """Scores (n, C) of some right words with every left word."""
        return torch.from_numpy(self.transposed[ids].toarray())

    def pairs(self, left: Ids, right: Ids) -> Scores:
        """Scores (n,) of some pairs."""
        if not len(left):
            return np.zeros(0)
        return np.asarray(self.matrix[left, right], np.float64).ravel()

    def scaled(self, factor: float) -> "SparseTable":
        """All scores times a number."""
        return SparseTable(self.matrix * factor, self.transposed * factor)


@dataclass(frozen=True, eq=False)
class DenseTable:
    """All scores, as an array.

    Parameters
    ----------
    scores : ndarray (C, C)
    """

    scores: NDArray[Any]

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or self.scores.shape[0] != self.scores.shape[1]:
            raise ShapeError(f"the table must have shape (C, C), got {self.scores.shape}.")

    @property
    def n_words(self) -> int:
        """C."""
        return len(self.scores)

    def rows(self, ids: Any) -> torch.Tensor:
        """Scores (n, C) of some left words with every right word."""
        return torch.from_numpy(self.scores[ids])

    def columns(self, ids: Ids) -> torch.Tensor:
        """Scores (n, C) of some right words with every left word."""
        return torch.from_numpy(np.ascontiguousarray(self.scores[:, ids].T))

    def pairs(self, left: Ids, right: Ids) -> Scores:
        """Scores (n,) of some pairs."""
        return self.scores[left, right].astype(np.float64)

    def scaled(self, factor: float) -> "DenseTable":
        """All scores times a number."""
        return DenseTable(self.scores * factor)


@dataclass(frozen=True, eq=False)
class BiasedTable:
    """theta(x, y) + bias[y]: a bias of right words.

    Parameters
    ----------
    table : Table
    bias : ndarray (C,)
    """

    table: Table
    bias: Scores

    def __post_init__(self) -> None:
        if self.bias.shape != (self.table.n_words,):
            raise ShapeError(f"bias must have shape (C,) = ({self.table.n_words},), got {self.bias.shape}.")

    @property
    def n_words(self) -> int:
        """C."""
        return self.table.n_words

    def rows(self, ids: Any) -> torch.Tensor:
        """Scores (n, C) of some left words with every right word."""
        found = self.table.rows(ids)
        return found + torch.from_numpy(self.bias).to(found.dtype)

    def columns(self, ids: Ids) -> torch.Tensor:
        """Scores (n, C) of some right words with every left word."""
        found = self.table.columns(ids)
        return found + torch.from_numpy(self.bias[ids, None]).to(found.dtype)

    def pairs(self, left: Ids, right: Ids) -> Scores:
        """Scores (n,) of some pairs."""
        return self.table.pairs(left, right) + self.bias[right]

    def scaled(self, factor: float) -> "BiasedTable":
        """All scores times a number."""
        return BiasedTable(self.table.scaled(factor), self.bias * factor)


def dense(table: Table) -> Scores:
    """All scores (C, C) in float64: for small vocabularies."""
    return table.rows(slice(0, table.n_words)).numpy().astype(np.float64)


def check_tables(log_unary: Scores, tables: "list[Table] | tuple[Table, ...]") -> tuple[int, int]:
    """The numbers of distances and words, K and C; refuse what does not fit."""
    if log_unary.ndim != 1:
        raise ShapeError(f"log_unary must have shape (C,), got {log_unary.shape}.")
    if not tables:
        raise ShapeError("at least one table is wanted: the model has K of them, one a distance.")
    for distance, table in enumerate(tables, start=1):
        if table.n_words != len(log_unary):
            raise ShapeError(f"the table of distance {distance} has {table.n_words} words, log_unary {len(log_unary)}.")
    return len(tables), len(log_unary)
