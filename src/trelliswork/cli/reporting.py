"""``--report FILE.html``: a page about the run of a command."""

import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from trelliswork.report import Page, Sample


def check_report(path: str | None) -> str | None:
    """Raise an error for a file that cannot be written, before any work."""
    if path is None:
        return None
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"the file name must end in .html, got {path!r}.")
    target = Path(path).resolve()
    if target.is_dir():
        raise typer.BadParameter(f"{path} is a directory: add a file name, such as {Path(path) / 'report.html'}.")
    if not target.parent.is_dir():
        raise typer.BadParameter(f"the directory of {path} does not exist: create it first, or choose another.")
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".report"):  # removed at once
            pass
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror or error}.") from None
    return path


ReportOption = Annotated[
    str | None,
    typer.Option(
        "--report",
        callback=check_report,
        metavar="FILE.html",
        help="Write one page about the run, with charts, to this file.",
    ),
]


def write_page(path: str, page: "Page") -> dict[str, str]:
    """Write the page of a run; return its entry of the outcome."""
    page.write(path)
    print(f"report in {path}", file=sys.stderr)
    return {"report": path}


def part(development: Any, training: Any) -> "Sample":
    """Return the development part, (X,) or (X, gold), or without one the training part X."""
    from trelliswork.report import Sample

    return Sample("training", training) if development is None else Sample("development", *development)


def text_part(dev: Any, train: Any) -> "Sample | None":
    """Return the first sentences of the development or training text, given as sentences or files."""
    from trelliswork.models.examples import first_sentences
    from trelliswork.report import Sample

    for name, given in (("development", dev), ("training", train)):
        if sentences := list(filter(None, first_sentences(given))):
            return Sample(name, sentences)
    return None


def typed() -> str:
    """Return the command line; empty if this is another program."""
    program = Path(sys.argv[0])
    if program.stem != "trelliswork" and not (program.name == "__main__.py" and program.parent.name == "trelliswork"):
        return ""
    return shlex.join(["trelliswork", *sys.argv[1:]])
