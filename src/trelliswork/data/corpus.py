"""Corpora: sentences in columns of strings, and sentences whose tokens have attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.files import Readable, lines_before, shorten
from trelliswork.errors import ShapeError


class Column(Sequence[str]):
    """A column of strings of which equal ones are stored once: token i has ``distinct[ids[i]]``.

    It equals a list of the strings, which is made when it is first needed.

    Examples
    --------
    >>> Column(["the", "dog"], np.array([0, 1, 0]))
    ['the', 'dog', 'the']
    """

    def __init__(self, distinct: Sequence[str], ids: NDArray[np.integer]) -> None:
        self.distinct, self.ids = distinct, ids

    @classmethod
    def of(cls, strings: Sequence[str]) -> Column:
        """Return strings as a column."""
        if isinstance(strings, Column):
            return strings
        ids: dict[str, int] = {}
        numbers = [ids.setdefault(string, len(ids)) for string in strings]
        return cls(list(ids), np.array(numbers, np.int64))

    @cached_property
    def strings(self) -> list[str]:
        """The string of each token."""
        return list(map(self.distinct.__getitem__, self.ids.tolist()))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Any) -> Any:
        return self.strings[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.strings)

    def __eq__(self, other: object) -> bool:
        return self.strings == (other.strings if isinstance(other, Column) else other)

    __hash__ = None  # type: ignore[assignment]  # as that of a list

    def __repr__(self) -> str:
        return repr(self.strings)

    def occurring(self) -> list[str]:
        """Return the distinct strings that occur."""
        return [self.distinct[k] for k in np.flatnonzero(np.bincount(self.ids)).tolist()]

    @property
    def in_order(self) -> bool:
        """Whether all distinct strings occur, in the order of their first occurrences, as in a file that was read."""
        if not len(self.ids):
            return not self.distinct
        highest = np.maximum.accumulate(self.ids)
        return bool(highest[0] == 0 and highest[-1] == len(self.distinct) - 1 and (np.diff(highest) <= 1).all())


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Sentences in columns: one flat sequence of strings per column, divided into sentences by offsets.

    Parameters
    ----------
    columns : list of list of str
        ``columns[c][i]`` is column c of token i, one sentence after another. A column that was read from a file is a
        `Column`, which equals such a list.
    offsets : ndarray (n_sentences + 1,)
        Sentence n is the tokens ``offsets[n]`` to ``offsets[n + 1]``.
    raw : bytes, optional
        All lines of the file in UTF-8.
    token_lines : ndarray (n_tokens,), optional
        Index of the line of each token.
    source : str
        File name for messages.
    file : path or Excerpt, optional
        The file, or the part of a file, whose lines ``token_lines`` count.
    parts : sequence of Corpus
        The corpora that were joined, without their columns.

    Raises
    ------
    ShapeError
        If the sizes of columns, offsets and token lines do not agree.

    Examples
    --------
    >>> corpus = Corpus.from_sentences([[("Dogs", "NNS"), ("bark", "VBP")], [("Yes", "UH")]])
    >>> len(corpus), corpus.n_tokens, corpus.sentences(1)
    (2, 3, [['NNS', 'VBP'], ['UH']])
    """

    columns: Sequence[Sequence[str]]
    offsets: NDArray[np.int64]
    raw: bytes | None = None
    token_lines: NDArray[np.int64] | None = None
    source: str = ""
    file: Readable | None = None
    parts: Sequence[Corpus] = ()

    def __post_init__(self) -> None:
        check_offsets("offsets", self.offsets)
        for c, column in enumerate(self.columns):
            if len(column) != self.n_tokens:
                raise ShapeError(
                    f"columns[{c}] must have one string for each of the {self.n_tokens} tokens, got {len(column)}."
                )
        if self.token_lines is not None and self.token_lines.shape != (self.n_tokens,):
            raise ShapeError(f"token_lines must have shape ({self.n_tokens},), got {self.token_lines.shape}.")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        of = f" of {self.source}" if self.source else ""
        return (
            f"<{type(self).__name__}{of}: {len(self)} sentences, {self.n_tokens} tokens, {len(self.columns)} columns>"
        )

    @property
    def n_tokens(self) -> int:
        """Number of tokens in all sentences."""
        return int(self.offsets[-1])

    def sentences(self, column: int = 0) -> list[list[str]]:
        """Return one column, sentence by sentence."""
        strings, ends = list(self.columns[column]), self.offsets.tolist()
        return [strings[start:stop] for start, stop in pairwise(ends)]

    def place(self, sentence: int, token: int = 0) -> str | None:
        """Return file and line of a token, for messages; ``None`` if they are unknown."""
        for part in self.parts:
            if sentence < len(part):
                return part.place(sentence, token)
            sentence -= len(part)
        if self.parts or self.token_lines is None:
            return None
        line = lines_before(self.file) + self.token_lines[self.offsets[sentence] + token] + 1
        return f"{self.source}:{line}"

    @classmethod
    def from_sentences(cls, sentences: Sequence[Sequence[str | Sequence[str]]]) -> Corpus:
        """Build a corpus from sentences in memory.

        Parameters
        ----------
        sentences : sequence of sequences of tokens
            A token is a string (one column) or a sequence of strings (several columns).

        Raises
        ------
        ShapeError
            If a token has another number of columns than the first one.
        """
        unique: dict[str, str] = {}  # equal strings are one object
        tokens: list[Any] = list(chain.from_iterable(sentences))
        offsets, columns = np.cumsum([0, *map(len, sentences)], dtype=np.int64), list[Any]([tokens])
        if not set(map(type, tokens)) <= {str}:  # several columns
            rows = [(token,) if isinstance(token, str) else token for token in tokens]
            width = len(rows[0])
            odd = next((i for i, row in enumerate(rows) if len(row) != width), None)
            if odd is not None:
                n = int(np.searchsorted(offsets, odd, side="right")) - 1
                raise ShapeError(
                    f"sentence {n}, token {odd - offsets[n]}: expected {width} columns, as in the first token, "
                    f"got {len(rows[odd])}: {shorten(tokens[odd])}."
                )
            columns = [list(map(itemgetter(k), rows)) for k in range(width)]  # without an iterator of each token
        return cls([list(map(unique.setdefault, column, column)) for column in columns], offsets)

    @classmethod
    def joined(cls, parts: Sequence[Corpus], n_columns: int = 1, source: str = "") -> Corpus:
        """Return the sentences of several corpora of ``n_columns`` columns, one after another, without their lines."""
        columns: list[list[str]] = [[] for _ in range(n_columns)]
        for part in parts:
            for column, more in zip(columns, part.columns, strict=True):
                column += more
        bare = [replace(part, columns=[], raw=None) for part in parts]
        return cls(columns, _joined_offsets([part.offsets for part in parts]), source=source, parts=bare)


