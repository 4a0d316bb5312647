"""The command line. A command is imported when it is used, and heavy packages within it, so answers come at once.

The room is larger than its budget by commands that came later: ``records``, ``check``, ``info``, ``label``, and files
of options (``train.config``).
"""

import os
import sys
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from trelliswork import __version__
from trelliswork.cli.help import Command, set_threads
from trelliswork.cli.running import (
    exit_code,
    let_others_speak,
    open_streams,
    report_errors,
    settings,
    silence_others,
)

# The module of each command, and the name of its function or group there, by panel and in the order of --help.
PANELS = {
    "Start": {"demo": "demo:demo", "info": "info:info", "warmup": "warmup:warmup"},
    "Data": {"check": "check:check", "data": "data:app", "label": "use.label:label", "cluster": "cluster:cluster"},
    "Models": {
        "train": "train:app",
        "evaluate": "use.evaluate:evaluate",
        "calibrate": "use.calibrate:calibrate",
        "inspect": "use.inspect:inspect",
        "convert": "use.convert:convert",
    },
    "Use": {
        "tag": "use.tag:tag",
        "parse": "use.parse:parse",
        "select": "use.select:select",
        "records": "records:app",
    },
    "Language models": {
        "score": "use.score:score",
        "sample": "use.language_model:sample",
        "fill": "use.language_model:fill",
        "embeddings": "use.language_model:embeddings",
    },
    "Service": {"explore": "use.serve:explore", "serve": "use.serve:serve"},
}
COMMANDS = {name: (panel, place) for panel, places in PANELS.items() for name, place in places.items()}
SHARED = ("tag", "parse", "score", "cluster")  # whose work processes can share, beside those of groups


class _Commands(TyperGroup):
    """All commands, each of which is imported when it is asked for, so that ``--help`` answers at once."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of --help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        panel, place = COMMANDS[cmd_name]
        found = resolve_name(f"trelliswork.cli.{place}")
        if not isinstance(found, typer.Typer):
            single = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)
            single.command(cmd_name, cls=Command)(report_errors(found, shared=cmd_name in SHARED))
            found = single
        command: Any = get_command(found)
        command.name, command.rich_help_panel = cmd_name, panel
        return command


app = typer.Typer(
    name="trelliswork",
    cls=_Commands,
    help="Structured probabilistic models of language: taggers, parsers and language models with exact posteriors.",
    epilog="Example: trelliswork demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(requested: bool) -> None:
    if requested:
        print(f"trelliswork {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of threads, also after the command; all cores by default.", show_default=False
        ),
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="Refuse a sentence or graph whose predicted time is longer; 60 by default.",
            show_default=False,
        ),
    ] = None,
    max_memory: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="Refuse work whose predicted memory, in GB, is larger; three quarters of the machine's by default.",
            show_default=False,
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    settings.debug = debug
    if max_seconds is not None or max_memory is not None:
        from trelliswork.compute.limits import limits

        limits(seconds=max_seconds, gigabytes=max_memory)
    set_threads(threads)


def main() -> None:
    """Run the command line and exit."""
    open_streams()
    silence_others()
    code: Any = 0
    try:
        try:
            app(prog_name="trelliswork")  # also as python -m trelliswork
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
    except BaseException as error:  # outside of a command's own work: imports, options, the last output
        code = exit_code(error)
    let_others_speak(code)
    threads = sys.modules.get("trelliswork.compute.threads")
    if threads is not None and threads.left_running():
        sys.stderr.flush()
        os._exit(130)
    sys.exit(code)
