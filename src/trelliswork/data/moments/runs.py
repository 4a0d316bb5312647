"""Sorting and counting of any number of records: runs in memory, and on disk beyond a limit, merged.

A run is an array (n, W) of int64, sorted by its first columns, the key. With a count in a last column equal keys become
one record; without, all records are kept.

In a group of processes each rank sorts its own records. Then the ranks exchange them by ranges of keys, so that each
rank merges one range: the runs of all ranks, in order of rank, are the whole.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.sharing import Group, current
from trelliswork.data.ids import in_parallel
from trelliswork.data.kernels.runs import count_up_to, merge_records

Run = NDArray[np.int64]  # (n, W)
FAN_IN = 16  # runs on disk that are merged at a time
_SLICE = 1 << 20  # maximum number of records that are read from a run at a time
_HELD = 1 << 14  # records of a run in memory that are merged at a time
_SAMPLES = 1024  # records of each rank from which the ranges of keys are chosen


class Record:
    """Shape of the records: W columns, the first ``n_keys`` of which are the key."""

    def __init__(self, width: int, n_keys: int) -> None:
        self.width, self.n_keys = width, n_keys
        self.empty: Run = np.empty((0, width), np.int64)

    def merged(self, a: Run, b: Run) -> Run:
        """Merge two runs."""
        if not len(a) or not len(b):
            return a if len(a) else b
        out = np.empty((len(a) + len(b), self.width), np.int64)
        n = merge_records(a, b, self.n_keys, out)
        return out if n == len(out) else out[:n].copy()

    def merged_all(self, runs: Iterable[Run]) -> Run:
        """Merge many runs, two by two."""
        todo = list(runs) or [self.empty]
        while len(todo) > 1:
            pairs = [self.merged(todo[k], todo[k + 1]) for k in range(0, len(todo) - 1, 2)]
            todo = pairs + todo[2 * len(pairs) :]
        return todo[0]

    def read(self, path: Path, start: int, n: int) -> Run:
        """Return at most ``n`` records of a run on disk."""
        flat = np.fromfile(path, np.int64, self.width * n, offset=8 * self.width * start)
        return flat.reshape(-1, self.width)

    def slices(self, runs: Iterable[Path | Run], size: int) -> Iterator[Run]:
        """Yield the merged records of runs in rising parts, by ``size`` records of each run at a time."""
        readers = [_Reader(self, run, size) for run in runs]
        while readers := [reader for reader in readers if len(reader.run)]:
            lasts = [reader.run[-1:] for reader in readers]
            last = min(lasts, key=lambda record: tuple(record[0, : self.n_keys].tolist()))
            yield self.merged_all([reader.take(last) for reader in readers])  # all smaller keys have been read


class _Reader:
    """A run, ``size`` records at a time; if it is on disk, the others are not in memory."""

    def __init__(self, record: Record, whole: Path | Run, size: int) -> None:
        self._record, self._whole, self._size, self._at = record, whole, size, 0
        self._fill()

    def _fill(self) -> None:
        a, n, whole = self._at, self._size, self._whole
        self.run = self._record.read(whole, a, n) if isinstance(whole, Path) else whole[a : a + n]
        self._at += len(self.run)

    def take(self, last: Run) -> Run:
        """Return the records in memory up to the key of ``last``, and read on if none is left."""
        n = count_up_to(self.run, last, self._record.n_keys)
        taken, self.run = self.run[:n], self.run[n:]
        if not len(self.run):
            self._fill()
        return taken


class Runs:
    """Runs of one kind of records.

    With counts, a new run is merged with the last one as long as that is not longer: a record is moved O(log(blocks))
    times. Without, merging in memory would save nothing: runs are merged while they are written to disk. Runs on disk
    are merged ``FAN_IN`` at a time. Keys and counts are integers, so results do not depend on the order of merging
    or on spilling.
    """

    def __init__(self, record: Record, limit: int) -> None:
        self.record, self.limit = record, limit
        self._counts = record.n_keys < record.width
        self.held: list[Run] = []
        self.levels: list[list[Path]] = []  # runs on disk; those of a level are merged into one of the next
        self._size = max(1, min(_SLICE, limit // (32 * record.width * FAN_IN)))  # merging needs three times as much

    @property
    def n_bytes(self) -> int:
        """Memory of the runs that are not on disk."""
        return sum(run.nbytes for run in self.held)

    def add(self, runs: Iterable[Run]) -> None:
        """Add some runs."""
        for run in runs:
            while self._counts and self.held and len(self.held[-1]) <= 2 * len(run):
                run = self.record.merged(self.held.pop(), run)
            self.held.append(run)

    def spill(self, folder: Path) -> None:
        """Write the runs in memory to disk, and merge runs on disk if there are many."""
        path, level = self._write(self.record.slices(self.held, _HELD), folder), 0
        self.held = []
        while True:
            if level == len(self.levels):
                self.levels.append([])
            self.levels[level].append(path)
            if len(self.levels[level]) < FAN_IN:
                return
            path = self._merge(self.levels[level], folder)
            self.levels[level], level = [], level + 1

    def finish(self, folder: Path | None) -> None:
        """Merge all runs into one, in memory or on disk."""
        if folder is None or not self.levels:
            self.held = [self.record.merged_all(self.held)]
            return
        if self.held:
            self.spill(folder)
        paths = [path for level in self.levels for path in level]  # shortest first
        while len(paths) > 1:
            paths = [self._merge(paths[:FAN_IN], folder), *paths[FAN_IN:]]
        self.levels = [paths]

    def exchange(self, folder: Path, unit: int) -> None:
        """Give each rank of a group a range of keys, and take those of this rank from all others; after ``finish``.

        Ranges begin where the first column is a multiple of ``unit``.
        """
        group, n = current(), len(self)
        starts = self._starts(group, unit)
        ends = [bisect_left(range(n), start, key=lambda k: int(self._read(k, 1)[0, 0])) for start in starts]
        bounds = [0, *ends, n]
        sizes = np.zeros((group.size, group.size), np.int64)
        sizes[group.rank] = np.diff(bounds)
        sizes = group.sum(sizes)
        step = max(1, min(_SLICE, self.limit // (64 * self.record.width * group.size)))
        small = 5 * 8 * self.record.width * int(sizes[:, group.rank].sum()) <= self.limit
        received: list[list[Run]] = [[] for _ in range(group.size)]
        paths = [] if small else [self._write([], folder) for _ in range(group.size)]
        for k in range(-(-int(sizes.max()) // step)):
            parts = []
            for begin, end in pairwise(bounds):
                at = min(begin + k * step, end)
                parts.append(self._read(at, min(step, end - at)).reshape(-1))
            for rank, part in enumerate(group.exchange(parts)):
                if small:
                    received[rank].append(part.reshape(-1, self.record.width))
                else:
                    with paths[rank].open("ab") as file:
                        part.tofile(file)
        self._delete([path for level in self.levels for path in level])
        self.held = [np.concatenate([self.record.empty, *parts]) for parts in received] if small else []
        self.levels = [] if small else [paths]
        self.finish(folder)

    def _starts(self, group: Group, unit: int) -> list[int]:
        """Return the first keys of the ranges of all ranks but the first: quantiles of samples of all ranks."""
        n = len(self)
        at = np.linspace(0, n, min(n, _SAMPLES), endpoint=False).astype(np.int64)
        own = np.array([self._read(k, 1)[0, 0] for k in at.tolist()], np.int64) // unit * unit
        samples = group.gather_arrays(own)
        weights = [n / max(1, len(part)) for n, part in zip(group.gather(n), samples, strict=True)]
        values = np.concatenate(samples)
        order = np.argsort(values, kind="stable")
        mass = np.cumsum(np.repeat(weights, [len(part) for part in samples])[order])
        if not len(values):
            return [0] * (group.size - 1)
        shares = mass[-1] * np.arange(1, group.size) / group.size
        chosen: list[int] = values[order][np.minimum(np.searchsorted(mass, shares), len(values) - 1)].tolist()
        return chosen

    def __len__(self) -> int:
        """Number of records; after ``finish``."""
        return len(self.held[0]) if self.held else self.levels[0][0].stat().st_size // (8 * self.record.width)

    def slices(self) -> Iterator[Run]:
        """Yield all records in rising parts; after ``finish``."""
        for k in range(0, len(self), self._size):
            yield self._read(k, self._size)

    def _read(self, start: int, n: int) -> Run:
        return self.held[0][start : start + n] if self.held else self.record.read(self.levels[0][0], start, n)

    def _merge(self, paths: list[Path], folder: Path) -> Path:
        """Merge runs on disk into a new one, and delete them."""
        path = self._write(self.record.slices(paths, self._size), folder)
        self._delete(paths)
        return path

    @staticmethod
    def _delete(paths: list[Path]) -> None:
        for path in paths:
            path.unlink()

    @staticmethod
    def _write(slices: Iterable[Run], folder: Path) -> Path:
        """Write a run to a new file of a folder."""
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            for run in slices:
                run.tofile(file)
            return Path(file.name)


class RunStore(ExitStack):
    """One ``Runs`` for each kind of records, and the folder they are spilled to, which is deleted at the end.

    ``limit`` bounds the memory in bytes of merging, and so that of the runs, which are merged in memory, at a fifth.
    """

    def __init__(self, n_kinds: int, record: Record, limit: int) -> None:
        super().__init__()
        self.kinds = [Runs(record, limit // n_kinds) for _ in range(n_kinds)]
        self.limit = limit
        self.folder: Path | None = None

    def add(self, blocks: list[list[Run]]) -> None:
        """Add the runs of some blocks, by kind, and write all to disk if they need more memory than the limit."""
        in_parallel(lambda k: self.kinds[k].add(runs[k] for runs in blocks), range(len(self.kinds)))
        if 5 * sum(runs.n_bytes for runs in self.kinds) <= self.limit:
            return
        for runs in self.kinds:
            if runs.held:
                runs.spill(self._folder())

    def finish(self, unit: int = 1) -> list[Runs]:
        """Return the runs of each kind, merged; in a group, the range of keys of this rank, see ``Runs.exchange``."""
        in_parallel(lambda runs: runs.finish(self.folder), self.kinds)
        if current().size > 1:
            for runs in self.kinds:
                runs.exchange(self._folder(), unit)
        return self.kinds

    def _folder(self) -> Path:
        if self.folder is None:
            folder = tempfile.TemporaryDirectory(prefix="trelliswork-runs.", ignore_cleanup_errors=True)
            self.folder = Path(self.enter_context(folder))
        return self.folder
