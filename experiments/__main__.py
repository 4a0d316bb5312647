"""``trelliswork dev reproduce``: the papers' experiments, with our figures and theirs."""

import typer

from trelliswork.cli.reproduce.all import reproduce_all
from trelliswork.cli.reproduce.commands import COMMANDS, make

app = typer.Typer(
    no_args_is_help=True,
    help="Run an experiment of the papers, or all of them, and print our figures and theirs.",
    epilog="Example: trelliswork dev reproduce all --quick",
)
app.command("all")(reproduce_all)
for name in COMMANDS:
    app.command(name)(make(name))
