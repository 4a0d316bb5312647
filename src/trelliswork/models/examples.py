"""A short sentence of the training data, which a model keeps so that its page has one to start with."""

import os
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from trelliswork.data.corpus import Column, Corpus
from trelliswork.data.files import open_text

SEARCHED = 200  # sentences at the start of the data
LENGTH = 9  # words, about
LONGEST = 30


def keeping_example(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method ``fit`` that sets ``example_``."""

    @wraps(fit)
    def wrapped(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        fitted = fit(self, X, *args, **options)
        y = args[0] if args else options.get("y")
        sentences = list(map(plain_sentence, _first(X)))
        labels = y if isinstance(y, list) and len(y) >= len(sentences) else [()] * len(sentences)
        readable = [(s, own) for s, own in zip(sentences, labels, strict=False) if s and len(s) <= LONGEST]
        self.example_ = min(readable, key=_oddness, default=(None,))[0]
        return fitted

    return wrapped


def plain_sentence(tokens: Sequence[Any] | None) -> list[Any] | None:
    """Return a sentence as plain data: words, integers, or lists of columns; None if it cannot be written in a line."""
    plain = [t if isinstance(t, str | int) else t[0] if len(t) == 1 else list(map(str, t)) for t in tokens or ()]
    parts = [part for token in plain for part in (token if isinstance(token, list) else [str(token)])]
    return plain if parts and all(part and not any(map(str.isspace, part)) for part in parts) else None


def _oddness(pair: tuple[list[Any], Any]) -> int:
    """Return how far a sentence is from a short one of words with several labels."""
    sentence, labels = pair
    marks = sum(not str(token[0] if isinstance(token, list) else token).isalnum() for token in sentence)
    return abs(len(sentence) - LENGTH) + 3 * max(0, marks - 1) - 2 * min(4, len(set(map(str, labels or ()))))


def _first(X: Any) -> Sequence[Any]:
    """Return the first sentences of training data that can be read twice."""
    if isinstance(X, Corpus):
        offsets = X.offsets[: SEARCHED + 1].tolist()
        columns = [_strings(column, offsets[-1]) for column in X.columns]
        return [list(zip(*(column[a:b] for column in columns), strict=True)) for a, b in pairwise(offsets)]
    files = [X] if isinstance(X, str | os.PathLike) else X
    if not isinstance(files, list | tuple) or not files or not isinstance(files[0], str | os.PathLike):
        return X[:SEARCHED] if isinstance(X, list | tuple) else ()
    if not Path(files[0]).is_file():
        return ()
    with open_text(files[0]) as lines:
        return [line.split() for line in islice(lines, SEARCHED)]


def _strings(column: Sequence[str], n: int) -> Sequence[str]:
    """Return the first strings of a column, without those of all its tokens."""
    return [column.distinct[k] for k in column.ids[:n].tolist()] if isinstance(column, Column) else column[:n]
