"""The public surface as one page of stubs, docs/api/surface.pyi.

    python -m tools.surface           writes the page
    python -m tools.surface --check   compares it with the package

It lists the names of the package root, those of a few modules, and whatever else the pages and examples import, with
the signatures in the source. A test compares it with the package, so that every change of the surface is seen.
"""

import ast
import difflib
import enum
import inspect
import re
import sys
import textwrap
from abc import ABC
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from trelliswork.compute.display import Displayed

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api" / "surface.pyi"
ROOMS = "data distributions features machine metrics models rules errors"
MODULES = ("trelliswork", *(f"trelliswork.{room}" for room in ROOMS.split()))
IMPORT = re.compile(r"^(?:>>> )?from (trelliswork[\w.]*) import (\([^)]*\)|[^\n#;]+)", re.MULTILINE)


def shown_imports() -> dict[str, set[str]]:
    """Return the names that pages and examples import, by module."""
    names: dict[str, set[str]] = {}
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]:
        for module, listed in IMPORT.findall(path.read_text(encoding="utf-8")):
            names.setdefault(module, set()).update(re.findall(r"(\w+)(?: as \w+)?\s*(?:,|\)|$)", listed.strip()))
    return names


def public_names() -> dict[str, set[str]]:
    """Return all public names, by the module that people import them from."""
    names = {module: set(getattr(import_module(module), "__all__", ())) for module in MODULES}
    errors = vars(import_module("trelliswork.errors"))
    names["trelliswork.errors"] = {
        n for n, v in errors.items() if isinstance(v, type) and v.__module__.endswith("errors")
    }
    for module, some in shown_imports().items():
        names.setdefault(module, set()).update(some)
    return names


def node_of(value: Any) -> Any:
    """Return the syntax tree of the source of a function or class."""
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(value)))).body[0]


def function(name: str, value: Any, mark: str = "") -> str:
    """Return the stub of a function."""
    node = node_of(value)
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"{mark}def {name}({ast.unparse(node.args)}){returns}: ..."


def parameters(cls: Any) -> list[str]:
    """Return the declared parameters of an estimator."""
    lines = []
    for shown in (True, False):
        for d in cls._declared.values():
            if d.shown is shown:
                plain = " | ".join(filter(None, (
                    f"Literal[{', '.join(map(repr, d.choices))}]" if d.choices else "",
                    *(n for n in d.type_name.split(" or ") if not n.startswith("{")),
                )))  # fmt: skip
                lines.append(f"{d.name}: {plain} = {d.default!r}" + ("" if shown else "  # in options"))
    return lines


def is_shown(cls: type) -> bool:
    """Return whether a class of the package is on the page."""
    return cls.__module__.startswith("trelliswork") and not cls.__name__.startswith("_") and cls is not Displayed


def base_names(cls: type) -> list[str]:
    """Return the name of a base class, of torch with its module; instead of a private class the names of its bases."""
    if cls in (object, Displayed, ABC):
        return []
    if cls.__module__.startswith("trelliswork") and cls.__name__.startswith("_"):
        return [name for base in cls.__bases__ for name in base_names(base)]
    return [f"torch.distributions.{cls.__name__}" if cls.__module__.startswith("torch.dist") else cls.__name__]


def returned(value: Any) -> str:
    """Return the type of a property."""
    get = value.func if isinstance(value, cached_property) else value.fget
    node = node_of(get) if inspect.isfunction(get) else None
    return ast.unparse(node.returns) if isinstance(node, ast.FunctionDef) and node.returns is not None else "Any"


def class_stub(cls: type) -> list[str]:
    """Return the stub of a class: its own public members; inherited ones are with the bases."""
    node, own = node_of(cls), vars(cls)
    bases = [name for base in cls.__bases__ for name in base_names(base)]
    lines = parameters(cls) if "_declared" in own else []
    for item in node.body:
        name = item.target.id if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) else ""
        if name and not name.startswith("_") and ("_declared" not in own or name.endswith("_")):
            lines.append(f"{name}: {ast.unparse(item.annotation)}")
    if "__init__" in own and "_declared" not in own and not hasattr(cls, "__dataclass_fields__"):
        lines.append(function("__init__", own["__init__"]))
    for name, value in own.items():
        if name.startswith("_"):
            continue
        if isinstance(value, classmethod | staticmethod):
            lines.append(function(name, value.__func__, f"@{type(value).__name__}\n"))
        elif isinstance(value, property | cached_property):
            lines.append(f"{name}: {returned(value)}")
        elif inspect.isfunction(value) and inspect.unwrap(value).__module__.startswith("trelliswork"):
            lines.append(function(name, value))
    body = textwrap.indent("\n".join(lines) or "...", "    ").split("\n")
    return [f"class {cls.__name__}({', '.join(bases)}):" if bases else f"class {cls.__name__}:", *body]


def surface() -> str:
    """Return the page."""
    out = ["# The public surface, written by `python -m tools.surface`. A test compares it with the package."]
    seen: set[Any] = set()
    for module, names in public_names().items():
        out += ["", "", f"# {module}"]
        place = import_module(module)
        for name in sorted(names - {"__version__"}):
            value = getattr(place, name)
            for one in reversed(inspect.getmro(value)) if inspect.isclass(value) else (value,):
                if inspect.isclass(one) and not is_shown(one):
                    continue
                if not (inspect.isclass(one) or inspect.isfunction(inspect.unwrap(one))):
                    out.append(f"{name}: {'module' if inspect.ismodule(one) else type(one).__name__}")
                elif one in seen:
                    if one is value:
                        out.append(f"# {name}: see above")
                elif inspect.isclass(one) and issubclass(one, enum.Enum):
                    out.append(f"class {one.__name__}(Enum): ...")
                elif inspect.isclass(one):
                    out += class_stub(one)
                else:
                    out.append(function(name, one))
                seen.add(one if inspect.isclass(one) or inspect.isfunction(one) else name)
    return "\n".join(out) + "\n"


def difference() -> str:
    """Return how the page differs from the package; nothing if it does not."""
    known = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    lines = difflib.unified_diff(known.splitlines(), surface().splitlines(), "page", "package", lineterm="", n=1)
    return "\n".join(lines)


if __name__ == "__main__":
    if "--check" in sys.argv:
        found = difference()
        print(found)
        sys.exit(bool(found))
    PAGE.write_text(surface(), encoding="utf-8")
