"""Templates applied to columns, on integers; strings are built only for names of attributes.

The strings of each column get ids. The macros of a template look up ids at shifted positions, which are combined to one
64-bit key per token, and the distinct keys of a template are numbered: these numbers are the attributes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.corpus import Column
from trelliswork.data.counting import frequent, frequent_keys
from trelliswork.data.files import shorten
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError
from trelliswork.features.attributes import Attributes
from trelliswork.features.kernels import columns as kernels
from trelliswork.features.numbering import Ids, Keys, Numbering
from trelliswork.features.templates import Template, reach

_LARGEST_KEY = 2**62


class ColumnIds:
    """Ids of the strings of one column, and of the positions beyond the ends of a sentence.

    Ids: 0 to n-1 the strings, n to n+R-1 ``_B-1`` to ``_B-R``, then ``_B+1`` to ``_B+R``; -1 an unknown string.
    """

    def __init__(self, strings: Sequence[str], reach: int) -> None:
        self.strings = list(strings)
        self.reach = reach
        self._ids = {s: n for n, s in enumerate(self.strings)}

    @property
    def radix(self) -> int:
        """Number of different ids."""
        return len(self.strings) + 2 * self.reach

    def learn(self, column: Sequence[str]) -> Ids:
        """Return the ids of a column, with new ids for new strings."""
        if isinstance(column, Column) and column.in_order:
            return self.learn(column.distinct)[column.ids]
        ids = self._ids
        out = np.fromiter((ids.setdefault(s, len(ids)) for s in column), np.int32, len(column))
        self.strings = list(ids)
        return out

    def agree(self) -> Ids:
        """Replace the strings by those of all ranks, in order of appearance; return the new ids of the old ones."""
        before, self.strings = self.strings, list(frequent(dict.fromkeys(self.strings, 1)))
        self._ids = {s: n for n, s in enumerate(self.strings)}
        return np.array([self._ids[s] for s in before], np.int32)

    def look_up(self, column: Sequence[str]) -> Ids:
        """Return the ids of a column, -1 for unknown strings."""
        if isinstance(column, Column):
            return self.look_up(column.distinct)[column.ids]
        return np.fromiter(map(self._ids.get, column, repeat(-1)), np.int32, len(column))

    def shifted(self, ids: Ids, offsets: NDArray[np.int64], row: int, skip_outside: bool) -> Keys:
        """Return the id ``row`` positions away from each token, or of the position beyond the end."""
        beyond = np.arange(self.reach, dtype=np.int64) + len(self.strings)
        before, after = (np.full(self.reach, -1),) * 2 if skip_outside else (beyond, beyond + self.reach)
        out = np.empty(len(ids), np.int64)
        kernels.shifted(ids, offsets, row, before, after, out)
        return out

    def name(self, number: int) -> str:
        """Return the string of an id."""
        n = len(self.strings)
        if number < n:
            return self.strings[number]
        k = number - n
        return f"_B-{k + 1}" if k < self.reach else f"_B+{k - self.reach + 1}"


@dataclass
class _Stage:
    """Some macros of a template, and the ids of their combinations with the previous stage."""

    macros: tuple[tuple[int, int], ...]
    numbering: Numbering


class TemplateExtractor:
    """Attributes of columns by templates; ``min_count`` is the minimum count of an attribute in training."""

    def __init__(self, templates: Sequence[Template], *, min_count: int = 1) -> None:
        self.templates = list(templates)
        self.min_count = min_count
        self.columns: list[ColumnIds] = []
        self._stages: list[list[_Stage]] = []
        self._kept: list[Ids] = []  # by template: attribute id of each number, -1 if dropped
        self.n_attributes = 0

    def fit(self, columns: Sequence[Sequence[str]], offsets: NDArray[np.int64]) -> Attributes:
        """Learn and return the attributes of a corpus."""
        check_columns(self.templates, len(columns))
        self.columns = [ColumnIds([], reach(self.templates)) for _ in columns]
        coded = [ids.learn(column) for ids, column in zip(self.columns, columns, strict=True)]
        coded = [ids.agree()[known] for ids, known in zip(self.columns, coded, strict=True)]
        n_tokens = len(columns[0])
        table = np.empty((len(self.templates), n_tokens), np.int32)
        self._stages, self._kept, self.n_attributes = [], [], 0
        for k, template in enumerate(self.templates):
            stages, numbers = self._learn(template, coded, offsets)
            n = len(stages[-1].numbering)
            kept = np.arange(self.n_attributes, self.n_attributes + n, dtype=np.int32)
            self.n_attributes += n
            self._stages.append(stages)
            self._kept.append(kept)
            table[k] = _translate(numbers, kept)
        return compress(table, offsets, self.n_attributes)

    def transform(self, columns: Sequence[Sequence[str]], offsets: NDArray[np.int64]) -> Attributes:
        """Return the known attributes of another corpus."""
        check_columns(self.templates, len(columns))
        coded = [ids.look_up(column) for ids, column in zip(self.columns, columns, strict=False)]
        table = np.empty((len(self.templates), len(coded[0])), np.int32)
        for k in range(len(self.templates)):
            table[k] = self.known(k, coded, offsets)
        return compress(table, offsets, self.n_attributes)

    def known(self, k: int, coded: Sequence[Ids], offsets: NDArray[np.int64]) -> Ids:
        """Return the attribute of template k for each token, -1 if it is unknown."""
        numbers = None
        for stage in self._stages[k]:
            keys = self._keys(stage.macros, self.templates[k], coded, offsets, numbers)
            numbers = stage.numbering.look_up(keys)
        assert numbers is not None
        return _translate(numbers, self._kept[k])

    def alone(self, k: int) -> bool:
        """Return whether template k looks at one token alone, and makes no attribute beyond the sentence."""
        t = self.templates[k]
        simple = (t.skip_outside, t.where, t.on_edges, len(t.macros)) == (True, "all", False, 1)
        return simple and len(self._stages[k]) == 1

    def known_alone(self, k: int, coded: Sequence[Ids]) -> Ids:
        """Return the attribute that template k, which is ``alone``, makes of each word."""
        numbers = self._stages[k][0].numbering.look_up(coded[self.templates[k].macros[0][1]].astype(np.int64))
        return _translate(numbers, self._kept[k])

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """Return what it has learned, for ``restore``: plain data for JSON, and arrays."""
        plain = {
            "columns": [ids.strings for ids in self.columns],
            "reach": max((ids.reach for ids in self.columns), default=0),
            "stages": [[stage.macros for stage in stages] for stages in self._stages],
        }
        arrays: dict[str, NDArray[np.generic]] = {}
        for k, (stages, kept) in enumerate(zip(self._stages, self._kept, strict=True)):
            arrays[f"template.{k}.kept"] = kept
            for n, stage in enumerate(stages):
                arrays[f"template.{k}.stage.{n}"] = stage.numbering.listed
        return plain, arrays

    def restore(self, plain: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from ``state``'s result, of an extractor with the same templates."""
        self.columns = [ColumnIds(strings(column), plain["reach"]) for column in plain["columns"]]
        self._stages, self._kept = [], []
        for k, stages in enumerate(plain["stages"]):
            listed = [Numbering(arrays[f"template.{k}.stage.{n}"]) for n in range(len(stages))]
            self._stages.append([_Stage(tuple(map(tuple, m)), one) for m, one in zip(stages, listed, strict=True)])
            self._kept.append(arrays[f"template.{k}.kept"])
        self._check()
        self.n_attributes = int(max((kept.max(initial=-1) for kept in self._kept), default=-1)) + 1

    def _check(self) -> None:
        """Raise DataError if the parts of the state do not match, as in a damaged file."""
        for template, stages, kept in zip(self.templates, self._stages, self._kept, strict=True):
            listed = [stage.numbering.listed for stage in stages]
            fits = sum((stage.macros for stage in stages), ()) == template.macros and len(listed) > 0
            fits = fits and template.n_columns <= len(self.columns)
            fits = fits and all(abs(row) <= self.columns[column].reach for row, column in template.macros)
            fits = fits and kept.dtype == np.int32 and kept.shape == listed[-1].shape and bool((kept >= -1).all())
            if not fits:
                raise DataError(f"the attributes of the template {template.name!r} do not match it: train again.")

    def names(self) -> list[str]:
        """Return the string of every attribute, in the format of CRF++."""
        names = [""] * self.n_attributes
        for template, stages, kept in zip(self.templates, self._stages, self._kept, strict=True):
            for number, attribute in enumerate(kept.tolist()):
                if attribute >= 0:
                    names[attribute] = self._spell(template, stages, number)
        return names

    def _learn(self, template: Template, coded: Sequence[Ids], offsets: NDArray[np.int64]) -> tuple[list[_Stage], Ids]:
        """Number the distinct values of a template, in several stages if keys exceed 64 bits (rare)."""
        stages: list[_Stage] = []
        numbers: Ids | None = None
        macros = list(template.macros)
        while macros or not stages:
            radix, take = len(stages[-1].numbering) if stages else 1, 0
            while take < len(macros) and radix * self.columns[macros[take][1]].radix < _LARGEST_KEY:
                radix *= self.columns[macros[take][1]].radix
                take += 1
            group, macros = tuple(macros[:take]), macros[take:]
            keys = self._keys(group, template, coded, offsets, numbers)
            numbering, numbers = Numbering.of(keys)
            counts = np.bincount(numbers[numbers >= 0], minlength=len(numbering))
            listed = frequent_keys(numbering.listed, counts, 1 if macros else self.min_count)
            if listed is not numbering.listed:
                own, numbering = numbering.listed, Numbering(listed)
                numbers = _translate(numbers, numbering.look_up(own))
            stages.append(_Stage(group, numbering))
        assert numbers is not None
        return stages, numbers

    def _keys(
        self,
        macros: tuple[tuple[int, int], ...],
        template: Template,
        coded: Sequence[Ids],
        offsets: NDArray[np.int64],
        before: Ids | None,
    ) -> Keys:
        """Return one key per token: previous stage and ids of macros as digits; -1 where one of them is missing."""
        keys = np.zeros(len(coded[0]), np.int64) if before is None else before.astype(np.int64)
        missing = keys < 0
        left_out = template.leaves_out(offsets)
        if left_out is not None:
            missing |= left_out
        for row, column in macros:
            ids = self.columns[column]
            digit = ids.shifted(coded[column], offsets, row, template.skip_outside)
            missing |= digit < 0
            keys = keys * ids.radix + digit
        keys[missing] = -1
        return keys

    def _spell(self, template: Template, stages: list[_Stage], number: int) -> str:
        values: list[str] = []
        for stage in reversed(stages):
            key = int(stage.numbering.listed[number])
            digits: list[str] = []
            for _, column in reversed(stage.macros):
                key, digit = divmod(key, self.columns[column].radix)
                digits.append(self.columns[column].name(digit))
            values = digits[::-1] + values
            number = key
        pairs = zip(template.pieces, [*values, ""], strict=True)
        return "".join(piece + value for piece, value in pairs)


