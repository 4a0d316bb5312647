"""Saved models for commands, checked by task: only ``model.json`` is read for the check."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.errors import DataError, TrellisworkError

if TYPE_CHECKING:
    from trelliswork.data.files import Excerpt
    from trelliswork.data.reading import Layout

CHECKED = 1000  # words that show whether a text is tokenized


Model = Annotated[str, typer.Argument(help="Directory of a saved model.")]


def load_for(path: str, task: Any, purpose: str) -> Any:
    """Return a saved model if it has a task (a class in ``models.tasks``) or a method, given by its name.

    Otherwise raise an error; ``purpose`` completes "a model of kind ... does not", as in "tag: expected a tagger".
    """
    from trelliswork.models import estimator_class

    cls: Any = estimator_class(path)
    if not (hasattr(cls, task) if isinstance(task, str) else issubclass(cls, task)):
        raise DataError(f"{path}: a model of kind {cls.family!r} does not {purpose}.")
    return cls.load(path)


def check_tokenized(model: Any, corpus: Any, part: "Excerpt | None" = None) -> None:
    """Warn about plain text whose punctuation is not separated from the words, if the model lists its words.

    Of a file in parts, the first `CHECKED` words count.
    """
    from trelliswork.data.text import warn_if_untokenized

    words = corpus.columns[0]
    if part is not None:
        earlier = part.notes.get("words", [])
        words = None if earlier is None else [*earlier, *words]
        decided = words is None or part.last or len(words) >= CHECKED
        part.notes["words"] = None if decided else words
        if words is None or not decided:
            return
    known = model.known_words() if hasattr(model, "known_words") else model.vocabulary_
    if known is not None:
        warn_if_untokenized(words, known, corpus.source)


def check_columns(layout: "Layout", corpus: Any, part: "Excerpt") -> None:
    """Warn about running text where columns are expected; the first part of a file decides."""
    from trelliswork.data.text import warn_if_running_text

    used = [*layout.columns, *layout.labels()]
    if part.notes.get("sentences") or not len(corpus) or layout.separator is not None or min(used) < 0:
        return
    width, needed = part.notes["columns"][0], max(used) + 1
    if width > needed:
        warn_if_running_text(corpus, needed)


RulesOption = Annotated[
    str | None,
    typer.Option(
        "--rules",
        help="File of rules that the labels of every sentence must satisfy, one to a line, such as "
        "AtMostOnce(ZipCode) or Before(Street, City); for several layers chunk=FILE.",
        show_default=False,
    ),
]


def rules_for(tagger: Any, given: str | None) -> Any:
    """Return the rules of ``--rules``, checked against the labels of a tagger; ``None`` without the option."""
    if given is None:
        return None
    from trelliswork.answers import layer_labels

    layers = layer_labels(tagger)
    if "" in layers:
        return _rules(given, layers[""])
    pairs = [part.partition("=")[::2] for part in given.split(",")]
    if not all(name in layers and path for name, path in pairs):
        example = f"{next(iter(layers))}=fields.rules"
        raise typer.BadParameter(f"--rules must be LAYER=FILE, such as {example}, of {', '.join(layers)}; got {given}.")
    return {name: _rules(path, layers[name]) for name, path in pairs}


def _rules(path: str, labels: Any) -> Any:
    from trelliswork.rules import read
    from trelliswork.rules.chains import Ruled

    rules = read(path)
    try:
        Ruled.of(rules, labels)
    except TrellisworkError as error:
        raise DataError(f"{path}: {error}") from None
    return rules
