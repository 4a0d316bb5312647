"""Attributes of models from other tools: templates make strings, and equal strings are the same attribute.

`TemplateExtractor` numbers tuples of values. CRF++ and Wapiti compare the strings that these make, so that ``a/b`` and
``c`` joined by ``/`` equal ``a`` and ``b/c``. Converted models are saved and loaded like all others.
"""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.vocabulary import strings
from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import check_columns, compress
from trelliswork.features.templates import Template, reach

_NAMED = 4  # positions beyond a sentence that have names of their own in Wapiti


class SpelledExtractor:
    """Attributes of columns whose names are listed; ``edge``: of pairs of labels, so not of first tokens.

    ``outside`` is the text before the number of a position beyond the sentence: ``_B`` in CRF++, ``_x`` in Wapiti.
    """

    def __init__(
        self, templates: Sequence[Template], names: Sequence[str], *, outside: str, edge: bool = False
    ) -> None:
        self.templates, self.outside, self.edge = list(templates), outside, edge
        self._ids, self.n_attributes = {name: k for k, name in enumerate(names)}, len(names)

    def names(self) -> list[str]:
        """Return the names in the order of their ids."""
        return list(self._ids)

    def transform(self, columns: Sequence[Sequence[str]], offsets: NDArray[np.int64]) -> Attributes:
        """Return the known attributes of a corpus."""
        check_columns(self.templates, len(columns))
        ends, most = offsets.tolist(), reach(self.templates)
        before, after = ([self._outside(sign, k) for k in range(1, most + 1)] for sign in "-+")
        padded = [
            np.array([s for a, b in pairwise(ends) for s in (*before[::-1], *column[a:b], *after)], object)
            for column in columns
        ]
        at = np.arange(ends[-1]) + most * (2 * np.repeat(np.arange(len(ends) - 1), np.diff(offsets)) + 1)
        table = np.empty((len(self.templates), len(at)), np.int32)
        for out, template in zip(table, self.templates, strict=True):
            ids, values = _Spelled(template, self._ids), [padded[column][at + row] for row, column in template.macros]
            out[:] = [ids[key] for key in zip(*values, strict=True)] if values else ids[()]
        if self.edge:
            table[:, offsets[:-1]] = -1
        return compress(table, offsets, self.n_attributes)

    def _outside(self, sign: str, k: int) -> str:
        return f"{self.outside}{sign}{k if self.outside == '_B' or k <= _NAMED else '#'}"

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return all for ``from_state``: plain data for JSON, and no arrays."""
        templates = [asdict(template) for template in self.templates]
        return {"templates": templates, "names": self.names(), "outside": self.outside, "edge": self.edge}, {}

    @classmethod
    def from_state(cls, plain: dict[str, Any]) -> Self:
        """Build an extractor from its ``state``."""
        templates = [Template.from_plain(template) for template in plain["templates"]]
        return cls(templates, strings(plain["names"]), outside=str(plain["outside"]), edge=bool(plain["edge"]))


class _Spelled(dict[tuple[str, ...], int]):
    """The attributes of a template by the values of its macros, each spelled once; -1 for a name that is not listed."""

    def __init__(self, template: Template, ids: dict[str, int]) -> None:
        self._pieces, self._ids = template.pieces, ids

    def __missing__(self, values: tuple[str, ...]) -> int:
        name = "".join(map("".join, zip(self._pieces, (*values, ""), strict=True)))
        self[values] = number = self._ids.get(name, -1)
        return number
