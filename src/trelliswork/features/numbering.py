"""Ids of 64-bit keys in order of appearance: the compiled counterpart of a dict from strings to ids."""

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import DataError
from trelliswork.features.kernels import hashing

Keys = NDArray[np.int64]
Ids = NDArray[np.int32]
BLOCK = 1 << 17  # values that are numbered before the table is checked for room


class Numbering:
    """A table from non-negative int64 keys to ids 0, 1, 2, ...

    ``listed[id]`` is the key of an id; a table can be rebuilt from it.
    """

    def __init__(self, listed: Keys | None = None) -> None:
        self.listed: Keys = np.empty(0, np.int64) if listed is None else listed
        if self.listed.dtype != np.int64 or self.listed.ndim != 1:  # in a damaged file
            raise DataError(f"keys must be 64-bit integers of one axis, got {self.listed.dtype}.")
        self._build(self.listed, len(self.listed))

    def __len__(self) -> int:
        return len(self.listed)

    def _build(self, listed: Keys, room: int) -> None:
        """Make a new table with room for ``room`` keys, and insert those listed."""
        size = 1 << max(4, int(2 * room).bit_length())  # at most half full
        self._keys, self._ids = np.zeros(size, np.int64), np.full(size, -1, np.int32)
        hashing.number(listed, self._keys, self._ids, 0, np.empty(len(listed), np.int32), np.empty_like(listed))

    @classmethod
    def of(cls, values: Keys) -> tuple["Numbering", Ids]:
        """Number the values; negative ones get -1. Returns the table and the ids."""
        self = cls()
        out, listed, n = np.empty(len(values), np.int32), np.empty(BLOCK, np.int64), 0
        for start in range(0, len(values), BLOCK):
            if 2 * (n + BLOCK) > len(self._keys):  # grows with the number of distinct values
                self._build(listed[:n], 2 * (n + BLOCK))
            if n + BLOCK > len(listed):
                listed = np.concatenate([listed, np.empty(len(listed) + BLOCK, np.int64)])
            part = slice(start, start + BLOCK)
            n = hashing.number(values[part], self._keys, self._ids, n, out[part], listed)
        return cls(listed[:n].copy()), out

    def look_up(self, values: Keys) -> Ids:
        """Return the ids of the values, -1 for those that are negative or unknown."""
        out = np.empty(len(values), np.int32)
        hashing.look_up(values, self._keys, self._ids, out)
        return out
