"""Results of experiments: a folder with one page per paper and the state for ``--resume``, or a file of records.

In the folder, ``runs.json`` has all results; ``paper-0.md`` ... and ``figures.jsonl`` are made from it. Files are
replaced atomically after every experiment, so an interrupted run keeps finished results.

A file of records, such as ``docs/records/reproduction.jsonl``, has the last figures of each experiment: a line about
the run, then one line per figure. The tables of the documentation are made from it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.machine import describe_machine
from experiments.registry import EXPERIMENTS, PAPERS, Experiment, describe
from experiments.tables import Figure, Table
from trelliswork.data.files import atomic_write
from trelliswork.errors import DataError

FINISHED = "finished"
COLUMNS = ("experiment", "row", "paper", "ours", "difference", "unit", "seconds", "notes")


@dataclass(frozen=True)
class Run:
    """Outcome of one experiment."""

    quick: bool
    settings: dict[str, str]  # values as text, including the seed
    began: str  # start time, UTC
    seconds: float
    machine: str
    outcome: str  # FINISHED, or the reason why there are no figures
    title: str
    notes: list[str]
    figures: list[Figure]


class Record:
    """The folder that ``dev reproduce --out`` writes; existing results stay until they are recomputed."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{self.folder}: cannot create the folder for results: {error.strerror}.") from None
        self.runs = _load(self.folder / "runs.json")
        self.write()  # fails now rather than after hours

    def check(self, name: str, quick: bool) -> None:
        """Raise an error if quick figures would replace full ones."""
        before = self.runs.get(name)
        if quick and before is not None and not before.quick and before.outcome == FINISHED:
            raise DataError(
                f"{self.folder} holds the full figures of {name}, which --quick would replace: choose another --out."
            )

    def holds(self, name: str, settings: Mapping[str, Any], quick: bool) -> bool:
        """Return whether there are finished figures of these settings."""
        before = self.runs.get(name)
        if before is None or before.outcome != FINISHED:
            return False
        return (before.quick, before.settings) == (quick, _as_text(settings))

    def add(
        self, experiment: Experiment, outcome: Table | str, settings: Mapping[str, Any], quick: bool, seconds: float
    ) -> None:
        """Store a table, or the reason of a failure, and write the folder; a failure does not replace figures."""
        before = self.runs.get(experiment.name)
        if isinstance(outcome, str) and before is not None and before.outcome == FINISHED:
            return
        table = Table(experiment.about, []) if isinstance(outcome, str) else outcome
        began = datetime.fromtimestamp(datetime.now(UTC).timestamp() - seconds, UTC)
        self.runs[experiment.name] = Run(
            quick,
            _as_text(settings),
            began.strftime("%Y-%m-%d %H:%M UTC"),
            round(seconds, 1),
            describe_machine(),
            outcome if isinstance(outcome, str) else FINISHED,
            table.title,
            table.notes,
            table.figures,
        )
        self.write()

    def write(self) -> None:
        """Write all files."""
        order = [e for e in EXPERIMENTS if e.name in self.runs]
        for paper in sorted({e.paper for e in order}):
            with atomic_write(self.folder / f"paper-{paper}.md") as stream:
                stream.write(page(paper, {e.name: self.runs[e.name] for e in order if e.paper == paper}))
        with atomic_write(self.folder / "figures.jsonl") as stream:
            stream.writelines(line + "\n" for e in order for line in json_lines(e.name, self.runs[e.name].figures))
        with atomic_write(self.folder / "runs.json") as stream:
            json.dump({name: asdict(run) for name, run in self.runs.items()}, stream, indent=1)
            stream.write("\n")


def update_records(
    path: str | Path, experiment: Experiment, table: Table, settings: Mapping[str, Any], seconds: float
) -> None:
    """Replace the figures of an experiment in a file of records; those of other experiments stay."""
    target = Path(path)
    run: dict[str, Any] = {
        "experiment": experiment.name,
        "paper_number": experiment.paper,
        "command": f"python -m experiments {experiment.name}" + ("" if experiment.folder is None else " --data DATA"),
        "settings": _as_text(settings),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seconds": round(seconds, 1),
        "machine": describe_machine(),
    }
    figures = [{"experiment": experiment.name, **_finite(figure)} for figure in table.figures]
    try:
        lines = target.read_text(encoding="utf-8").splitlines() if target.exists() else []
        old = [json.loads(line) for line in lines]
        kept = [line for line in old if line["experiment"] != experiment.name]
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise DataError(f"{target}: not a file of records ({error}). Choose another file.") from None
    with atomic_write(target) as stream:
        stream.writelines(json.dumps(line, allow_nan=False) + "\n" for line in [*kept, run, *figures])


def _finite(figure: Figure) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(figure).items()}


def _as_text(settings: Mapping[str, Any]) -> dict[str, str]:
    return {key: describe({key: value}).partition("=")[2] for key, value in settings.items() if value is not None}


def json_lines(name: str, figures: list[Figure]) -> list[str]:
    """Return one JSON object per figure: reproduce, row, paper, ours, unit, seconds, note; not finite is null."""
    return [json.dumps({"reproduce": name} | _finite(figure), allow_nan=False) for figure in figures]


def page(paper: int, runs: dict[str, Run]) -> str:
    """Return the page of a paper in Markdown: machine, runs, and the table of figures."""
    lines = [f"# Paper {paper}: {PAPERS[paper]}", ""]
    lines += [f"Machine: {machine}.  " for machine in dict.fromkeys(run.machine for run in runs.values())]
    lines += ["", "difference: ours minus the paper's. quick: small settings, not comparable.", ""]
    described = []
    for name, run in runs.items():
        settings = ("quick; " if run.quick else "") + describe(run.settings)
        described.append([name, settings, run.began, f"{run.seconds:,.1f}", run.outcome])
    lines += _table(("experiment", "settings", "started", "seconds", "outcome"), described)
    rows = [[name, *_cells(figure)] for name, run in runs.items() for figure in run.figures]
    lines += ["", *_table(COLUMNS, rows)] if rows else []
    for name, run in runs.items():
        if run.outcome == FINISHED:
            lines += ["", f"**{name}**: {run.title}. " + " ".join(run.notes)]
    return "\n".join(lines) + "\n"


def _cells(figure: Figure) -> list[str]:
    return [
        figure.row,
        figure.paper if isinstance(figure.paper, str) else number(figure.paper),
        number(figure.ours),
        number(figure.difference, signed=True),
        figure.unit,
        "" if figure.seconds is None else f"{figure.seconds:,.1f}",
        figure.note,
    ]


def number(value: float | None, *, signed: bool = False) -> str:
    """Format a number for comparison: ``1,234.5``, ``92.72``, ``-5.2137``, ``1.1e-16``.

    >>> [number(x) for x in (1234.51, 92.7163, -5.21374, 1.1e-16, 0.0)]
    ['1,234.5', '92.72', '-5.2137', '1.1e-16', '0']
    """
    if value is None:
        return ""
    size = abs(value)
    form = ",.1f" if size >= 1000 else ".2f" if size >= 10 else ".4f" if size >= 0.001 else ".2g"
    return format(value, ("+" if signed else "") + form)


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table; bars in cells are escaped."""
    cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in [list(columns), *rows]]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return [lines[0], "|" + "---|" * len(columns), *lines[1:]]


def _load(path: Path) -> dict[str, Run]:
    if not path.exists():
        return {}
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: Run(**{**run, "figures": [Figure(**figure) for figure in run["figures"]]})
            for name, run in plain.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise DataError(
            f"{path}: not the results of earlier experiments ({error}). Choose another folder, or remove the file."
        ) from None
