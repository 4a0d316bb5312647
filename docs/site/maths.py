"""Formulas as inline SVG by matplotlib, at build time: a page needs neither a network nor a script to show them."""

import html
import io
import re
from functools import cache
from typing import Any
from zlib import crc32

SIZE = 12.5  # points
# What matplotlib's mathtext does not know, in words that it does; GitHub knows both.
OTHER_NAMES = [
    (re.compile(r"\\[bB]ig+[lrm]?(?![a-zA-Z])\s*"), ""),
    (re.compile(r"\\[lr]Vert(?![a-zA-Z])"), r"\\|"),
    (re.compile(r"\\(textstyle|displaystyle|nonumber)(?![a-zA-Z])"), ""),
    (re.compile(r"\\tfrac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\(le|ge|ne)(?![a-zA-Z])"), r"\\\1q"),
    (re.compile(r"\\neqq"), r"\\neq"),
    (re.compile(r"\\iff(?![a-zA-Z])"), r"\\Leftrightarrow"),
    # and a little air behind large operators
    (re.compile(r"(\\(?:sum|prod|max|min)(?:_(?:\{[^{}]*\}|\\?\w+))?(?:\^(?:\{[^{}]*\}|\w))?)"), r"\1\\,"),
]
NUMBER = re.compile(r"\\tag\{([^}]*)\}|\s&?\s*\((\d+[a-z]?)\)\s*\.?\s*$")


@cache
def svg(formula: str, size: float = SIZE) -> str:
    """One formula as an ``<svg>`` in the colour of the text around it; ValueError where it cannot be read."""
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
    prefix = f"m{crc32(formula.encode()):x}"  # all pictures of a page share one space of ids
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}", text)
    text = re.sub(r"<g id=\"[^\"]*patch_1\">.*?</g>", "", text, flags=re.DOTALL)  # the white background
    label = html.escape(formula, quote=True)
    head = f'<svg role="img" aria-label="{label}" style="vertical-align:{-depth:.1f}pt;fill:currentColor" '
    return text.replace("<svg ", head, 1).replace("\n", "")


def lines(source: str) -> list[tuple[str, str]]:
    r"""The formulas of a display, with their numbers: lines end in ``\\``; ``\tag{1}`` or a final ``(1)`` numbers."""
    found = []
    for line in re.split(r"\\\\(?![a-zA-Z|])", source):
        number = NUMBER.search(line)
        rest = NUMBER.sub("", line).replace("&", "").strip()
        if rest:
            found.append((rest, "" if number is None else number.group(1) or number.group(2)))
    return found


def display(source: str, strict: bool = True) -> str:
    """A display of formulas as HTML; what cannot be read is shown as it is written, or refused if ``strict``."""
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
    """The fence ``math`` of ``pymdownx.superfences``."""
    return display(source, strict=False)


def inline(source: str, language: str, css_class: str, md: Any) -> Any:
    """A formula inside a line, for ``pymdownx.inlinehilite``: written ```#!math ...```."""
    try:
        return md.htmlStash.store(svg(source, 10.5))
    except ValueError:
        return md.htmlStash.store(f"<code>{html.escape(source)}</code>")
