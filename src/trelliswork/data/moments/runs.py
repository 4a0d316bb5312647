"""Counting of keys by sorting: runs in memory, merged when they are of similar size, and on disk beyond a limit."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.ids import in_parallel
from trelliswork.data.kernels.moments import merge_runs

Run = tuple[NDArray[np.int64], NDArray[np.int64]]  # rising keys, counts
FAN_IN = 16  # runs on disk that are merged at a time
_SLICE = 1 << 20  # maximum number of keys that are read from a run at a time
_EMPTY: Run = (np.empty(0, np.int64), np.empty(0, np.int64))


def merged(a: Run, b: Run) -> Run:
    """Merge two runs; counts of equal keys are added."""
    if not len(a[0]) or not len(b[0]):
        return a if len(a[0]) else b
    keys, counts = np.empty((2, len(a[0]) + len(b[0])), np.int64)
    n = merge_runs(*a, *b, keys, counts)
    return keys[:n].copy(), counts[:n].copy()


def merged_all(runs: Iterable[Run]) -> Run:
    """Merge many runs, two by two."""
    todo = list(runs) or [_EMPTY]
    while len(todo) > 1:
        pairs = [merged(todo[k], todo[k + 1]) for k in range(0, len(todo) - 1, 2)]
        todo = pairs + todo[2 * len(pairs) :]
    return todo[0]


class _Reader:
    """A run on disk, of which at most ``size`` keys are in memory."""

    def __init__(self, place: Path, size: int) -> None:
        self._place, self._size, self._at = place, size, 0
        self._fill()

    def _fill(self) -> None:
        self.keys, self._counts = (
            np.fromfile(self._place / name, np.int64, self._size, offset=8 * self._at) for name in ("keys", "counts")
        )
        self._at += len(self.keys)

    def take(self, last: int) -> Run:
        """Return the keys in memory up to ``last``, and read on if none is left."""
        n = int(np.searchsorted(self.keys, last, side="right"))
        run = self.keys[:n], self._counts[:n]
        self.keys, self._counts = self.keys[n:], self._counts[n:]
        if not len(self.keys):
            self._fill()
        return run


def _slices(places: list[Path], size: int) -> Iterator[Run]:
    """Yield the merged keys of runs on disk in rising parts; of each run at most ``size`` keys are in memory."""
    readers = [_Reader(place, size) for place in places]
    while readers := [reader for reader in readers if len(reader.keys)]:
        last = min(int(reader.keys[-1]) for reader in readers)  # all smaller keys have been read
        yield merged_all([reader.take(last) for reader in readers])


class Runs:
    """Runs of the keys of one distance.

    A new run is merged with the last one as long as that is not longer: a key is moved O(log(blocks)) times. So are
    runs on disk, ``FAN_IN`` at a time. Counts are integers, so results do not depend on the order of merging or on
    spilling.
    """

    def __init__(self, limit: int) -> None:
        self.held: list[Run] = []
        self.levels: list[list[Path]] = []  # runs on disk; those of a level are merged into one of the next
        self._size = max(1, min(_SLICE, limit // (64 * FAN_IN)))  # merging needs three times what it reads

    @property
    def n_bytes(self) -> int:
        """Memory of the runs that are not on disk."""
        return sum(16 * len(keys) for keys, _ in self.held)

    def add(self, runs: Iterable[Run]) -> None:
        """Add some runs."""
        for run in runs:
            while self.held and len(self.held[-1][0]) <= 2 * len(run[0]):
                run = merged(self.held.pop(), run)
            self.held.append(run)

    def spill(self, folder: Path) -> None:
        """Write the runs in memory to disk, and merge runs on disk if there are many."""
        run = merged_all(self.held)
        self.held = []
        place, level = self._write([run], folder), 0
        while True:
            if level == len(self.levels):
                self.levels.append([])
            self.levels[level].append(place)
            if len(self.levels[level]) < FAN_IN:
                return
            place = self._merge(self.levels[level], folder)
            self.levels[level], level = [], level + 1

    def finish(self, folder: Path | None) -> None:
        """Merge all runs into one, in memory or on disk."""
        if folder is None or not self.levels:
            self.held = [merged_all(self.held)]
            return
        if self.held:
            self.spill(folder)
        places = [place for level in self.levels for place in level]  # shortest first
        while len(places) > 1:
            places = [self._merge(places[:FAN_IN], folder), *places[FAN_IN:]]
        self.levels = [places]

    def __len__(self) -> int:
        """Number of keys; after ``finish``."""
        return len(self.held[0][0]) if self.held else (self.levels[0][0] / "keys").stat().st_size // 8

    def slices(self) -> Iterator[Run]:
        """Yield all keys in rising parts; after ``finish``."""
        if self.levels:
            yield from _slices(self.levels[0], FAN_IN * self._size)
        for keys, counts in self.held:
            for k in range(0, len(keys), _SLICE):
                yield keys[k : k + _SLICE], counts[k : k + _SLICE]

    def _merge(self, places: list[Path], folder: Path) -> Path:
        """Merge runs on disk into a new one, and delete them."""
        place = self._write(_slices(places, self._size), folder)
        for old in places:
            for name in ("keys", "counts"):
                (old / name).unlink()
        return place

    @staticmethod
    def _write(slices: Iterable[Run], folder: Path) -> Path:
        """Write a run to two files in a new directory of a folder."""
        place = Path(tempfile.mkdtemp(dir=folder))
        with (place / "keys").open("wb") as keys, (place / "counts").open("wb") as counts:
            for run in slices:
                run[0].tofile(keys)
                run[1].tofile(counts)
        return place


class RunStore(ExitStack):
    """One ``Runs`` for each distance, and the folder they are spilled to, which is deleted at the end.

    ``limit`` bounds the memory in bytes of merging, and so that of the runs, which are merged in memory, at a fourth.
    """

    def __init__(self, n_kinds: int, limit: int) -> None:
        super().__init__()
        self.kinds = [Runs(limit // n_kinds) for _ in range(n_kinds)]
        self.limit = limit
        self.folder: Path | None = None

    def add(self, blocks: list[list[Run]]) -> None:
        """Add the runs of some blocks, by distance, and write all to disk if they need more memory than the limit."""
        in_parallel(lambda k: self.kinds[k].add(runs[k] for runs in blocks), range(len(self.kinds)))
        if 4 * sum(runs.n_bytes for runs in self.kinds) <= self.limit:
            return
        if self.folder is None:
            folder = tempfile.TemporaryDirectory(prefix="trelliswork-moments.", ignore_cleanup_errors=True)
            self.folder = Path(self.enter_context(folder))
        for runs in self.kinds:
            if runs.held:
                runs.spill(self.folder)

    def finish(self) -> list[Runs]:
        """Return the runs of each distance, merged."""
        in_parallel(lambda runs: runs.finish(self.folder), self.kinds)
        return self.kinds
