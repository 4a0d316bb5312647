"""Sums of rows of weights that many tokens share.

Attributes of a token often come together: the prefixes and suffixes of a word, a trigram and its bigrams. Two rows that
stand side by side at many tokens become one *composite* row, the sum of both, and composites pair up again. An
evaluation adds up each composite once, not once per token, and its gradient once. The objective stays the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.features.numbering import Numbering
from trelliswork.models.crf.kernels.composites import (
    choose_neighbors,
    compose,
    count_neighbors,
    distribute,
    replace_pairs,
)
from trelliswork.models.crf.kernels.objective import TokenRows

ROUNDS = 6  # a composite row stands for up to 2^ROUNDS attributes
LEAST = 32  # minimum number of tokens of a composite or of a dense row: each costs time, too
SMALL = 1000  # number of tokens below which composites are not worth the search
LEAST_SAVED = 0.02  # fraction of the rows that another round must save


@dataclass(frozen=True)
class Composites:
    """Rows from ``n_rows`` on, each the sum of two earlier ones, ``parts`` (n, 2)."""

    n_rows: int
    parts: NDArray[np.int32]

    @property
    def size(self) -> int:
        """Number of rows with the composites."""
        return self.n_rows + len(self.parts)

    def fill(self, rows: NDArray[np.float32]) -> None:
        """Fill the composite rows of weights (size, Sw)."""
        compose(rows, self.n_rows, self.parts)

    def spread(self, rows: NDArray[np.float32]) -> None:
        """Add the composite rows of a gradient (size, Sw) to the others."""
        distribute(rows, self.n_rows, self.parts)


def find_composites(tokens: TokenRows, n_rows: int) -> tuple[TokenRows, Composites]:
    """Return composites of rows of value 1 that often stand side by side, and the tokens with them."""
    ptr, ids, values = tokens.wide_ptr.copy(), tokens.wide_ids.copy(), tokens.wide_values.copy()
    parts, size = [np.empty((0, 2), np.int32)], n_rows
    for _ in range(ROUNDS if len(ptr) > SMALL else 0):
        n = len(ids)
        table = np.zeros(1 << max(10, (n - 1).bit_length()), np.uint16)
        count_neighbors(ptr, ids, table)
        chosen = np.zeros(n, np.bool_)
        choose_neighbors(ptr, ids, table, LEAST, chosen)
        if len(values):
            chosen[:-1] &= (values[:-1] == 1) & (values[1:] == 1)
        at = np.flatnonzero(chosen)
        if len(at) < LEAST_SAVED * n:
            break
        numbering, numbers = Numbering.of(ids[at].astype(np.int64) * size + ids[at + 1])
        kept = np.bincount(numbers) >= LEAST
        new = np.full(n, -1, np.int32)
        new[at] = np.where(kept, size + np.cumsum(kept) - 1, -1)[numbers]
        replace_pairs(ptr, ids, values, new)
        ids, values = ids[: ptr[-1]], values[: ptr[-1]]
        parts.append(np.stack(np.divmod(numbering.listed[kept], size), axis=1).astype(np.int32))
        size += len(parts[-1])
    made = tokens._replace(wide_ptr=ptr, wide_ids=ids.copy(), wide_values=values.copy())
    return made, Composites(n_rows, np.concatenate(parts))
