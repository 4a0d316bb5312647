"""Attributes of words by a preset, remembered from call to call: most words of a text have occurred before."""

from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.corpus import Column
from trelliswork.features.extraction import TemplateExtractor
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
    """Rows of attributes and ids of words (`TemplateExtractor.word_rows`), and of what a preset derives from them.

    Several threads may look up at the same time.
    """

    def __init__(self, preset: Preset, extractor: TemplateExtractor) -> None:
        self._preset, self._extractor = preset, extractor
        self._width = len(extractor.of_words) + len(extractor.columns)
        self._known = _Known(self._width)

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
            derived = derive([Column(new, np.arange(len(new)))], self._preset)  # new words are distinct
            columns = zip(self._extractor.columns, derived, strict=True)
            known.table[first:last] = self._extractor.word_rows([ids.look_up(column) for ids, column in columns])
            known.rows.update(zip(new, range(first, last), strict=True))
            if last <= MAX_WORDS:
                self._known = known
        return known.table, np.fromiter(map(known.rows.__getitem__, words), np.int64, len(words))
