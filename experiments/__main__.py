"""``python -m experiments NAME``: the papers' experiments, with our figures and theirs."""

import typer

from experiments.commands import COMMANDS, make
from experiments.everything import reproduce_all

app = typer.Typer(
    no_args_is_help=True,
    help="Run an experiment of the papers, or all of them, and print our figures and theirs.",
    epilog="Example: python -m experiments all --quick",
)
app.command("all")(reproduce_all)
for name in COMMANDS:
    app.command(name)(make(name))


if __name__ == "__main__":
    app(prog_name="python -m experiments")
