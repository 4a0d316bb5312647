"""Checks of every page and every picture in it."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "link", "br"}


class _Balance(HTMLParser):
    """Check that elements are closed in order; collect attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def pictures(markup: str) -> list[ElementTree.Element]:
    """Return all SVG pictures, parsed as XML; an error if one is not well-formed."""
    return [ElementTree.fromstring(picture) for picture in re.findall(r"<svg.*?</svg>", markup, flags=re.DOTALL)]


def check_page(page: str) -> _Balance:
    """Check that a page is balanced, fetches and runs nothing, and that its pictures are well-formed, without nan."""
    parser = _Balance()
    parser.feed(page)
    parser.close()
    assert not parser.open
    names = {tag for tag, _ in parser.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "form", "base"}
    for tag, attributes in parser.tags:
        assert not any(name.startswith("on") for name in attributes), attributes
        for name in ("src", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or (tag, value) == ("link", "data:,")
    assert "url(" not in page
    assert "@import" not in page
    ids = [attributes["id"] for _, attributes in parser.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for picture in pictures(page):
        check_picture(picture)
    return parser


def check_picture(picture: ElementTree.Element) -> None:
    """Check that numbers are finite and shapes are inside the box."""
    width, height = (float(x) for x in picture.attrib["viewBox"].split()[2:])
    assert width > 0 < height
    for node in picture.iter():
        for name in ("x", "y", "cx", "cy", "width", "height", "r", "fill-opacity", "stroke-opacity", "d"):
            value = node.attrib.get(name, "")
            assert "nan" not in value
            assert "inf" not in value
        if node.tag.endswith(("circle", "rect", "text")) and "transform" not in node.attrib:
            x = float(node.attrib.get("cx", node.attrib.get("x", 0)))
            y = float(node.attrib.get("cy", node.attrib.get("y", 0)))
            assert -0.01 <= x <= width + 0.01, (x, width)
            assert -0.01 <= y <= height + 0.01, (y, height)
