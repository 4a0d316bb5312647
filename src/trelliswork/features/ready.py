"""Attributes that the user made: a dict or a list of strings for each token, as in sklearn-crfsuite."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trelliswork.data import AttributeCorpus
from trelliswork.errors import DataError
from trelliswork.features.attributes import Attributes

_LARGEST = float(np.finfo(np.float32).max)
Token = Mapping[str, Any] | Iterable[str]


class ReadyExtractor:
    """Numbers for attribute names; values count.

    A token is a list of names, or a mapping from names to numbers (the value), booleans (True: 1, False: absent) or
    strings (the attribute ``name:string``).
    """

    def __init__(self, *, min_count: int = 1) -> None:
        self.min_count = min_count
        self._ids: dict[str, int] = {}

    @property
    def n_attributes(self) -> int:
        """Number of known attributes."""
        return len(self._ids)

    def names(self) -> list[str]:
        """Names by id."""
        return list(self._ids)

    def fit(self, sentences: Sequence[Sequence[Token]]) -> Attributes:
        """Learn the attributes of some sentences, and return them."""
        self._ids = {}
        found = self._read(sentences, learn=True)
        if self.min_count > 1:
            counts = np.bincount(found.ids, minlength=len(self._ids))
            kept = [name for name, n in zip(self._ids, counts, strict=True) if n >= self.min_count]
            self._ids = {name: i for i, name in enumerate(kept)}
            found = self._read(sentences, learn=False)
        return found

    def transform(self, sentences: Sequence[Sequence[Token]]) -> Attributes:
        """Known attributes of other sentences."""
        return self._read(sentences, learn=False)

    def fit_corpus(self, corpus: AttributeCorpus) -> Attributes:
        """Learn the attributes of a file of ready ones, and return them."""
        counts = np.bincount(corpus.attributes, minlength=len(corpus.names))
        self._ids = {}
        for name, n in zip(corpus.names, counts.tolist(), strict=True):
            if n >= self.min_count:
                self._ids[name] = len(self._ids)
        return self.transform_corpus(corpus)

    def transform_corpus(self, corpus: AttributeCorpus) -> Attributes:
        """Known attributes of another such file."""
        known = np.array([self._ids.get(name, -1) for name in corpus.names], np.int32)
        ids = known[corpus.attributes]
        kept = ids >= 0
        before = np.concatenate([[0], np.cumsum(kept)])
        values = None if corpus.values is None else corpus.values[kept].astype(np.float32)
        return Attributes(corpus.offsets, before[corpus.token_ptr], ids[kept], values, len(self._ids))

    @classmethod
    def from_names(cls, names: Sequence[str]) -> "ReadyExtractor":
        """An extractor with given attributes."""
        self = cls()
        self._ids = {name: i for i, name in enumerate(names)}
        return self

    def _read(self, sentences: Sequence[Sequence[Token]], learn: bool) -> Attributes:
        table = _Learning(self._ids) if learn else _Known(self._ids)
        look_up = table.__getitem__
        ids, values = array("i"), array("f")
        token_ptr, offsets = array("q", [0]), array("q", [0])
        for n, sentence in enumerate(sentences):
            for t, token in enumerate(sentence):
                if isinstance(token, list | tuple):
                    ids.extend(map(look_up, token))
                    if values:
                        values.extend([1.0] * len(token))
                else:
                    pairs = _pairs(token, n, t)
                    if not values and any(value != 1 for _, value in pairs):
                        values.extend([1.0] * len(ids))  # until now all were 1
                    ids.extend([look_up(name) for name, _ in pairs])
                    if values or any(value != 1 for _, value in pairs):
                        values.extend([value for _, value in pairs])
                token_ptr.append(len(ids))
            offsets.append(len(token_ptr) - 1)
        if learn:
            self._ids = dict(table)
        found = np.array(ids, np.int32)
        kept = found >= 0
        before = np.concatenate([[0], np.cumsum(kept)])
        return Attributes(
            np.array(offsets, np.int64),
            before[np.array(token_ptr, np.int64)],
            found[kept],
            np.array(values, np.float32)[kept] if len(values) else None,
            len(self._ids),
        )


class _Learning(dict[str, int]):
    """New names get the next id."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


class _Known(dict[str, int]):
    """Unknown names get -1, and are forgotten."""

    def __missing__(self, name: str) -> int:
        return -1


def _pairs(token: Token, sentence: int, position: int) -> list[tuple[str, float]]:
    """Names and values of a token's attributes."""
    where = f"sentence {sentence}, token {position}"
    if isinstance(token, str) or not isinstance(token, Iterable):
        raise DataError(
            f"{where}: with features=None a token is a dict or a list of attributes, got {token!r}. "
            "Choose features (a preset or templates) for plain words."
        )
    if not isinstance(token, Mapping):
        return [(name, 1.0) for name in token]
    pairs = []
    for name, value in token.items():
        if isinstance(value, bool | np.bool_):
            if value:
                pairs.append((name, 1.0))
        elif isinstance(value, str):
            pairs.append((f"{name}:{value}", 1.0))
        elif isinstance(value, int | float | np.number) and abs(value) <= _LARGEST:  # type: ignore[operator]
            pairs.append((name, float(value)))
        else:
            raise DataError(
                f"{where}: the value of attribute {name!r} must be a finite number (a float32), a boolean or a string, "
                f"got {str(value)[:80]}."
            )
    return pairs
