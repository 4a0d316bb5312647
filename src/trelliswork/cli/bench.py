"""``trelliswork bench``: measure side by side with other packages."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from trelliswork.errors import TrellisworkError

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"


def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A benchmark, or 'all'.", show_default=True)] = "all",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads for both sides.")] = 2,
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved repetitions; the best counts.")] = 5,
    cases: Annotated[str | None, typer.Option(help="Only cases whose name contains one of these, by comma.")] = None,
    peers: Annotated[str | None, typer.Option(help="Only these peers, by comma.")] = None,
) -> None:
    """Measure this package against its peers, in one run, ratios first (above 1: we are faster).

    Needs the source tree, and 'make setup-bench' for the peers; one that is not installed is named as skipped.

    Example: trelliswork bench chain --json --cases S=16
    """
    names = benchmarks()
    if not names:
        raise TrellisworkError(
            "the benchmarks are part of the source tree, not of the installed package: clone the repository, "
            "run 'make setup-bench' and try again there."
        )
    if name != "all" and name not in names:
        raise typer.BadParameter(f"no benchmark is called {name!r}; there are: all, {', '.join(names)}.")
    options = ["--threads", str(threads), "--repeats", str(repeats)]
    options += ["--json"] if json else []
    options += ["--cases", cases] if cases else []
    options += ["--peers", peers] if peers else []
    failed = 0
    for one in names if name == "all" else [name]:
        failed |= subprocess.call([sys.executable, str(FOLDER / f"{one}.py"), *options])
    raise typer.Exit(failed)


def benchmarks() -> list[str]:
    """Names of the benchmarks in the source tree: the scripts that declare a ``BENCHMARK``."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if "\nBENCHMARK = " in path.read_text(encoding="utf-8"))
