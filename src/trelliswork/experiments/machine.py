"""What the figures of a run were computed on."""

import importlib.metadata
import os
import platform
from pathlib import Path

from trelliswork import __version__

PACKAGES = ("numpy", "scipy", "numba", "torch")


def describe_machine() -> str:
    """Processor, cores, memory, system, Python and the versions of what computes, in a line."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = _memory_gb()
    parts = [_processor(), f"{n_cores} cores", *([f"{memory:.1f} GB of memory"] if memory else []), platform.system()]
    versions = [f"{name} {_version(name)}" for name in PACKAGES]
    return ", ".join([*parts, f"Python {platform.python_version()}", f"trelliswork {__version__}", *versions])


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    found = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.processor() or platform.machine())


def _memory_gb() -> float | None:
    """Of the machine; None where it cannot be told."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (AttributeError, ValueError, OSError):
        return None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
