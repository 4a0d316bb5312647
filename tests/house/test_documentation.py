"""Snippets and commands in the README and the documentation run and print the output shown."""

import doctest
import importlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import trelliswork
from tests.commands import run
from trelliswork import bundled

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Pages whose blocks run one after another.
IN_ORDER = [*sorted((ROOT / "docs" / "gallery").glob("*.md")), ROOT / "docs" / "extending.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A file that the commands and snippets of the page use: ```text title="names.conll"
FILE = re.compile(r"^```text title=\"([\w.]+)\"\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Commands on a data set in TRELLISWORK_DATA: ```console title="conll2002"
ON_DATA = re.compile(r"^```console title=\"(\w+)\"\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# The shell that pages use: echo or printf ... | trelliswork ..., trelliswork ... > FILE && wc -l FILE
SHELL = re.compile(r"(?:(?:echo|printf) '([^']*)' \| )?trelliswork (.*?)(?: > (\S+) && wc -l \3)?")


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows."""
    for name, content in FILE.findall(page.read_text(encoding="utf-8")):
        (folder / name).write_text(content, encoding="utf-8")


def snippets() -> list:
    """Return the Python blocks, each with the text block that follows it: its output."""
    cases = []
    for page in PAGES:
        parts = blocks(page)
        for n, (language, code) in enumerate(parts):
            if language == "python" and page not in IN_ORDER:
                output = parts[n + 1][1] if n + 1 < len(parts) and parts[n + 1][0] == "text" else ""
                cases.append(pytest.param(page, code, output, id=f"{page.name}:{n}"))
    return cases


# Blocks of shell that other tests run, by page and a word of the block, and the tests that run them.
ELSEWHERE = {
    ("records.md", "trelliswork records train"): "tests/cli/test_records.py",
    ("README.md", "make demo"): "tests/house/stranger.py",  # the first step of continuous integration
    ("README.md", "source .venv/bin/activate"): "tests/house/stranger.py",
    ("CONTRIBUTING.md", "make test"): "tests/house/stranger.py",
    ("install.md", "pip install ."): "tests/house/test_wheel.py",
    ("explore.md", "trelliswork explore"): "tests/house/test_shown_programs.py",
    ("explore.md", "curl"): "tests/house/test_shown_programs.py",
    ("label.md", "trelliswork label"): "tests/label/test_page.py",
    ("serving.md", "trelliswork serve"): "tests/house/test_shown_programs.py",
    ("serving.md", "curl"): "tests/serve/test_service.py",
    ("serving.md", "docker"): "tests/serve/test_image.py",
}


def shell_lines(code: str) -> list[str]:
    """Return the lines ``$ trelliswork ...``, possibly after a pipe, in their order."""
    lines = [line[2:].split("  #")[0].strip() for line in code.splitlines() if line.startswith("$ ")]
    return [line for line in lines if re.match(r"((echo|printf) .* \| )?trelliswork ", line)]


def test_every_block_of_shell_is_run():
    """A block is run here if all its lines start with ``$ trelliswork``, else by the test that is named above."""
    unclaimed = dict(ELSEWHERE)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for language, code in re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            if language in ("sh", "bash", "shell", "console"):
                lines = [line for line in code.splitlines() if line.startswith("$ ")]
                if language == "console" and lines and len(lines) == len(shell_lines(code)):
                    continue
                names = [key for key in ELSEWHERE if key[0] == page.name and key[1] in code]
                assert names, f"{page.name}: no test runs this block:\n{code}"
                unclaimed.pop(names[0], None)
    assert not unclaimed
    for file in set(ELSEWHERE.values()):
        assert (ROOT / file).exists(), file


def consoles() -> list:
    """Return the console blocks with lines ``$ trelliswork ...``."""
    cases = []
    for page in PAGES:
        for n, (language, code) in enumerate(blocks(page)):
            lines = shell_lines(code)
            if language == "console" and lines:
                cases.append(pytest.param(page, lines, id=f"{page.name}:{n}"))
    return cases


@pytest.mark.programs
@pytest.mark.parametrize(("page", "code", "output"), snippets())
def test_python_snippets_print_the_output_shown(page, code, output, tmp_path, monkeypatch):
    for name in re.findall(r"^# Needs (\w+)", code, re.MULTILINE):
        pytest.importorskip(name, reason=f"{name} is not installed")
    monkeypatch.chdir(tmp_path)  # for files that snippets write
    write_files(page, tmp_path)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "<snippet>", "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == output


@pytest.mark.programs
@pytest.mark.parametrize("page", IN_ORDER, ids=lambda p: p.name)
def test_pages_with_shared_names_run(page, tmp_path, monkeypatch):
    """Run the blocks of a page one after another, with shared names: outputs are those shown, pictures can be drawn."""
    gallery = site_module("gallery")
    monkeypatch.chdir(tmp_path)
    names, parts = {"__name__": "__main__"}, blocks(page)
    for n, (language, code) in enumerate(parts):
        if language == "python":
            printed, value = gallery.run_block(code, names)
            follows = n + 1 < len(parts) and parts[n + 1][0] == "text"
            assert printed == (parts[n + 1][1] if follows else "")
            assert value is None or value._repr_html_().startswith("<div")


@pytest.fixture
def few_sentences(monkeypatch):
    """Let commands read the first sentences of the bundled corpus only: pages show how they are called, not results."""
    load = bundled.load
    monkeypatch.setattr(bundled, "load", lambda split="train": load(split)[:200])


@pytest.mark.programs
@pytest.mark.parametrize(("page", "lines"), consoles())
@pytest.mark.usefixtures("few_sentences")
def test_shown_commands_run(page, lines, tmp_path):
    """Run each block in its own folder, with the files that the page shows, line by line."""
    write_files(page, tmp_path)
    run_lines(lines, tmp_path)


@pytest.mark.slow
@pytest.mark.programs
@pytest.mark.parametrize(
    ("folder", "code"), [found for page in PAGES for found in ON_DATA.findall(page.read_text(encoding="utf-8"))]
)
def test_shown_commands_run_on_real_data(folder, code, tmp_path):
    data = Path(os.environ.get("TRELLISWORK_DATA", "")) / folder
    if "TRELLISWORK_DATA" not in os.environ or not data.is_dir():
        pytest.skip(f"TRELLISWORK_DATA has no {folder}")
    for path in data.iterdir():
        (tmp_path / path.name).symlink_to(path)
    run_lines(shell_lines(code), tmp_path)


def run_lines(lines: list[str], tmp_path: Path) -> None:
    for line in lines:
        parts = SHELL.fullmatch(line)
        assert parts, f"{line}: a shell command of another form than SHELL"
        given, command, target = parts.groups()
        words = shlex.split(command)
        if words == ["warmup"]:
            words.append("mrf-lm")  # all kernels take minutes
        done = run(*words, input=f"{given or ''}\n".replace(r"\n", "\n"), cwd=tmp_path)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert done.stdout or words[0] == "warmup"
        if target:
            (tmp_path / target).write_text(done.stdout, encoding="utf-8")


def test_make_targets_on_pages_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = re.compile(r"(?:`|\$ )make ([a-z]+(?:-[a-z]+)*)")
    shown = {target for page in PAGES for target in command.findall(page.read_text(encoding="utf-8"))}
    assert {"demo", "docs", "test"} <= shown
    for target in shown:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_have_targets(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def site_module(name: str):
    """Import a module of the folder that builds the site, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "docs" / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_formula_can_be_rendered():
    maths = site_module("maths")
    drawn = 0
    for page in PAGES:
        for language, source in blocks(page):
            if language == "math":
                drawn += maths.display(source).count("<svg")
    assert drawn > 50


def test_formulas_keep_their_numbers():
    maths = site_module("maths")
    assert maths.lines(r"a \\ b \tag{2}") == [("a", ""), ("b", "2")]
    assert maths.lines("c &= d & (3)") == [("c = d", "3")]
    with pytest.raises(ValueError, match="nosuch"):
        maths.display(r"\nosuch{x}")


def test_equation_numbers_are_consecutive():
    for page in sorted((ROOT / "docs" / "maths").glob("*.md")):
        numbers = [int(n) for n in re.findall(r"\\tag\{(\d+)\}", page.read_text(encoding="utf-8"))]
        assert numbers == list(range(1, len(numbers) + 1)), page.name


def test_the_reference_has_every_public_name():
    shown = {
        name
        for page in (ROOT / "docs" / "api").glob("*.md")
        for name in re.findall(r"^::: trelliswork\.(\w+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    elsewhere = {"bundled", "machine", "rules", "TrellisworkError", "__version__"}  # documented with their modules
    assert set(trelliswork.__all__) - elsewhere <= shown


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    listed = set(re.findall(r"[\w/]+\.md", navigation))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert listed == pages | {"commands.md"}  # generated when the site is built


def test_promises_name_tests_that_exist():
    """On the page of reliability, each row of a table is a promise and the tests that hold it."""
    named = 0
    for row in (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").splitlines():
        if row.startswith("| ") and not row.startswith("| promise "):
            promises = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
            assert promises, row
            for file, name in promises:
                assert f"\ndef {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), (file, name)
            named += len(promises)
    assert named > 40


def test_the_page_of_commands_is_complete():
    page = site_module("commands").page()
    for name in ("tag", "train crf", "data bundled"):
        assert re.search(rf"^##+ {name}$", page, re.MULTILINE), name
    assert "| `--threads` N |" not in page.split("## tag")[0]
    assert "`--limit` N" in page
    assert "`--algorithm` lbfgs sgd perceptron |" in page
    assert "Ctrl-C stops after the current iteration" in page.split("### train crf")[1].split("###")[0]


@pytest.mark.slow
def test_the_site_builds_strictly_and_needs_no_network(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"([^\"]+)|<link[^>]*\shref=\"([^\"]+)", text)
        assert not [a or b for a, b in loaded if re.match(r"(https?:)?//", a or b)], page
    formulas = (tmp_path / "maths" / "chains.html").read_text(encoding="utf-8")
    assert formulas.count('class="formula"') > 10
    assert "LinearChain" in (tmp_path / "api" / "distributions.html").read_text(encoding="utf-8")
    for name in ("names", "evidence", "parsing"):
        gallery = (tmp_path / "gallery" / f"{name}.html").read_text(encoding="utf-8")
        assert gallery.count('class="trelliswork-display"') >= 2, name
        assert "PICTURE-OF-THE-GALLERY" not in gallery


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
