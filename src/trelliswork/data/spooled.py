"""Arrays of integers that grow, in memory or in a temporary file; an array of a file is mapped, not read."""

import mmap
import tempfile
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Column(ExitStack):
    """An array of int64 that grows; of more than ``limit`` bytes it is in a temporary file, which nobody else sees."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = max(1, limit)
        self._file = self.enter_context(tempfile.SpooledTemporaryFile(self._limit))  # noqa: SIM115

    def append(self, values: NDArray[np.int64]) -> None:
        """Add values at the end."""
        self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(values).data)

    def put(self, at: int, values: NDArray[np.int64]) -> None:
        """Set the values from an index on; what lies between the end and that index is to be set later."""
        self._file.seek(8 * at)
        self._file.write(np.ascontiguousarray(values).data)

    def array(self) -> NDArray[np.int64]:
        """Return the values, which cannot be changed; after the column is closed, the array keeps the file."""
        size = self._file.seek(0, 2)
        if size <= self._limit:
            self._file.seek(0)
            return np.frombuffer(self._file.read(), np.int64)
        self._file.flush()
        return np.frombuffer(mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ), np.int64)


def room(n: int, dtype: Any, limit: int) -> NDArray[Any]:
    """Return an array (n,) to be filled; of more than ``limit`` bytes it is in a temporary file, which it keeps."""
    size = n * np.dtype(dtype).itemsize
    if size <= limit:
        return np.empty(n, dtype)
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype)


def release(array: Any) -> None:
    """Drop the pages of a mapped file that are in memory, for an array or a view of it; they are read again if needed.

    Without effect for an array in memory.
    """
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "obj", None) if isinstance(array, memoryview) else getattr(array, "base", None)
    if array is not None and hasattr(mmap, "MADV_DONTNEED"):
        array.madvise(mmap.MADV_DONTNEED)
