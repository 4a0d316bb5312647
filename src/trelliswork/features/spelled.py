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
from trelliswork.features.extraction import check_columns
from trelliswork.features.ready import ReadyExtractor
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
        self._ready, self.n_attributes = ReadyExtractor(names), len(names)

    def names(self) -> list[str]:
        """Return the names in the order of their ids."""
        return self._ready.names()

    def transform(self, columns: Sequence[Sequence[str]], offsets: NDArray[np.int64]) -> Attributes:
        """Return the known attributes of a corpus."""
        check_columns(self.templates, len(columns))
        beyond = range(1, reach(self.templates) + 1)
        before, after = ([self._outside(sign, k) for k in beyond] for sign in "-+")
        sentences = []
        for start, stop in pairwise(offsets.tolist()):
            padded = [[*before[::-1], *column[start:stop], *after] for column in columns]
            places = range(len(before), len(before) + stop - start)
            sentences.append([[spell(template, padded, t) for template in self.templates] for t in places])
            if self.edge:
                sentences[-1][:1] = [[]]
        return self._ready.transform(sentences)

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


def spell(template: Template, columns: Sequence[Sequence[str]], t: int) -> str:
    """Return the string that a template makes at position t."""
    values = [columns[column][t + row] for row, column in template.macros]
    return "".join(map("".join, zip(template.pieces, [*values, ""], strict=True)))
