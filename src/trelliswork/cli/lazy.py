"""Groups of commands that are imported when they are asked for, so that ``--help`` answers at once."""

from importlib import import_module
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command

from trelliswork.cli.help import Command
from trelliswork.cli.running import report_errors

SHARED = ("tag", "parse", "score", "cluster")  # whose work processes can share, beside those of groups
WITHOUT_THREADS = ("warmup", "bundled")  # commands that compute nothing, or in processes of their own


class LazyGroup(TyperGroup):
    """A group whose commands are in ``places``: the module of each, and its function or group there."""

    places: ClassVar[dict[str, str]] = {}
    panels: ClassVar[dict[str, str]] = {}  # names of commands by the title of their panel, separated by spaces

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of --help."""
        return list(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none of that name."""
        if cmd_name not in self.places:
            return None
        command = imported(cmd_name, self.places[cmd_name])
        command.rich_help_panel = next((p for p, names in self.panels.items() if cmd_name in names.split()), None)
        return command


def imported(name: str, place: str) -> Any:
    """Return the command of a place such as ``"use.tag:tag"``."""
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"trelliswork.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command = get_command(found)
    else:
        single = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)
        single.command(name, cls=Command)(report_errors(found, shared=name in SHARED))
        command = get_command(single)
    command.name = name
    add_threads(command)
    return command


def add_threads(command: Any) -> None:
    """Add ``--threads`` to a command, or to all commands of a group that are there already."""
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            add_threads(below)
    elif hasattr(type(command), "inner"):
        return  # a train command, which adds it when it is completed
    elif command.name not in WITHOUT_THREADS and not any(p.name == "threads" for p in command.params):
        command.params.append(_threads_option())


def set_threads(threads: int | None) -> None:
    """Set the number of threads, if one is given."""
    if threads is not None:
        from trelliswork.compute.threads import set_num_threads

        set_num_threads(threads)


def _threads_option() -> Any:
    """Return the option; given before the command and after it, the latter counts."""
    single = typer.Typer(add_completion=False)

    @single.command()
    def _(
        threads: Annotated[
            int | None,
            typer.Option(
                min=1,
                callback=set_threads,
                expose_value=False,
                show_default=False,
                help="Number of threads; all cores by default.",
            ),
        ] = None,
    ) -> None: ...

    return get_command(single).params[0]
