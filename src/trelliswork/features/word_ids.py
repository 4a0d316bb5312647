"""Attributes of words by a preset, remembered from call to call: most words of a text have occurred before.

Most templates of a preset look at one word alone. Their attributes are a row of a table of words; the other templates
take the ids of what the preset derives from a word, which follow in the row.
"""

from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.corpus import Column
from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import TemplateExtractor, compress
from trelliswork.features.numbering import Ids
from trelliswork.features.presets import Preset, derive

MAX_WORDS = 50_000  # distinct words that are remembered
_adding = Lock()  # one for all: it is held for moments, and objects with a lock of their own could not be copied


class _Known:
    """Words with the numbers of their rows in a table. The table is written before the words."""

    def __init__(self, n_columns: int) -> None:
        self.rows: dict[str, int] = {}
        self.table = np.empty((1024, n_columns), np.int32)


class WordIds:
    """The attributes of sentences by an extractor with the columns of a preset.

    Several threads may ask at the same time.
    """

    def __init__(self, preset: Preset, extractor: TemplateExtractor) -> None:
        self._preset, self._extractor = preset, extractor
        alone = [k for k in range(len(extractor.templates)) if extractor.alone(k)]
        self._slots = {k: slot for slot, k in enumerate(alone)}
        self._others = [k for k in range(len(extractor.templates)) if k not in self._slots]
        places = [
            (self._slots[k], t.macros[0][0]) if k in self._slots else (-1, self._others.index(k))
            for k, t in enumerate(extractor.templates)
        ]
        self._sources = np.array(places, np.int64).reshape(-1, 2)
        self._width = len(alone) + len(extractor.columns)
        self._known = _Known(self._width)

    def transform(self, words: Sequence[str], offsets: NDArray[np.int64]) -> Attributes:
        """Return the known attributes of a corpus, as `TemplateExtractor.transform` of the columns of the preset."""
        extractor, (rows, at) = self._extractor, self.look_up(words)
        used = {column for k in self._others for _, column in extractor.templates[k].macros}
        nothing = np.empty(len(at), np.int32)
        coded = [rows[at, len(self._slots) + c] if c in used else nothing for c in range(len(extractor.columns))]
        table = np.empty((len(self._others), len(at)), np.int32)
        for n, k in enumerate(self._others):
            table[n] = extractor.known(k, coded, offsets)
        return compress(table, offsets, extractor.n_attributes, (rows, at), self._sources)

    def _rows(self, words: Sequence[str]) -> Ids:
        """Return the row of each of some distinct words: its attributes, and its id in each column."""
        derived = derive([Column(words, np.arange(len(words)))], self._preset)
        coded = [ids.look_up(column) for ids, column in zip(self._extractor.columns, derived, strict=True)]
        return np.stack([*(self._extractor.known_alone(k, coded) for k in self._slots), *coded], axis=1)

    def look_up(self, words: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        """Return a table, and the number of the row of each word in it."""
        if isinstance(words, Column):
            table, rows = self.look_up(words.distinct)
            return table, rows[words.ids]
        known = self._known
        try:
            rows = np.fromiter(map(known.rows.__getitem__, words), np.int64, len(words))
        except KeyError:
            return self._with_new(words)
        return known.table, rows

    def _with_new(self, words: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        """Remember the words that are new, or forget all others if they would be too many."""
        with _adding:
            known = self._known
            new = [word for word in dict.fromkeys(words) if word not in known.rows]
            if len(known.rows) + len(new) > MAX_WORDS:
                known, new = _Known(self._width), list(dict.fromkeys(words))
            first, last = len(known.rows), len(known.rows) + len(new)
            if last > len(known.table):
                table = np.empty((max(last, 2 * len(known.table)), self._width), np.int32)
                table[:first] = known.table[:first]
                known.table = table
            known.table[first:last] = self._rows(new)
            known.rows.update(zip(new, range(first, last), strict=True))
            if last <= MAX_WORDS:
                self._known = known
        return known.table, np.fromiter(map(known.rows.__getitem__, words), np.int64, len(words))
