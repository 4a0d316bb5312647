"""Predefined feature sets: columns derived from a word, and templates over them.

``chunking`` is the feature set of CRFsuite's chunking example (words and part-of-speech tags in a window of two, and
neighbors combined). ``pos`` and ``ner`` use the word, its neighbors, prefixes, suffixes and shape. ``letters`` uses
letters in a window, for grapheme-to-phoneme conversion.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trelliswork.data.files import shorten
from trelliswork.errors import ValueRangeError
from trelliswork.features.templates import Template, parse_template


@dataclass(frozen=True)
class Preset:
    """Columns to add (each derived from a column of the data), and templates over all of them."""

    n_columns: int  # that the data must have; the added ones follow them
    derived: tuple[tuple[int, str], ...]  # column, and name as in DERIVED
    templates: tuple[Template, ...]


def shape(word: str) -> str:
    """Map letters to X and x, digits to 9, and shorten runs to two: ``McDonald's`` is ``XxXxx'x``."""
    kinds = "".join("X" if c.isupper() else "x" if c.islower() else "9" if c.isdigit() else c for c in word)
    return re.sub(r"(.)\1\1+", r"\1\1", kinds)


def _affix(start: int | None, stop: int | None) -> Callable[[str], str]:
    return lambda word: word[start:stop].lower()


DERIVED: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "shape": shape,
    **{f"prefix{n}": _affix(None, n) for n in range(1, 5)},
    **{f"suffix{n}": _affix(-n, None) for n in range(1, 5)},
}


def derive(columns: Sequence[Sequence[str]], preset: Preset) -> list[Sequence[str]]:
    """Return the columns of a preset: the first ``n_columns`` of the data and those derived from them."""
    result: list[Sequence[str]] = list(columns[: preset.n_columns])
    for column, name in preset.derived:
        function, known = DERIVED[name], {}
        for string in columns[column]:
            if string not in known:
                known[string] = function(string)
        result.append([known[string] for string in columns[column]])
    return result


def _window(column: int, rows: Sequence[int], name: str) -> list[str]:
    return [f"U:{name}[{row}]=%x[{row},{column}]" for row in rows]


def _joined(column: int, groups: Sequence[Sequence[int]], name: str) -> list[str]:
    return [
        "U:" + "|".join(f"{name}[{row}]" for row in rows) + "=" + "|".join(f"%x[{row},{column}]" for row in rows)
        for rows in groups
    ]


def _build(n_columns: int, derived: Sequence[tuple[int, str]], lines: Sequence[str]) -> Preset:
    ends = (
        Template("U:__BOS__", ("U:__BOS__",), (), where="first"),
        Template("U:__EOS__", ("U:__EOS__",), (), where="last"),
    )
    return Preset(n_columns, tuple(derived), (*(parse_template(line, skip_outside=True) for line in lines), *ends))


_AROUND = (-2, -1, 0, 1, 2)
_AFFIXES = tuple((0, name) for name in DERIVED)
_WORD_LINES = [
    *_window(1, _AROUND, "lower"),
    *_joined(1, [(-1, 0), (0, 1)], "lower"),
    "U:word=%x[0,0]",
    *_window(2, (-1, 0, 1), "shape"),
    *[f"U:{name}=%x[0,{column}]" for column, name in enumerate(DERIVED, start=1) if "fix" in name],
    *_window(list(DERIVED).index("suffix3") + 1, (-1, 1), "suffix3"),
]

PRESETS: dict[str, Preset] = {
    "chunking": _build(
        2,
        (),
        [
            *_window(0, _AROUND, "w"),
            *_joined(0, [(-1, 0), (0, 1)], "w"),
            *_window(1, _AROUND, "pos"),
            *_joined(1, [(-2, -1), (-1, 0), (0, 1), (1, 2), (-2, -1, 0), (-1, 0, 1), (0, 1, 2)], "pos"),
        ],
    ),
    "pos": _build(1, _AFFIXES, _WORD_LINES),
    "ner": _build(1, _AFFIXES, [*_WORD_LINES, *_joined(2, [(-1, 0), (0, 1), (-1, 0, 1)], "shape")]),
    "letters": _build(
        1,
        (),
        [
            *_window(0, range(-4, 5), "c"),
            *_joined(0, [tuple(range(i, i + n)) for n in (2, 3, 4) for i in range(-4, 6 - n)], "c"),
        ],
    ),
}


def preset(name: str) -> Preset:
    """Return a preset by its name."""
    if name not in PRESETS:
        raise ValueRangeError(
            f"features must be one of the presets {', '.join(PRESETS)}, templates, or the path of a template file, "
            f"got {shorten(name)}."
        )
    return PRESETS[name]
