"""Markup that is safe by its type: what is no ``Html`` is text, and text is escaped."""

import html
import math
import re
import unicodedata
from typing import Any

# What XML cannot hold at all: control characters, halves of surrogate pairs.
_UNFIT = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufffe\\uffff]")
_VOID = {"meta", "link", "br"}


class Html(str):
    """Markup that may stand in a page as it is; made by the functions of this package only.

    Sums and slices of it are plain text again, and would be escaped: ``join`` puts pieces together.
    """

    __slots__ = ()


def text(value: object) -> Html:
    """Text as markup: ``Html`` as it is, all else escaped.

    Examples
    --------
    >>> text("<b> & 'co'")
    '&lt;b&gt; &amp; &#x27;co&#x27;'
    """
    return value if isinstance(value, Html) else Html(html.escape(_UNFIT.sub("\ufffd", str(value))))


def element(name: str, /, *children: object, **attributes: Any) -> Html:
    """An element. Children that are no ``Html`` are escaped; attributes that are None are left out.

    Names of attributes lose a last underscore (``class_``) and have hyphens for others; floats are rounded.

    Examples
    --------
    >>> element("text", "a < b", class_="tick", x=1.23456, stroke_width=2)
    '<text class="tick" x="1.23" stroke-width="2">a &lt; b</text>'
    """
    given = {k.removesuffix("_").replace("_", "-"): v for k, v in attributes.items() if v is not None}
    shown = "".join(f' {k}="{text(_plain(v))}"' for k, v in given.items())
    inner = "".join(text(child) for child in children)
    return Html(f"<{name}{shown}>" if name in _VOID else f"<{name}{shown}>{inner}</{name}>")


def _plain(value: Any) -> Any:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def join(parts: Any) -> Html:
    """Several pieces one after the other."""
    return Html("".join(text(part) for part in parts))


def svg(width: float, height: float, *children: object, label: str, class_: str = "") -> Html:
    """A picture of this size in its own units, with a text for those who cannot see it."""
    return element(
        "svg",
        *children,
        class_=class_ or None,
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
    )


def text_width(words: str, size: float = 14.0) -> float:
    """About how wide a text is in pixels; wide characters of East Asia count double, marks not at all."""
    units = 0.0
    for c in words:
        if not unicodedata.combining(c):
            units += 1.0 if unicodedata.east_asian_width(c) in "WF" else 0.66 if c.isupper() else 0.56
    return size * units


def shortened(words: str, most: int = 24) -> str:
    """A text of at most so many characters, its middle left out."""
    return words if len(words) <= most else f"{words[: most - 6]}…{words[-5:]}"


def number(value: Any, digits: int = 4) -> str:
    """A number for people: thousands apart, so many digits of a broken one.

    Examples
    --------
    >>> number(1234567), number(0.123456), number(1234.56), number(None), number(2e-9)
    ('1,234,567', '0.1235', '1,234.6', '–', '2e-09')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    value = float(value)
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "−∞" if value < 0 else "∞"
    size = abs(value)
    if size and size < 10.0**-digits:
        return f"{value:.2g}"
    return f"{value:,.{min(digits, 1) if size >= 1000 else digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share from 0 to 1 in percent.

    Examples
    --------
    >>> percent(0.12345), percent(None)
    ('12.3 %', '–')
    """
    return "–" if value is None else f"{100 * value:.{digits}f} %"
