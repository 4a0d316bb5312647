"""Hooks of the site: formulas, and a page of all commands generated from the program."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

FOLDER = Path(__file__).parent


def _sibling(name: str) -> Any:
    """Import a module of this folder, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"trelliswork_site_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def on_config(config: Any) -> Any:
    """Render fences and inline code named ``math`` as formulas."""
    maths = _sibling("maths")
    fences = {"name": "math", "class": "math", "format": maths.fence}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fences]
    inline = {"name": "math", "class": "math", "format": maths.inline}
    config.mdx_configs.setdefault("pymdownx.inlinehilite", {})["custom_inline"] = [inline]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the page of commands."""
    files.append(File.generated(config, "commands.md", content=_sibling("commands").page()))
    return files


_pictures: dict[str, list[str]] = {}


def on_page_markdown(markdown: str, page: Any, **others: Any) -> str:
    """Run the blocks of a page of the gallery."""
    gallery = _sibling("gallery")
    if not page.file.src_uri.startswith(gallery.FOLDER):
        return markdown
    markdown, _pictures[page.file.src_uri] = gallery.with_pictures(markdown)
    return markdown


def on_page_content(html: str, page: Any, **others: Any) -> str:
    """Insert the pictures of a page of the gallery."""
    return _sibling("gallery").insert(html, _pictures.get(page.file.src_uri, []))
