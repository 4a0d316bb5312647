"""Attributes that the user computed: a dict or a list of strings per token, as in sklearn-crfsuite.

The tokens of a few hundred sentences become one JSON text, which Python writes in C, and a kernel reads names and
values from it: several times as fast as a loop over the attributes in Python.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import AttributeCorpus
from trelliswork.data.counting import frequent
from trelliswork.data.files import shorten
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError
from trelliswork.features.attributes import Attributes
from trelliswork.features.kernels import ready as kernels

Ids = NDArray[np.int32]
Token = Mapping[str, Any] | Iterable[str]
Sentences = Sequence[Sequence[Token]] | AttributeCorpus
_TOO_DEEP = f"{{}}: attributes may be nested in {kernels.DEEPEST} levels at most."
CHUNK = 100  # sentences whose text is in memory at a time, or better in a cache
_LARGEST = float(np.finfo(np.float32).max)


class Items(list[Any]):
    """Tokens of a sentence of which ``False`` is an attribute of value 0, as in python-crfsuite, and not absent."""


class Names:
    """Distinct names, numbered in order of appearance."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._n = 0
        self.arrays: kernels.Names
        self._make(max(8, len(names)), 64)
        if names:
            self.read([[list(names)]], learn=True)

    def __len__(self) -> int:
        return self._n

    def listed(self) -> list[str]:
        """Return the names in the order of their numbers."""
        ends = self.arrays.ends[: self._n + 1].tolist()
        text = self.arrays.text[: ends[-1]].tobytes()
        return [text[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(ends)]

    def _make(self, room: int, size: int) -> None:
        """Make arrays with room for names, and for their text, that have those of today."""
        table = np.full(1 << (2 * room - 1).bit_length(), -1, np.int32)  # at most half full
        ends = np.zeros(room + 1, np.int64)
        new = kernels.Names(table, np.empty(room, np.uint64), ends, np.empty(size, np.uint8))
        if self._n:
            old = self.arrays
            for now, before in zip(new[1:], old[1:], strict=True):
                now[: len(before)] = before
            kernels.rehash(self._n, new)
        self.arrays = new

    def read(self, X: Sentences, *, learn: bool = False) -> "Rows":
        """Return the attributes of all tokens; names that are not known are added, or have the number -1."""
        if isinstance(X, AttributeCorpus):
            ids = self.read([[X.names]], learn=learn).ids[X.attributes]
            return Rows(X.offsets, X.token_ptr, ids, None if X.values is None else X.values.astype(np.float32))
        offsets = _running_sum(np.fromiter(map(len, X), np.int64, len(X)))
        parts = [self._read(X[n : n + CHUNK], n, learn) for n in range(0, max(1, len(X)), CHUNK)]
        ids, values = (np.concatenate([part[k] for part in parts]) for k in range(2))
        return Rows(offsets, _running_sum(np.concatenate([np.diff(part.token_ptr) for part in parts])), ids, values)

    def _read(self, sentences: Sequence[Sequence[Token]], first: int, learn: bool) -> kernels.Found:
        tokens, zeros = list(chain.from_iterable(sentences)), isinstance(next(iter(sentences), None), Items)
        try:
            text = json_text(tokens)
        except (TypeError, ValueError, RecursionError):  # keys of bytes, or what is an error
            text = json_text([_with_texts(token, where) for where, token in _places(sentences, first)])
        name, stack = np.empty(len(text), np.uint8), np.empty((kernels.DEEPEST, 3), np.int64)
        most = len(text) // 3  # quotes and a comma
        found = kernels.Found(np.empty(most, np.int32), np.empty(most, np.float32), np.zeros(len(tokens) + 1, np.int64))
        at = np.array([1, 0, 0, self._n], np.int64)
        while (status := kernels.read(text, learn, zeros, self.arrays, name, stack, found, at)) == kernels.FULL:
            self._n, room, size = int(at[3]), len(self.arrays.hashes), len(self.arrays.text)
            full = self._n == room
            self._make(2 * room if full else room, size if full else 2 * size + len(name))
        self._n = int(at[3])
        if status == kernels.ODD:
            for where, token in _places(sentences, first):
                named(token, where)
            raise DataError(_TOO_DEEP.format("a token"))
        return kernels.Found(found.ids[: at[2]], found.values[: at[2]], found.token_ptr)


def _plain(value: Any) -> Any:
    """Return what JSON can write."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"), default=_plain).encode


def json_text(tokens: list[Any]) -> NDArray[np.uint8]:
    """Return tokens as one JSON text, as the kernel reads it; lists of names, which are frequent, without escapes."""
    text = ""
    if set(map(type, tokens)) == {list} and all(tokens):
        with suppress(TypeError):  # bytes, or what is an error
            text = "[[\0" + "\0],[\0".join(map("\0,\0".join, tokens)) + "\0]]"
    if not text or text.count("\0") != 2 * sum(map(len, tokens)):  # names with such a byte themselves
        text = _encode(tokens)
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


@dataclass(frozen=True)
class Rows:
    """The attributes of all tokens of sentences."""

    offsets: NDArray[np.int64]  # (n_sentences + 1,)
    token_ptr: NDArray[np.int64]  # (n_tokens + 1,)
    ids: Ids  # (n,) -1 if it is unknown
    values: NDArray[np.float32] | None  # (n,) None if all are 1

    def attributes(self, ids: Ids, n_attributes: int) -> Attributes:
        """Return the rows with these ids, of ``n_attributes`` different ones, without those of -1."""
        token_ptr, values = self.token_ptr, self.values
        if values is not None and (values == 1).all():
            values = None
        kept = ids >= 0
        if not kept.all():
            token_ptr, ids, values = _running_sum(kept)[token_ptr], ids[kept], None if values is None else values[kept]
        return Attributes(self.offsets, token_ptr, ids, values, n_attributes)


class ReadyExtractor:
    """Ids of attribute names, with values.

    A token is a list of names, or a mapping from names to numbers (the value), booleans (True: 1, False: absent),
    strings (the attribute ``name:string``), or to such tokens, whose names follow ``name:`` (as in python-crfsuite).
    """

    def __init__(self, names: Sequence[str] = (), *, min_count: int = 1) -> None:
        self.min_count = min_count
        self.known = Names(names)

    @property
    def n_attributes(self) -> int:
        """Number of known attributes."""
        return len(self.known)

    def names(self) -> list[str]:
        """Return the names in the order of their ids."""
        return self.known.listed()

    def fit(self, X: Sentences) -> Attributes:
        """Learn and return the attributes of sentences."""
        found = Names()
        rows = found.read(X, learn=True)
        names, counts = found.listed(), np.bincount(rows.ids, minlength=len(found)).tolist()
        try:
            "".join(names).encode()
        except UnicodeEncodeError:
            odd = next(name for name in names if name != name.encode(errors="ignore").decode())
            raise DataError(
                f"the name of an attribute must be a string of whole characters, got {shorten(odd)}."
            ) from None
        kept = frequent(dict(zip(names, counts, strict=True)), self.min_count)  # on all ranks together
        self.known = Names(list(kept))
        return rows.attributes(self.known.read([[names]]).ids[rows.ids], self.n_attributes)

    def transform(self, X: Sentences) -> Attributes:
        """Return the known attributes of other sentences."""
        rows = self.known.read(X)
        return rows.attributes(rows.ids, self.n_attributes)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what it has learned, for ``restore``: plain data for JSON, and no arrays."""
        return {"names": self.names()}, {}

    def restore(self, plain: Mapping[str, Any], arrays: object) -> None:
        """Continue from ``state``'s result."""
        self.known = Names(strings(plain["names"]))


def _running_sum(values: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(values, dtype=np.int64)])


