"""The laws of the source tree: where a line lives, which way imports point, and how much is loaded."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trelliswork

SOURCE = Path(trelliswork.__file__).parent
TESTS = Path(__file__).parents[1]
BELOW = {  # docs/architecture.md, column "may import"
    "errors": set(),
    "compute": {"errors"},
    "machine": {"compute", "errors"},
    "data": {"compute", "errors"},
    "features": {"data", "compute", "errors"},
    "inference": {"compute", "errors"},
    "rules": {"inference", "data", "compute", "errors"},
    "distributions": {"rules", "inference", "compute", "errors"},
    "learning": {"data", "compute", "errors"},
    "metrics": {"data", "compute", "errors"},
}
BELOW["models"] = set(BELOW)
BELOW["answers"] = {*BELOW["models"], "models"}
BELOW["evaluation"] = {*BELOW["answers"], "answers"}
BELOW["report"] = {*BELOW["evaluation"], "evaluation"}
BELOW["serve"] = {*BELOW["report"], "report"}
BELOW["integrations"] = {*BELOW["report"], "report"}
BELOW["compat"] = {*BELOW["report"], "report", "integrations"}
BELOW["records"] = {*BELOW["report"], "report"}
BELOW["label"] = {*BELOW["report"], "report", "serve", "integrations"}
DOORS = {"models/tasks.py": {"answers"}}  # `answer` and what it returns are one room above the models
FAMILIES = {  # families, and the families that they may import
    "baselines": set(),
    "crf": set(),
    "factorial": {"crf"},
    "hmm": set(),
    "hmm_lm": {"hmm"},
    "mrf": set(),
    "mrf_tagger": {"hmm"},
    "parser": {"crf", "hmm"},
    "pcfg": set(),
}
STRUCTURES = ("alignment", "chain", "chain/beam", "factorial", "graph", "lifted", "lowrank", "segment", "span", "tree")
MODULES = sorted(SOURCE.rglob("*.py"))
MAX_MODULES, MAX_PARAMETERS = 20, 10


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in ("cli", "__init__", "__main__"):
        return
    rooms = {name.split(".")[1] for name in imported(path) if name.startswith("trelliswork.") and "__" not in name}
    assert rooms - {room} <= BELOW[room] | DOORS.get(name_of(path), set())


def test_families_are_folders_that_do_not_import_each_other():
    assert {p.name for p in (SOURCE / "models").iterdir() if (p / "__init__.py").exists()} == set(FAMILIES)
    for path in MODULES:
        parts = path.relative_to(SOURCE).parts
        if parts[0] != "models" or len(parts) < 3:
            continue
        others = {n.split(".")[2] for n in imported(path) if n.startswith("trelliswork.models.") and n.count(".") > 1}
        assert others & set(FAMILIES) - {parts[1]} <= FAMILIES[parts[1]], name_of(path)


def test_the_table_in_the_documentation_is_the_one_checked_here():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {}
    for line in page.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            rows[cells[0].strip("`/")] = cells[2]
    for room, allowed in BELOW.items():
        cell = rows[room]
        if cell.startswith("all above"):
            left_out = set(re.findall(r"`(\w+)`", cell))
            above = list(BELOW)[: list(BELOW).index(room)]
            assert allowed == set(above) - left_out, room
        else:
            assert allowed == {w.strip("`") for w in cell.split(", ") if w != "nothing"}, room


def test_the_group_of_processes_is_asked_for_outside_of_the_families():
    """It belongs to ``learning`` and ``data``."""
    for path in MODULES:
        if path.relative_to(SOURCE).parts[0] in ("features", "metrics", "inference", "distributions", "models"):
            assert "current()" not in path.read_text(encoding="utf-8"), name_of(path)


def test_nothing_is_read_by_an_address():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert path.name == "memory.py" or not re.search(r"data_ptr\(|\.ctypes\.data|inttoptr", text), path


def test_no_folder_has_too_many_modules():
    for folder in {path.parent for path in MODULES}:
        assert len(list(folder.glob("*.py"))) <= MAX_MODULES, folder


def test_every_structure_has_a_reference_and_potentials():
    for structure in STRUCTURES:
        assert (SOURCE / "inference" / structure / "reference.py").is_file(), structure


def test_compiled_functions_live_in_kernels_and_take_few_arguments():
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.FunctionDef):
                continue
            callees = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
            decorators = {d.id for d in callees if isinstance(d, ast.Name)}
            if decorators & {"kernel", "helper"}:
                place = "kernels" in path.parts or path.name == "semirings.py"
                assert place, f"{name_of(path)}: {node.name} is compiled"
                n = len(node.args.args) + len(node.args.kwonlyargs)
                assert n <= MAX_PARAMETERS, f"{name_of(path)}: {node.name} has {n} parameters"


def test_recursions_over_structures_live_in_inference():
    """Families are sources of scores for the engines; methods named forward are those of torch."""
    for path in MODULES:
        if path.relative_to(SOURCE).parts[0] != "models":
            continue
        for node in tree_of(path).body:
            name = node.name.strip("_") if isinstance(node, ast.FunctionDef) else ""
            assert name not in {"forward", "backward", "inside", "outside"}, f"{name_of(path)}: {name}"


def test_inference_knows_no_features_weights_or_symbols():
    for path in MODULES:
        if path.relative_to(SOURCE).parts[0] != "inference":
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                names = {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
                forbidden = {"features", "attributes", "feature_ids"}
                if path.relative_to(SOURCE).parts[1] != "span":  # whose symbols are parts of trees
                    forbidden.add("symbols")
                assert not names & forbidden, f"{name_of(path)}: {node.name}"


def test_tests_mirror_the_source():
    folders = {p.parent.relative_to(SOURCE).as_posix() for p in MODULES}
    extra = {"oracle", "benchmarks", "experiments", "tools", "robustness", "house", "examples"}
    for folder in {p.parent.relative_to(TESTS).as_posix() for p in TESTS.rglob("test_*.py")} - {"."}:
        assert folder in folders or folder.split("/")[0] in extra, folder


def test_no_pickle_and_no_eval():
    for path in MODULES:
        assert not imported(path) & {"pickle", "dill", "cloudpickle", "shelve", "marshal"}, path
        calls = [n.func.id for n in ast.walk(tree_of(path)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        assert not {"eval", "exec"} & set(calls), path


@pytest.mark.parametrize("module", ["trelliswork", "trelliswork.cli", "trelliswork.models"])
def test_the_first_import_loads_nothing_heavy(module):
    heavy = ("numba", "torch", "rich.progress", "matplotlib", "scipy") + (
        ("numpy",) if module != "trelliswork.models" else ()
    )
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_tagger_does_without_sparse_matrices():
    """They take longer to import than a sentence to tag."""
    code = "import sys, trelliswork.cli.use.tag, trelliswork.models.crf; print('scipy.sparse' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_help_of_all_commands_loads_nothing_heavy():
    call = "from trelliswork.cli import main; sys.argv[1:] = ['--help']"
    code = f"import sys; {call}\ntry: main()\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not {"numpy", "numba", "scipy", "torch"} & set(done.stdout.splitlines()[-1].split())


def test_public_names_exist_and_are_listed():
    assert set(dir(trelliswork)) == set(trelliswork.__all__)
    for name in trelliswork.__all__:
        assert getattr(trelliswork, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        trelliswork.nothing  # noqa: B018
