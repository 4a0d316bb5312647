"""Outputs of commands that read several files: one output for each file, shared out among processes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import typer

from trelliswork.cli.running import alone, current
from trelliswork.data.reading.inputs import Inputs, no_sentences, totals
from trelliswork.errors import DataError

Work = Callable[[Inputs, TextIO], int]  # writes the output of one file; returns its sentences


def write_outputs(source: Inputs, out: str, work: Work) -> None:
    """Write the output of each file: to standard output, to one file, or to a directory.

    ``--out DIR/`` has an output for each file, with its name without ``.gz``. A group of processes shares the files
    out, and needs a directory.
    """
    from trelliswork.data.files import atomic_write

    targets, group, n = _targets([str(file) for file in source.files], out), current(), 0
    if group.size > 1 and targets[0] == out:
        raise typer.BadParameter("processes write one output for each file: give --out DIR/, or leave torchrun out.")
    pairs = list(zip(source.files, targets, strict=True))
    for file, target in pairs[group.rank :: group.size]:
        with alone(), atomic_write(target) as stream:
            n += work(Inputs((file,), allow_empty=len(targets) > 1), stream)
    if not totals(n)[0]:
        raise no_sentences(source)


def _targets(files: list[str], out: str) -> list[str]:
    """Return the output of each file; raise an error if it is an input, or that of another file."""
    folder = Path(out)
    if out == "-" or (len(files) == 1 and not out.endswith(("/", os.sep))):
        targets = [out] * len(files)
    else:
        if "-" in files:
            raise typer.BadParameter("standard input has no name for a file in --out DIR/: name a file instead.")
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{out}: expected a directory for the outputs of {len(files)} files, got a file.")
        targets = [str(folder / Path(file).name.removesuffix(".gz")) for file in files]
    inputs = {os.path.realpath(file): file for file in files if file != "-"}
    seen: dict[str, str] = {}
    for file, target in zip(files, targets, strict=True):
        if target == "-":
            continue
        if os.path.realpath(target) in inputs:
            raise DataError(f"{target}: the output would replace the input. Choose another --out.")
        if target in seen:
            raise DataError(f"{target}: would be the output of {seen[target]} and of {file}. Rename one.")
        seen[target] = file
    if seen and targets[0] != out:
        folder.mkdir(parents=True, exist_ok=True)
    return targets
