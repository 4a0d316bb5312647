"""``trelliswork train parser``: train a dependency parser on a treebank."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job
from trelliswork.cli.use.parse import COLUMNS, check_tags, read_treebank
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.models import DependencyParser

WORDS, TAGS = ("form", "lemma"), ("upos", "xpos", "feats")  # CoNLL-U columns that --columns may name
SECOND_ORDER = (
    "threshold", "bp_iterations", "tree_every", "bp_tol", "bp_damping", "max_iter_second_order",
    "learning_rate_second_order",
)  # fmt: skip


def run(
    job: Job,
    model: "DependencyParser",
    train: Annotated[
        str | None,
        typer.Argument(help="CoNLL-U file with trees ('-': standard input); the bundled corpus by default."),
    ] = None,
    columns: Annotated[
        str, typer.Option(help="Columns of words (form, lemma) and of one or two kinds of tags (upos, xpos, feats).")
    ] = ",".join(COLUMNS),
) -> dict[str, Any]:
    """Train a dependency parser. Ctrl-C stops after the current epoch and saves the model.

    The file is CoNLL-U; an unknown head is _. With --tagger the parser also learns to tag, and then parses plain text.
    Without a file the bundled corpus is used. The model is a directory for parse, evaluate, inspect and explore.
    """
    from trelliswork.models.parser.data import pairs

    names = _columns(columns)
    unused = [name for name in SECOND_ORDER if name in job.given]
    if model.order == 1 and unused:
        options = ", ".join("--" + name.replace("_", "-") for name in unused)
        raise typer.BadParameter(f"{options}: for the second order only, leave out with --order 1.")
    if "patience" in job.given and job.dev is None:
        raise typer.BadParameter("--patience refers to development data: give --dev too.")
    corpus, heads, labels = _read(train, names, tags_needed=True)
    held_out: Any = None
    options_of_fit: dict[str, Any] = {}
    if job.dev is not None:
        # With a tagger the tags of development data are ignored.
        held_out = _read(job.dev, names, tags_needed=model.tagger is None)
        options_of_fit["dev"] = held_out[0], pairs(*held_out[1:])
    total = model.max_iter + (model.max_iter_second_order if model.order == 2 else 0)
    if any(name is not None for row in labels for name in row):
        total += model.max_iter_labels
    job.fit(model, corpus, pairs(heads, labels), n_tokens=corpus.n_tokens, total=total, **options_of_fit)
    model.input_ = {"columns": names}
    job.sample = partial(part, held_out, corpus)
    return {
        "sentences": len(corpus),
        "tokens": corpus.n_tokens,
        "labels": 0 if model.labels_ is None else len(model.labels_),
        "active": sum(int((w != 0).sum()) for w in model.weights_),
        "dropped_heads": model.report_.details["dropped_heads"],
    }


def _columns(text: str) -> list[str]:
    """Return the names of the columns: first the words, then the tags."""
    names = text.split(",")
    if not 2 <= len(names) <= 3:
        raise typer.BadParameter(f"--columns must name words and one or two kinds of tags, got {text!r}.")
    if names[0] not in WORDS or not set(names[1:]) <= set(TAGS) or len(set(names)) < len(names):
        raise typer.BadParameter(
            f"--columns must name words ({' or '.join(WORDS)}), then one or two of the tags {', '.join(TAGS)}, got "
            f"{text!r}."
        )
    return names


def _read(path: str | None, columns: list[str], tags_needed: bool) -> Any:
    """Read a treebank; without any head it is an error."""
    corpus, heads, labels = read_treebank(path, columns)
    if all(head is None for row in heads for head in row):
        raise DataError(f"{path}: no word has a head: a parser learns from trees, complete or in part.")
    if tags_needed:
        check_tags(corpus, columns, str(path))
    return corpus, heads, labels
