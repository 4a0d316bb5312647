"""Attributes that the user computed: a dict or a list of strings per token, as in sklearn-crfsuite.

Strings are distinguished by 62 bits of Python's hash, which is stored with each string: looking up numbers in a compact
table is faster than strings in a large dict (docs/benchmarks.md). The probability that two of a million attributes
collide is one in ten million.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import AttributeCorpus
from trelliswork.data.counting import frequent
from trelliswork.data.files import shorten
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError
from trelliswork.features.attributes import Attributes
from trelliswork.features.numbering import Ids, Keys, Numbering

_LARGEST = float(np.finfo(np.float32).max)
_BITS = (1 << 62) - 1
Token = Mapping[str, Any] | Iterable[str]
Sentences = Sequence[Sequence[Token]] | AttributeCorpus


class ReadyExtractor:
    """Ids of attribute names, with values.

    A token is a list of names, or a mapping from names to numbers (the value), booleans (True: 1, False: absent),
    strings (the attribute ``name:string``), or to such tokens, whose names follow ``name:`` (as in python-crfsuite).
    """

    def __init__(self, names: Sequence[str] = (), *, min_count: int = 1) -> None:
        self.min_count = min_count
        self._set(names)

    def _set(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._table = Numbering(_keys(self._names))

    @property
    def n_attributes(self) -> int:
        """Number of known attributes."""
        return len(self._names)

    def names(self) -> list[str]:
        """Return the names in the order of their ids."""
        return list(self._names)

    def fit(self, X: Sentences) -> Attributes:
        """Learn and return the attributes of sentences."""
        rows = Rows(X)
        rows.keys &= _BITS
        ids = Numbering.of(rows.keys)[1]
        # Ids count up as names appear: a name is new where the largest id so far grows.
        names = _checked(rows.names_at(np.flatnonzero(np.diff(np.maximum.accumulate(ids), prepend=-1))))
        counts = np.bincount(ids, minlength=len(names)).tolist()
        self._set(frequent(dict(zip(names, counts, strict=True)), self.min_count))  # on all ranks together
        return rows.attributes(self._table.look_up(_keys(names))[ids], len(self._names))

    def transform(self, X: Sentences) -> Attributes:
        """Return the known attributes of other sentences."""
        rows = Rows(X)
        rows.keys &= _BITS
        return rows.attributes(self._table.look_up(rows.keys), len(self._names))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what it has learned, for ``restore``: plain data for JSON, and no arrays."""
        return {"names": self._names}, {}

    def restore(self, plain: Mapping[str, Any], arrays: object) -> None:
        """Continue from ``state``'s result."""
        self._set(strings(plain["names"]))


_LISTS, _NUMBERS, _TEXTS = {list}, {float}, {str}


class Rows:
    """The attributes of all sentences as int64 keys of their names."""

    def __init__(self, X: Sentences, key: Callable[[str], int] = hash) -> None:
        self._tokens: list[Sequence[str]] = []
        self._corpus: AttributeCorpus | None = None
        if isinstance(X, AttributeCorpus):
            self.keys: Keys = np.fromiter(map(key, X.names), np.int64, len(X.names))[X.attributes]
            self._values = None if X.values is None else X.values.astype(np.float32)
            self._offsets, self._token_ptr, self._corpus = X.offsets, X.token_ptr, X
            return
        hashes, values, lengths = array("q"), array("f"), array("q")
        for n, sentence in enumerate(X):
            lengths.append(len(sentence))
            if not values and set(map(type, sentence)) <= _LISTS:  # the common case, without a Python loop
                self._tokens += sentence  # type: ignore[arg-type]
                hashes.extend(map(key, chain.from_iterable(sentence)))
                continue
            for t, token in enumerate(sentence):
                if type(token) is list:
                    names, weights = token, None
                elif _is_plain(token):
                    names, weights = list(token), list(token.values())
                else:
                    pairs = named(token, f"sentence {n}, token {t}")
                    names, weights = [name for name, _ in pairs], [value for _, value in pairs]
                if values or (weights is not None and weights.count(1.0) < len(weights)):
                    if not values:
                        values.extend([1.0] * len(hashes))  # all values so far were 1
                    values.extend([1.0] * len(names) if weights is None else weights)
                hashes.extend(map(key, names))
                self._tokens.append(names)
        self.keys = np.frombuffer(hashes, np.int64) if hashes else np.empty(0, np.int64)
        self._values = np.array(values, np.float32) if values else None
        self._offsets = _running_sum(np.array(lengths, np.int64))
        self._token_ptr = _running_sum(np.fromiter(map(len, self._tokens), np.int64, len(self._tokens)))

    def names_at(self, places: NDArray[np.int64]) -> list[str]:
        """Return the names at flat positions."""
        if self._corpus is not None:
            return [self._corpus.names[k] for k in self._corpus.attributes[places].tolist()]
        token = np.searchsorted(self._token_ptr, places, side="right") - 1
        within = places - self._token_ptr[token]
        tokens = self._tokens
        return [tokens[i][k] for i, k in zip(token.tolist(), within.tolist(), strict=True)]

    def attributes(self, ids: Ids, n_attributes: int) -> Attributes:
        """Return the rows with these ids, of ``n_attributes`` different ones, without those of -1."""
        token_ptr, values = self._token_ptr, self._values
        if values is not None and (values == 1).all():
            values = None
        kept = ids >= 0
        if not kept.all():
            token_ptr, ids, values = _running_sum(kept)[token_ptr], ids[kept], None if values is None else values[kept]
        return Attributes(self._offsets, token_ptr, ids, values, n_attributes)


