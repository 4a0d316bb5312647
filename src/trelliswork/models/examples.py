"""A short sentence of the training data, which a model keeps so that its page has one to start with."""

from collections.abc import Mapping, Sequence, Set
from itertools import islice, pairwise
from typing import Any

from trelliswork.data.corpus import Column, Corpus
from trelliswork.data.files import open_text
from trelliswork.data.ids import files_of
from trelliswork.errors import DataError, ShapeError

SEARCHED = 200  # sentences at the start of the data
LENGTH = 9  # words, about
LONGEST = 30


def example_of(X: Any, y: Any) -> list[Any] | None:
    """Return the example of training data; None if no sentence is readable."""
    sentences = list(map(plain_sentence, first_sentences(X)))
    labels = y if isinstance(y, list) and len(y) >= len(sentences) else [()] * len(sentences)
    readable = [(s, own) for s, own in zip(sentences, labels, strict=False) if s and len(s) <= LONGEST]
    return min(readable, key=_oddness, default=(None,))[0]


def plain_sentence(tokens: Any) -> list[Any] | None:
    """Return a sentence as plain data: words, or lists of columns; None if it cannot be written in a line."""
    some = tokens.split() if isinstance(tokens, str) else () if tokens is None else tokens
    rows = [list(map(str, t)) if isinstance(t, list | tuple | Mapping | Set) else [str(t)] for t in some]
    if not rows or not all(row and all(part and not any(map(str.isspace, part)) for part in row) for row in rows):
        return None
    return [row if len(row) > 1 else row[0] for row in rows]


def _oddness(pair: tuple[list[Any], Any]) -> int:
    """Return how far a sentence is from a short one of words with several labels."""
    sentence, labels = pair[0], () if pair[1] is None else pair[1]
    marks = sum(not str(token[0] if isinstance(token, list) else token).isalnum() for token in sentence)
    return abs(len(sentence) - LENGTH) + 3 * max(0, marks - 1) - 2 * min(4, len(set(map(str, labels))))


def first_sentences(X: Any) -> Sequence[Any]:
    """Return the first sentences of training data that can be read twice: of a list, a corpus, or the first file."""
    if isinstance(X, Corpus):
        offsets = X.offsets[: SEARCHED + 1].tolist()
        columns = [_strings(column, offsets[-1]) for column in X.columns]
        return [list(zip(*(column[a:b] for column in columns), strict=True)) for a, b in pairwise(offsets)]
    try:
        files = files_of(X)
    except (DataError, ShapeError):  # no such file, as of the standard input; strings of letters
        return ()
    if files is None:
        return X[:SEARCHED] if isinstance(X, list | tuple) else ()
    with open_text(files[0]) as lines:
        return [line.split() for line in islice(lines, SEARCHED)]


def _strings(column: Sequence[str], n: int) -> Sequence[str]:
    """Return the first strings of a column, without those of all its tokens."""
    return [column.distinct[k] for k in column.ids[:n].tolist()] if isinstance(column, Column) else column[:n]
