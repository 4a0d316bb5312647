"""``--report FILE.html``: one page about a run of a command."""

import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from trelliswork.report import Sample


def _writable(path: str | None) -> str | None:
    """Refuse a file that cannot be written, before anything is read or learned."""
    if path is None:
        return None
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"a file name that ends in .html is wanted, got {path!r}.")
    target = Path(path).resolve()
    if target.is_dir():
        raise typer.BadParameter(f"{path} is a directory: add a file name, such as {Path(path) / 'report.html'}.")
    if not target.parent.is_dir():
        raise typer.BadParameter(f"the directory of {path} does not exist: make it first, or name another.")
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".report"):  # gone again at once
            pass
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror or error}.") from None
    return path


ReportOption = Annotated[
    str | None,
    typer.Option(
        "--report",
        callback=_writable,
        metavar="FILE.html",
        help="Write one page about the run, with charts, to this file.",
    ),
]


def report_training(
    path: str | None, model: Any, outcome: dict[str, Any], sample: "Callable[[], Sample | None] | None" = None
) -> None:
    """Write the page of a training run, if one is wanted, and tell its place in ``outcome``.

    Parameters
    ----------
    path : str or None
        As ``--report`` gives it.
    model : Estimator
        Fitted and saved.
    outcome : dict
        What the command tells; gets the key ``report``.
    sample : callable, optional
        Gives the sentences that the page shows; only called if there is a page.
    """
    if path is None:
        return
    from trelliswork.report import training_page

    training_page(model, outcome, sample=sample() if sample is not None else None, command=typed()).write(path)
    outcome["report"] = path
    print(f"report in {path}", file=sys.stderr)


def report_evaluation(
    path: str | None, model: Any, report: Any, *, file: str, name: str, sample: "Callable[[], Sample | None]"
) -> dict[str, str]:
    """Write the page of an evaluation, if one is wanted; gives what is told of it as JSON.

    Parameters
    ----------
    path, sample
        As in ``report_training``.
    model, report
        The model, and what was found, see ``report.evaluation_page``.
    file, name : str
        The file that it was compared with, and the model's directory.
    """
    if path is None:
        return {}
    from trelliswork.report import evaluation_page

    evaluation_page(model, report, file=file, name=name, sample=sample(), command=typed()).write(path)
    print(f"report in {path}", file=sys.stderr)
    return {"report": path}


def part(development: Any, training: Any) -> "Sample":
    """The development part with its gold answers, or else the training part without.

    Parameters
    ----------
    development : (X,), (X, gold) or (X, gold, labels), or None
    training : X
    """
    from trelliswork.report import Sample

    return Sample("training", training) if development is None else Sample("development", *development)


def judged_part(X: Any, gold: Any, labels: Any = None) -> "Sample":
    """The sentences of an evaluation."""
    from trelliswork.report import Sample

    return Sample("test", X, gold, labels)


def text_part(dev: Any, train: Any) -> "Sample | None":
    """The first sentences of development or training text: sentences at hand, or files that are there."""
    from trelliswork.report import Sample
    from trelliswork.report.samples import SEARCHED

    for name, given in (("development", dev), ("training", train)):
        sentences = _first_sentences(given, SEARCHED)
        if sentences:
            return Sample(name, sentences)
    return None


def _first_sentences(given: Any, n: int) -> list[list[str]]:
    from itertools import islice

    from trelliswork.data.files import fields_of, open_text
    from trelliswork.data.ids import files_of

    if isinstance(given, list) and given and isinstance(given[0], list):
        return given[:n]
    if not isinstance(given, str | list) or not given or given == "-":
        return []  # counts, or a stream that has been read
    files = files_of(given) or []
    found: list[list[str]] = []
    for file in files:
        with open_text(file) as lines:
            found += islice((words for line in lines if (words := fields_of(line))), n - len(found))
        if len(found) >= n:
            break
    return found


def typed() -> str:
    """The command as it was typed; nothing if this is another program."""
    program = Path(sys.argv[0])
    if program.stem != "trelliswork" and not (program.name == "__main__.py" and program.parent.name == "trelliswork"):
        return ""
    return shlex.join(["trelliswork", *sys.argv[1:]])
