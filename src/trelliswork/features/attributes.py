"""Features as arrays: a list of attribute ids for each token, optionally with values."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Dense:
    """Real-valued features of tokens: the vectors of words at some positions around each of them."""

    vectors: NDArray[np.float32]  # (n_words, D) of the words of these tokens
    rows: NDArray[np.int32]  # (n_places, n_tokens) the vector at each place; -1 if there is none


@dataclass(frozen=True)
class Attributes:
    """Sparse attributes of the tokens of a corpus, in compressed rows.

    ``edges`` are attributes of pairs of adjacent labels, with separate ids and the same ``offsets``: those of token i
    (never the first of its sentence) belong to the labels of i-1 and i. ``None`` if the features have none.
    """

    offsets: NDArray[np.int64]  # (n_sentences + 1,) sentence n is the tokens offsets[n] to offsets[n + 1]
    token_ptr: NDArray[np.int64]  # (n_tokens + 1,) token i has the entries token_ptr[i] to token_ptr[i + 1]
    ids: NDArray[np.int32]  # (nnz,) 0 to n_attributes - 1
    values: NDArray[np.float32] | None  # (nnz,) None if all are 1
    n_attributes: int
    edges: "Attributes | None" = None
    dense: Dense | None = None

    def part(self, start: int, stop: int) -> "Attributes":
        """Return the sentences ``start`` to ``stop``."""
        offsets = self.offsets[start : stop + 1]
        ends = self.token_ptr[offsets[0] : offsets[-1] + 1]
        entries = slice(ends[0], ends[-1])
        return Attributes(
            offsets - offsets[0],
            ends - ends[0],
            self.ids[entries],
            None if self.values is None else self.values[entries],
            self.n_attributes,
            None if self.edges is None else self.edges.part(start, stop),
            None if self.dense is None else Dense(self.dense.vectors, self.dense.rows[:, offsets[0] : offsets[-1]]),
        )

    @property
    def n_tokens(self) -> int:
        """Number of tokens of all sentences."""
        return len(self.token_ptr) - 1

    def __len__(self) -> int:
        return len(self.offsets) - 1