def check_columns(templates: Sequence[Template], n_columns: int) -> None:
    """Raise DataError if a template needs a column that the data lacks."""
    for template in templates:
        if template.n_columns > n_columns:
            raise DataError(
                f"the template {shorten(template.name)} needs column {template.n_columns - 1} (counted from 0), but "
                f"the data has {n_columns}: choose other columns or another template."
            )


def compress(
    table: Ids,
    offsets: NDArray[np.int64],
    n_attributes: int,
    words: tuple[Ids, NDArray[np.int64]] | None = None,
    sources: NDArray[np.int64] | None = None,
) -> Attributes:
    """Return the attributes of a table (n_templates, n_tokens) of ids, -1 where a template makes none.

    ``sources`` are those of ``kernels.columns.gather``, where some attributes are in a table of ``words``, with the row
    of each token.
    """
    if sources is None:
        sources = np.stack([np.full(len(table), -1), np.arange(len(table))], axis=1)
    rows, at = (np.empty((0, 0), np.int32), np.empty(0, np.int64)) if words is None else words
    offsets = np.asarray(offsets, np.int64)
    token_ptr, ids = np.empty(table.shape[1] + 1, np.int64), np.empty(table.shape[1] * len(sources), np.int32)
    n = kernels.gather(rows, at, offsets, sources, table, token_ptr, ids)
    return Attributes(offsets, token_ptr, ids[:n], None, n_attributes)


def _translate(numbers: Ids, kept: Ids) -> Ids:
    """Return the attribute ids of numbers, -1 for -1."""
    if not len(kept):
        return np.full(len(numbers), -1, np.int32)
    ids = kept[numbers]  # without a copy of the whole table, which may be much longer than the text
    ids[numbers < 0] = -1
    return ids
