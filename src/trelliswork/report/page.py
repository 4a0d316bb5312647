"""One self-contained page: nothing is fetched, no script runs, and text is text."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trelliswork.data.files import atomic_write
from trelliswork.report.markup import Html, element, join

# Whatever a corpus holds, a browser runs and fetches nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class _Section:
    title: str
    note: str
    blocks: tuple[Html, ...]
    name: str


class Page:
    """A page with a title, a few facts at its head, and sections.

    Parameters
    ----------
    title : str
    lead : str
        A sentence or two below it.
    facts : sequence of (name, value)
        Shown large at the head: three to six of them. Values are texts, already as people want them.
    footer : str
        A last line.

    Examples
    --------
    >>> page = Page("A tagger", lead="Learned from 3 sentences.", facts=[("accuracy", "97.1 %")])
    >>> page.section("Words", "Some of <them>.")
    >>> "Some of &lt;them&gt;." in page.render()
    True
    """

    def __init__(
        self, title: str, *, lead: str = "", facts: Sequence[tuple[str, str]] = (), footer: str = "trelliswork"
    ) -> None:
        self.title, self.lead, self.facts, self.footer = title, lead, list(facts), footer
        self._sections: list[_Section] = []

    def section(self, title: str, *blocks: object, note: str = "") -> None:
        """Add a section.

        Parameters
        ----------
        title : str
        *blocks : Html or str
            Charts, trees and tables of this package; a str becomes a paragraph. Without any there is no section.
        note : str
            What is seen here, in a sentence or two below the title.
        """
        shown = tuple(block if isinstance(block, Html) else element("p", block) for block in blocks if block)
        if shown:
            self._sections.append(_Section(title, note, shown, f"s{len(self._sections) + 1}"))

    def extend(self, sections: "Sequence[tuple[str, str, Sequence[object]]]") -> None:
        """Add sections (title, note, blocks)."""
        for title, note, blocks in sections:
            self.section(title, *blocks, note=note)

    def render(self) -> str:
        """The page as HTML."""
        cards = [element("div", element("dt", name), element("dd", value)) for name, value in self.facts]
        links = [element("li", element("a", s.title, href=f"#{s.name}")) for s in self._sections]
        head = [
            element("p", "trelliswork", class_="brand"),
            element("h1", self.title),
            element("p", self.lead, class_="lead") if self.lead else "",
            element("dl", *cards, class_="cards") if cards else "",
            element("nav", element("ul", *links), aria_label="Sections") if len(links) > 2 else "",
        ]
        sections = [
            element(
                "section",
                element("h2", s.title, id=f"{s.name}-title"),
                element("p", s.note, class_="note") if s.note else "",
                *s.blocks,
                id=s.name,
                aria_labelledby=f"{s.name}-title",
            )
            for s in self._sections
        ]
        body = element(
            "body", element("header", *head), element("main", *sections), element("footer", element("p", self.footer))
        )
        top = element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=POLICY),
            element("link", rel="icon", href="data:,"),  # or a browser would ask for one
            element("title", f"{self.title} · trelliswork"),
            element("style", Html(_style())),
        )
        return f"<!doctype html>\n{element('html', top, body, lang='en')}\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, which is there whole or not at all."""
        with atomic_write(path) as stream:
            stream.write(self.render())


def _style() -> str:
    return Path(__file__).with_name("style.css").read_text(encoding="utf-8")


def scroll(*blocks: object, label: str) -> Html:
    """A box of its own for what may be wider than the page; reachable by keyboard."""
    return element("div", *blocks, class_="scroll", tabindex="0", role="region", aria_label=label)


def side_by_side(*blocks: object) -> Html:
    """Pieces beside each other where there is room, else one below the other."""
    shown = [block for block in blocks if block]
    return element("div", *(element("div", block) for block in shown), class_="row") if shown else Html("")


def figure(picture: object, title: str = "", note: object = "") -> Html:
    """A picture with its title above and a note below."""
    parts: list[object] = []
    if title:
        parts.append(element("p", title, class_="figure-title"))
    parts.append(picture)
    if note:
        parts.append(element("figcaption", note))
    return element("figure", join(parts))
