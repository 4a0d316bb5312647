"""Text files of the ``train`` commands for language models."""

from pathlib import Path
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
    """Return a text file, a directory of counts as moments, or a part of the bundled corpus."""
    from trelliswork.data import bundled
    from trelliswork.data.moments import Moments

    if name in bundled.SPLITS:
        return [list(s.words) for s in bundled.load(name)]
    return Moments.load(name) if name is not None and (Path(name) / "moments.json").is_file() else name


def layout_of(files: list[str] | None) -> dict[str, Any]:
    """Return the layout that ``score`` uses by default."""
    return {"format": "text", "columns": [], "label": None} if files else {}
