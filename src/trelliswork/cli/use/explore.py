"""``trelliswork explore``: a web page of this machine for a saved model."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from trelliswork.cli.options import QuietOption
from trelliswork.cli.use.tag import Model


def explore(
    model: Model,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen at: this machine only.")] = "127.0.0.1",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let --host be an address that others reach: they can use it too.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Explore a model in a browser: see its posterior, force and forbid labels, fill blanks, make up sentences.

    Any saved model has a page; it shows what the model can do. The page is served by this machine for this machine,
    and needs no network. Ctrl-C ends it.

    Example: trelliswork explore tagger --open
    """
    from trelliswork.explore.server import check_host, serve
    from trelliswork.models import load

    check_host(host, allow_remote)  # before a large model is read
    found = load(model)

    def ready(address: str) -> None:
        print(address, flush=True)
        if not quiet:
            print("Ctrl-C ends it.", file=sys.stderr)
        if open_browser:
            typer.launch(address)

    serve(found, name=Path(model).resolve().name, host=host, port=port, allow_remote=allow_remote, ready=ready)
