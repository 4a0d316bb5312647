"""The input that a command line names: files, standard input, or a part of the bundled corpus."""

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from trelliswork.data.reading.inputs import BUNDLED, PARTS, Inputs

AWAITED = {  # what a command reads, for a person at a terminal
    "columns": "one token per line with its columns, and an empty line after each sentence",
    "conllu": "CoNLL-U, with an empty line after each sentence",
    "crfsuite": "attributes of one token per line, and an empty line after each sentence",
    "text": "one sentence per line, with spaces between its words",
    "raw": "running text",
    "jsonl": "JSON lines, each with a text",
    "csv": "CSV with a column text",
    "brat": "a text of brat",
    "trees": "bracketed trees",
}


def inputs_of(given: Sequence[str] | None, bundled: bool = False, part: str = "test", *, stdin: bool = False) -> Inputs:
    """Return the input that a command line names.

    Parameters
    ----------
    given : files, or one part of the bundled corpus such as ``bundled:dev``
    bundled : whether ``--bundled`` asks for ``part`` of the bundled corpus
    stdin : whether a command without files reads standard input; otherwise it is an error
    """
    files = tuple(given or ())
    if bundled and files:
        raise typer.BadParameter("give files or --bundled, not both.")
    if bundled:
        files = (f"{BUNDLED}{part}",)
    if not files and not stdin:
        raise typer.BadParameter("no input: name a file, - for standard input, or --bundled for the bundled corpus.")
    for file in files:
        check_name(file, alone=len(files) == 1)
    return Inputs(files or ("-",))


def dev_input(file: str) -> Inputs:
    """Return a development file, which every process reads."""
    check_name(file)
    return Inputs((file,), whole=True)


def check_name(file: str, *, alone: bool = True) -> None:
    """Raise an error for a part of the bundled corpus that does not exist, and for its name before ``--bundled``.

    Standard input and the bundled corpus must be ``alone``.
    """
    if not alone and (file == "-" or file.startswith(BUNDLED)):
        what = "standard input" if file == "-" else "a part of the bundled corpus"
        raise typer.BadParameter(f"{file} is {what}, and cannot be combined with files.")
    part = file.removeprefix(BUNDLED)
    if part != file and part not in PARTS:
        names = ", ".join(f"{BUNDLED}{name}" for name in PARTS)
        raise typer.BadParameter(f"{file}: the parts of the bundled corpus are {names}. For a file write ./{file}")
    if file in PARTS and not Path(file).exists():
        raise typer.BadParameter(
            f"{file}: no such file. For the bundled corpus write --bundled instead of a file, or {BUNDLED}{file} for "
            "this part of it."
        )


def say_what_is_awaited(source: Inputs, what: str) -> None:
    """Tell a person at a terminal what the command reads."""
    if source.files == ("-",) and sys.stdin.isatty():
        print(f"reading standard input: {what}; Ctrl-D ends it", file=sys.stderr, flush=True)
