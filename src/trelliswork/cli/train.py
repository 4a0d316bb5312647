"""``trelliswork train``: fit a model to a file."""

import typer

from trelliswork.cli.running import report_errors
from trelliswork.cli.train_crf import train_crf

app = typer.Typer(help="Fit a model to a file.", no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    """Fit a model to a file."""


app.command("crf", epilog="Example: trelliswork train crf train.txt --dev dev.txt --features chunking --out chunker")(
    report_errors(train_crf)
)
