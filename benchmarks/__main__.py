"""``python -m benchmarks NAME``: compare the speed with other packages."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from trelliswork.cli.running import report_errors

FOLDER = Path(__file__).resolve().parent
NOTHING = 3  # exit code of a benchmark that has none of the chosen cases or peers
INTERRUPTED = 130

app = typer.Typer(rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
@report_errors
def bench(
    name: Annotated[str, typer.Argument(help="Name of a benchmark, or 'all'.", show_default=True)] = "all",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    threads: Annotated[str, typer.Option(help="Number of threads of all contenders; 1,2 measures both.")] = "2",
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of interleaved repetitions; the best counts.", show_default="5, with --quick 1"
        ),
    ] = None,
    cases: Annotated[
        str | None, typer.Option(help="Run only cases whose name contains one of these texts, separated by commas.")
    ] = None,
    peers: Annotated[str | None, typer.Option(help="Peers to compare with, separated by commas; '' for none.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny problems only, to check that everything runs and results agree.")
    ] = False,
    record: Annotated[
        str | None, typer.Option(help="File of records to update, such as docs/records/benchmarks.jsonl.")
    ] = None,
) -> None:
    """Compare the speed of this package with its peers; a ratio above 1 means that this package is faster.

    'make setup-bench' installs the peers; peers that are not installed are listed as absent. With
    'all' every benchmark runs; the exit code is 1 if one fails. Some need TRELLISWORK_DATA.

    Example: python -m benchmarks chain --json --cases S=16
    """
    names = benchmarks()
    if name != "all" and name not in names:
        raise typer.BadParameter(f"no benchmark is called {name!r}; choose from all, {', '.join(names)}.")
    if not all(text.isdecimal() and int(text) for text in threads.split(",")):
        raise typer.BadParameter(f"--threads must be a positive whole number, or several such as 1,2; got {threads!r}.")
    options = ["--threads", threads]
    options += ["--repeats", str(repeats)] if repeats is not None else []
    options += ["--json"] if json else []
    options += ["--quick"] if quick else []
    options += ["--cases", cases] if cases else []
    options += ["--peers", peers] if peers is not None else []
    if record is not None:
        if quick:
            raise typer.BadParameter("--record is for full measurements: leave out --quick.")
        options += ["--record", record]
    if name != "all":
        status = _run(name, options)
        if status == NOTHING:
            raise typer.BadParameter(f"{name} has no tiny problems among these cases: leave out --quick.")
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
        print(f"failed, or results differ from a peer: {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)


def benchmarks() -> list[str]:
    """Return the names of the scripts in the source tree that declare a ``BENCHMARK``."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if "\nBENCHMARK = " in path.read_text(encoding="utf-8"))


def _run(name: str, options: list[str]) -> int:
    """Run the script of a benchmark, which handles Ctrl-C: it ends its workers and prints finished rows."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)  # unlike SIG_IGN, not inherited by the script
    try:
        return subprocess.call([sys.executable, str(FOLDER / f"{name}.py"), *options])
    finally:
        signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
