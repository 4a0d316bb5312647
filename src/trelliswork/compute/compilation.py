"""Which kernels this process compiles, for those who wait for them. Numba is not imported here."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

LINE_SECONDS = 5.0  # between two lines about a long compilation


class Kernel(NamedTuple):
    """A kernel that starts to compile (``seconds`` is None) or was compiled in ``seconds`` of CPU time."""

    name: str
    signature: str
    seconds: float | None


_log = logging.getLogger("trelliswork.compute")
_watchers: list[Callable[[Kernel], None]] = []


@contextmanager
def watching(watcher: Callable[[Kernel], None]) -> Iterator[None]:
    """Call ``watcher`` when a kernel starts to compile, and again when it is done; only the innermost is called."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def announce(kernel: Kernel) -> None:
    """Tell the watcher. In an interactive session without any, the first compilation is said on standard error."""
    if kernel.seconds is not None:
        _log.info("compiled the kernel %s in %.1f s", kernel.name, kernel.seconds)
    if not _watchers and (hasattr(sys, "ps1") or "ipykernel" in sys.modules):
        _watchers.append(Notice("this model"))
    if _watchers:
        _watchers[-1](kernel)


class Notice:
    """Lines on standard error: one when compilation begins, then one every few seconds while it lasts."""

    def __init__(self, purpose: str) -> None:
        self.purpose = purpose
        self._n_compiled = 0
        self._started = self._due = 0.0

    def __call__(self, kernel: Kernel) -> None:
        """Say what there is to say about a kernel that starts to compile or is done."""
        now = time.monotonic()
        if not self._started:
            self._started, self._due = now, now + LINE_SECONDS
            print(f"Compiling kernels for {self.purpose}, first run only ...", file=sys.stderr, flush=True)
        if kernel.seconds is not None:
            self._n_compiled += 1
            if now >= self._due:
                self._due = now + LINE_SECONDS
                print(f"  {self._n_compiled} kernels, {now - self._started:.0f} s", file=sys.stderr, flush=True)
