"""``trelliswork explore``: a local web page for a saved model."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trelliswork.cli.options import QuietOption, TokenizeOption, TokenizerOption, chosen_tokenizer
from trelliswork.cli.use.tag import Model


def explore(
    model: Model,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 selects a free one.")] = 8765,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen on; by default reachable from this machine only.")
    ] = "127.0.0.1",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Allow a --host that other machines can reach.")
    ] = False,
    tokenize: TokenizeOption = False,
    tokenizer: TokenizerOption = None,
    quiet: QuietOption = False,
) -> None:
    """Explore a model in a browser: show its posterior, force and forbid labels, fill blanks, sample sentences.

    The page depends on the kind of the model. It is served locally and needs no network connection. Press Ctrl-C to
    stop the server.

    Example: trelliswork explore tagger --open
    """
    from trelliswork.explore.server import check_host, serve
    from trelliswork.models import load

    check_host(host, allow_remote)  # before a large model is loaded
    split = chosen_tokenizer(tokenize, tokenizer)
    fitted = load(model)

    def ready(address: str) -> None:
        print(address, flush=True)
        if not quiet:
            print("Press Ctrl-C to stop.", file=sys.stderr)
        if open_browser:
            typer.launch(address)

    def waiting() -> None:
        if not quiet:
            print("Preparing the model for its first answer ...", file=sys.stderr, flush=True)

    where: Any = {"host": host, "port": port, "allow_remote": allow_remote, "split": split}
    serve(fitted, name=Path(model).resolve().name, ready=ready, waiting=waiting, **where)
