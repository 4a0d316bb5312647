"""Laws of the house that are not about imports; ``docs/architecture.md`` states them."""

import ast
import re

import pytest

from tests.house.test_architecture import MODULES, SOURCE, name_of, tree_of

FACES = ("cli", "serve", "report", "integrations", "label")
ASKING = ("posterior", "fill")  # and predict, predict_marginals, ...
ON_THEIR_OWN = {
    "integrations/scorers.py",  # scikit-learn calls them with whatever has predict, such as a pipeline
    "integrations/selection.py",  # sums up the marginals of a whole pool, and shows no answer
}


def asks_models(path):
    """Return the methods of models that a module calls to get an answer."""
    called = {
        n.func.attr for n in ast.walk(tree_of(path)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    }
    return {name for name in called if name in ASKING or name == "predict" or name.startswith("predict_")}


@pytest.mark.parametrize("room", FACES)
def test_faces_get_their_answers_from_one_module(room):
    paths = [path for path in MODULES if path.relative_to(SOURCE).parts[0] == room]
    found = {name_of(path): asks_models(path) for path in paths}
    asking = {name for name, methods in found.items() if methods}
    asking -= ON_THEIR_OWN
    assert not asking, {name: found[name] for name in asking}


LEANING = re.compile(
    r"^(do|does) (the same|so)\b|^(return|yield) the same( (for|of|with|computed|as|in)\b|,)|^the same (for|with|of)\b"
    r"|^likewise|\bas above\b|\bditto\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_docstrings_stand_alone(path):
    """No sentence needs the docstring before it."""
    leaning = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for line in (ast.get_docstring(node) or "").splitlines():
                if LEANING.search(line.strip()):
                    leaning.append(line.strip())
    assert not leaning
