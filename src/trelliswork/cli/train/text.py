"""Text files of the ``train`` commands for language models."""

from typing import Annotated, Any

import typer

TextFiles = Annotated[
    list[str] | None,
    typer.Argument(
        help="Text files (plain or gzip, one sentence per line) or directories of them. Default: the bundled corpus."
    ),
]


def training_text(files: list[str] | None) -> Any:
    """Return text files, or the bundled training part."""
    return files if files else development_text("train")


def development_text(name: str | None) -> Any:
    """Return the name of a text file, or the sentences of a part of the bundled corpus."""
    from trelliswork.data import bundled

    return [list(s.words) for s in bundled.load(name)] if name in bundled.SPLITS else name


def layout_of(files: list[str] | None) -> dict[str, Any]:
    """Return the layout that ``score`` uses by default."""
    return {"format": "text", "columns": [], "label": None} if files else {}
