"""Datasets of Hugging Face: rows of lists, with labels as numbers of a ``ClassLabel`` or as strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trelliswork.errors import DataError, extras_for


def from_dataset(
    dataset: Any, words: str | Sequence[str] = "tokens", labels: str | None = None
) -> tuple[list[list[Any]], list[list[str | None]] | None]:
    """Return the sentences and labels of a dataset, as estimators take them.

    Parameters
    ----------
    dataset : datasets.Dataset
        One split: each row is a sentence.
    words : str or list of str
        Column of the words, or several columns: tokens are then tuples. Numbers of a ``ClassLabel`` become names.
    labels : str, optional
        Column of the labels: names, or numbers of a ``ClassLabel``; -100 and ``None`` are unknown labels.

    Returns
    -------
    X : list of sentences
    y : list of lists of str, or None without ``labels``
    """
    columns = [words] if isinstance(words, str) else list(words)
    for name in [*columns, *([labels] if labels is not None else [])]:
        if name not in dataset.column_names:
            raise DataError(f"the dataset has no column {name!r}; it has {', '.join(dataset.column_names)}.")
    parts = [_named(dataset, name) for name in columns]
    X = parts[0] if len(parts) == 1 else [list(zip(*rows, strict=True)) for rows in zip(*parts, strict=True)]
    return X, None if labels is None else _named(dataset, labels)


def _named(dataset: Any, column: str) -> list[list[Any]]:
    """Return a column with the names of its classes."""
    feature = dataset.features[column]
    inner = getattr(feature, "feature", feature)
    names = getattr(inner, "names", None)
    rows = [list(row) for row in dataset[column]]
    if names is None:
        return rows
    for n, row in enumerate(rows):
        for value in row:
            if value is not None and not (value == -100 or 0 <= value < len(names)):
                raise DataError(
                    f"row {n}: the column {column!r} has class {value}, but there are {len(names)} classes."
                )
    return [[None if value is None or value == -100 else names[value] for value in row] for row in rows]


def to_dataset(
    X: Sequence[Sequence[str]],
    y: Sequence[Sequence[str | None]] | None = None,
    *,
    words: str = "tokens",
    labels: str = "labels",
    names: Sequence[str] | None = None,
) -> Any:
    """Return sentences and labels as a ``datasets.Dataset``, whose labels are numbers of a ``ClassLabel``.

    ``names`` are the classes in their order; by default those that occur, sorted, ``O`` first. An unknown label is
    -100. The inverse of `from_dataset`.
    """
    with extras_for("to_dataset"):
        from datasets import ClassLabel, Dataset, Features, List, Value
    data: dict[str, Any] = {words: [list(row) for row in X]}
    features: dict[str, Any] = {words: List(Value("string"))}
    if y is not None:
        found = {label for row in y for label in row if label is not None}
        classes = list(names) if names is not None else sorted(found, key=lambda label: (label != "O", label))
        if missing := found - set(classes):
            raise DataError(f"names must have all labels, but {sorted(missing)[0]!r} is missing.")
        number = {label: k for k, label in enumerate(classes)}
        unknown = any(label is None for row in y for label in row)
        data[labels] = [[-100 if label is None else number[label] for label in row] for row in y]
        # Numbers below -1 are not classes: with unknown labels the column is plain, and its names are in the info.
        features[labels] = List(Value("int64") if unknown else ClassLabel(names=classes))
    return Dataset.from_dict(data, features=Features(features))
