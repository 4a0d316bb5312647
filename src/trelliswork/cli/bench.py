"""``trelliswork bench``: measure side by side with other packages."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from trelliswork.errors import TrellisworkError

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
NOTHING = 3  # a benchmark that has none of the cases or peers asked for
INTERRUPTED = 130


def bench(
    name: Annotated[str, typer.Argument(help="A benchmark, or 'all'.", show_default=True)] = "all",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads for both sides.")] = 2,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, help="Interleaved repetitions; the best counts.", show_default="5, with --quick 1"),
    ] = None,
    cases: Annotated[str | None, typer.Option(help="Only cases whose name contains one of these, by comma.")] = None,
    peers: Annotated[str | None, typer.Option(help="Only these peers, by comma; '' for none.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny problems only: does everything run, and to the same results?")
    ] = False,
) -> None:
    """Measure this package against its peers, in one run, ratios first (above 1: we are faster).

    Needs the source tree, and 'make setup-bench' for the peers; one that is not installed is named as absent. With
    'all' every benchmark runs, also after one that failed; the exit code is 1 then. Some need TRELLISWORK_DATA.

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
    options = ["--threads", str(threads)]
    options += ["--repeats", str(repeats)] if repeats is not None else []
    options += ["--json"] if json else []
    options += ["--quick"] if quick else []
    options += ["--cases", cases] if cases else []
    options += ["--peers", peers] if peers is not None else []
    if name != "all":
        status = _run(name, options)
        if status == NOTHING:
            raise typer.BadParameter(f"{name} has no tiny problems among these cases: leave --quick out.")
        raise typer.Exit(status)
    statuses: dict[str, int] = {}
    for k, one in enumerate(names):
        print(f"[{k + 1} of {len(names)}] {one}", file=sys.stderr, flush=True)
        statuses[one] = _run(one, [*options, "--any"])
        if statuses[one] == INTERRUPTED:
            raise typer.Exit(INTERRUPTED)
        if not json and statuses[one] != NOTHING:
            print(flush=True)
    if set(statuses.values()) == {NOTHING}:
        raise typer.BadParameter("no benchmark has any of these cases and peers.")
    if failed := [one for one, status in statuses.items() if status not in (0, NOTHING)]:
        print(f"not measured, or with other results than a peer: {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)


def benchmarks() -> list[str]:
    """Names of the benchmarks in the source tree: the scripts that declare a ``BENCHMARK``."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if "\nBENCHMARK = " in path.read_text(encoding="utf-8"))


def _run(name: str, options: list[str]) -> int:
    """Run a benchmark's script; Ctrl-C is its to answer: it ends its workers and prints what was measured."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)  # not SIG_IGN, which the script would inherit
    try:
        return subprocess.call([sys.executable, str(FOLDER / f"{name}.py"), *options])
    finally:
        signal.signal(signal.SIGINT, before)
