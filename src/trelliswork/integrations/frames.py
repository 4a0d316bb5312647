"""Data frames: of sentences, one row per token or per sentence with lists; of records, one text per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trelliswork.errors import DataError, ShapeError, ValueRangeError, extras_for

Column = str | Sequence[str]


def from_frame(
    frame: Any, words: Column, labels: str | None = None, *, sentence: str | None = None
) -> tuple[list[list[Any]], list[list[Any]] | None]:
    """Return the sentences and labels of a data frame, as estimators take them.

    Parameters
    ----------
    frame : pandas.DataFrame
    words : str or list of str
        Column of the words, or several columns (words, tags, ...): tokens are then tuples.
    labels : str, optional
        Column of the labels; missing values are ``None`` (unknown).
    sentence : str, optional
        With one row per token, the column that names the sentence of each; a new sentence starts where it changes.
        Without it, each row is a sentence and its cells are lists.

    Returns
    -------
    X : list of sentences
    y : list of lists of str, or None without ``labels``

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"n": [1, 1, 2], "word": ["Dogs", "bark", "Yes"], "tag": ["NNS", "VBP", "UH"]})
    >>> from_frame(frame, "word", "tag", sentence="n")
    ([['Dogs', 'bark'], ['Yes']], [['NNS', 'VBP'], ['UH']])
    """
    names = [words] if isinstance(words, str) else list(words)
    for name in [*names, *([labels] if labels is not None else []), *([sentence] if sentence is not None else [])]:
        if name not in frame.columns:
            raise DataError(f"the data frame has no column {name!r}; it has {', '.join(map(str, frame.columns))}.")
    if sentence is None:
        return _rows(frame, names, labels)
    columns = [[_text(value, name) for value in frame[name]] for name in names]
    tokens = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    answers = None if labels is None else [_label(value) for value in frame[labels]]
    X: list[list[Any]] = []
    y: list[list[Any]] = []
    before: Any = object()
    for i, key in enumerate(frame[sentence]):
        if key != before:
            X.append([])
            y.append([])
            before = key
        X[-1].append(tokens[i])
        if answers is not None:
            y[-1].append(answers[i])
    return X, None if answers is None else y


def _rows(frame: Any, names: list[str], labels: str | None) -> tuple[list[list[Any]], list[list[Any]] | None]:
    X = []
    for n, cells in enumerate(zip(*(frame[name] for name in names), strict=True)):
        rows = [[_text(value, name) for value in _list(cell, n, name)] for cell, name in zip(cells, names, strict=True)]
        if len({len(row) for row in rows}) > 1:
            raise ShapeError(f"row {n}: the columns {', '.join(names)} must have lists of the same length.")
        X.append(rows[0] if len(rows) == 1 else list(zip(*rows, strict=True)))
    if labels is None:
        return X, None
    y = [[_label(value) for value in _list(cell, n, labels)] for n, cell in enumerate(frame[labels])]
    for n, (sentence, answers) in enumerate(zip(X, y, strict=True)):
        if len(sentence) != len(answers):
            raise ShapeError(f"row {n}: expected {len(sentence)} labels, one per word, got {len(answers)}.")
    return X, y


def _list(cell: Any, n: int, name: str) -> Any:
    if isinstance(cell, str) or not hasattr(cell, "__iter__"):
        raise DataError(
            f"row {n}: the column {name!r} must have lists of words, got {str(cell)[:60]!r}. With one row per token, "
            "name the column of sentences: sentence=."
        )
    return cell


def _text(value: Any, name: str) -> str:
    if value is None or value != value:
        raise DataError(f"the column {name!r} has a missing value: fill it, or leave the row out.")
    return str(value)


def _label(value: Any) -> str | None:
    return None if value is None or value != value else str(value)


def to_frame(
    X: Sequence[Sequence[Any]],
    y: Sequence[Sequence[Any]] | None = None,
    *,
    words: Column = "word",
    labels: str = "label",
    sentence: str | None = "sentence",
) -> Any:
    """Return sentences and labels as a data frame: one row per token, or per sentence with ``sentence=None``.

    Sentences count from 0. The inverse of `from_frame`.
    """
    with extras_for("to_frame"):
        import pandas as pd

    names = [words] if isinstance(words, str) else list(words)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for tokens in X:
        parts = [list(tokens)] if len(names) == 1 else [list(part) for part in zip(*tokens, strict=True)]
        for name, part in zip(names, parts, strict=True):
            columns[name].append(part)
    if y is not None:
        columns[labels] = [list(row) for row in y]
    if sentence is None:
        return pd.DataFrame(columns)
    numbers = [n for n, tokens in enumerate(X) for _ in tokens]
    return pd.DataFrame({sentence: numbers} | {k: [v for row in rows for v in row] for k, rows in columns.items()})


def parse_frame(parser: Any, frame: Any, column: str, *, prefix: str = "", rules_probability: bool = False) -> Any:
    """Return a data frame of pandas, or a table or batch of Arrow, with the fields that a `RecordParser` finds.

    There is a new column for each field, ``probability``, with ``rules_probability`` that of the rules, and
    ``problem``, which says why a row has no fields. Their names start with ``prefix``.
    """
    arrow = hasattr(frame, "schema")
    names = list(frame.schema.names if arrow else frame.columns)
    if column not in names:
        raise DataError(f"the data frame has no column {column!r}; it has {', '.join(map(str, names))}.")
    texts = frame.column(column).to_pylist() if arrow else frame[column].tolist()
    made: dict[str, list[Any]] = {}
    for table in parser.tables(texts, rules_probability=rules_probability):
        for name, cells in table.columns(rules=rules_probability).items():
            made.setdefault(prefix + name, []).extend(cells)
    if both := sorted(made.keys() & set(names)):
        raise ValueRangeError(f"the data frame has columns {', '.join(both)} already: choose another prefix.")
    numbers = [prefix + name for name in ("probability", "rules_probability")[: 1 + rules_probability]]
    if not arrow:
        return frame.assign(**made).astype(dict.fromkeys(numbers, float))
    import pyarrow as pa

    for name, cells in made.items():
        kind = pa.float64() if name in numbers else pa.string()
        frame = frame.append_column(pa.field(name, kind), pa.array(cells, kind, from_pandas=True))
    return frame
