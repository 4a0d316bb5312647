"""Attributes that the user made: a dict or a list of strings for each token, as in sklearn-crfsuite."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trelliswork.data import AttributeCorpus
from trelliswork.errors import DataError
from trelliswork.features.attributes import Attributes

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
        ids: list[int] = []
        values: list[float] = []
        token_ptr, offsets = [0], [0]
        known = self._ids
        for n, sentence in enumerate(sentences):
            for t, token in enumerate(sentence):
                for name, value in _pairs(token, n, t):
                    number = known.setdefault(name, len(known)) if learn else known.get(name, -1)
                    if number >= 0:
                        ids.append(number)
                        values.append(value)
                token_ptr.append(len(ids))
            offsets.append(len(token_ptr) - 1)
        array = np.array(values, np.float32)
        return Attributes(
            np.array(offsets, np.int64),
            np.array(token_ptr, np.int64),
            np.array(ids, np.int32),
            None if (array == 1).all() else array,
            len(known),
        )


def _pairs(token: Token, sentence: int, position: int) -> Iterable[tuple[str, float]]:
    if isinstance(token, str):
        raise DataError(
            f"sentence {sentence}, token {position}: with features=None a token is a dict or a list of attributes, got "
            f"the string {token!r}. Choose features (a preset or templates) for plain words."
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
        elif isinstance(value, int | float | np.number) and np.isfinite(value):
            pairs.append((name, float(value)))
        else:
            raise DataError(
                f"sentence {sentence}, token {position}: the value of attribute {name!r} must be a finite number, a "
                f"boolean or a string, got {value!r}."
            )
    return pairs
