"""A browser without a window, for tests of pages; they are skipped where playwright or Chromium is absent.

``tests/conftest.py`` makes the fixtures known everywhere: ``browser`` and ``open_page``.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTHS = (1280, 390)  # a desk's and a phone's


@dataclass
class Opened:
    """A page in a browser, and what it did.

    Attributes
    ----------
    page : playwright.sync_api.Page
        To click, type and read.
    errors : list of str
        Errors on the console, uncaught exceptions, requests that failed.
    requests : list of str
        Addresses that were asked for, the page's own first.
    """

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def overflow(self) -> int:
        """By how many pixels the document is wider than the window; 0 or less is well."""
        return self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


@pytest.fixture(scope="module")  # not the session: its event loop would stand in the way of tests that have their own
def browser() -> Iterator[Any]:
    """A playwright ``Browser``: Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (make test-all installs it)")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    """``open_page(path_or_url, width=1280, height=900, scheme="light")`` gives an ``Opened``, closed after the test."""
    contexts = []

    def open_one(where: str | Path, width: int = 1280, height: int = 900, scheme: str = "light") -> Opened:
        address = where if isinstance(where, str) and "://" in where else Path(where).resolve().as_uri()
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        opened = Opened(context.new_page())
        page = opened.page
        page.on("console", lambda m: opened.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: opened.errors.append(str(error)))
        page.on("requestfailed", lambda request: opened.errors.append(f"failed: {request.url}"))
        page.on("request", lambda request: opened.requests.append(request.url))
        page.goto(address)
        return opened

    yield open_one
    for context in contexts:
        context.close()
