"""Everything shown in the README and the documentation is run, and prints what is shown."""

import doctest
import importlib
import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import trelliswork

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def snippets() -> list:
    """Python blocks, each with the text block right behind it: its output."""
    found = []
    for page in PAGES:
        these = blocks(page)
        for n, (language, code) in enumerate(these):
            if language == "python":
                output = these[n + 1][1] if n + 1 < len(these) and these[n + 1][0] == "text" else ""
                found.append(pytest.param(code, output, id=f"{page.name}:{n}"))
    return found


def consoles() -> list:
    """Console blocks with lines ``$ trelliswork ...`` (perhaps behind a pipe), in their order."""
    found = []
    for page in PAGES:
        for n, (language, code) in enumerate(blocks(page)):
            lines = [line[2:].split("  #")[0].strip() for line in code.splitlines() if line.startswith("$ ")]
            lines = [line for line in lines if re.match(r"(echo .* \| )?trelliswork ", line)]
            if language == "console" and lines:
                found.append(pytest.param(lines, id=f"{page.name}:{n}"))
    return found


@pytest.mark.parametrize(("code", "output"), snippets())
def test_python_snippets_print_what_is_shown(code, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where they may write
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "<snippet>", "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == output


@pytest.mark.parametrize("lines", consoles())
def test_shown_commands_run(lines, tmp_path):
    """Each block in a folder of its own, line after line, in a shell that knows our command."""
    binary = tmp_path / "bin" / "trelliswork"
    binary.parent.mkdir()
    binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trelliswork "$@"\n')
    binary.chmod(0o755)
    environment = os.environ | {"PATH": f"{binary.parent}:{os.environ['PATH']}"}
    for line in lines:
        if line.startswith("trelliswork bench"):
            line += " --help"  # the benchmarks themselves take minutes, and peers that the tests do not install
        run = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert run.returncode == 0, f"{line}: {run.stderr}"
        assert run.stdout or line == "trelliswork warmup"


def test_make_targets_that_are_shown_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = {t for page in PAGES for t in re.findall(r"make ([a-z]+(?:-[a-z]+)*)", page.read_text(encoding="utf-8"))}
    prose = {"a"}  # "make a ..." in running text
    for target in shown - prose:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def modules_with_examples() -> list[str]:
    source = Path(trelliswork.__file__).parent
    return [
        ".".join(path.relative_to(source.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(source.rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
