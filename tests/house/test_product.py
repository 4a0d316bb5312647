"""What pip installs needs neither the clone nor a data set, and serves no paper's table and no old version."""

import io
import re
import subprocess
import sys
import tokenize

import pytest

from tests.conftest import ROOT
from tests.house.test_architecture import MODULES, SOURCE, imported, name_of
from tests.house.test_supply_chain import FORBID, WORK


def test_the_product_names_nothing_of_the_workshop():
    for path in MODULES:
        rooms = {name.split(".")[0] for name in imported(path)}
        assert not rooms & {"tests", "experiments", "benchmarks", "tools", "examples", "notes"}, name_of(path)
        text = path.read_text(encoding="utf-8")
        assert "TRELLISWORK_DATA" not in text, name_of(path)
        for levels in re.findall(r"__file__\)(?:\.resolve\(\))?\.parents\[(\d+)\]", text):
            assert int(levels) < len(path.relative_to(SOURCE).parts), f"{name_of(path)} looks outside of the package"


def test_every_module_is_used_by_the_product():
    """A module that only tests or the workshop import belongs there; references judge kernels."""
    wanted = {name for path in MODULES for name in imported(path)}
    quoted = set(re.findall(r'(\w+)[":]', "".join(path.read_text(encoding="utf-8") for path in MODULES)))
    documented = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    for path in MODULES:
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[-1] in ("__init__", "__main__", "reference"):
            continue
        name = ".".join(("trelliswork", *parts))
        assert name in wanted or parts[-1] in quoted or name in documented, f"nobody uses {name}"


@pytest.mark.programs
def test_it_reads_nothing_of_the_clone_but_itself(tmp_path):
    watch = f"""
import sys
def inside(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith({str(ROOT)!r}):
        if not arguments[0].startswith(({str(SOURCE)!r}, {str(ROOT / ".")!r} + "/.", {sys.prefix!r})):
            raise RuntimeError("opened " + arguments[0])
sys.addaudithook(inside)
"""
    done = subprocess.run([sys.executable, "-c", watch + FORBID + WORK], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


NEVER_RELEASED = re.compile(
    r"\b(deprecated|legacy|backwards?[- ]compatib\w*|formerly|older models|earlier version|old name of|renamed from)\b",
    re.IGNORECASE,
)


def test_no_code_serves_what_was_never_released():
    for path in MODULES:
        with io.StringIO(path.read_text(encoding="utf-8")) as text:
            for token in tokenize.generate_tokens(text.readline):
                if token.type in (tokenize.COMMENT, tokenize.STRING):
                    assert not NEVER_RELEASED.search(token.string), f"{name_of(path)}:{token.start[0]}: {token.string}"
