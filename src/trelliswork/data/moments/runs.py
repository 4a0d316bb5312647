"""Sorting and counting of any number of records: runs in memory, and in temporary files beyond a limit, merged.

A run is an array (n, W) of int64, sorted by its first columns, the key. With a count in a last column equal keys become
one record; without, all records are kept. Keys and counts are integers, so results depend neither on the order of
merging nor on the limit.

In a group of processes each rank sorts its own records. Then the ranks exchange them by ranges of keys, so that each
rank merges one range: the runs of all ranks, in order of rank, are the whole.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.sharing import Group, current
from trelliswork.data.ids import in_parallel
from trelliswork.data.kernels.runs import merge_records
from trelliswork.data.spooled import Column, release

Run = NDArray[np.int64]  # (n, W)
FAN_IN = 16  # runs in files that are merged at a time
_SLICE = 1 << 20  # maximum number of records that are read from a run at a time
_SAMPLES = 1024  # records of each rank from which the ranges of keys are chosen


class Runs:
    """Runs of records of ``width`` columns, the first ``n_keys`` of which are the key.

    With counts, a new run is merged with the last one as long as that is not longer: a record is moved O(log(blocks))
    times. Without, merging in memory would save nothing: runs are merged while they are written to files. ``limit``
    bounds the memory in bytes of merging, and so that of the runs, which are merged in memory, at a fifth.
    """

    def __init__(self, width: int, n_keys: int, limit: int) -> None:
        self.width, self.n_keys, self.limit = width, n_keys, limit
        self.empty: Run = np.empty((0, width), np.int64)
        self.run = self.empty  # all records; after ``finish``
        self._held: list[Run] = []
        self._stored: list[tuple[int, Run]] = []  # in files; runs of a level are merged into one of the next
        self._size = max(1, min(_SLICE, limit // (32 * width * FAN_IN)))  # merging needs three times as much

    def add(self, runs: Iterable[Run]) -> None:
        """Add some runs, and write all to a file if they need more memory than the limit."""
        for run in runs:
            while self.n_keys < self.width and self._held and len(self._held[-1]) <= 2 * len(run):
                run = self._merged(self._held.pop(), run)
            self._held.append(run)
        if 5 * sum(run.nbytes for run in self._held) > self.limit:
            self.spill()

    def spill(self) -> None:
        """Write the runs in memory to a file, and merge runs in files if there are many."""
        self._stored.append((0, self._written(self._held)))
        self._held = []
        while len(self._stored) >= FAN_IN and self._stored[-FAN_IN][0] == self._stored[-1][0]:
            last = self._stored[-FAN_IN:]
            self._stored[-FAN_IN:] = [(last[0][0] + 1, self._written([run for _, run in last]))]

    def finish(self) -> None:
        """Merge all runs into one."""
        if not self._stored:
            self.run = self._merged_all(self._held)
            return
        if self._held:
            self.spill()
        runs = [run for _, run in self._stored]  # shortest last
        while len(runs) > 1:
            runs = [*runs[:-FAN_IN], self._written(runs[-FAN_IN:])]
        self.run = runs[0]

    def exchange(self, unit: int) -> None:
        """Give each rank of a group a range of keys, and take those of this rank from all others; after ``finish``.

        Ranges begin where the first column is a multiple of ``unit``.
        """
        group, n = current(), len(self.run)
        bounds = [0, *(bisect_left(self.run[:, 0], start) for start in self._starts(group, unit)), n]
        longest = max(size for sizes in group.gather(np.diff(bounds).tolist()) for size in sizes)
        step = max(1, min(_SLICE, self.limit // (64 * self.width * group.size)))
        with ExitStack() as stack:
            columns = [stack.enter_context(Column(self.limit // (10 * group.size))) for _ in range(group.size)]
            for k in range(0, longest, step):
                parts = [self.run[min(a + k, b) : min(a + k + step, b)].reshape(-1) for a, b in pairwise(bounds)]
                for column, part in zip(columns, group.exchange(parts), strict=True):
                    column.append(part)
            received = [column.array().reshape(-1, self.width) for column in columns]
        small = 5 * sum(run.nbytes for run in received) <= self.limit
        self.run = self._merged_all(map(np.array, received)) if small else self._written(received)

    def _starts(self, group: Group, unit: int) -> list[int]:
        """Return the first keys of the ranges of all ranks but the first: quantiles of samples of all ranks."""
        n = len(self.run)
        at = np.linspace(0, n, min(n, _SAMPLES), endpoint=False).astype(np.int64)
        samples = group.gather_arrays(self.run[at, 0] // unit * unit)
        weights = [n / max(1, len(part)) for n, part in zip(group.gather(n), samples, strict=True)]
        values = np.concatenate(samples)
        order = np.argsort(values, kind="stable")
        mass = np.cumsum(np.repeat(weights, [len(part) for part in samples])[order])
        if not len(values):
            return [0] * (group.size - 1)
        shares = mass[-1] * np.arange(1, group.size) / group.size
        chosen: list[int] = values[order][np.minimum(np.searchsorted(mass, shares), len(values) - 1)].tolist()
        return chosen

    def slices(self) -> Iterator[Run]:
        """Yield all records in rising parts; after ``finish``."""
        return self._slices([self.run])

    def _slices(self, runs: Sequence[Run]) -> Iterator[Run]:
        """Yield the merged records of runs in rising parts, from a limited number of records of each at a time."""
        left = [run for run in runs if len(run)]
        while left:
            parts = [run[: self._size].copy() for run in left]
            last = min(self._key(part[-1]) for part in parts)  # all smaller keys have been read
            parts = [part[: bisect_right(part, last, key=self._key)] for part in parts]
            yield self._merged_all(parts)
            for run in left:
                release(run)
            left = [run[len(part) :] for run, part in zip(left, parts, strict=True) if len(part) < len(run)]

    def _key(self, record: Run) -> tuple[int, ...]:
        return tuple(record[: self.n_keys].tolist())

    def _merged(self, a: Run, b: Run) -> Run:
        """Merge two runs."""
        if not len(a) or not len(b):
            return a if len(a) else b
        out = np.empty((len(a) + len(b), self.width), np.int64)
        n = merge_records(a, b, self.n_keys, out)
        return out if n == len(out) else out[:n].copy()

    def _merged_all(self, runs: Iterable[Run]) -> Run:
        """Merge many runs, two by two."""
        todo = list(runs) or [self.empty]
        while len(todo) > 1:
            pairs = [self._merged(a, b) for a, b in zip(todo[::2], todo[1::2], strict=False)]
            todo = pairs + todo[2 * len(pairs) :]
        return todo[0]

    def _written(self, runs: Sequence[Run]) -> Run:
        """Merge runs into one in a temporary file, which nobody else sees."""
        with Column(1) as column:
            for part in self._slices(runs):
                column.append(part)
            return column.array().reshape(-1, self.width)


def finish(kinds: Sequence[Runs], unit: int = 1) -> None:
    """Merge the runs of each kind of records; in a group each rank gets a range of keys, see ``Runs.exchange``."""
    in_parallel(Runs.finish, kinds)
    if current().size > 1:
        for runs in kinds:
            runs.exchange(unit)
