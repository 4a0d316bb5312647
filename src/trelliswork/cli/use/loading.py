"""Saved models for commands, checked by task: only ``model.json`` is read for the check."""

from typing import Annotated, Any

import typer

from trelliswork.errors import DataError

Model = Annotated[str, typer.Argument(help="Directory of a saved model.")]


def class_of(path: str) -> Any:
    """Return the class of a saved model without reading its weights."""
    from trelliswork.models import estimator_class

    return estimator_class(path)


def load_for(path: str, task: Any, purpose: str) -> Any:
    """Return a saved model if it has a task (a class in ``models.tasks``) or a method, given by its name.

    Otherwise raise an error; ``purpose`` completes "a model of kind ... does not", as in "tag: expected a tagger".
    """
    cls = class_of(path)
    if not (hasattr(cls, task) if isinstance(task, str) else issubclass(cls, task)):
        raise DataError(f"{path}: a model of kind {cls.kind!r} does not {purpose}.")
    return cls.load(path)


def check_tokenized(model: Any, corpus: Any) -> None:
    """Warn about plain text whose punctuation is not separated from the words, if the model lists its words."""
    from trelliswork.data.text import warn_if_untokenized

    known = model.known_words() if hasattr(model, "known_words") else model.vocabulary_
    if known is not None:
        warn_if_untokenized(corpus, known)
