"""Load of the cores by other processes during a sample.

A single busy process on one of the cores makes libraries with spinning barriers (OpenMP, hence torch) up to a hundred
times slower and others only twice, so ratios would be meaningless.
"""

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_IDLE = (3, 4)  # columns of /proc/stat: idle and waiting for input; the rest is busy, or stolen by the host
_SHARE = 0.05
_SLACK_SECONDS = 0.04  # the counters have ticks of 10 ms


class ForeignLoad:
    """Watches the cores of a worker while a sample is taken.

    Parameters
    ----------
    pid : int
        Process id of the worker, which runs on these cores only.
    n_cores : int
        Number of its cores, the first ones that this process may use.
    """

    def __init__(self, pid: int, n_cores: int) -> None:
        self._pid = pid
        self._cores = sorted(os.sched_getaffinity(0))[:n_cores] if hasattr(os, "sched_getaffinity") else []
        self._begin = time.monotonic(), busy_seconds(self._cores), process_seconds(pid)

    def is_high(self) -> bool:
        """Return whether other processes used more than 5 % of the cores since the start."""
        wall, busy, own = self._begin
        wall = time.monotonic() - wall
        others = (busy_seconds(self._cores) - busy) - (process_seconds(self._pid) - own)
        return others > max(_SHARE * wall * len(self._cores), _SLACK_SECONDS)


def busy_seconds(cores: list[int]) -> float:
    """Return the busy time of these cores since the system started; 0 without /proc."""
    names = {f"cpu{core}" for core in cores}
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    except OSError:
        return 0.0
    columns = [line[1:9] for line in lines if line and line[0] in names]
    return sum(int(ticks) for line in columns for i, ticks in enumerate(line) if i not in _IDLE) / _TICKS


def process_seconds(pid: int) -> float:
    """Return the processor time of a process and of its children, also of those that have ended; 0 if unknown."""
    try:
        columns = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = [int(child) for tasks in Path(f"/proc/{pid}/task").iterdir() for child in _children(tasks)]
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in columns[11:15]) / _TICKS + sum(map(process_seconds, children))


def _children(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except OSError:  # a kernel without this file, or a thread that has ended
        return []
