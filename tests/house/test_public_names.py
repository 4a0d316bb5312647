"""Public names: each exists, has a docstring and types, and every model is loaded as the class that was saved."""

import ast
import inspect
from importlib.resources import files
from pathlib import Path

import pytest

import trelliswork
from tests.models.fitted import BUILDERS, fitted
from trelliswork.models import FAMILIES


@pytest.mark.parametrize("name", [n for n in trelliswork.__all__ if n != "__version__"])
def test_public_names_exist_and_have_docstrings(name):
    value = getattr(trelliswork, name)
    assert inspect.getdoc(value), name
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__, f"{name}: expected a docstring of its own, not that of its base"
        assert value.__module__.startswith("trelliswork.")


def test_type_checkers_import_the_same_names():
    """The names that ``__getattr__`` resolves at run time are imported for type checkers."""
    tree = ast.parse(Path(trelliswork.__file__).read_text(encoding="utf-8"))
    block = next(n for n in tree.body if isinstance(n, ast.If))
    seen = {alias.asname: n.module for n in block.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    assert seen == trelliswork._HOMES | dict.fromkeys(("errors", "machine", "rules"), "trelliswork")
    assert set(seen) | {"__version__"} == set(trelliswork.__all__)


def test_the_root_fits_one_page():
    assert len(trelliswork.__all__) <= 40


def test_names_are_listed_once():
    assert dir(trelliswork) == sorted(trelliswork.__all__)
    assert len(set(trelliswork.__all__)) == len(trelliswork.__all__)


def test_the_package_is_marked_as_typed():
    assert files("trelliswork").joinpath("py.typed").is_file()
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert 'packages = ["src/trelliswork"]' in project  # hatchling includes every file of the folder


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_load_returns_the_class_that_was_saved(name, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "model")
    again = trelliswork.load(tmp_path / "model")
    assert type(again) is type(model) is getattr(trelliswork.models, name)
    assert again.get_params() == model.get_params()


def test_every_estimator_has_a_builder():
    assert {name for name, _, _ in FAMILIES} == set(BUILDERS)


def test_loading_a_directory_without_a_model_raises(tmp_path):
    with pytest.raises((trelliswork.TrellisworkError, OSError)):
        trelliswork.load(tmp_path)
