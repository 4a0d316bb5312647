"""The command line. Heavy imports are inside the functions of commands, so help is instant."""

import sys
from typing import Annotated

import typer

from trelliswork import __version__
from trelliswork.cli import bench, data, demo, reproduce, train, warmup
from trelliswork.cli.running import report_errors, settings
from trelliswork.cli.use import evaluate, explore, generate, infer, inspect, language_model, parse, tag

app = typer.Typer(
    name="trelliswork",
    help="Structured probabilistic models of language: taggers, parsers and language models with exact posteriors.",
    epilog="Example: trelliswork demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(report_errors(demo.demo))
app.add_typer(train.app, name="train")
app.command("tag")(report_errors(tag.tag))
app.command("parse")(report_errors(parse.parse))
app.command("evaluate")(report_errors(evaluate.evaluate))
app.command("inspect")(report_errors(inspect.inspect))
app.command("infer")(report_errors(infer.infer))
app.command("score")(report_errors(generate.score))
app.command("sample")(report_errors(generate.sample))
app.command("fill")(report_errors(language_model.fill))
app.command("neighbors")(report_errors(language_model.neighbors))
app.command("embeddings")(report_errors(language_model.embeddings))
app.command("explore")(report_errors(explore.explore))
app.add_typer(data.app, name="data")
app.add_typer(reproduce.app, name="reproduce")
app.command("bench")(report_errors(bench.bench))
app.command("warmup")(report_errors(warmup.warmup))


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
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    settings.debug = debug
    if threads is not None:
        from trelliswork.compute.threads import set_num_threads

        set_num_threads(threads)


def main() -> None:
    """Entry point of the command ``trelliswork``."""
    try:
        sys.exit(app(prog_name="trelliswork"))  # also as python -m trelliswork
    except KeyboardInterrupt:  # before or after a command's own work
        print("interrupted", file=sys.stderr)
        sys.exit(130)
