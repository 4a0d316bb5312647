"""Convert the formulas and roles of docstrings from reStructuredText to Markdown."""

import importlib
import inspect
import re
import textwrap
from typing import Any

import griffe

BLOCK = re.compile(r"^( *)\.\. math::([^\n]*)\n((?:\1 +[^\n]*\n|\s*\n(?=\1 {2,}\S))*)", re.MULTILINE)


def to_markdown(text: str) -> str:
    """Convert ``.. math::`` to a fence, ``:math:`` to inline formulas, and ``:class:`` and the like to code."""

    def fenced(match: re.Match[str]) -> str:
        indent, first, rest = match.groups()
        body = "\n".join(part for part in (first.strip(), textwrap.dedent(rest).strip()) if part)
        return textwrap.indent(f"\n```math\n{body}\n```\n", indent) + "\n"

    text = BLOCK.sub(fenced, text + "\n")
    text = re.sub(r":math:`([^`]+)`", lambda m: f"`#!math {' '.join(m.group(1).split())}`", text)
    text = re.sub(r":(?:class|func|meth|mod):`~?([^`]+)`", r"`\1`", text)
    return re.sub(r"(?<!`)``(?!`)", "`", text)


class Formulas(griffe.Extension):
    """Convert every docstring when it is collected."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of one object; estimators get their parameters only at run time."""
        if obj.docstring is not None:
            text = obj.docstring.value
            if obj.is_class and obj.path.startswith("trelliswork.models."):
                text = inspect.getdoc(getattr(importlib.import_module(obj.module.path), obj.name, None)) or text
            obj.docstring.value = to_markdown(text)
