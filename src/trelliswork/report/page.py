"""Self-contained pages: one HTML file that fetches nothing and runs no script, with all text escaped.

Markup is safe by its type: a value that is not `Html` is text, and text is escaped.
"""

import html
import math
import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trelliswork.data.files import atomic_write

# Whatever a corpus contains, the browser runs and fetches nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# Characters that XML does not allow: control characters and unpaired surrogates.
_INVALID = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufffe\\uffff]")
_VOID = {"meta", "link", "br"}
_HERE = Path(__file__).parent


class Html(str):
    """Markup that is put into a page unchanged; made only by the functions of this package.

    Sums and slices are plain text again and would be escaped: use ``join`` to combine pieces.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the piece with its style, as notebooks show it."""
        from trelliswork.report.notebooks import framed  # which imports this module

        return framed(self)


Section = tuple[str, str, Sequence[object]]  # title, note, blocks


def text(value: object) -> Html:
    """Return text as markup: ``Html`` unchanged, anything else escaped.

    Examples
    --------
    >>> text("<b> & 'co'")
    '&lt;b&gt; &amp; &#x27;co&#x27;'
    """
    return value if isinstance(value, Html) else Html(html.escape(_INVALID.sub("\ufffd", str(value))))


def element(name: str, /, *children: object, **attributes: Any) -> Html:
    """Return an element. Children that are not ``Html`` are escaped; attributes that are ``None`` are left out.

    A trailing underscore of an attribute's name is removed (``class_``), others become hyphens; floats are rounded.

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
    """Concatenate pieces of markup or text."""
    return Html("".join(text(part) for part in parts))


def svg(width: float, height: float, *children: object, label: str, class_: str = "") -> Html:
    """Return a picture of a given size in its own units; ``label`` describes it for screen readers."""
    size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
    about = {"role": "img", "aria_label": label, "xmlns": "http://www.w3.org/2000/svg"}
    return element("svg", *children, class_=class_ or None, **size, **about)


def text_width(words: str, size: float = 14.0) -> float:
    """Return the approximate width of a text in pixels; East Asian wide characters count double, marks nothing."""
    units = 0.0
    for c in words:
        if not unicodedata.combining(c):
            units += 1.0 if unicodedata.east_asian_width(c) in "WF" else 0.66 if c.isupper() else 0.56
    return size * units


def shortened(words: str, most: int = 24) -> str:
    """Return a text of at most ``most`` characters; the middle of longer ones is left out."""
    return words if len(words) <= most else f"{words[: most - 6]}…{words[-5:]}"


def number(value: Any, digits: int = 4) -> str:
    """Format a number: separators between thousands, ``digits`` decimals for a float.

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
    """Format a fraction between 0 and 1 as a percentage.

    Examples
    --------
    >>> percent(0.12345), percent(None)
    ('12.3 %', '–')
    """
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def scroll(*blocks: object, label: str) -> Html:
    """Return a scrollable box for content that may be wider than the page; it can be focused with the keyboard."""
    return element("div", *blocks, class_="scroll", tabindex="0", role="region", aria_label=label)


def side_by_side(*blocks: object) -> Html:
    """Place blocks next to each other if there is room, otherwise below each other."""
    shown = [block for block in blocks if block]
    return element("div", *(element("div", block) for block in shown), class_="row") if shown else Html("")


def figure(picture: object, title: str = "", note: object = "") -> Html:
    """Return a picture with a title above and a note below."""
    above = element("p", title, class_="figure-title") if title else ""
    return element("figure", above, picture, element("figcaption", note) if note else "")


def stylesheet() -> str:
    """Return the style of pages: what all faces of the package have in common, then their own."""
    return "".join((_HERE / name).read_text(encoding="utf-8") for name in ("shared/theme.css", "style.css"))


class Page:
    """A page with a title, a few facts at the top, and sections.

    Parameters
    ----------
    title : str
    lead : str
        One or two sentences below the title.
    facts : sequence of (name, value)
        Three to six formatted values, shown large at the top.
    footer : str
        Last line.

    Examples
    --------
    >>> page = Page("A tagger", lead="Trained on 3 sentences.", facts=[("accuracy", "97.1 %")])
    >>> page.section("Words", "Some of <them>.")
    >>> "Some of &lt;them&gt;." in page.render()
    True
    """

    def __init__(
        self, title: str, *, lead: str = "", facts: Sequence[tuple[str, str]] = (), footer: str = "trelliswork"
    ) -> None:
        self.title, self.lead, self.facts, self.footer = title, lead, list(facts), footer
        self._sections: list[Section] = []

    def section(self, title: str, *blocks: object, note: str = "") -> None:
        """Add a section.

        Parameters
        ----------
        title : str
        *blocks : Html or str
            Charts, trees and tables of this package; a str becomes a paragraph. Without blocks no section is added.
        note : str
            One or two sentences below the title.
        """
        shown = tuple(block if isinstance(block, Html) else element("p", block) for block in blocks if block)
        if shown:
            self._sections.append((title, note, shown))

    def extend(self, sections: Sequence[Section]) -> None:
        """Add sections (title, note, blocks)."""
        for title, note, blocks in sections:
            self.section(title, *blocks, note=note)

    def render(self) -> str:
        """Return the page as HTML."""
        cards = [element("div", element("dt", name), element("dd", value)) for name, value in self.facts]
        sections, links = [], []
        for k, (title, note, blocks) in enumerate(self._sections, start=1):
            heading = element("h2", title, id=f"s{k}-title")
            above = element("p", note, class_="note") if note else ""
            sections.append(element("section", heading, above, *blocks, id=f"s{k}", aria_labelledby=f"s{k}-title"))
            links.append(element("li", element("a", title, href=f"#s{k}")))
        head = [
            element(
                "p",
                Html((_HERE / "shared" / "icon.svg").read_text(encoding="utf-8").strip()),
                "Trelliswork",
                class_="brand",
            ),
            element("h1", self.title),
            element("p", self.lead, class_="lead") if self.lead else "",
            element("dl", *cards, class_="cards") if cards else "",
            element("nav", element("ul", *links), aria_label="Sections") if len(links) > 2 else "",
        ]
        body = element(
            "body", element("header", *head), element("main", *sections), element("footer", element("p", self.footer))
        )
        top = element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=POLICY),
            element("link", rel="icon", href="data:,"),  # otherwise a browser requests one
            element("title", f"{self.title} · trelliswork"),
            element("style", Html(stylesheet())),
        )
        return f"<!doctype html>\n{element('html', top, body, lang='en')}\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, completely or not at all."""
        with atomic_write(path) as stream:
            stream.write(self.render())
