"""The page of stubs, docs/api/surface.pyi, is the public surface of the package."""

import ast

import pytest

pytest.importorskip("torch")

from tools import surface


def test_the_page_is_the_surface():
    found = surface.difference()
    assert not found, f"{found}\n\nIf the change is meant, run: python -m tools.surface"


def test_the_page_is_python_and_has_what_users_need():
    text = surface.PAGE.read_text(encoding="utf-8")
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    for module, names in surface.shown_imports().items():
        for name in names:
            assert name in text, f"{module}.{name}"
    methods = {
        node.name for name in ("CRF", "Tagger") for node in classes[name].body if isinstance(node, ast.FunctionDef)
    }
    assert {"fit", "predict", "posterior"} <= methods
    fields = [node.target.id for node in classes["CRF"].body if isinstance(node, ast.AnnAssign)]
    assert fields[0] == "features"


def test_pages_import_from_rooms():
    """A reader of the pages needs the root, its rooms, one module per foreign tool, and engines on arrays."""
    deeper = {"trelliswork.learning.distributed", "trelliswork.data.vocabulary"}
    for module in surface.shown_imports():
        room = module.split(".")[1:2]
        assert module.count(".") < 2 or room in (["integrations"], ["inference"]) or module in deeper, module


def test_a_change_is_seen(monkeypatch):
    from trelliswork import CRF

    monkeypatch.delattr(CRF, "partial_fit")
    assert "-    def partial_fit" in surface.difference()
