"""``trelliswork dev``: commands for the development of this package."""

from typing import ClassVar

import typer

from trelliswork.cli.lazy import LazyGroup


class DevGroup(LazyGroup):
    """The commands below ``dev``."""

    places: ClassVar[dict[str, str]] = {"bench": "bench:bench", "reproduce": "reproduce:app"}


app = typer.Typer(
    cls=DevGroup,
    help="Benchmarks, and the experiments of the papers.",
    epilog="Example: trelliswork dev bench chain --quick",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.callback()
def _group() -> None:
    """Benchmarks, and the experiments of the papers."""
