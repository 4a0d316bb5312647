"""``trelliswork info``: what a report of a problem should say about the program and the machine."""

import os
import platform
import re
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Any

import typer

from trelliswork import __version__
from trelliswork.cli.options import tell


def info(
    json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object instead of lines.")] = False,
) -> None:
    """Print versions, machine, threads and the cache of compiled code, for reports of problems.

    Example: trelliswork info --json
    """
    facts, lines = _facts(), []
    for name, value in facts.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        lines.append(f"{name.replace('_', ' '):<14} {text}")
    tell(json, facts, "\n".join(lines))


def _facts() -> dict[str, Any]:
    from trelliswork.compute.kernel_cache import cache_directory
    from trelliswork.compute.threads import get_num_threads

    cache = cache_directory()
    files = [path for path in cache.rglob("*") if path.is_file()] if cache.is_dir() else []
    return {
        "trelliswork": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "packages": _packages(),
        "cache": {"directory": str(cache), "files": len(files), "mb": round(sum(map(_size, files)) / 1e6, 1)},
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # another process has deleted it
        return 0


def _packages() -> dict[str, str]:
    """Return the versions of required packages, and of optional ones that are installed."""
    found = {}
    for line in requires("trelliswork") or []:
        name = re.split(r"[^\w.-]", line)[0]
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
