"""What the commands of ``trelliswork reproduce`` share: options, where the data is, how a table is shown."""

import json as json_module
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trelliswork.experiments.tables import Say, Table

Plot = Annotated[str | None, typer.Option(help="Draw the curves to this PNG file.")]
Seed = Annotated[int, typer.Option(min=0, help="Of random numbers.")]


def data_file(path: str | None, *parts: str) -> str:
    """A file of the real data: as given, or in the folder that TRELLISWORK_DATA names."""
    if path is not None:
        return path
    folder = os.environ.get("TRELLISWORK_DATA")
    if folder is None:
        raise typer.BadParameter(f"give the path of {parts[-1]}, or set TRELLISWORK_DATA to the folder with the data.")
    return str(Path(folder).joinpath(*parts))


def say_to(quiet: bool) -> "Say":
    """Tell progress on standard error, unless quiet."""
    return (lambda _: None) if quiet else (lambda text: print(text, file=sys.stderr, flush=True))


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
        print(table.to_text())
        return
    for figure in table.figures:
        print(json_module.dumps({"reproduce": name, **asdict(figure)}))
