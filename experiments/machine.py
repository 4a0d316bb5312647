"""Description of the machine, and peak memory of the process."""

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

from trelliswork import __version__

PACKAGES = ("numpy", "scipy", "numba", "torch")
RESET = "5"  # clear_refs: reset the high-water mark


def describe_machine() -> str:
    """Return one line with processor, cores, memory, system, and the versions of Python and numerical packages."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = _memory_gb()
    parts = [_processor(), f"{n_cores} cores", *([f"{memory:.1f} GB of memory"] if memory else []), platform.system()]
    versions = [f"{name} {_version(name)}" for name in PACKAGES]
    return ", ".join([*parts, f"Python {platform.python_version()}", f"trelliswork {__version__}", *versions])


def restart_peak_memory() -> None:
    """Measure `peak_memory` from now on; without support by the system it counts from the start of the process."""
    try:
        Path("/proc/self/clear_refs").write_text(RESET, encoding="ascii")
    except OSError:
        return


def peak_memory() -> float | None:
    """Return the peak resident memory since `restart_peak_memory` in bytes; ``None`` if it is unknown."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return 1024 * next(float(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _memory_gb() -> float | None:
    """Return the memory of the machine; ``None`` if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (AttributeError, ValueError, OSError):
        return None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
