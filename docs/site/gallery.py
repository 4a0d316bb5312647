"""Run the pages of the gallery like notebooks: the last value of a block is shown as a picture below it.

The blocks of a page share their names. The site has the pictures (``hooks.py``); tests compare what the blocks print
with the text blocks of the page. Pictures are those that notebooks show, and are never stored in the repository.
"""

import ast
import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FOLDER = "gallery/"


def run_block(code: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a block; return what it prints and the value of its last line, ``None`` if that is no expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, "<gallery>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<gallery>", "eval"), names)
    return printed.getvalue(), value


def with_pictures(text: str) -> tuple[str, list[str]]:
    """Return the page with a marker below each block that ends in a picture, and the pictures."""
    pictures: list[str] = []
    names: dict[str, Any] = {"__name__": "__main__"}

    def add(found: re.Match[str]) -> str:
        _, value = run_block(found[1], names)
        if not hasattr(value, "_repr_html_"):
            return found[0]
        pictures.append(value._repr_html_())
        return f"{found[0]}\n\n{marker(len(pictures) - 1)}\n"

    with elsewhere():
        return BLOCK.sub(add, text), pictures


def marker(n: int) -> str:
    """Return the text that stands for picture n until the page is HTML."""
    return f"PICTURE-OF-THE-GALLERY-{n}"


def insert(html: str, pictures: list[str]) -> str:
    """Replace the markers by the pictures, in light colors, which they have on pages of either kind."""
    for n, picture in enumerate(pictures):
        html = html.replace(f"<p>{marker(n)}</p>", f'<div data-theme="light">{picture}</div>')
    return html


@contextmanager
def elsewhere() -> Iterator[None]:
    """Work in a temporary folder, for files that blocks write."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
