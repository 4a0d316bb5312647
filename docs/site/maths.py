"""Render formulas as inline SVG with matplotlib when the site is built, so that pages need no scripts or network."""

import html
import io
import re
from functools import cache
from typing import Any
from zlib import crc32

SIZE = 12.5  # points
# Commands that matplotlib's mathtext lacks, with replacements; GitHub supports both.
OTHER_NAMES = [
    (re.compile(r"\\[bB]ig+[lrm]?(?![a-zA-Z])\s*"), ""),
    (re.compile(r"\\[lr]Vert(?![a-zA-Z])"), r"\\|"),
    (re.compile(r"\\(textstyle|displaystyle|nonumber)(?![a-zA-Z])"), ""),
    (re.compile(r"\\tfrac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\(le|ge|ne)(?![a-zA-Z])"), r"\\\1q"),
    (re.compile(r"\\neqq"), r"\\neq"),
    (re.compile(r"\\iff(?![a-zA-Z])"), r"\\Leftrightarrow"),
    # a thin space after large operators
    (re.compile(r"(\\(?:sum|prod|max|min)(?:_(?:\{[^{}]*\}|\\?\w+))?(?:\^(?:\{[^{}]*\}|\w))?)"), r"\1\\,"),
]
NUMBER = re.compile(r"\\tag\{([^}]*)\}|\s&?\s*\((\d+[a-z]?)\)\s*\.?\s*$")


@cache
def svg(formula: str, size: float = SIZE) -> str:
    """Return a formula as an ``<svg>`` in the color of the surrounding text; ValueError if it cannot be parsed."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import math_to_image

    for pattern, name in OTHER_NAMES:
        formula = pattern.sub(name, formula)
    stream = io.StringIO()
    try:
        depth = math_to_image(
            f"${' '.join(formula.split())}$",
            stream,
            prop=FontProperties(size=size, math_fontfamily="stix"),
            format="svg",
        )
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{formula}: {error}") from None
    drawn = re.search(r"<svg.*</svg>", stream.getvalue(), re.DOTALL)
    assert drawn is not None
    text = re.sub(r"<metadata>.*?</metadata>", "", drawn.group(), flags=re.DOTALL)
    prefix = f"m{crc32(formula.encode()):x}"  # ids must be unique on a page
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}", text)
    text = re.sub(r"<g id=\"[^\"]*patch_1\">.*?</g>", "", text, flags=re.DOTALL)  # the white background
    label = html.escape(formula, quote=True)
    head = f'<svg role="img" aria-label="{label}" style="vertical-align:{-depth:.1f}pt;fill:currentColor" '
    return text.replace("<svg ", head, 1).replace("\n", "")


def lines(source: str) -> list[tuple[str, str]]:
    r"""Return the formulas of a display, separated by ``\\``, with their numbers (``\tag{1}`` or a final ``(1)``)."""
    formulas = []
    for line in re.split(r"\\\\(?![a-zA-Z|])", source):
        number = NUMBER.search(line)
        rest = NUMBER.sub("", line).replace("&", "").strip()
        if rest:
            formulas.append((rest, "" if number is None else number.group(1) or number.group(2)))
    return formulas


def display(source: str, strict: bool = True) -> str:
    """Return a display of formulas as HTML; an unreadable one raises an error if ``strict``, else is shown as code."""
    rows = []
    for formula, number in lines(source):
        try:
            shown = svg(formula.replace(r"\frac", r"\dfrac"))
        except ValueError:
            if strict:
                raise
            shown = f"<code>{html.escape(formula)}</code>"
        rows.append(f'<div class="formula"><div>{shown}</div><span>{f"({number})" if number else ""}</span></div>')
    return "".join(rows)


def fence(source: str, language: str, css_class: str, options: dict[str, Any], md: Any, **_: Any) -> str:
    """Render the fence ``math`` of ``pymdownx.superfences``."""
    return display(source, strict=False)


def inline(source: str, language: str, css_class: str, md: Any) -> Any:
    """Render an inline formula, written ```#!math ...```, for ``pymdownx.inlinehilite``."""
    try:
        return md.htmlStash.store(svg(source, 10.5))
    except ValueError:
        return md.htmlStash.store(f"<code>{html.escape(source)}</code>")
