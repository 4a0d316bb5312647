"""Ragged rows as padded arrays, and back."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def mask(lengths: NDArray[np.integer], n_positions: int | None = None) -> NDArray[np.bool_]:
    """Return a mask (B, T) that is True at the positions before the end of each sequence; T is the largest length.

    Examples
    --------
    >>> mask(np.array([1, 2])).tolist()
    [[True, False], [True, True]]
    """
    T = int(lengths.max(initial=0)) if n_positions is None else n_positions
    inside: NDArray[np.bool_] = np.arange(T) < lengths[:, None]
    return inside


def pad(
    rows: NDArray[Any], lengths: NDArray[np.integer], fill: float = 0, dtype: DTypeLike | None = None
) -> NDArray[Any]:
    """Return rows (N, ...), those of each sequence after those of the one before, as an array (B, T, ...).

    Examples
    --------
    >>> pad(np.array([5, 6, 7]), np.array([1, 2]), -1).tolist()
    [[5, -1], [6, 7]]
    """
    inside = mask(lengths)
    out = np.full((*inside.shape, *rows.shape[1:]), fill, rows.dtype if dtype is None else dtype)
    out[inside] = rows
    return out


def unpad(padded: NDArray[Any], lengths: NDArray[np.integer]) -> NDArray[Any]:
    """Return the rows (N, ...) of a padded array (B, T, ...): the inverse of ``pad``."""
    return padded[mask(lengths, padded.shape[1])]


def batches(lengths: NDArray[np.integer], n_positions: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of sequences: as many as have at most ``n_positions`` when padded to the longest, at least one.

    Examples
    --------
    >>> list(batches(np.array([1, 2, 2, 9]), 6))
    [(0, 3), (3, 4)]
    """
    first = 0
    while first < len(lengths):
        ahead = lengths[first : first + n_positions]
        widest = np.maximum.accumulate(ahead) * np.arange(1, len(ahead) + 1)
        last = first + max(1, int(np.searchsorted(widest, n_positions, side="right")))
        yield first, last
        first = last
