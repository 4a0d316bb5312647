r"""CRFsuite's attribute files: one token per line, its label and its attributes separated by tabs.

A line is ``label``, then any number of ``name`` or ``name:weight``. In names and labels ``\:`` is a colon and ``\\``
a backslash; a backslash before anything else is itself, as CRFsuite reads it. A blank line ends a sentence.
"""

from __future__ import annotations

import math
import re
from array import array

import numpy as np

from trelliswork.data.corpus import AttributeCorpus
from trelliswork.data.files import Readable, check_some, open_text, shorten, source_name
from trelliswork.errors import DataError

_NAME = re.compile(r"(?:[^\\:]|\\[\\:]|\\)*")  # up to the first colon that is not escaped
_BLANK = "\t\v\f\r "
_ESCAPED = re.compile(r"\\([\\:])")


def _unescape(name: str) -> str:
    return _ESCAPED.sub(r"\1", name) if "\\" in name else name


class _Numbering(dict[str, int]):
    """Ids of names as written in the file, in order of first appearance; ``ids`` are those of names without escapes."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[str, int] = {}

    def __missing__(self, written: str) -> int:
        number = self[written] = self.ids.setdefault(_unescape(written), len(self.ids))
        return number


def read_crfsuite(path: Readable) -> AttributeCorpus:
    """Read a file of labels and attributes in CRFsuite's format.

    Parameters
    ----------
    path : str or path
        A plain or gzip file in UTF-8, or an `Excerpt` of one; ``-`` is the standard input.

    Returns
    -------
    AttributeCorpus
        Attributes are numbered in order of first appearance. ``values`` is None if all weights are 1.

    Raises
    ------
    DataError
        If a weight is not a finite number, an attribute has no name, a label contains a colon that is not escaped,
        there is no sentence, or the file cannot be read (see `open_text`).

    Notes
    -----
    One pass; memory 4 bytes per attribute occurrence, 12 if there are weights, and each name once. An empty label is
    allowed (text to be tagged), consecutive tabs count as one. Declarations such as ``@weight`` are not supported.
    """
    source = source_name(path)
    ids, values = array("i"), None
    token_ptr, ends = array("q", [0]), array("q", [0])
    labels: list[str] = []
    numbering = _Numbering()
    label_of: dict[str, str] = {}
    number_of = numbering.__getitem__
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            fields = line.split("\t")
            label = label_of.get(fields[0])
            if label is None:
                if not line.strip(_BLANK):
                    if len(labels) > ends[-1]:
                        ends.append(len(labels))
                    continue
                label = _label(fields[0], f"{source}:{number}")
                if label.strip(_BLANK):  # others must be distinguished from blank lines each time
                    label_of[fields[0]] = label
            labels.append(label)
            del fields[0]
            if "\t\t" in line or line.endswith("\t"):
                fields = [field for field in fields if field]
            weights = None
            if ":" in line:
                fields, weights = _weighted(fields, f"{source}:{number}")
            ids.extend(map(number_of, fields))
            if weights is not None and values is None:
                values = array("d", [1.0]) * token_ptr[-1]
            if values is not None:
                values.extend(array("d", [1.0]) * len(fields) if weights is None else weights)
            token_ptr.append(len(ids))
    check_some(len(labels), path, "label, tab, attributes separated by tabs")
    if len(labels) > ends[-1]:
        ends.append(len(labels))
    return AttributeCorpus(
        labels,
        np.array(ends, np.int64),
        np.array(token_ptr, np.int64),
        np.array(ids, np.int32),
        None if values is None else np.array(values, np.float64),
        list(numbering.ids),
    )


def _label(written: str, where: str) -> str:
    """Return a label without escapes; raise DataError if it contains a colon that is not escaped."""
    if ":" in written and _NAME.match(written).end() != len(written):  # type: ignore[union-attr]
        if written.startswith("@"):
            raise DataError(f"{where}: expected a label, got the declaration {shorten(written)}. Delete it.")
        raise DataError(f"{where}: a colon in a label must be written \\:, got {shorten(written)}.")
    return _unescape(written)


def _weighted(fields: list[str], where: str) -> tuple[list[str], array[float] | None]:
    """Split attributes into names, with escapes as in the file, and weights, None if all are 1."""
    names, weights = [], array("d")
    plain = True
    for field in fields:
        name, colon, weight = field.rpartition(":")
        if not colon or "\\" in name or ":" in name:
            end = _NAME.match(field).end()  # type: ignore[union-attr]
            name, colon, weight = field[:end], field[end : end + 1], field[end + 1 :]
        value = 1.0
        if colon:
            try:
                value = float(weight)
            except ValueError:
                value = math.nan
            if not math.isfinite(value) or "_" in weight:
                raise DataError(
                    f"{where}: expected a finite number after the colon, as in name:2.5, got {shorten(weight)} in "
                    f"{shorten(field)}. A colon in a name is written \\:."
                )
            if not name:
                raise DataError(f"{where}: expected a name before the colon, as in name:2.5, got {shorten(field)}.")
            plain = plain and value == 1.0
        names.append(name)
        weights.append(value)
    return names, None if plain else weights
