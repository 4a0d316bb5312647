"""Counters of all workers in shared memory, printed in the text format of Prometheus by any of them.

Each worker writes to its own row, so nothing is locked; a worker that replaces one that died goes on in its row.
"""

import mmap
import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import NamedTuple

Names = Mapping[str, Mapping[str, object]]  # abilities by model
STATUSES = (200, 400, 401, 404, 405, 413, 415, 421, 429, 500, 503, 504)
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
_PREFIX = "trelliswork_"


class Family(NamedTuple):
    """A metric: its type and meaning."""

    kind: str
    help: str


FAMILIES = {
    "requests_total": Family("counter", "Requests that were answered."),
    "sentences_total": Family("counter", "Sentences that were answered."),
    "words_total": Family("counter", "Words that were answered."),
    "batches_total": Family("counter", "Calls of a model, each for one request or several."),
    "compute_seconds_total": Family("counter", "Seconds in calls of a model."),
    "request_seconds": Family("histogram", "Seconds from headers to answer; streams count when they begin."),
    "connections": Family("gauge", "Open connections."),
    "waiting": Family("gauge", "Requests that wait for a model."),
    "workers": Family("gauge", "Worker processes that serve."),
    "restarts_total": Family("counter", "Worker processes that ended unexpectedly and were replaced."),
    "reloads_total": Family("counter", "Models that workers have loaded again, or failed to."),
}


def columns(names: Names) -> dict[tuple[str, str], int]:
    """Return the place of each number in a row, by metric and labels."""

    def all_of() -> Iterator[tuple[str, str]]:
        for status in STATUSES:
            yield "requests_total", f'model="",ability="other",status="{status}"'
        for model, abilities in names.items():
            for ability in abilities:
                which = f'model="{model}",ability="{ability}"'
                for status in STATUSES:
                    yield "requests_total", f'{which},status="{status}"'
                for name in ("sentences_total", "words_total", "batches_total", "compute_seconds_total"):
                    yield name, which
        for name in ("connections", "waiting", "workers", "restarts_total"):
            yield name, ""
        for result in ("done", "failed"):
            yield "reloads_total", f'result="{result}"'
        for bound in (*map(str, BOUNDS), "+Inf"):
            yield "request_seconds", f'le="{bound}"'  # of this interval alone; they are added up when printed
        yield "request_seconds_sum", ""

    return {name: n for n, name in enumerate(all_of())}


class Metrics:
    """Numbers of all workers; ``row`` is the one that this process writes."""

    def __init__(self, names: Names, file: int, n_rows: int, row: int) -> None:
        self._columns = columns(names)
        self._n, self._n_rows = len(self._columns), n_rows
        self._numbers = memoryview(mmap.mmap(file, 8 * self._n * n_rows)).cast("d")
        self._first = row * self._n
        self._interval = self._columns["request_seconds", f'le="{BOUNDS[0]}"']
        self._sum = self._columns["request_seconds_sum", ""]

    @staticmethod
    def create(names: Names, n_rows: int) -> int:
        """Return the descriptor of new shared memory, which has no name and ends with the last process."""
        if hasattr(os, "memfd_create"):  # works with a file system that is read-only
            file = os.memfd_create("trelliswork-metrics")
        else:
            with tempfile.TemporaryFile() as temporary:
                file = os.dup(temporary.fileno())
        os.truncate(file, 8 * len(columns(names)) * n_rows)
        return file

    def add(self, name: str, labels: str = "", value: float = 1.0) -> None:
        """Add to a counter."""
        at = self._columns.get((name, labels))
        if at is not None:
            self._numbers[self._first + at] += value

    def answered(self, model: str, ability: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.add("requests_total", f'model="{model}",ability="{ability}",status="{status}"')
        self._numbers[self._first + self._interval + bisect_left(BOUNDS, seconds)] += 1
        self._numbers[self._first + self._sum] += seconds

    def set(self, name: str, value: float) -> None:
        """Set a gauge."""
        self._numbers[self._first + self._columns[name, ""]] = value

    def reset(self, row: int) -> None:
        """Set the gauges of a worker that has ended to zero."""
        for (name, _), at in self._columns.items():
            if name in FAMILIES and FAMILIES[name].kind == "gauge":
                self._numbers[row * self._n + at] = 0

    def of_workers(self, name: str) -> list[float]:
        """Return a gauge by worker."""
        at = self._columns[name, ""]
        return [self._numbers[row * self._n + at] for row in range(self._n_rows)]

    def total(self, name: str, labels: str = "") -> float:
        """Return a number, added up over all workers."""
        at = self._columns[name, labels]
        return sum(self._numbers[row * self._n + at] for row in range(self._n_rows))

    def text(self) -> str:
        """Return all numbers in the text format of Prometheus."""
        lines = []
        for name, family in FAMILIES.items():
            lines += [f"# HELP {_PREFIX}{name} {family.help}", f"# TYPE {_PREFIX}{name} {family.kind}"]
            so_far = 0.0
            for own, labels in self._columns:
                if own != name:
                    continue
                value = self.total(own, labels)
                if family.kind == "histogram":
                    so_far += value
                    lines.append(f"{_PREFIX}{name}_bucket{{{labels}}} {so_far:.0f}")
                elif value or not labels or name == "reloads_total":
                    lines.append(
                        f"{_PREFIX}{name}{{{labels}}} {value:.12g}" if labels else f"{_PREFIX}{name} {value:.12g}"
                    )
            if family.kind == "histogram":
                lines += [
                    f"{_PREFIX}{name}_sum {self.total(name + '_sum'):.12g}",
                    f"{_PREFIX}{name}_count {so_far:.0f}",
                ]
        return "\n".join(lines) + "\n"
