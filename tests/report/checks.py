"""What is true of every page and every picture in it."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "link", "br"}


class _Balance(HTMLParser):
    """Every element that is opened is closed, in order; attributes and text are kept."""

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
    """All SVG pictures, read as XML, which fails if they are not well-formed."""
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", markup, flags=re.DOTALL)]


def check_page(page: str) -> _Balance:
    """A page is balanced, fetches nothing and runs nothing, and its pictures are well-formed XML without nan."""
    found = _Balance()
    found.feed(page)
    found.close()
    assert not found.open
    names = {tag for tag, _ in found.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "form", "base"}
    for tag, attributes in found.tags:
        assert not any(name.startswith("on") for name in attributes), attributes
        for name in ("src", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or (tag, value) == ("link", "data:,")
    assert "url(" not in page
    assert "@import" not in page
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for picture in pictures(page):
        check_picture(picture)
    return found


def check_picture(picture: ElementTree.Element) -> None:
    """Numbers are finite, and what is placed lies inside the box."""
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
