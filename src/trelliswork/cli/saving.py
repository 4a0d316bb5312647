"""Saving what a command has made: checked before the work, and saved elsewhere if the chosen directory fails."""

import os
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trelliswork.cli.running import current
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data.storage import Layout


def check_out(out: str, *files: str | None, force: bool, layout: "Layout | None" = None) -> None:
    """Raise an error, before any work, if ``--out`` cannot be saved to, or is to contain other files of the command.

    What an earlier run has saved there is replaced with ``force`` only. Without a ``layout``, it is the directory of a
    model. In a group of processes, rank 0 saves.
    """
    if current().rank > 0:
        return
    from trelliswork.data.storage import MODEL, check_target

    layout = layout or MODEL
    check_target(out, layout)
    if not force and (present := _present(out, layout)):
        raise typer.BadParameter(present)
    folder = os.path.realpath(out)
    for file in files:
        if file is not None and Path(os.path.realpath(file)).is_relative_to(folder):
            raise DataError(f"{file}: expected a file outside of --out {out}, which has {layout.name} only. Move it.")


def _present(out: str, layout: "Layout") -> str:
    """Return a message if something is saved in a directory; empty otherwise."""
    if not (Path(out) / layout.description).exists():
        return ""
    return f"{out} has {layout.name} already: choose another --out, or replace it with --force."


def check_out_file(out: str, *, force: bool) -> None:
    """Raise an error, before any work, if ``--out`` is a directory, or a file and not to be replaced (``force``)."""
    if current().rank > 0:
        return
    if Path(out).is_dir():
        raise DataError(f"{out}: expected a file to write, got a directory. Add a file name.")
    if Path(out).is_file() and not force:
        raise typer.BadParameter(f"{out} exists already: choose another --out, or replace it with --force.")


def save_or_rescue(
    save: Callable[[str | Path], None], out: str, *, force: bool, layout: "Layout | None" = None
) -> None:
    """Save to ``out``; if that fails, save beside it or in the temporary directory, and raise an error with the place.

    It also fails if another process has saved something to ``out`` since `check_out`, unless with ``force``. Beside it,
    the directory is the first of ``out-1``, ``out-2`` and so on that does not exist. In a group of processes, rank 0
    saves.
    """
    if current().rank > 0:
        return
    from trelliswork.data.storage import MODEL

    try:
        if not force and (present := _present(out, layout or MODEL)):
            raise DataError(present)
        save(out)
    except (DataError, OSError) as error:
        name = Path(os.path.realpath(out))
        for parent in (name.parent, Path(tempfile.gettempdir())):
            place = next(p for k in count(1) if not os.path.lexists(p := parent / f"{name.name}-{k}"))
            try:
                save(place)
            except (DataError, OSError):
                continue
            raise DataError(f"{error} Saved in {place} instead.") from error
        raise
