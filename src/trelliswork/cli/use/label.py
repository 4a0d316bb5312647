"""``trelliswork label``: a page to label sentences, with a model that learns from each answer."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from trelliswork.cli.options import FormatOption, QuietOption, TokenizeOption, TokenizerOption, chosen_tokenizer
from trelliswork.cli.use.serve import HostOption, PortOption, RemoteOption, announced
from trelliswork.data.reading import FileFormat


def label(
    pool: Annotated[
        str,
        typer.Argument(help="Sentences: text, columns, CoNLL-U, JSON lines with spans, or CSV.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Output in JSON lines; its journal is beside it.", show_default=False)
    ],
    model: Annotated[
        str | None,
        typer.Option(help="Directory of a saved tagger, used until the answers train a better one."),
    ] = None,
    task: Annotated[
        Literal["spans", "tags"], typer.Option(help="spans: some words have a type; tags: every word has a label.")
    ] = "spans",
    labels: Annotated[
        str, typer.Option(help="Types of spans, or tags, separated by commas; more can be added on the page.")
    ] = "",
    port: PortOption = 8766,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    host: HostOption = "127.0.0.1",
    allow_remote: RemoteOption = False,
    format: FormatOption = FileFormat.auto,
    tokenize: TokenizeOption = False,
    tokenizer: TokenizerOption = None,
    quiet: QuietOption = False,
) -> None:
    """Label sentences in a browser, with a model that learns from each answer.

    Each word that is fixed is evidence about the rest of its sentence. Answers are on the disk before the page says so:
    start again with the same POOL and --out to continue. Press Ctrl-C to stop the server.

    Example: trelliswork label sentences.txt --out labels.jsonl --labels PER,LOC,ORG --open
    """
    from trelliswork.errors import extras_for

    with extras_for("trelliswork label"):
        from trelliswork.label.app import open_session, run
    names = [name.strip() for name in labels.split(",") if name.strip()]
    session = open_session(pool, out, names, model, task, chosen_tokenizer(tokenize, tokenizer, format), format)

    run(session, (host, port, allow_remote), announced(quiet, open_browser))
