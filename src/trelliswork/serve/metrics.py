"""Counters of all workers in shared memory, printed in the text format of Prometheus by any of them.

Each worker writes to its own row, so nothing is locked, no file is written, and a worker that replaces one that died
goes on in its row.
"""

import mmap
import os
import tempfile
from bisect import bisect_left
from collections.abc import Mapping

Names = Mapping[str, Mapping[str, object]]  # abilities by model
STATUSES = (200, 400, 401, 404, 405, 413, 415, 421, 429, 500, 503, 504)
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
_PREFIX = "trelliswork_"
FAMILIES = {
    "requests_total": "Requests that were answered.",
    "sentences_total": "Sentences that were answered.",
    "words_total": "Words that were answered.",
    "batches_total": "Calls of a model, each for one request or several.",
    "compute_seconds_total": "Seconds in calls of a model.",
    "request_seconds": "Seconds from headers to answer; streams count when they begin.",
    "connections": "Open connections.",
    "waiting": "Requests that wait for a model.",
    "workers": "Worker processes that serve.",
    "restarts_total": "Worker processes that ended unexpectedly and were replaced.",
    "reloads_total": "Models that workers have loaded again, or failed to.",
}
GAUGES = ("connections", "waiting", "workers")


def columns(names: Names) -> dict[tuple[str, str], int]:
    """Return the place of each number in a row, by metric and labels."""
    found = [("requests_total", f'model="",ability="other",status="{status}"') for status in STATUSES]
    for which in (f'model="{model}",ability="{ability}"' for model, own in names.items() for ability in own):
        found += [("requests_total", f'{which},status="{status}"') for status in STATUSES]
        found += [(f"{name}_total", which) for name in ("sentences", "words", "batches", "compute_seconds")]
    found += [(name, "") for name in (*GAUGES, "restarts_total", "request_seconds_sum")]
    found += [("reloads_total", f'result="{result}"') for result in ("done", "failed")]
    # Of each interval alone; they are added up when printed.
    found += [("request_seconds", f'le="{bound}"') for bound in (*BOUNDS, "+Inf")]
    return {name: n for n, name in enumerate(found)}


class Metrics:
    """Numbers of all workers; ``row`` is the one that this process writes."""

    def __init__(self, names: Names, file: int, n_rows: int, row: int) -> None:
        self._columns = columns(names)
        self._n, self._n_rows = len(self._columns), n_rows
        self._numbers = memoryview(mmap.mmap(file, 8 * self._n * n_rows)).cast("d")
        self._first = row * self._n

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
        self.add("request_seconds", f'le="{(*BOUNDS, "+Inf")[bisect_left(BOUNDS, seconds)]}"')
        self.add("request_seconds_sum", "", seconds)

    def set(self, name: str, value: float, row: int | None = None) -> None:
        """Set a gauge of this process, or of another one."""
        first = self._first if row is None else row * self._n
        self._numbers[first + self._columns[name, ""]] = value

    def reset(self, row: int) -> None:
        """Set the gauges of a worker that has ended to zero."""
        for name in GAUGES:
            self.set(name, 0, row)

    def of_workers(self, name: str, labels: str = "") -> list[float]:
        """Return a number by worker."""
        at = self._columns[name, labels]
        return [self._numbers[row * self._n + at] for row in range(self._n_rows)]

    def total(self, name: str, labels: str = "") -> float:
        """Return a number, added up over all workers."""
        return sum(self.of_workers(name, labels))

    def text(self) -> str:
        """Return all numbers in the text format of Prometheus."""
        lines = []
        for name, help in FAMILIES.items():
            kind = "gauge" if name in GAUGES else "counter" if name.endswith("_total") else "histogram"
            lines += [f"# HELP {_PREFIX}{name} {help}", f"# TYPE {_PREFIX}{name} {kind}"]
            values = {labels: self.total(own, labels) for own, labels in self._columns if own == name}
            if kind == "histogram":
                so_far = 0.0
                for labels, value in values.items():
                    so_far += value
                    lines.append(f"{_PREFIX}{name}_bucket{{{labels}}} {so_far:.0f}")
                lines.append(f"{_PREFIX}{name}_sum {self.total(name + '_sum'):.12g}")
                lines.append(f"{_PREFIX}{name}_count {so_far:.0f}")
                continue
            for labels, value in values.items():
                if value or not labels or name == "reloads_total":
                    lines.append(f"{_PREFIX}{name}{f'{{{labels}}}' if labels else ''} {value:.12g}")
        return "\n".join(lines) + "\n"
