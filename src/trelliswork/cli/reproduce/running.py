"""What the commands of ``trelliswork reproduce`` share: options, how an experiment is run and its table shown."""

import functools
import inspect
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.running import report_errors
from trelliswork.experiments.registry import Experiment, describe, find

if TYPE_CHECKING:
    from trelliswork.experiments.record import Record
    from trelliswork.experiments.tables import Say, Table

Plot = Annotated[str | None, typer.Option(help="Draw the curves to this PNG file.")]
Seed = Annotated[int, typer.Option(min=0, help="Of random numbers.")]
Data = Annotated[
    str | None, typer.Option(help="Folder of the data sets, or of the one that is needed.", envvar="TRELLISWORK_DATA")
]
NoData = Annotated[
    str | None,
    typer.Option(help="As for the other experiments; this one draws its own data.", envvar="TRELLISWORK_DATA"),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Small settings, for a look: seconds to a minute. Options that are given count.")
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out", "-o", help="Folder for the papers' pages (paper-0.md ...) and figures.jsonl; what it holds is kept."
    ),
]


def setting(experiment: str, key: str, help: str, **limits: Any) -> Any:
    """An option, None if it is not given, whose default in the help is the experiment's full setting."""
    value = find(experiment).full.get(key)
    return typer.Option(
        help=help, show_default=False if value is None else describe({key: value})[len(key) + 1 :], **limits
    )


def check_choice(experiment: str, key: str, option: str, given: list[str] | None) -> None:
    """Refuse a value that is not among those of the full setting."""
    known = find(experiment).full[key]
    for value in given or ():
        if value not in known:
            raise typer.BadParameter(f"{option} must be {' or '.join(known)}, got {value!r}.")


@dataclass(frozen=True)
class Wishes:
    """What every command is asked besides its settings."""

    data: str | None = None
    quick: bool = False
    out: str | None = None
    plot: str | None = None
    quiet: bool = False
    json: bool = False


def command(name: str, *, plot: Any = Plot) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., None]]:
    """Make a command of a function that turns its own options into settings of the experiment ``name``.

    It gets the options that all have, ``--data``, ``--quick``, ``--out``, ``--seed`` (if there are random numbers),
    ``--quiet`` and ``--json``, and ``--plot``, as ``plot`` says: another annotation, or None if there is no picture.
    Settings that are None or an empty list take the experiment's value.
    """
    experiment = find(name)
    shared: dict[str, tuple[Any, Any]] = {
        "data": (NoData if experiment.folder is None else Data, None),
        "quick": (Quick, False),
        "out": (Out, None),
        **({} if plot is None else {"plot": (plot, None)}),
        **({"seed": (Seed, 0)} if "seed" in experiment.full else {}),
        "quiet": (QuietOption, False),
        "json": (JsonOption, False),
    }

    def make(options: Callable[..., dict[str, Any]]) -> Callable[..., None]:
        @functools.wraps(options)
        def run(**values: Any) -> None:
            asked = {key: values.pop(key) for key in shared}
            given = options(**values) | {"seed": asked.pop("seed", None)}
            given = {key: (tuple(value) or None) if isinstance(value, list) else value for key, value in given.items()}
            reproduce(name, given, Wishes(**asked))

        more = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for key, (annotation, default) in shared.items()
        ]
        signature = inspect.signature(options)
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in signature.parameters.values()] + more
        vars(run)["__signature__"] = signature.replace(parameters=parameters, return_annotation=None)
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return report_errors(run)

    return make


def reproduce(name: str, given: Mapping[str, Any], wishes: Wishes) -> None:
    """Run one experiment with the settings that are given (not None), show its table and keep it."""
    experiment = find(name)
    if experiment.folder is not None and not wishes.data:
        needed = ", ".join(experiment.missing(None))
        raise typer.BadParameter(f"{name} needs {needed}: give their folder by --data, or set TRELLISWORK_DATA to it.")
    check_plot(wishes.plot)
    record = open_record(wishes.out, [experiment], wishes.quick)
    began = time.perf_counter()
    table = experiment.run(wishes.data, quick=wishes.quick, given=given, say=say_to(wishes.quiet))
    if record is not None:
        settings = experiment.settings(wishes.quick, given)
        record.add(experiment, table, settings, wishes.quick, time.perf_counter() - began)
    show(name, table, wishes.plot, wishes.json)


def open_record(out: str | None, experiments: list[Experiment], quick: bool) -> "Record | None":
    """The folder to write, refused before anything is computed if it cannot be."""
    if out is None:
        return None
    from trelliswork.experiments.record import Record

    record = Record(out)
    for experiment in experiments:
        record.check(experiment.name, quick)
    return record


def say_to(quiet: bool, before: str = "") -> "Say":
    """Tell progress on standard error, unless quiet."""
    return (lambda _: None) if quiet else (lambda text: print(f"{before}{text}", file=sys.stderr, flush=True))


def check_plot(plot: str | None) -> None:
    """Refuse a picture that cannot be drawn, before anything is computed."""
    if plot is not None:
        from trelliswork.report.pictures import check_picture

        check_picture(plot)


def show(name: str, table: "Table", plot: str | None, json: bool) -> None:
    """Print the table of the experiment ``name``, or its figures as one JSON object a line; draw its curves."""
    if plot is not None:
        from trelliswork.report.pictures import curves

        lines = [(curve.name, curve.x, curve.y) for curve in table.curves]
        curves(lines, plot, title=table.title, axes=table.axes)
    if not json:
        print(table.to_text(), flush=True)
        return
    from trelliswork.experiments.record import json_lines

    for line in json_lines(name, table.figures):
        print(line, flush=True)