def _running_sum(values: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(values, dtype=np.int64)])


def _checked(names: list[str]) -> list[str]:
    """Return the names of attributes; raise an error if one is not a string that UTF-8 can write."""
    try:
        "".join(names).encode()
    except (TypeError, UnicodeEncodeError):
        odd = next(n for n in names if not isinstance(n, str) or n != n.encode(errors="ignore").decode())
        raise DataError(f"the name of an attribute must be a string of whole characters, got {shorten(odd)}.") from None
    return names


def _keys(names: Sequence[str]) -> Keys:
    return np.fromiter(map(hash, names), np.int64, len(names)) & _BITS


def named(token: Token, where: str = "a token", *, zeros: bool = False) -> list[tuple[str, float]]:
    """Return names and values of the attributes of a token; with ``zeros`` False has the value 0."""
    if isinstance(token, str | bytes) or not isinstance(token, Iterable):
        raise DataError(
            f"{where}: with features=None a token must be a dict or a list of attributes, got {shorten(token)}. "
            "Choose features (a preset or templates) for plain words."
        )
    if not isinstance(token, Mapping):
        return [(_text(name, where), 1.0) for name in token]
    pairs: list[tuple[str, float]] = []
    _collect(token, "", pairs, where, zeros)
    return pairs


def _collect(token: Mapping[str, Any], before: str, pairs: list[tuple[str, float]], where: str, zeros: bool) -> None:
    """Add names and values; frequent types are told by identity, which takes a quarter of the time."""
    for key, value in token.items():
        name, kind = before + (key if type(key) is str else _text(key, where)), type(value)
        if kind is str:
            pairs.append((f"{name}:{value}", 1.0))
        elif kind is bool:
            if value or zeros:
                pairs.append((name, float(value)))
        elif kind is dict:
            _collect(value, f"{name}:", pairs, where, zeros)
        elif kind is float and -_LARGEST <= value <= _LARGEST:
            pairs.append((name, value))
        elif isinstance(value, bool | np.bool_):
            if value or zeros:
                pairs.append((name, float(value)))
        elif isinstance(value, str | bytes):
            pairs.append((f"{name}:{_text(value, where)}", 1.0))
        elif isinstance(value, Mapping | list | tuple | set | frozenset):
            pairs += [(f"{name}:{inner}", number) for inner, number in named(value, where, zeros=zeros)]
        elif isinstance(value, int | float | np.number) and abs(value) <= _LARGEST:  # type: ignore[operator]
            pairs.append((name, float(value)))
        else:
            raise DataError(
                f"{where}: the value of attribute {shorten(_text(key, where))} must be a finite number (a float32), a "
                f"boolean, a string, or attributes (a list, set or dict), got {str(value)[:80]}."
            )


def _is_plain(token: Any) -> TypeGuard[dict[str, float]]:
    """Return whether a token is a dict of names and finite numbers."""
    if type(token) is not dict or not set(map(type, token.values())) <= _NUMBERS or not set(map(type, token)) <= _TEXTS:
        return False
    values = token.values()
    return not values or (isfinite(sum(values)) and max(values) <= _LARGEST and min(values) >= -_LARGEST)


def _text(name: Any, where: str) -> str:
    if not isinstance(name, str | bytes):
        raise DataError(f"{where}: the name of an attribute must be a string, got {shorten(name)}.")
    return name.decode(errors="replace") if isinstance(name, bytes) else name
