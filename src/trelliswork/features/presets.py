"""Predefined feature sets: columns derived from a word, and templates over them.

``chunking`` is the feature set of CRFsuite's chunking example (words and part-of-speech tags in a window of two, and
neighbors combined). ``pos`` and ``ner`` use the word, its neighbors, prefixes, suffixes and shape. ``letters`` uses
letters in a window, for grapheme-to-phoneme conversion. ``records`` is for tokens of short strings such as addresses:
words without the punctuation around them, that punctuation, and numbers of digits. With knowledge of words, all but
``letters`` have templates of it too.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.corpus import Column
from trelliswork.data.files import shorten
from trelliswork.errors import ValueRangeError
from trelliswork.features.knowledge import BITS, Knowledge
from trelliswork.features.templates import Template, parse_template


@dataclass(frozen=True)
class Preset:
    """Columns to add (each derived from a column of the data), and templates over all of them."""

    n_columns: int  # that the data must have; the added ones follow them
    derived: tuple[tuple[int, str], ...]  # column, and name as in DERIVED, or of knowledge of words
    templates: tuple[Template, ...] = ()


def shape(word: str) -> str:
    """Map letters to X and x, digits to 9, and shorten runs to two: ``McDonald's`` is ``XxXxx'x``."""
    return _shortened(word.translate(_ASCII_KINDS) if word.isascii() else "".join(map(_kind, word)))


def _kind(c: str) -> str:
    return "X" if c.isupper() else "x" if c.islower() else "9" if c.isdigit() else c


_ASCII_KINDS = {code: _kind(chr(code)) for code in range(128)}


@lru_cache(maxsize=10_000)  # few shapes are frequent
def _shortened(kinds: str) -> str:
    return re.sub(r"(.)\1\1+", r"\1\1", kinds)


def _affix(start: int | None, stop: int | None) -> Callable[[str], str]:
    return lambda word: word[start:stop].lower()


_AFFIXED = {
    "lower": str.lower,
    "shape": shape,
    **{f"prefix{n}": _affix(None, n) for n in range(1, 5)},
    **{f"suffix{n}": _affix(-n, None) for n in range(1, 5)},
}


def _bare(word: str) -> str:
    """Return a word in lower case without the punctuation around it."""
    return word.strip(_PUNCTUATION).lower() or word


def _digits(word: str) -> str:
    """Return the number of characters, and whether they are digits: ``9:5``, ``x:3``; ``9x`` if only some are."""
    bare = _bare(word)
    if bare.isdigit():
        return f"9:{len(bare)}"
    return "9x" if any(map(str.isdigit, bare)) else f"x:{min(len(bare), 9)}"


_PUNCTUATION = ".,;:()[]\"'"
DERIVED: dict[str, Callable[[str], str]] = _AFFIXED | {
    "bare": _bare,
    "end": lambda word: "".join(c for c in word[-2:] if c in _PUNCTUATION),
    "digits": _digits,
    "bare_prefix": lambda word: _bare(word)[:3],
    "bare_suffix": lambda word: _bare(word)[-3:],
}


def derive(
    columns: Sequence[Sequence[str]],
    preset: Preset,
    offsets: NDArray[np.int64] | None = None,
    knowledge: Knowledge | None = None,
    *,
    training: bool = False,
) -> list[Sequence[str]]:
    """Return the columns of a preset: the first ``n_columns`` of the data and those derived from them.

    Those that are not in ``DERIVED`` are knowledge of the words of sentences, which end at ``offsets``.
    """
    result: list[Sequence[str]] = list(columns[: preset.n_columns])
    for column, name in preset.derived:
        if name not in DERIVED:
            assert knowledge is not None
            assert offsets is not None
            result.append(knowledge.column(name, columns[column], offsets, training=training))
            continue
        result.append(_each(DERIVED[name], columns[column]))
    return result


def _each(function: Callable[[str], str], column: Sequence[str]) -> Sequence[str]:
    """Return the results of a function, called once for equal strings."""
    if isinstance(column, Column):
        return Column(list(map(function, column.distinct)), column.ids)
    known = {string: function(string) for string in dict.fromkeys(column)}
    return list(map(known.__getitem__, column))


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
_AFFIXES = tuple((0, name) for name in _AFFIXED)
_RECORD = ("bare", "end", "digits", "shape", "bare_prefix", "bare_suffix")
_WORD_LINES = [
    *_window(1, _AROUND, "lower"),
    *_joined(1, [(-1, 0), (0, 1)], "lower"),
    "U:word=%x[0,0]",
    *_window(2, (-1, 0, 1), "shape"),
    *[f"U:{name}=%x[0,{column}]" for column, name in enumerate(_AFFIXED, start=1) if "fix" in name],
    *_window(list(_AFFIXED).index("suffix3") + 1, (-1, 1), "suffix3"),
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
    "records": _build(
        1,
        tuple((0, name) for name in _RECORD),
        [
            *_window(1, _AROUND, "bare"),
            *_joined(1, [(-1, 0), (0, 1)], "bare"),
            *_window(2, (-2, -1, 0, 1), "end"),
            *_window(3, _AROUND, "digits"),
            *_joined(3, [(-1, 0, 1)], "digits"),
            *_window(4, (-1, 0, 1), "shape"),
            "U:prefix=%x[0,5]",
            *_window(6, (-1, 0, 1), "suffix"),
        ],
    ),
}


def preset(name: str, knowledge: Knowledge | None = None) -> Preset:
    """Return a preset by its name, with templates for the knowledge of words that there is."""
    if name not in PRESETS:
        raise ValueRangeError(
            f"features must be one of the presets {', '.join(PRESETS)}, templates, or the path of a template file, "
            f"got {shorten(name)}."
        )
    chosen = PRESETS[name]
    if not knowledge:
        return chosen
    if name == "letters":
        raise ValueRangeError("features='letters' has no words: leave out clusters=, vectors= and lexicon=.")
    lines = []
    if knowledge.clusters is not None:
        lines += [f"U:c{n}[0]=%c[0,{n}]" for n in BITS]
    kinds = {"c": knowledge.clusters, "v": knowledge.vectors, "l": knowledge.lexicon}
    lines += [f"U:{kind}[{row}]=%{kind}[{row}]" for kind, has in kinds.items() if has is not None for row in (-1, 0, 1)]
    return replace(chosen, templates=chosen.templates + tuple(parse_template(x, skip_outside=True) for x in lines))
