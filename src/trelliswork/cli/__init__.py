"""The command line. A command is imported when it is used, and heavy packages within it, so answers come at once."""

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from trelliswork import __version__
from trelliswork.cli.running import exit_code, let_others_speak, open_streams, report_errors, settings, silence_others

# The module of each command, and the name of its function or group there, in the order of --help.
COMMANDS = {
    "demo": "demo:demo",
    "train": "train:app",
    "tag": "use.tag:tag",
    "parse": "use.parse:parse",
    "evaluate": "use.evaluate:evaluate",
    "calibrate": "use.calibrate:calibrate",
    "select": "use.select:select",
    "inspect": "use.inspect:inspect",
    "convert": "use.convert:convert",
    "infer": "use.infer:infer",
    "score": "use.generate:score",
    "sample": "use.generate:sample",
    "fill": "use.language_model:fill",
    "neighbors": "use.language_model:neighbors",
    "embeddings": "use.language_model:embeddings",
    "cluster": "cluster:cluster",
    "explore": "use.explore:explore",
    "serve": "use.serve:serve",
    "data": "data:app",
    "reproduce": "reproduce:app",
    "bench": "bench:bench",
    "warmup": "warmup:warmup",
}


SHARED = (
    "tag",
    "parse",
    "evaluate",
    "score",
    "cluster",
)  # commands whose work processes can share, beside those of groups


class _Commands(TyperGroup):
    """The group of all commands, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        found = getattr(import_module(f"{__name__}.{module}"), name)
        if isinstance(found, typer.Typer):
            command = get_command(found)
        else:
            single = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)
            single.command(cmd_name)(report_errors(found, shared=cmd_name in SHARED))
            command = get_command(single)
        command.name = cmd_name
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
        int | None, typer.Option(min=1, help="Number of threads; all cores by default.", show_default=False)
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
        from trelliswork.compute.limits import set_limits

        set_limits(seconds=max_seconds, gigabytes=max_memory)
    if threads is not None:
        from trelliswork.compute.threads import set_num_threads

        set_num_threads(threads)


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
