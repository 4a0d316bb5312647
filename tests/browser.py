"""A headless browser for tests of pages, which are skipped without playwright or Chromium.

``tests/conftest.py`` imports the fixtures ``browser`` and ``open_page`` for all tests.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTHS = (1280, 390)  # desktop and phone


@dataclass
class Opened:
    """A page in a browser, with its errors and requests.

    Attributes
    ----------
    page : playwright.sync_api.Page
        The page, for clicking, typing and reading.
    errors : list of str
        Console errors, uncaught exceptions and failed requests.
    requests : list of str
        Requested addresses, starting with the page's own.
    """

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def overflow(self) -> int:
        """Return the number of pixels by which the document is wider than the window; 0 or less if it fits."""
        return self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


@pytest.fixture(scope="module")  # not session: its event loop would conflict with tests that run their own
def browser() -> Iterator[Any]:
    """Yield a playwright ``Browser``: headless Chromium."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (make test-all installs it)")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Yield ``open_page(path_or_url, width=1280, height=900, scheme="light")``, which returns an ``Opened``."""
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
