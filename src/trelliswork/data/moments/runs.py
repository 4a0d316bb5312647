"""Counting of keys by sorting: runs in memory, merged when they are of similar size, and on disk beyond a limit."""

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.ids import in_parallel
from trelliswork.data.kernels.moments import merge_runs

Run = tuple[NDArray[np.int64], NDArray[np.int64]]  # rising keys, counts
_SLICE = 1 << 22  # keys of the longest run on disk that are merged at a time
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


class Runs:
    """Runs of the keys of one distance.

    A new run is merged with the last one as long as that is not longer: a key is moved O(log(blocks)) times. Counts are
    integers, so results do not depend on the order of merging or on spilling.
    """

    def __init__(self) -> None:
        self.held: list[Run] = []
        self.spilled: list[Path] = []

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
        """Write the runs in memory to two files in a new directory of a folder."""
        keys, counts = merged_all(self.held)
        place = Path(tempfile.mkdtemp(dir=folder))
        keys.tofile(place / "keys")
        counts.tofile(place / "counts")
        self.spilled.append(place)
        self.held = []

    def collect(self) -> Run:
        """Return all keys in one run; files are read slice by slice."""
        held = merged_all(self.held)
        self.held = []
        if not self.spilled:
            return held
        runs = [held]
        runs += [(np.memmap(p / "keys", np.int64, "r"), np.memmap(p / "counts", np.int64, "r")) for p in self.spilled]
        longest = max((keys for keys, _ in runs), key=len)
        edges = [longest[k] for k in range(_SLICE, len(longest), _SLICE)]
        cuts = [[0, *np.searchsorted(keys, edges).tolist(), len(keys)] for keys, _ in runs]
        parts = []
        for k in range(len(edges) + 1):
            pieces = [
                (np.array(keys[cut[k] : cut[k + 1]]), np.array(counts[cut[k] : cut[k + 1]]))
                for (keys, counts), cut in zip(runs, cuts, strict=True)
            ]
            parts.append(merged_all(pieces))
        return np.concatenate([keys for keys, _ in parts]), np.concatenate([counts for _, counts in parts])


class RunStore(ExitStack):
    """One ``Runs`` for each distance, and the folder they are spilled to, which is deleted at the end."""

    def __init__(self, n_kinds: int, limit: int) -> None:
        super().__init__()
        self.kinds = [Runs() for _ in range(n_kinds)]
        self.limit = limit
        self.folder: Path | None = None

    def add(self, blocks: list[list[Run]]) -> None:
        """Add the runs of some blocks, by distance, and write all to disk if they need more memory than the limit."""
        in_parallel(lambda k: self.kinds[k].add(runs[k] for runs in blocks), range(len(self.kinds)))
        if sum(runs.n_bytes for runs in self.kinds) <= self.limit:
            return
        if self.folder is None:
            folder = tempfile.TemporaryDirectory(prefix="trelliswork-moments.", ignore_cleanup_errors=True)
            self.folder = Path(self.enter_context(folder))
        for runs in self.kinds:
            if runs.held:
                runs.spill(self.folder)
