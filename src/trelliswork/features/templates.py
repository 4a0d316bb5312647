r"""Feature templates in the syntax of CRF++.

A template is a line such as ``U05:%x[-1,0]/%x[0,0]``: the previous word and the word itself, in one attribute.
``%x[row,col]`` is column ``col`` of the token ``row`` positions away; beyond the sentence it is ``_B-1``, ``_B-2``, ...
or ``_B+1``, ``_B+2``, ... ``U`` templates score labels, ``B`` templates pairs of adjacent labels (row 0 is the second
token of the pair); ``#`` starts a comment.

Three more macros use knowledge of words (`features.knowledge`), of the word in column 0: ``%c[row,bits]`` is the first
bits of the bit string of its cluster, ``%c[row]`` the whole; ``%l[row]`` its tag in the lexicon, such as ``B-city``;
``%v[row]`` its vector, real-valued, as the only macro of a U template. Unknown words have an empty string and a vector
of zeros.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.files import open_text, shorten, source_name
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError

MAX_OFFSET = 1000  # of rows and columns; CRF++ allows 8 rows
PLACES = ("all", "first", "last")  # tokens of a sentence that a template applies to
_MACRO = re.compile(r"%(?P<kind>[xclv])\[\s*(?P<row>-?\d+)\s*(?:,\s*(?P<column>\d+)\s*)?\]")


@dataclass(frozen=True)
class Template:
    """One template: ``pieces[0] + value(macros[0]) + pieces[1] + ...``.

    With ``skip_outside`` it makes no attribute where a macro points beyond the sentence, as in CRFsuite's examples;
    CRF++ makes ``_B-1`` etc.
    """

    name: str  # the line as written
    pieces: tuple[str, ...]  # text around the macros, one more than there are; pieces[0] includes the id (U05:)
    macros: tuple[tuple[int, Any], ...]  # row and column: a number, or the name of knowledge of words
    skip_outside: bool = False
    where: str = "all"  # one of ``PLACES``

    @property
    def on_edges(self) -> bool:
        """Whether it is a B template, which applies to all tokens but the first of a sentence."""
        return self.name.startswith("B")

    @property
    def n_columns(self) -> int:
        """Number of columns that the data must have."""
        return 1 + max((column for _, column in self.macros if isinstance(column, int)), default=-1)

    @property
    def knowledge(self) -> list[str]:
        """Columns that are knowledge of words."""
        return [column for _, column in self.macros if isinstance(column, str)]

    @property
    def is_vector(self) -> bool:
        """Whether it stands for a vector, real-valued."""
        return "v" in self.knowledge

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Template":
        """Build a template from ``dataclasses.asdict``, also after JSON has turned its tuples into lists."""
        macros = tuple((row, column) for row, column in plain["macros"])
        name, pieces, where = plain["name"], strings(plain["pieces"]), plain["where"]
        whole = all(type(row) is int and abs(row) <= MAX_OFFSET and _is_column(column) for row, column in macros)
        if not (whole and isinstance(name, str) and len(pieces) == len(macros) + 1 and where in PLACES):
            raise DataError(f"{name!r} is not a template: the file is damaged.")
        return cls(name, tuple(pieces), macros, bool(plain["skip_outside"]), where)

    def leaves_out(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Return where (n_tokens,) there is no attribute because of the place in the sentence; ``None`` if nowhere."""
        if self.where == "all" and not self.on_edges:
            return None
        filled = np.diff(offsets) > 0
        first, last = offsets[:-1][filled], offsets[1:][filled] - 1
        out = np.full(offsets[-1], self.where != "all")
        if self.where != "all":
            out[first if self.where == "first" else last] = False
        if self.on_edges:
            out[first] = True
        return out


def _is_column(column: object) -> bool:
    if isinstance(column, str):
        return re.fullmatch(r"c\d*|l|v", column) is not None
    return type(column) is int and column >= 0


def parse_template(line: str, where: str = "template", *, skip_outside: bool = False) -> Template:
    """Parse one template line; ``where`` (file and line) is used in error messages."""
    if line[:1] not in ("U", "B"):
        raise DataError(f"{where}: a template must start with U or B, got {shorten(line)}.")
    found = list(_MACRO.finditer(line))
    right = all((m["kind"] == "x") == (m["column"] is not None) for m in found if m["kind"] != "c")
    if line.count("%") != len(found) or not right:
        raise DataError(
            f"{where}: macros must be written %x[row,col], as in U01:%x[-1,0], or %c[row,bits], %c[row], %l[row] or "
            f"%v[row], got {shorten(line)}."
        )
    macros = tuple((_offset(m["row"], where), _column(m["kind"], m["column"], where)) for m in found)
    edges = [0, *(place for m in found for place in m.span()), len(line)]
    pieces = tuple(line[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))
    if any(column == "v" for _, column in macros) and (len(macros) > 1 or line[0] == "B"):
        raise DataError(f"{where}: %v[row] must be the only macro of a U template, got {shorten(line)}.")
    return Template(line, pieces, macros, skip_outside)


def _column(kind: str, number: str | None, where: str) -> int | str:
    """Return the column of a macro: a number, or the name of knowledge of words (``c6``, ``c``, ``l``, ``v``)."""
    if kind == "x":
        return _offset(number or "", where)
    bits = _offset(number, where) if number is not None else 0
    return f"{kind}{bits or ''}"


def reach(templates: Iterable[Template]) -> int:
    """Return how many positions away from a token macros look at most."""
    return max((abs(row) for template in templates for row, _ in template.macros), default=0)


def resolve(templates: Iterable[Template], columns: list[str], first: int) -> list[Template]:
    """Return templates whose knowledge of words is columns from ``first`` on: that of ``columns[0]``, and so on."""
    place = {name: first + k for k, name in enumerate(columns)}
    return [
        replace(t, macros=tuple((row, place[c] if isinstance(c, str) else c) for row, c in t.macros)) for t in templates
    ]


def _offset(digits: str, where: str) -> int:
    """Return a row or column; the digits are counted first, because Python refuses to read thousands of them."""
    if len(digits) > 10 or abs(int(digits)) > MAX_OFFSET:
        raise DataError(f"{where}: rows and columns of macros must be at most {MAX_OFFSET}, got {shorten(digits)}.")
    return int(digits)


def parse_templates(text: str, source: str = "templates", *, skip_outside: bool = False) -> list[Template]:
    r"""Parse templates, one per line; comments and blank lines are skipped.

    Examples
    --------
    >>> [t.macros for t in parse_templates("U01:%x[0,0]/%x[1,0]  # two words\nB")]
    [((0, 0), (1, 0)), ()]
    """
    return _parse(text.splitlines(), source, skip_outside=skip_outside)


def read_templates(path: str | Path) -> list[Template]:
    """Read a CRF++ template file: plain or gzip, UTF-8 (see `open_text`)."""
    with open_text(path) as lines:
        return _parse(lines, source_name(path))


def _parse(lines: Iterable[str], source: str, *, skip_outside: bool = False) -> list[Template]:
    """Return the templates of lines; errors name the line."""
    templates: dict[str, Template] = {}
    for n, line in enumerate(lines, start=1):
        kept = line.split("#")[0].strip()
        if kept in templates:
            raise DataError(f"{source}:{n}: the template {shorten(kept)} occurs twice: delete one.")
        if kept:
            templates[kept] = parse_template(kept, f"{source}:{n}", skip_outside=skip_outside)
    if not templates:
        raise DataError(f"{source}: expected at least one template, such as U00:%x[0,0], got none.")
    return list(templates.values())
