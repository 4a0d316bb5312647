"""Ids of words in all columns of a preset, remembered from call to call: most words of a text have occurred before."""

from collections.abc import Sequence
from threading import Lock

import numpy as np

from trelliswork.data.corpus import Column
from trelliswork.features.extraction import ColumnIds
from trelliswork.features.numbering import Ids
from trelliswork.features.presets import Preset, derive

MAX_WORDS = 50_000  # distinct words that are remembered
_adding = Lock()  # one for all: it is held for moments, and objects with a lock of their own could not be copied


class _Known:
    """Words with their rows in a table of ids (n_rows, n_columns). The table is written before the words."""

    def __init__(self, n_columns: int) -> None:
        self.rows: dict[str, int] = {}
        self.table = np.empty((1024, n_columns), np.int32)


class WordIds:
    """Ids of words, and of what a preset derives from them, in the columns of an extractor.

    Several threads may look up at the same time.
    """

    def __init__(self, preset: Preset, columns: Sequence[ColumnIds]) -> None:
        self._preset, self._columns = preset, columns
        self._known = _Known(len(columns))

    def look_up(self, words: Sequence[str]) -> Ids:
        """Return the ids (n_columns, n_words) of words, -1 for unknown strings."""
        if isinstance(words, Column):
            return np.take(self.look_up(words.distinct), words.ids, axis=1)
        known = self._known
        try:
            rows = np.fromiter(map(known.rows.__getitem__, words), np.int64, len(words))
        except KeyError:
            return self._with_new(words)
        return np.ascontiguousarray(known.table[rows].T)

    def _with_new(self, words: Sequence[str]) -> Ids:
        """Remember the words that are new, or forget all others if they would be too many."""
        with _adding:
            known = self._known
            new = [word for word in dict.fromkeys(words) if word not in known.rows]
            if len(known.rows) + len(new) > MAX_WORDS:
                known, new = _Known(len(self._columns)), list(dict.fromkeys(words))
            first, last = len(known.rows), len(known.rows) + len(new)
            if last > len(known.table):
                table = np.empty((max(last, 2 * len(known.table)), len(self._columns)), np.int32)
                table[:first] = known.table[:first]
                known.table = table
            derived = derive([new], self._preset)
            for c, (ids, column) in enumerate(zip(self._columns, derived, strict=True)):
                known.table[first:last, c] = ids.look_up(column)
            known.rows.update(zip(new, range(first, last), strict=True))
            if last <= MAX_WORDS:
                self._known = known
        rows = np.fromiter(map(known.rows.__getitem__, words), np.int64, len(words))
        return np.ascontiguousarray(known.table[rows].T)
