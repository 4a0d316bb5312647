"""Imports point one way, modules stay small, the first import is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trelliswork

SOURCE = Path(trelliswork.__file__).parent
BELOW = {  # docs/architecture.md, column "may import"
    "errors": set(),
    "data": {"errors"},
    "features": {"data", "errors"},
    "inference": {"errors"},
    "distributions": {"inference", "errors"},
    "learning": {"data", "distributions", "inference", "errors"},
    "models": {"learning", "distributions", "inference", "features", "data", "errors"},
    "report": {"models", "learning", "distributions", "inference", "features", "data", "errors"},
    "experiments": {"report", "models", "learning", "distributions", "inference", "features", "data", "errors"},
    "explore": {"report", "models", "learning", "distributions", "inference", "features", "data", "errors"},
}
MODULES = sorted(SOURCE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in ("cli", "__init__", "__main__"):
        return
    rooms = {name.split(".")[1] for name in imported(path) if name.startswith("trelliswork.") and "__" not in name}
    assert rooms - {room} <= BELOW[room]


def test_the_table_in_the_documentation_is_the_one_checked_here():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {}
    for line in page.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            rows[cells[0].strip("`/")] = cells[2]
    previous: set[str] = set()
    for room, allowed in BELOW.items():
        if rows[room] == "all above":
            assert allowed == previous
        else:
            assert allowed == {w.strip("`") for w in rows[room].split(", ") if w != "nothing"}
        previous = previous | {room}


def test_no_pickle_and_no_eval():
    for path in MODULES:
        assert not imported(path) & {"pickle", "dill", "cloudpickle", "shelve", "marshal"}, path
        calls = [
            n.func.id
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        ]
        assert not {"eval", "exec"} & set(calls), path


def test_modules_stay_small():
    long = {str(p.relative_to(SOURCE)): n for p in MODULES if (n := len(p.read_text().splitlines())) > 400}
    assert not long


def test_the_first_import_loads_nothing_heavy():
    code = "import sys, trelliswork; print([m for m in ('numpy', 'numba', 'torch', 'rich') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    code = "import sys, trelliswork.cli; print([m for m in ('numpy', 'numba', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_public_names_exist_and_are_listed():
    assert set(dir(trelliswork)) == set(trelliswork.__all__)
    for name in trelliswork.__all__:
        assert getattr(trelliswork, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        trelliswork.nothing  # noqa: B018