@dataclass(frozen=True, eq=False, repr=False)
class AttributeCorpus:
    """Sentences whose tokens have a label and weighted attributes: rows of a sparse matrix.

    Parameters
    ----------
    labels : list of str
        Label of each token, one sentence after another.
    offsets : ndarray (n_sentences + 1,)
        Sentence n is the tokens ``offsets[n]`` to ``offsets[n + 1]``.
    token_ptr : ndarray (n_tokens + 1,)
        Token i has the attributes ``attributes[token_ptr[i] : token_ptr[i + 1]]``.
    attributes : ndarray of int32 (nnz,)
        Attribute ids, in the order of the file. A token may have an attribute twice.
    values : ndarray of float64 (nnz,) or None
        Weights of the attributes; None means that all are 1.
    names : list of str
        ``names[k]`` is the name of attribute k.

    Raises
    ------
    ShapeError
        If the sizes of the arrays do not agree.
    """

    labels: list[str]
    offsets: NDArray[np.int64]
    token_ptr: NDArray[np.int64]
    attributes: NDArray[np.int32]
    values: NDArray[np.float64] | None
    names: list[str]

    def __post_init__(self) -> None:
        check_offsets("offsets", self.offsets)
        check_offsets("token_ptr", self.token_ptr)
        if not len(self.labels) == self.n_tokens == len(self.token_ptr) - 1:
            raise ShapeError(
                f"offsets end at {self.n_tokens} tokens, so labels must have {self.n_tokens} entries and token_ptr "
                f"{self.n_tokens + 1}, got {len(self.labels)} and {len(self.token_ptr)}."
            )
        nnz = int(self.token_ptr[-1])
        if self.attributes.shape != (nnz,) or (self.values is not None and self.values.shape != (nnz,)):
            got = self.attributes.shape if self.values is None else (self.attributes.shape, self.values.shape)
            raise ShapeError(f"token_ptr ends at {nnz}, so attributes and values must have shape ({nnz},), got {got}.")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"<AttributeCorpus: {len(self)} sentences, {self.n_tokens} tokens, {len(self.names)} attributes>"

    @property
    def n_tokens(self) -> int:
        """Number of tokens in all sentences."""
        return int(self.offsets[-1])

    @classmethod
    def joined(cls, parts: Sequence[AttributeCorpus]) -> AttributeCorpus:
        """Return the sentences of several corpora, one after another; attributes in order of first appearance."""
        ids: dict[str, int] = {}
        attributes = [np.empty(0, np.int32)]
        for part in parts:
            own = np.array([ids.setdefault(name, len(ids)) for name in part.names], np.int32)
            attributes.append(own[part.attributes])
        weighted = any(part.values is not None for part in parts)
        values = [np.ones(len(p.attributes)) if p.values is None else p.values for p in parts]
        return cls(
            [label for part in parts for label in part.labels],
            _joined_offsets([part.offsets for part in parts]),
            _joined_offsets([part.token_ptr for part in parts]),
            np.concatenate(attributes),
            np.concatenate(values) if weighted else None,
            list(ids),
        )


def _joined_offsets(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the offsets of several arrays that are put one after another."""
    sizes = [np.zeros(1, np.int64), *(np.diff(offsets) for offsets in parts)]
    return np.cumsum(np.concatenate(sizes))


def check_offsets(name: str, offsets: NDArray[np.int64]) -> None:
    """Raise ShapeError unless offsets have one axis, start with 0 and never decrease."""
    if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or np.any(offsets[1:] < offsets[:-1]):
        raise ShapeError(f"{name} must be a row of integers that starts with 0 and never decreases, got {offsets}.")


def chosen_tokens(offsets: NDArray[np.int64], which: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of the tokens of the sentences ``which``, in that order, and the offsets among them."""
    lengths = np.diff(offsets)[which]
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.repeat(offsets[which] - ends[:-1], lengths) + np.arange(ends[-1]), ends
