"""``trelliswork data``: look at and export data."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from trelliswork.cli.count import count
from trelliswork.cli.running import report_errors

app = typer.Typer(
    help="Look at and export data.",
    epilog="Example: trelliswork data bundled --split test --limit 2",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


class Split(StrEnum):
    """Parts of the bundled corpus."""

    train = "train"
    dev = "dev"
    test = "test"


class Format(StrEnum):
    """File formats of the bundled corpus."""

    conllu = "conllu"
    columns = "columns"
    text = "text"
    trees = "trees"


@app.callback()
def _group() -> None:
    """Look at and export data."""


app.command("count", epilog="Example: trelliswork data count text.gz --distances 2 --out counts")(report_errors(count))


@app.command("bundled", epilog="Example: trelliswork data bundled --split test --format columns > test.txt")
@report_errors
def bundled_corpus(
    split: Annotated[Split, typer.Option(help="Which part.")] = Split.train,
    format: Annotated[
        Format,
        typer.Option(
            help="conllu (words, tags, heads), columns (word tag chunk), text, or trees (bracketed constituents)."
        ),
    ] = Format.conllu,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Only the first so many sentences.", show_default="all")
    ] = None,
) -> None:
    """Print the bundled corpus: a small English-like treebank made by our own grammar, the same on every machine."""
    from trelliswork.data import bundled, writers

    write = {
        Format.conllu: writers.write_conllu,
        Format.columns: writers.write_columns,
        Format.text: writers.write_text,
        Format.trees: writers.write_trees,
    }[format]
    write(bundled.load(split.value)[:limit], sys.stdout)
