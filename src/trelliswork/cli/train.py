"""``trelliswork train``: fit a model to a file."""

import typer

from trelliswork.cli.running import report_errors
from trelliswork.cli.train_crf import train_crf
from trelliswork.cli.train_factorial import train_factorial
from trelliswork.cli.train_hmm import train_hmm

app = typer.Typer(help="Fit a model to a file.", no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    """Fit a model to a file."""


app.command("crf", epilog="Example: trelliswork train crf train.txt --dev dev.txt --features chunking --out chunker")(
    report_errors(train_crf)
)
app.command(
    "factorial-crf", epilog="Example: trelliswork train factorial-crf train.txt --layers pos,chunk --out joint"
)(report_errors(train_factorial))
app.command("hmm", epilog="Example: trelliswork train hmm train.conllu --label xpos --order 2 --out tagger")(
    report_errors(train_hmm)
)
