"""``trelliswork serve`` and ``trelliswork explore``: an HTTP service for saved models, and a page for a browser."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from trelliswork.cli.options import QuietOption, TokenizeOption, TokenizerOption, chosen_tokenizer
from trelliswork.cli.use.tag import Model

PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 selects a free one.")]
HostOption = Annotated[str, typer.Option(help="Address to listen on; by default reachable from this machine only.")]
RemoteOption = Annotated[bool, typer.Option("--allow-remote", help="Allow a --host that other machines can reach.")]
PAGE_SECONDS = 600.0  # until an answer to a page


def serve(
    models: Annotated[
        list[str], typer.Argument(help="Directories of saved models; NAME=DIRECTORY gives one another name.")
    ],
    port: PortOption = 8080,
    host: HostOption = "127.0.0.1",
    allow_remote: RemoteOption = False,
    explore: Annotated[
        bool, typer.Option("--explore", help="Serve the page of `trelliswork explore` for the models, too.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Number of worker processes.")] = 1,
    max_body: Annotated[int, typer.Option(min=1024, help="Maximum number of bytes of a request.")] = 1 << 20,
    max_words: Annotated[int, typer.Option(min=1, help="Maximum number of words of a request.")] = 20_000,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Maximum number of requests that wait in a worker; more get status 429.")
    ] = 256,
    timeout: Annotated[float, typer.Option(min=0.01, help="Maximum number of seconds until an answer.")] = 30.0,
    request_seconds: Annotated[
        float, typer.Option(min=0.01, help="Seconds that a client has to send a request, or to read the answer.")
    ] = 10.0,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds to finish requests after SIGTERM or Ctrl-C before they are dropped.")
    ] = 30.0,
    tokenizer: TokenizerOption = None,
    quiet: QuietOption = False,
) -> None:
    """Serve models over HTTP: POST /v1/tag, /v1/parse, /v1/score or /v1/fill with JSON batches of sentences.

    Instead of sentences a request may have raw text, which is tokenized. With several models the address is
    /v1/NAME/tag. GET /openapi.json describes all of it; GET /healthz and GET /metrics are for monitoring. If the
    environment variable TRELLISWORK_API_KEY is set, requests need it as a bearer token. SIGHUP loads the models again;
    SIGTERM finishes the requests that have begun.

    Example: trelliswork serve tagger --workers 2
    """
    limits: Any = {"max_body": max_body, "max_words": max_words, "max_queue": max_queue, "timeout": timeout}
    limits |= {"request_seconds": request_seconds, "grace": grace, "workers": workers, "page": explore}
    from trelliswork.serve.settings import named_models

    _serve(named_models(models), (host, port, allow_remote), tokenizer, quiet, False, limits)


def explore(
    model: Model,
    port: PortOption = 8765,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    host: HostOption = "127.0.0.1",
    allow_remote: RemoteOption = False,
    tokenize: TokenizeOption = False,
    tokenizer: TokenizerOption = None,
    quiet: QuietOption = False,
) -> None:
    """Explore a model in a browser: show its posterior, force and forbid labels, fill blanks, sample sentences.

    The page depends on the kind of the model. It is served locally, as by serve MODEL --explore, and needs no network
    connection. Press Ctrl-C to stop the server.

    Example: trelliswork explore tagger --open
    """
    raw = chosen_tokenizer(tokenize, tokenizer) is not None
    limits = {"page": True, "raw": raw, "timeout": PAGE_SECONDS, "grace": 1.0}
    from trelliswork.serve.settings import page_name

    _serve({page_name(model): model}, (host, port, allow_remote), tokenizer, quiet, open_browser, limits)


def _serve(
    models: dict[str, str], where: tuple[str, int, bool], tokenizer: str | None, quiet: bool, browser: bool, limits: Any
) -> None:
    from trelliswork.compute.threads import available, get_num_threads, is_set
    from trelliswork.data.tokenize import tokenizer as load_tokenizer
    from trelliswork.serve.master import serve as serve_models
    from trelliswork.serve.settings import Settings
    from trelliswork.serve.sockets import check_host

    host, port, allow_remote = where
    check_host(host, allow_remote)
    load_tokenizer(tokenizer or "rules")  # an unknown one is an error now
    threads = get_num_threads() if is_set() else max(1, available() // limits.get("workers", 1))
    settings = Settings(models, threads=threads, tokenizer=tokenizer or "rules", **limits)

    def waiting() -> None:
        if not quiet:
            print("Loading the models ...", file=sys.stderr, flush=True)

    serve_models(
        settings, host=host, port=port, allow_remote=allow_remote, ready=announced(quiet, browser), waiting=waiting
    )


def announced(quiet: bool, browser: bool) -> Callable[[str], None]:
    """Return what prints the address of a server that is ready, and opens it if that is asked for."""

    def ready(address: str) -> None:
        print(address, flush=True)
        if not quiet:
            print("Press Ctrl-C to stop.", file=sys.stderr)
        if browser:
            typer.launch(address)

    return ready
