"""Pages of every family of models in a browser: nothing overflows, is fetched or logged."""

from pathlib import Path

import pytest

from tests.browser import WIDTHS
from tests.report.model_pages import KINDS, pages_of
from trelliswork.report import Page, bars, table


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.mark.parametrize("kind", KINDS)
def test_pages_of_models(kind, folder, open_page):
    for n, page in enumerate(pages_of(kind)):
        path = folder / f"{kind}-{n}.html"
        page.write(path)
        for width in WIDTHS:
            look(open_page, path, width)


def look(open_page, path: Path, width: int, scheme: str = "light"):
    """Open a page and check that nothing fails, is fetched or overflows."""
    opened = open_page(path, width, scheme=scheme)
    assert opened.errors == []
    assert opened.requests == [path.resolve().as_uri()]
    assert opened.overflow() <= 0, f"{path.name} is wider than {width} pixels"
    wide = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, svg') &&
              e.getBoundingClientRect().right > window.innerWidth + 1).map(e => e.tagName + e.className)"""
    assert opened.page.evaluate(wide) == []
    return opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_follow_the_scheme_and_are_readable(scheme, tmp_path, open_page):
    page = Page("Colors", lead="A lead.", facts=[("a", "1")])
    page.section("Section", "Words.", bars([("a", 1.0)]), table(["x"], [[1]]))
    page.write(tmp_path / "page.html")
    opened = look(open_page, tmp_path / "page.html", 1280, scheme)
    style = "getComputedStyle(document.{}).{}.match(/\\d+/g).slice(0, 3).map(Number)"
    back = opened.page.evaluate(style.format("body", "backgroundColor"))
    ink = opened.page.evaluate(style.format("querySelector('.note, .lead')", "color"))
    assert (sum(back) > 3 * 128) == (scheme == "light")
    assert contrast(back, ink) > 4.5  # WCAG AA


def contrast(one: list[int], two: list[int]) -> float:
    """Return the ratio of luminances as defined by WCAG."""

    def luminance(color: list[int]) -> float:
        linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)
