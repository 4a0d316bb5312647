r"""Attributes of models from other tools: patterns make strings, and equal strings are the same attribute.

`TemplateExtractor` numbers tuples of values. CRF++ and Wapiti compare the strings that these make, so that ``a/b`` and
``c`` joined by ``/`` equal ``a`` and ``b/c``. Here each distinct tuple of a corpus is spelled once and looked up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError
from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import compress
from trelliswork.features.templates import MAX_OFFSET, Template

_REACH = 5  # positions beyond a sentence that have names of their own in Wapiti
_CLASSES = {"a": "a-zA-Z", "d": "0-9", "l": "a-z", "p": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"), "s": r" \t-\r"}
_CLASSES |= {"u": "A-Z", "w": "a-zA-Z0-9"}


def text_of(data: bytes) -> str:
    r"""Return bytes of a word or of a part of it as text; those that are not UTF-8 become ``\xNN``."""
    return data.decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Macro:
    """A value of a token: its column, or the result of an expression of Wapiti on it.

    ``row`` counts from the token; with ``absolute`` from the start of the sentence (1 is the first token) or, if it is
    negative, from its end (-1 is the last one).
    """

    row: int
    column: int
    absolute: bool = False
    command: str = "x"  # x: the string itself, t: whether the expression matches, m: the part that it matches
    expression: str = ""
    lower: bool = False

    def values(self, column: Sequence[str]) -> list[str]:
        """Return the value of each string."""
        if self.command == "x" and not self.lower:
            return list(column)
        return [self._value(text) for text in column]

    def _value(self, text: str) -> str:
        data = text.encode()
        if self.command != "x":
            match = _compiled(self.expression).search(data)
            if self.command == "t":
                data = b"false" if match is None else b"true"
            else:
                data = b"" if match is None else match.group()
        return text_of(data.lower() if self.lower else data)


def python_expression(expression: str) -> str:
    """Return an expression of Wapiti as one of Python, for bytes: ``*`` is lazy, classes are those of ASCII."""
    source, parts, at = expression.encode().decode("latin-1"), [], 0
    if source.startswith("^"):
        parts.append(r"\A")
        at = 1
    while at < len(source):
        char = source[at]
        if char == "$" and at == len(source) - 1:
            parts.append(r"\Z")
        elif char == ".":
            parts.append(".")
        elif char == "\\" and at + 1 < len(source):
            at += 1
            known = _CLASSES.get(source[at].lower())
            if known is None:
                parts.append(re.escape(source[at]))
            else:
                parts.append(f"[{'^' if source[at].isupper() else ''}{known}]")
        elif char in "*?":
            raise DataError(f"the expression {expression!r} repeats nothing: * and ? follow a character.")
        else:
            parts.append(re.escape(char))
        at += 1
        if at < len(source) and source[at] in "*?":
            parts.append("*?" if source[at] == "*" else "?")
            at += 1
    return "".join(parts)


@lru_cache(maxsize=256)
def _compiled(expression: str) -> re.Pattern[bytes]:
    return re.compile(python_expression(expression).encode("latin-1"), re.DOTALL)


@dataclass(frozen=True)
class Pattern:
    """One pattern: ``pieces[0] + value(macros[0]) + pieces[1] + ...``."""

    pieces: tuple[str, ...]
    macros: tuple[Macro, ...]

    @property
    def n_columns(self) -> int:
        """Number of columns that the data must have."""
        return 1 + max((macro.column for macro in self.macros), default=-1)

    @property
    def template(self) -> Template | None:
        """The template that makes the same attributes, ``None`` if there is none."""
        if any(m.absolute or m.command != "x" or m.lower for m in self.macros) or self.pieces[0][:1] not in ("U", "B"):
            return None
        macros = tuple((macro.row, macro.column) for macro in self.macros)
        written = [f"%x[{row},{column}]" for row, column in macros]
        name = "".join(p + m for p, m in zip(self.pieces, [*written, ""], strict=True))
        return Template(name, self.pieces, macros)

    @classmethod
    def of(cls, template: Template) -> Pattern:
        """Return the pattern of a template of CRF++."""
        return cls(template.pieces, tuple(Macro(row, column) for row, column in template.macros))

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Pattern:
        """Build a pattern from ``dataclasses.asdict``, also after JSON; DataError if it is damaged."""
        pieces, macros = strings(plain["pieces"]), tuple(Macro(**macro) for macro in plain["macros"])
        for m in macros:
            sizes = type(m.row) is type(m.column) is int and abs(m.row) <= MAX_OFFSET and 0 <= m.column <= MAX_OFFSET
            if not sizes or m.command not in ("x", "t", "m") or len(m.expression) > MAX_OFFSET:
                raise DataError("a pattern of the model is not one: the file is damaged.")
            python_expression(m.expression)
        if len(pieces) != len(macros) + 1:
            raise DataError("a pattern of the model is not one: the file is damaged.")
        return cls(tuple(pieces), macros)


class SpelledExtractor:
    """Attributes of columns whose names are listed; ``edge``: of pairs of labels, so not of first tokens.

    ``outside`` is the text before the number of a position beyond the sentence: ``_B`` in CRF++, ``_x`` in Wapiti.
    """

    def __init__(self, patterns: Sequence[Pattern], names: Sequence[str], *, outside: str, edge: bool = False) -> None:
        self.patterns, self.outside, self.edge = list(patterns), outside, edge
        self._names = list(names)
        self._ids = {name: k for k, name in enumerate(self._names)}

    @property
    def n_attributes(self) -> int:
        """Number of known attributes."""
        return len(self._names)

    @property
    def templates(self) -> list[Template] | None:
        """Templates that make the same attributes, ``None`` if a pattern has no such template."""
        found = [pattern.template for pattern in self.patterns]
        return None if None in found else [t for t in found if t is not None]

    def names(self) -> list[str]:
        """Return the names in the order of their ids."""
        return list(self._names)

    def transform(self, columns: Sequence[Sequence[str]], offsets: NDArray[np.int64]) -> Attributes:
        """Return the known attributes of a corpus."""
        need = max((pattern.n_columns for pattern in self.patterns), default=0)
        if need > len(columns):
            raise DataError(f"the patterns of the model need {need} columns, but the data has {len(columns)}.")
        n_tokens = len(columns[0])
        table = np.full((len(self.patterns), n_tokens), -1, np.int32)
        cache: dict[Macro, tuple[list[str], NDArray[np.int64]]] = {}
        for k, pattern in enumerate(self.patterns):
            table[k] = self._look_up(pattern, columns, offsets, cache)
            if self.edge:
                table[k, offsets[:-1][np.diff(offsets) > 0]] = -1
        return compress(table, offsets, self.n_attributes)

    def _look_up(
        self,
        pattern: Pattern,
        columns: Sequence[Sequence[str]],
        offsets: NDArray[np.int64],
        cache: dict[Macro, tuple[list[str], NDArray[np.int64]]],
    ) -> NDArray[np.int32]:
        n_tokens = int(offsets[-1])
        keys = np.zeros(n_tokens, np.int64)
        digits: list[tuple[list[str], NDArray[np.int64]]] = []
        for macro in pattern.macros:
            if macro not in cache:
                cache[macro] = self._values(macro, columns[macro.column], offsets)
            values, ids = cache[macro]
            digits.append((values, ids))
            keys = keys * len(values) + ids
            keys = np.unique(keys, return_inverse=True)[1]  # small again, so that any number of macros fits
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.empty(len(first), np.int32)
        for n, token in enumerate(first.tolist()):
            parts = [values[ids[token]] for values, ids in digits]
            name = "".join(p + v for p, v in zip(pattern.pieces, [*parts, ""], strict=True))
            numbers[n] = self._ids.get(name, -1)
        return numbers[inverse]

    def _values(
        self, macro: Macro, column: Sequence[str], offsets: NDArray[np.int64]
    ) -> tuple[list[str], NDArray[np.int64]]:
        """Return the distinct values of a macro, and for each token the index of its value."""
        listed: dict[str, int] = {}
        ids = np.fromiter((listed.setdefault(s, len(listed)) for s in column), np.int64, len(column))
        lengths = np.diff(offsets)
        start, length = np.repeat(offsets[:-1], lengths), np.repeat(lengths, lengths)
        if macro.absolute:
            place = length + macro.row if macro.row < 0 else np.full(len(ids), macro.row - 1)
        else:
            place = np.arange(len(ids)) - start + macro.row
        reach = abs(macro.row) + 1
        beyond = [self._outside(sign, k) for sign in "-+" for k in range(reach)]
        before, after = place < 0, place >= length
        out = np.where(before | after, 0, ids[np.clip(start + place, 0, max(len(ids) - 1, 0))]) if len(ids) else ids
        out = np.where(before, len(listed) - place - 1, out)
        out = np.where(after, len(listed) + reach + place - length, out)
        return macro.values([*listed, *beyond]), out

    def _outside(self, sign: str, k: int) -> str:
        if self.outside == "_x":
            return f"_x{sign}{k + 1 if k < _REACH - 1 else '#'}"
        return f"{self.outside}{sign}{k + 1}"

    def state(self) -> dict[str, Any]:
        """Return the state for ``from_state``, plain data for JSON."""
        return {
            "patterns": [asdict(pattern) for pattern in self.patterns],
            "names": self._names,
            "outside": self.outside,
            "edge": self.edge,
        }

    @classmethod
    def from_state(cls, plain: dict[str, Any]) -> SpelledExtractor:
        """Build an extractor from its ``state``."""
        patterns = [Pattern.from_plain(pattern) for pattern in plain["patterns"]]
        outside, edge = plain["outside"], plain["edge"]
        return cls(patterns, strings(plain["names"]), outside=str(outside), edge=bool(edge))