def _places(sentences: Sequence[Sequence[Token]], first: int) -> Iterable[tuple[str, Token]]:
    """Yield each token, after the words that say where it is."""
    for n, sentence in enumerate(sentences, start=first):
        for t, token in enumerate(sentence):
            yield f"sentence {n}, token {t}", token


def _with_texts(value: Any, where: str, depth: int = 0) -> Any:
    """Return attributes whose names are strings, with those that are written as bytes."""
    if depth == kernels.DEEPEST:
        raise DataError(_TOO_DEEP.format(where))
    if isinstance(value, Mapping):
        return {_text(key, where): _with_texts(inner, where, depth + 1) for key, inner in value.items()}
    if depth and not isinstance(value, str | bytes | bool | int | float | np.generic | Iterable):
        named({"": value}, where)  # which raises
    return value


def named(token: Token, where: str = "a token", *, zeros: bool = False) -> list[tuple[str, float]]:
    """Return names and values of the attributes of a token, as ``read`` finds them; raise if something is wrong."""
    if isinstance(token, str | bytes) or not isinstance(token, Iterable):
        raise DataError(
            f"{where}: with features=None a token must be a dict or a list of attributes, got {shorten(token)}. "
            "Choose features (a preset or templates) for plain words."
        )
    if not isinstance(token, Mapping):
        return [(_text(name, where), 1.0) for name in token]
    pairs: list[tuple[str, float]] = []
    for key, value in token.items():
        name = _text(key, where)
        if isinstance(value, bool | np.bool_):
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
                f"{where}: the value of attribute {shorten(name)} must be a finite number (a float32), a "
                f"boolean, a string, or attributes (a list, set or dict), got {str(value)[:80]}."
            )
    return pairs


def _text(name: Any, where: str) -> str:
    if not isinstance(name, str | bytes):
        raise DataError(f"{where}: the name of an attribute must be a string, got {shorten(name)}.")
    return name.decode(errors="replace") if isinstance(name, bytes) else name
