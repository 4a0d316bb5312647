"""Attributes of models from other tools: templates make strings, and equal strings are the same attribute.

`TemplateExtractor` numbers tuples of values. CRF++ and Wapiti compare the strings that these make, so that ``a/b`` and
``c`` joined by ``/`` equal ``a`` and ``b/c``. Here each distinct tuple of a corpus is spelled once and looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.vocabulary import strings
from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import ColumnIds, check_columns, compress
from trelliswork.features.numbering import Ids, Numbering
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
        self._names = list(names)
        self._ids = {name: k for k, name in enumerate(self._names)}

    @property
    def n_attributes(self) -> int:
        """Number of known attributes."""
        return len(self._names)

    def names(self) -> list[str]:
        """Return the names in the order of their ids."""
        return list(self._names)

    def transform(self, columns: Sequence[Sequence[str]], offsets: NDArray[np.int64]) -> Attributes:
        """Return the known attributes of a corpus."""
        check_columns(self.templates, len(columns))
        known = [ColumnIds([], reach(self.templates)) for _ in columns]
        coded = [ids.learn(column) for ids, column in zip(known, columns, strict=True)]
        table = np.empty((len(self.templates), len(columns[0])), np.int32)
        for k, template in enumerate(self.templates):
            table[k] = self._look_up(template, known, coded, offsets)
        if self.edge:
            table[:, offsets[:-1][np.diff(offsets) > 0]] = -1
        return compress(table, offsets, self.n_attributes)

    def _look_up(
        self, template: Template, known: Sequence[ColumnIds], coded: Sequence[Ids], offsets: NDArray[np.int64]
    ) -> Ids:
        """Return the attribute of a template for each token, -1 if its name is not listed."""
        numbers, values = np.zeros(len(coded[0]), np.int32), []
        for row, column in template.macros:
            values.append(known[column].shifted(coded[column], offsets, row, skip_outside=False))
            numbers = Numbering.of(numbers * np.int64(known[column].radix) + values[-1])[1]
        first = np.flatnonzero(np.diff(np.maximum.accumulate(numbers), prepend=-1))  # each number's first token
        spelled = [
            [self._text(known[column], int(ids[i])) for (_, column), ids in zip(template.macros, values, strict=True)]
            for i in first.tolist()
        ]
        names = ["".join(map("".join, zip(template.pieces, [*texts, ""], strict=True))) for texts in spelled]
        return np.array([self._ids.get(name, -1) for name in names], np.int32)[numbers]

    def _text(self, ids: ColumnIds, number: int) -> str:
        text = ids.name(number)
        if number < len(ids.strings) or self.outside == "_B":
            return text
        return f"_x{text[2]}{text[3:] if int(text[3:]) <= _NAMED else '#'}"

    def state(self) -> dict[str, Any]:
        """Return the state for ``from_state``, plain data for JSON."""
        templates = [asdict(template) for template in self.templates]
        return {"templates": templates, "names": self._names, "outside": self.outside, "edge": self.edge}

    @classmethod
    def from_state(cls, plain: dict[str, Any]) -> SpelledExtractor:
        """Build an extractor from its ``state``."""
        templates = [Template.from_plain(template) for template in plain["templates"]]
        return cls(templates, strings(plain["names"]), outside=str(plain["outside"]), edge=bool(plain["edge"]))
